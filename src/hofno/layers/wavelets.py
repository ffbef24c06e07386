r"""The multiwavelet layer: an integral operator in its non-standard form, level by level of `transforms.multiwavelets`.

    s_0 = v,   s_l, d_l = decompose(s_l-1)                             l = 1, ..., L
    t_L = T s_L                                                        on the coarsest cells, each by itself
    t_l-1 = reconstruct(t_l + C d_l, A d_l + B s_l)                    l = L, ..., 1
    the answer is t_0

A is a spectral convolution of few modes, then W relu(.); B and C are convolutions of 3 cells per axis, then W relu(.).
All levels have the same A, B and C, as far as a coarse level holds the modes of A. There is a spectral weight for each
type of details; W mixes them. A kernel is smooth away from the diagonal, so details d see little of what is far from
them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import cached, modes_held, wavenumbers
from hofno.layers.convolutions import CONVOLUTIONS
from hofno.layers.fields import at_least
from hofno.layers.filters import SpectralFilter
from hofno.layers.mixing import mix_channels
from hofno.layers.precision import full_precision, like_weights, wide
from hofno.transforms import fourier, multiwavelets


class DetailFilter(SpectralFilter):
    """A complex matrix for each kept mode and type, (b, 2, K1, ..., Kd, types, c) -> the same; modes may be fewer."""

    def __init__(self, modes: tuple[int, ...], types: int, channels: int) -> None:
        super().__init__()
        kept = [len(ks) for ks in wavenumbers(modes)]
        scale = 1.0 / math.sqrt(2 * channels)  # as large a field out as in
        self.weight = nn.Parameter(scale * torch.randn(*kept, types, channels, channels, 2))

    def forward(self, spectrum: Tensor, modes: tuple[int, ...]) -> Tensor:
        rows = spectrum.flatten(2, -2).permute(2, 1, 0, 3)  # (K types, 2, b, c)
        mixed = mix_channels(rows, self.lower(modes).flatten(0, -4))
        return mixed.permute(2, 1, 0, 3).unflatten(2, spectrum.shape[2:-1])

    def lower(self, modes: tuple[int, ...]) -> Tensor:
        """The weights of |k| < m alone."""
        weight = self.weight
        for axis, m in enumerate(modes):
            stored = weight.shape[axis]
            if axis == len(modes) - 1:
                weight = weight.narrow(axis, 0, m)
            elif stored > 2 * m - 1:
                weight = torch.cat((weight.narrow(axis, 0, m), weight.narrow(axis, stored - m + 1, m - 1)), axis)
        return weight


class DetailKernel(nn.Module):
    """W relu(spectral convolution) of details, (b, *m, types c) -> (b, *m, types c)."""

    def __init__(self, modes: tuple[int, ...], types: int, channels: int) -> None:
        super().__init__()
        self.modes, self.types = modes, types
        self.filter = DetailFilter(modes, types, channels)
        self.mix = nn.Linear(types * channels, types * channels)

    def forward(self, d: Tensor) -> Tensor:
        points = tuple(d.shape[1:-1])
        last = len(points) - 1
        held = (modes_held(n, "symmetric", axis == last) for axis, n in enumerate(points))
        modes = tuple(map(min, self.modes, held))
        with full_precision(d):
            spectrum = fourier.forward(wide(d), modes).unflatten(-1, (self.types, -1))
            field = fourier.inverse(self.filter(spectrum, modes).flatten(-2), points, modes)
        return self.mix(F.relu(like_weights(field, self.mix)))


class LocalMap(nn.Module):
    """W relu(convolution of 3 cells per axis), (b, *m, channels) -> (b, *m, out)."""

    def __init__(self, dims: int, channels: int, out: int) -> None:
        super().__init__()
        self.conv = CONVOLUTIONS[dims](channels, out, 3, padding=1)
        self.mix = nn.Linear(out, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(F.relu(self.conv(x.movedim(-1, 1))).movedim(1, -1))


class MultiwaveletLayer(nn.Module):
    """The formula above, (b, *n, width order^d) -> (b, *n, width order^d) on axes that are multiples of 2^levels.

    Args:
        modes: kept wavenumbers |k| < m of A along each axis; its length is the number of axes.
        width: functions that a cell has polynomials of.
        order: polynomials along an axis, of degrees 0, ..., order - 1.
        levels: how often cells are joined.
        details: "all" or "diagonal", see `hofno.transforms.multiwavelets`.
    """

    def __init__(self, modes: tuple[int, ...], width: int, order: int, levels: int, details: str) -> None:
        super().__init__()
        at_least(1, width=width, order=order, levels=levels)
        dims = len(modes)
        self.key = ("multiwavelets", order, dims, details)
        self.filters = torch.from_numpy(multiwavelets.cell_filters(order, dims, details).copy())
        self.width, self.levels, self.types = width, levels, self.filters.shape[0] - 1
        channels = width * order**dims
        self.kernel = DetailKernel(modes, self.types, channels)
        self.up = LocalMap(dims, channels, self.types * channels)
        self.down = LocalMap(dims, self.types * channels, channels)
        self.coarsest = nn.Linear(channels, channels)

    def extra_repr(self) -> str:
        return f"width={self.width}, levels={self.levels}, types={self.types}"

    def forward(self, v: Tensor) -> Tensor:
        x = wide(v).unflatten(-1, (self.width, -1))  # (b, *n, c, k^d)
        matrix = cached(self.key, lambda: self.filters, x)
        kept: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.levels):
            with full_precision(v):
                parts = multiwavelets.decompose(x, matrix)  # (b, *m, c, 1 + types, k^d)
            x = parts[..., 0, :]
            details = parts[..., 1:, :].transpose(-3, -2)  # (b, *m, types, c, k^d)
            kept.append((like_weights(x.flatten(-2), self.up), like_weights(details.flatten(-3), self.down)))
        t = self.coarsest(like_weights(x.flatten(-2), self.coarsest))
        for s, d in reversed(kept):
            low, high = t + self.down(d), self.kernel(d) + self.up(s)
            high = high.unflatten(-1, (self.types, self.width, -1)).transpose(-3, -2)
            with full_precision(v):
                parts = torch.cat((wide(low).unflatten(-1, (self.width, 1, -1)), wide(high)), -2)
                t = multiwavelets.reconstruct(parts, matrix).flatten(-2)
        return like_weights(t, self.coarsest)
