r"""Filters of Fourier coefficients that mix channels, from any number of them to any other.

    ŷ_o(k) = sum_c R_co(k) ẑ_c(k)            a complex matrix for each kept mode

as one batched product of real matrices: the real and imaginary parts of ẑ are rows, those of R are columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.geometry import ModeSet, wavenumbers
from hofno.layers.filters import SpectralFilter


def mix_channels(rows: Tensor, weight: Tensor) -> Tensor:
    """Row r of mode k times the complex matrix of that mode. (K, 2, r, c), (K, c, o, 2) -> (K, 2, r, o)"""
    count, _, number, channels = rows.shape
    out = weight.shape[2]
    columns = weight.to(rows.dtype).movedim(-1, -2).reshape(count, channels, 2 * out)  # real parts, then imaginary
    mixed = torch.bmm(rows.reshape(count, 2 * number, channels), columns).view(count, 2, number, 2, out)
    real = mixed[:, 0, :, 0] - mixed[:, 1, :, 1]
    imag = mixed[:, 0, :, 1] + mixed[:, 1, :, 0]
    return torch.stack((real, imag), 1)


class MatrixFilter(SpectralFilter):
    """One complex matrix for every kept mode, (b, 2, K1, ..., Kd, channels) -> (b, 2, K1, ..., Kd, out)."""

    def __init__(self, channels: int, out: int, modes: tuple[int, ...], scale: float, mode_set: ModeSet) -> None:
        super().__init__()
        kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
        self.weight = nn.Parameter(scale * torch.randn(*kept, channels, out, 2))

    def forward(self, spectrum: Tensor) -> Tensor:
        rows = spectrum.flatten(2, -2).permute(2, 1, 0, 3)  # (K, 2, b, c)
        mixed = mix_channels(rows, self.weight.flatten(0, -4))
        return mixed.permute(2, 1, 0, 3).unflatten(2, spectrum.shape[2:-1])
