r"""U-NO: Fourier layers between grids of different size, in the shape of a U.

    v = lift [u, x]
    e_0 = v,             e_l = G_l e_l-1                     l = 1, ..., L, on s_l n points with g_l C channels
    u_L = G_L+1 e_L,     u_l = [G'_l u_l+1, e_l]             l = L - 1, ..., 0
    answer = MLP(u_0)

    (G v)(y) = gelu( sum_k R(k) v̂(k) exp(2 pi i k.y) + W v(y) + b )       y on the grid that is wanted

A Fourier series can be evaluated on any grid; the local map W takes v there by cubic interpolation, smoothed where the
grid becomes coarser (`hofno.transforms.resample`). Both take the samples of a grid at i/n, so what goes through either
stays in place; the released code resizes the latter as a picture of cells, which is half a cell off. It also stores the
size of every grid; here they follow the size of the input.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import (
    MODE_SETS,
    Coordinates,
    ModeSet,
    check_mode_counts,
    check_modes,
    check_padding,
    choose,
    padded_shape,
)
from hofno.layers.cells import crop, extend
from hofno.layers.fields import at_least
from hofno.layers.mixing import MatrixFilter
from hofno.layers.parts import MLP
from hofno.layers.precision import full_precision, like_weights, wide
from hofno.layers.ushape import UShape
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel
from hofno.transforms import fourier, resample


class Operator(nn.Module):
    """gelu(K v + W v + b) on another grid, (b, *n, channels) -> (b, *points, out)."""

    def __init__(self, channels: int, out: int, modes: tuple[int, ...], mode_set: ModeSet) -> None:
        super().__init__()
        self.modes = modes
        self.mode_set: ModeSet = mode_set
        self.filter = MatrixFilter(channels, out, modes, math.sqrt(0.5 / channels), mode_set)
        self.local = nn.Linear(channels, out)

    def forward(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        given = tuple(v.shape[1:-1])
        if not torch.compiler.is_compiling():
            self.check(given, points)
        if math.prod(points) < math.prod(given):  # weights of an interpolation sum to 1: its place does not matter
            local = self.local(resample.cubic(v, points))
        else:
            local = resample.cubic(self.local(v), points)
        with full_precision(v):
            spectrum = self.filter(fourier.forward(wide(v), self.modes, self.mode_set))
            field = fourier.inverse(spectrum, points, self.modes, self.mode_set)
        return F.gelu(like_weights(field, self.local) + local)

    def check(self, given: tuple[int, ...], points: tuple[int, ...]) -> None:
        """Refuse modes that either grid cannot tell apart."""
        try:
            check_modes(self.modes, self.mode_set, tuple(map(min, given, points)))
        except ShapeError as error:
            share = " x ".join(map(str, self.modes))
            raise ShapeError(
                f"the operator between grids of {given} and {points} points keeps {share} modes, a share of the "
                f"model's: {error}, or give other sizes or shares"
            ) from None


class Shrink(nn.Module):
    """An operator onto a grid of `ratio` times as many points along each axis."""

    def __init__(self, operator: Operator, ratio: float) -> None:
        super().__init__()
        self.operator, self.ratio = operator, ratio

    def forward(self, v: Tensor) -> Tensor:
        return self.operator(v, tuple(max(1, round(self.ratio * n)) for n in v.shape[1:-1]))


class Grow(nn.Module):
    """An operator onto the grid of what was kept, and that beside it."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, u: Tensor, kept: Tensor) -> Tensor:
        return torch.cat((self.operator(u, tuple(kept.shape[1:-1])), kept), -1)


class UNO(GridModel):
    """U-shaped neural operator on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign of the first and last operator on each axis; its length is the number of
            dimensions. Published: 22 x 22 (Navier-Stokes on 64 x 64 points).
        width: hidden channels on the finest grid, C. Published: 32.
        sizes: points of each coarser grid along an axis over those of the finest, s_l. Published: 3/4, 1/2, 1/4.
        growth: channels of each coarser grid over `width`, g_l. Published: 3/2, 3, 6.
        shares: modes of the operators to and from each coarser grid over `modes`, rounded down. Published: 22, 14, 6.
        domain_padding: fraction of each axis appended as zeros after the lift, for domains that are not periodic.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 32,
        sizes: tuple[float, ...] = (0.75, 0.5, 0.25),
        growth: tuple[float, ...] = (1.5, 3.0, 6.0),
        shares: tuple[float, ...] = (1.0, 0.64, 0.28),
        domain_padding: float = 0.0,
        coordinates: Coordinates = "endpoint",
        mode_set: ModeSet = "symmetric",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(UNO, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width)
        choose(mode_set, MODE_SETS, "mode_set")
        check_padding(domain_padding)
        sizes, growth, shares = tuple(sizes), tuple(growth), tuple(shares)
        if not sizes or not len(sizes) == len(growth) == len(shares):
            raise SpecError(
                f"sizes, growth and shares have a number for each coarser grid; got {sizes}, {growth} and {shares}"
            )
        if not all(1.0 >= a >= b > 0.0 for a, b in zip((1.0, *sizes), sizes, strict=False)):
            raise SpecError(f"sizes fall from at most 1 to above 0; got {sizes}")
        if not all(0.0 < share <= 1.0 for share in shares) or min(growth) <= 0.0:
            raise SpecError(f"shares are fractions of at most 1 and growth is above 0; got {shares} and {growth}")
        self.domain_padding = domain_padding
        self.lift = MLP(self.known, width, width)
        kept = [tuple(max(1, math.floor(share * m + 1e-9)) for m in modes) for share in shares]
        # twice as many points as this along each axis of the input, and every grid holds the modes of its operators
        self.modes = tuple(
            1 + max(math.ceil(at[axis] / size) for at, size in zip(kept, sizes, strict=True))
            for axis in range(self.dims)
        )
        widths = [max(1, round(g * width)) for g in (1.0, *growth)]
        levels, ratios = range(len(sizes)), [b / a for a, b in zip((1.0, *sizes), sizes, strict=False)]
        downs = [Shrink(Operator(widths[k], widths[k + 1], kept[k], mode_set), ratios[k]) for k in levels]
        lowest = Shrink(Operator(widths[-1], widths[-1], kept[-1], mode_set), 1.0)
        ups = [  # from above the lowest grid on, what comes up has what was kept beside it
            Grow(Operator((1 if k == levels[-1] else 2) * widths[k + 1], widths[k], kept[k], mode_set))
            for k in reversed(levels)
        ]
        self.body = UShape(downs, ups, [*(nn.Identity() for _ in levels), lowest])
        self.project = MLP(2 * width, 2 * width, out_channels)

    def through(self, v: Tensor) -> Tensor:
        points = tuple(v.shape[1:-1])
        return crop(self.body(extend(v, padded_shape(points, self.domain_padding))), points)
