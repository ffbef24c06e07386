r"""The learned multiplier of a spectral convolution, R(k), stored as real numbers with a trailing axis of 2.

    depthwise   ŷ_c(k) = R_c(k) ẑ_c(k)               K * C complex weights
    dense       ŷ_o(k) = sum_c R_co(k) ẑ_c(k)        K * C^2 complex weights

on spectra (b, 2, K1, ..., Kd, c), see `hofno.transforms.fourier`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hofno.geometry import ModeSet, wavenumbers
from hofno.layers import kernels
from hofno.layers.kernels.trial import runs
from hofno.layers.parts import lean, plain_backward


def complex_multiply(spectrum: Tensor, weight: Tensor) -> Tensor:
    """Mode- and channel-wise complex product of (b, 2, K.., c) with (K.., c, 2)."""
    if lean(spectrum, weight):
        return _LeanMultiply.apply(spectrum, weight)
    return _multiply(spectrum, weight)


def _multiply(spectrum: Tensor, weight: Tensor) -> Tensor:
    return kernels.mode_filter_plain(spectrum, weight.to(spectrum.dtype))


def _multiply_parts(spectrum: Tensor, wr: Tensor, wi: Tensor, sign: int) -> Tensor:
    """spectrum times wr + i sign wi, (b, 2, K.., c) with (K.., c)."""
    out = spectrum * wr
    out[:, 0].addcmul_(spectrum[:, 1], wi, value=-sign)
    out[:, 1].addcmul_(spectrum[:, 0], wi, value=sign)
    return out


class _LeanMultiply(torch.autograd.Function):
    """`_multiply` with the parts of the weight laid out one after the other once, and in few passes."""

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor, weight: Tensor) -> Tensor:
        wr, wi = weight.movedim(-1, 0).contiguous()
        ctx.save_for_backward(spectrum, weight, wr, wi)
        return _multiply_parts(spectrum, wr, wi, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        spectrum, weight, wr, wi = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            return plain_backward(_multiply, (spectrum, weight), grad)
        d_spectrum = _multiply_parts(grad, wr, wi, -1)  # by the conjugate
        d_real = (spectrum * grad).sum((0, 1))
        d_imag = (spectrum[:, 0] * grad[:, 1]).addcmul_(spectrum[:, 1], grad[:, 0], value=-1).sum(0)
        return d_spectrum, torch.view_as_real(torch.complex(d_real, d_imag))


class SpectralFilter(nn.Module):
    """Base of the filters: every parameter is complex, kept as pairs of reals."""

    weight: nn.Parameter


class DepthwiseFilter(SpectralFilter):
    """One complex number for every kept mode and channel."""

    def __init__(self, channels: int, modes: tuple[int, ...], mode_set: ModeSet, scale: float) -> None:
        super().__init__()
        kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
        self.weight = nn.Parameter(scale * torch.randn(*kept, channels, 2))

    def forward(self, spectrum: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and kernels.filter_supported(spectrum):
            flat, weight = spectrum.flatten(2, -2), self.weight.flatten(0, -3)
            if runs(kernels.mode_filter, flat, weight):
                return kernels.mode_filter(flat, weight).view_as(spectrum)
        return complex_multiply(spectrum, self.weight)


class DenseFilter(SpectralFilter):
    """One complex channel-mixing matrix for every kept mode."""

    def __init__(self, channels: int, modes: tuple[int, ...], mode_set: ModeSet, scale: float) -> None:
        super().__init__()
        kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
        self.weight = nn.Parameter(scale * torch.randn(*kept, channels, channels, 2))

    def forward(self, spectrum: Tensor) -> Tensor:
        batch, channels = spectrum.shape[0], spectrum.shape[-1]
        kept = spectrum.shape[2:-1]
        rows = spectrum.reshape(batch, 2, -1, channels).permute(2, 1, 0, 3)  # (K, 2, b, c)
        count = rows.shape[0]
        rows = rows.reshape(count, 2 * batch, channels)
        pairs = self.weight.to(spectrum.dtype).reshape(count, channels, channels, 2)
        wide = pairs.movedim(-1, -2).reshape(
            count, channels, 2 * channels
        )  # real parts, then imaginary ones, laid out once
        mixed = torch.bmm(rows, wide).reshape(count, 2, batch, 2, channels)
        real = mixed[:, 0, :, 0] - mixed[:, 1, :, 1]
        imag = mixed[:, 0, :, 1] + mixed[:, 1, :, 0]
        return torch.stack((real, imag)).permute(2, 0, 1, 3).reshape(batch, 2, *kept, channels)
