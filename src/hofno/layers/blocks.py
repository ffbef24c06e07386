r"""The two blocks of the paper around a spectral convolution H.

    modern    v <- v + H(norm v),  v <- v + MLP(norm v)      pre-norm residual, RMSNorm, as in transformers
    classic   v <- gelu(W v + b + H v)                       the block of the original FNO; no gelu in the last one

On a GPU, blocks of a float32 plane run through fused kernels (`hofno.layers.kernels`); everything else runs through
plain PyTorch. Both compute the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers import kernels
from hofno.layers.factors import DenseFactors
from hofno.layers.filters import DepthwiseFilter
from hofno.layers.kernels.trial import runs
from hofno.layers.manifold import HigherOrderSurfaceConv
from hofno.layers.parts import MLP, DropPath, RMSNorm
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.layers.sphere import HigherOrderSphericalConv
from hofno.transforms import fourier

BACKBONES = ("modern", "classic")
Convolution = HigherOrderSpectralConv | HigherOrderSphericalConv | HigherOrderSurfaceConv


class ModernBlock(nn.Module):
    """v + H(norm v), then v + MLP(norm v), each branch with DropPath.

    Where norms run inside what follows them (on a GPU and on the CPU), forward hooks of the parts do not fire.
    """

    def __init__(self, conv: Convolution, expansion: int, drop_path: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(conv.width), RMSNorm(conv.width)
        self.conv = conv
        self.mlp = MLP(conv.width, expansion * conv.width, conv.width)
        self.drop = DropPath(drop_path)

    def forward(self, v: Tensor) -> Tensor:
        if self._fusable(v):
            arguments = self._arguments(v)
            if runs(kernels.modern_block, v, *arguments):
                return kernels.modern_block(v, *arguments)
        if self.drop.drops:
            v = v + self.drop(self.conv(self.norm1(v)))
            return v + self.drop(self.mlp(self.norm2(v)))
        factors = self.conv.factors
        if isinstance(factors, DenseFactors) and not self.conv.dealias and factors.fuses(v, self.norm1):
            self.conv.check(v)
            v = self.conv.convolve_product(factors(v, self.norm1), add=v)
            return self.mlp.residual(v, self.norm2, spent=True)
        return self.mlp.residual(self.conv(self.norm1(v), add=v), self.norm2)

    def _fusable(self, v: Tensor) -> bool:
        conv = self.conv
        return (
            _fusable(conv)
            and isinstance(conv.filter, DepthwiseFilter)
            and kernels.supported(
                v, conv.order, self.mlp.up.out_features, tuple(conv.filter.weight.shape[:-2]), self.drop.drops
            )
        )

    def _branches(self, v: Tensor) -> Tensor | None:
        """By which the two branches of each sample are scaled in training, (2, b); None where they are not."""
        return self.drop.scales(2, len(v), like=v) if self.drop.drops else None

    def _arguments(self, v: Tensor) -> tuple[Any, ...]:
        """What the fused block takes after v."""
        up, down = self.mlp.up, self.mlp.down
        assert isinstance(self.conv, HigherOrderSpectralConv)
        linear, matrices, outside = _on_plane(self.conv, v)
        convolved = (self.norm1.weight, linear.weight, linear.bias, self.conv.filter.weight, outside)
        mapped = (self.norm2.weight, up.weight, up.bias, down.weight, down.bias)
        return *convolved, *mapped, matrices, self.norm1.eps, self._branches(v)


class ClassicBlock(nn.Module):
    """gelu(W v + b + H v); the last block of a network leaves the gelu out.

    Where it runs fused, forward hooks of the parts do not fire.
    """

    def __init__(self, conv: Convolution, drop_path: float, last: bool) -> None:
        super().__init__()
        if drop_path > 0.0:
            raise SpecError("the classic backbone has no residual branch to drop; set drop_path=0 or backbone='modern'")
        self.conv = conv
        self.skip = nn.Linear(conv.width, conv.width)
        self.last = last

    def forward(self, v: Tensor) -> Tensor:
        conv, skip = self.conv, self.skip
        if _fusable(conv) and kernels.classic_supported(v, conv.order, _kept(conv)):
            linear, matrices, outside = _on_plane(conv, v)
            maps = (linear.weight, linear.bias, conv.filter.weight, outside, skip.weight, skip.bias)
            arguments = (*maps, matrices, not self.last)
            if runs(kernels.classic_block, v, *arguments):
                return kernels.classic_block(v, *arguments)
        v = conv(v, add=skip(v))
        return v if self.last else F.gelu(v)


def _kept(conv: HigherOrderSpectralConv) -> tuple[int, ...]:
    return tuple(conv.filter.weight.shape[: len(conv.modes)])


def _fusable(conv: Convolution) -> TypeGuard[HigherOrderSpectralConv]:
    """Whether this is a convolution that the fused kernels know."""
    return (
        isinstance(conv, HigherOrderSpectralConv)
        and not torch.compiler.is_compiling()
        and isinstance(conv.factors, DenseFactors)
        and not conv.dealias
        and conv.transform_dtype in (None, torch.float32)
        and conv.method != "fft"
    )


def _on_plane(
    conv: HigherOrderSpectralConv, v: Tensor
) -> tuple[nn.Linear, tuple[Tensor, Tensor, Tensor, Tensor], Tensor | None]:
    """What a fused block takes of its convolution: factors, transforms, and the spectrum of the padding, if any."""
    conv.check(v)
    assert isinstance(conv.factors, DenseFactors)
    points = tuple(v.shape[1:3])
    padded, half_ends = conv.padded(points), conv.half_ends
    matrices = fourier.plane_matrices(points, padded, conv.modes, conv.mode_set, v, half_ends=half_ends)
    if padded == points:
        return conv.factors.linear, matrices, None
    outside = fourier.indicator(points, padded, conv.modes, conv.mode_set, v, half_ends=half_ends)
    return conv.factors.linear, matrices, outside


def stack_of_blocks(
    depth: int, make_conv: Callable[[], Convolution], backbone: str, expansion: int, drop_path: float
) -> nn.ModuleList:
    """`depth` blocks, each with a convolution of its own; stochastic depth rises linearly up to `drop_path`."""
    blocks = nn.ModuleList()
    for index in range(depth):
        if backbone == "classic":
            blocks.append(ClassicBlock(make_conv(), drop_path, last=index == depth - 1))
        else:
            rising = index / (depth - 1) if depth > 1 else 1.0
            blocks.append(ModernBlock(make_conv(), expansion, drop_path * rising))
    return blocks
