r"""The factorised spectral convolution: a sum of one-dimensional ones, each along an axis of its own.

    (K v)(x) = sum_a F_a^-1[ R_a(k) T_m F_a v ](x)

R_a is a complex matrix for each of m_a wavenumbers along axis a, so weights grow with m_1 + ... + m_d and not with the
product of these. One wave that runs across the axes cannot be told from another here: that takes several layers with
something nonlinear between them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError
from hofno.geometry import check_mode_counts, modes_held, padded_shape
from hofno.layers.mixing import MatrixFilter, mix_channels
from hofno.layers.precision import full_precision
from hofno.transforms import fourier


class AxialConv(nn.Module):
    """Factorised spectral convolution of channel-last fields, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        modes: kept wavenumbers 0, ..., m - 1 along each axis; its length is the number of axes.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic.
    """

    def __init__(self, width: int, modes: tuple[int, ...], domain_padding: float = 0.0) -> None:
        super().__init__()
        self.modes, self.domain_padding = check_mode_counts(modes), domain_padding
        scale = 1.0 / math.sqrt(2 * width)  # as large a field out as in, from each axis
        self.filters = nn.ModuleList(MatrixFilter(width, width, (m,), scale, "symmetric") for m in self.modes)

    def forward(self, v: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.check(v)
        padded = padded_shape(tuple(v.shape[1:-1]), self.domain_padding)
        out: Tensor | None = None
        with full_precision(v):
            for axis, filter in enumerate(self.filters, 1):
                assert isinstance(filter, MatrixFilter)
                out = self._along(v, axis, padded[axis - 1], filter.weight, out)
        assert out is not None
        return out

    def _along(self, v: Tensor, axis: int, padded: int, weight: Tensor, add: Tensor | None) -> Tensor:
        """The convolution along one axis, plus `add`."""
        shape, n, channels, m = v.shape, v.shape[axis], v.shape[-1], weight.shape[0]
        before = math.prod(shape[:axis])
        lines = v.reshape(before, n, -1)  # (B, n, A c): the axes before, the axis, those after with the channels
        spectrum = fourier.forward(lines, (m,), "symmetric", (padded,))  # (B, 2, m, A c)
        rows = spectrum.unflatten(-1, (-1, channels)).permute(2, 1, 0, 3, 4)  # (m, 2, B, A, c)
        mixed = mix_channels(rows.flatten(2, 3), weight).unflatten(2, rows.shape[2:4])
        spectrum = mixed.permute(2, 1, 0, 3, 4).flatten(-2)  # (B, 2, m, A c)
        residual = None if add is None else add.reshape(before, n, -1)
        return fourier.inverse(spectrum, (n,), (m,), "symmetric", (padded,), add=residual).view(shape)

    def check(self, v: Tensor) -> None:
        """Refuse modes that the grid cannot tell apart; each axis is transformed alone and holds n // 2 + 1."""
        points = tuple(v.shape[1:-1])
        for axis, (m, n) in enumerate(zip(self.modes, padded_shape(points, self.domain_padding), strict=True)):
            held = modes_held(n, "symmetric", last=True)
            if m > held:
                raise ShapeError(
                    f"modes[{axis}]={m} is more than an axis of {n} points holds (at most {held}); "
                    "lower modes, or use a finer grid"
                )
