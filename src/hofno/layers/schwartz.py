r"""A spectral operator that is not diagonal: every mode is multiplied by a learned combination of all of them.

    ŷ = x̂ + x̂ * R_2 (M_1 ... M_d x̂),        x̂ = P R_1 v̂

R_1 and R_2 are a complex matrix of channels for each mode, M_a for each channel a complex matrix from the wavenumbers
along axis a to themselves, * the product mode by mode. P makes x̂ the spectrum of a real field: on k_d = 0 both k and -k
are kept, and x̂(-k) becomes the conjugate of x̂(k). The product is quadratic in v and moves with no shift of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.geometry import check_mode_counts, check_modes, check_padding, padded_shape, wavenumbers
from hofno.layers.filters import DenseFilter, SpectralFilter
from hofno.layers.precision import full_precision, like_weights, wide
from hofno.transforms import fourier


def hermitian(spectrum: Tensor) -> Tensor:
    """The mean of û(k) and the conjugate of û(-k) on k_d = 0, for "symmetric" modes (b, 2, K1, ..., Kd, c)."""
    line, rest = spectrum.narrow(-2, 0, 1), spectrum.narrow(-2, 1, spectrum.shape[-2] - 1)
    axes = tuple(range(2, spectrum.ndim - 2))
    mirrored = torch.roll(line.flip(axes), (1,) * len(axes), axes) if axes else line  # k -> -k in storage order
    real = (line[:, 0] + mirrored[:, 0]) / 2
    imag = (line[:, 1] - mirrored[:, 1]) / 2
    return torch.cat((torch.stack((real, imag), 1), rest), -2)


def complex_product(a: Tensor, b: Tensor) -> Tensor:
    """Number by number, for real and imaginary parts on axis 1."""
    real = a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
    imag = a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]
    return torch.stack((real, imag), 1)


class AxisMixer(SpectralFilter):
    """M: for each channel a complex matrix of the wavenumbers along one axis, applied there to (b, 2, K.., c)."""

    def __init__(self, channels: int, count: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.weight = nn.Parameter(torch.randn(channels, count, count, 2) / math.sqrt(2 * count))

    def forward(self, spectrum: Tensor) -> Tensor:
        given = spectrum.movedim((-1, 1, self.axis + 2), (0, 1, 2))  # (c, 2, K, b, others)
        real, imag = self.weight.to(spectrum.dtype).unbind(-1)
        rows = torch.cat((torch.cat((real, -imag), 2), torch.cat((imag, real), 2)), 1)  # (c, 2 K, 2 K)
        mixed = torch.bmm(rows, given.flatten(3).flatten(1, 2)).view(given.shape)
        return mixed.movedim((0, 1, 2), (-1, 1, self.axis + 2))


class SchwartzConv(nn.Module):
    """The operator above on channel-last fields, or R_1 alone, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        modes: kept modes per sign on each axis; its length is the number of spatial dimensions.
        mixed: whether there is the product, or R_1 alone, an ordinary spectral convolution.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic.
    """

    def __init__(self, width: int, modes: tuple[int, ...], mixed: bool, domain_padding: float = 0.0) -> None:
        super().__init__()
        check_padding(domain_padding)
        self.modes, self.domain_padding, self.mixed = check_mode_counts(modes), domain_padding, mixed
        scale = 1.0 / math.sqrt(2 * width)
        self.first = DenseFilter(width, self.modes, "symmetric", scale)
        if mixed:
            counts = [len(ks) for ks in wavenumbers(self.modes)]
            self.mixers = nn.ModuleList(AxisMixer(width, count, axis) for axis, count in enumerate(counts))
            self.second = DenseFilter(width, self.modes, "symmetric", scale)

    def forward(self, v: Tensor) -> Tensor:
        points = tuple(v.shape[1:-1])
        padded = padded_shape(points, self.domain_padding)
        if not torch.compiler.is_compiling():
            check_modes(self.modes, "symmetric", padded)
        with full_precision(v):
            spectrum = self.first(fourier.forward(wide(v), self.modes, "symmetric", padded))
            if self.mixed:
                spectrum = hermitian(spectrum)
                others = spectrum
                for mixer in reversed(self.mixers):
                    others = mixer(others)
                spectrum = spectrum + complex_product(spectrum, self.second(others))
            field = fourier.inverse(spectrum, points, self.modes, "symmetric", padded)
        return like_weights(field, self)
