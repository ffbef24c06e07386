r"""neuraloperator's FNO, built to do the work of ours, and the proof that its convolution is ours.

    n_modes = (2 m_1, 2 m_2 - 2)        it counts both signs and keeps n // 2 + 1 on the last axis:
                                        k_1 = -m_1 .. m_1 - 1,  k_2 = 0 .. m_2 - 1, our mode set "reference"
    separable = depthwise weights       one complex number for every mode and channel

Its block is   u = gelu(K v + W v),  v <- gelu(MLP u + g v):   the 1 x 1 map W stands beside the convolution where ours
(A v + b) stands before it, g is a number for every channel, and there is no norm. Width, depth, MLP, coordinates and
lift are set to ours, and its projection to the narrowest it is used with, so that both have the same parameters within
a few per cent. What is left of its defaults are a hidden layer in the projection and two more gelu in every block.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from hofno.bench.measure import ParityError, relative_difference
from hofno.bench.plain import ModelShape
from hofno.errors import HofnoError
from hofno.layers.spectral import HigherOrderSpectralConv

LARGEST_CONVOLUTION_ERROR = 1e-4
INSTALL = "pip install 'hofno[bench]'"


def neuraloperator() -> Any:
    """The package, of a version whose FNO is known here."""
    try:
        package = import_module("neuralop")
        import_module("neuralop.models")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != "neuralop":
            raise HofnoError(
                f"neuraloperator needs {error.name}, which is missing; install it with: {INSTALL}"
            ) from error
        raise HofnoError(
            f"bench peers compares with neuraloperator, which is not installed; install it with: {INSTALL}"
        ) from error
    except ImportError as error:
        raise HofnoError(f"neuraloperator cannot be imported ({error}); install it again with: {INSTALL}") from error
    version = str(getattr(package, "__version__", "unknown"))
    if version.split(".")[0] != "2":
        raise HofnoError(f"expected neuraloperator 2; got version {version}; install it with: {INSTALL}")
    return package


def build_neuraloperator(shape: ModelShape) -> nn.Module:
    """Its FNO with the width, depth, modes, kind of weights, MLP, lift and channels of ours, without domain padding."""
    m1, m2 = shape.modes
    if m2 < 2:
        raise HofnoError(f"neuraloperator keeps at least k = 0, 1 on the last axis; got modes {shape.modes}")
    return neuraloperator().models.FNO(
        n_modes=(2 * m1, 2 * m2 - 2),
        in_channels=shape.in_channels,
        out_channels=1,
        hidden_channels=shape.width,
        n_layers=shape.depth,
        lifting_channel_ratio=0,
        projection_channel_ratio=1,
        channel_mlp_expansion=shape.expansion,
        separable=shape.weights == "depthwise",
    )


def our_convolution(theirs: Any, shape: ModelShape) -> HigherOrderSpectralConv:
    """Our layer of order 1 with the spectral weights of theirs, and the identity before it."""
    weight = theirs.weight.to_tensor().detach()  # ([i,] o, 2 m1, m2), k1 ascending
    pairs = torch.view_as_real(torch.fft.ifftshift(weight, dim=-2).resolve_conj())  # k1 = 0 .. m1-1, -m1 .. -1
    ours = HigherOrderSpectralConv(shape.width, shape.modes, 1, weights=shape.weights, mode_set="reference")
    ours.to(device=weight.device, dtype=pairs.dtype)
    identity = torch.eye(shape.width, device=weight.device, dtype=pairs.dtype)
    with torch.no_grad():
        ours.filter.weight.copy_(pairs.movedim((-3, -2), (0, 1)))  # (2 m1, m2, [i,] o, 2)
        linear = ours.factors.get_submodule("linear")
        assert isinstance(linear, nn.Linear)
        linear.weight.copy_(identity)
        linear.bias.zero_()
    return ours


def convolution_parity(network: nn.Module, shape: ModelShape, points: int) -> float:
    """Relative difference between a spectral convolution of theirs and ours with its weights; refuses one that is not
    the same.

    The grid must be even: on an odd one version 2.0 puts the modes of the leading axis back one place off.
    """
    blocks: Any = network.get_submodule("fno_blocks")
    theirs = blocks.convs[0]
    v = torch.randn(1, shape.width, points, points, generator=torch.Generator().manual_seed(0)).to(theirs.bias.device)
    with torch.no_grad():
        expected: Tensor = theirs(v) - theirs.bias
        found = our_convolution(theirs, shape)(v.movedim(1, -1)).movedim(-1, 1)
    error = relative_difference(found, expected)
    if not error < LARGEST_CONVOLUTION_ERROR:
        raise ParityError(
            f"the convolution of neuraloperator and ours with its weights must agree to {LARGEST_CONVOLUTION_ERROR:g} "
            f"on {points} x {points} points; they differ by {error:.1e}; nothing was timed"
        )
    return error
