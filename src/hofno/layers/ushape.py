r"""U-shaped networks: down a ladder of ever coarser grids, and up again with what was kept on the way.

    e_0 = v,           e_l = down_l(e_l-1)                  l = 1, ..., L
    u_L = mix_L(e_L),  u_l = up_l(u_l+1, mix_l(e_l))        l = L - 1, ..., 0
    the answer is u_0

Where each step halves the grid of a channel-first field (b, c, *n), axes have to be multiples of 2^L: the field is
extended by zeros at the end of each axis and the answer cropped to its size. The coarsest grid then has at least two
points along each axis: a norm over a single one would leave nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.cells import crop, extend
from hofno.layers.convolutions import DoubleConv

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def ladder_points(points: tuple[int, ...], levels: int) -> tuple[int, ...]:
    """The axes of the finest grid of a ladder: multiples of 2^levels, at least two of them."""
    step = 2**levels
    return tuple(max(2, -(-n // step)) * step for n in points)


class UShape(nn.Module):
    """The ladder of the formula above, from its L steps down and L steps up; `mixers` are the L + 1 mix_l, if any."""

    def __init__(self, downs: Sequence[nn.Module], ups: Sequence[nn.Module], mixers: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.downs, self.ups, self.mixers = nn.ModuleList(downs), nn.ModuleList(ups), nn.ModuleList(mixers)

    def forward(self, v: Tensor) -> Tensor:
        kept = [v]
        for down in self.downs:
            kept.append(down(kept[-1]))
        if len(self.mixers):
            kept = [mixer(field) for mixer, field in zip(self.mixers, kept, strict=True)]
        u = kept.pop()
        for up in self.ups:
            u = up(u, kept.pop())
        return u


class HalvingUShape(UShape):
    """A ladder of halved grids, each step down halving and each step up doubling, on fields of any size."""

    def forward(self, v: Tensor) -> Tensor:
        points = tuple(v.shape[2:])
        return crop(super().forward(extend(v, ladder_points(points, len(self.downs)), 2)), points, 2)


class Down(nn.Sequential):
    """The largest of every 2^d values, then a double convolution."""

    def __init__(self, dims: int, channels: int, out: int, norm: str) -> None:
        pool = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[dims]
        super().__init__(pool(2), DoubleConv(dims, channels, out, out, norm))


class Up(nn.Module):
    """Linear interpolation onto the grid of what was kept, and a double convolution of both."""

    def __init__(self, dims: int, channels: int, hidden: int, out: int, norm: str) -> None:
        super().__init__()
        self.mode = LINEAR[dims]
        self.convs = DoubleConv(dims, channels, hidden, out, norm)

    def forward(self, u: Tensor, kept: Tensor) -> Tensor:
        u = F.interpolate(u, size=kept.shape[2:], mode=self.mode, align_corners=True)
        return self.convs(torch.cat((kept, u.to(kept.dtype)), 1))


def ladder_widths(width: int, levels: int) -> list[int]:
    """Channels on each grid of the published U-Net, from the finest: twice as many at each level but the last."""
    return [width * 2 ** min(level, levels - 1) for level in range(levels + 1)]


def pyramid(dims: int, width: int, levels: int, norm: str) -> nn.Sequential:
    """The published U-Net of (b, width, *n): a double convolution, then the ladder, back to `width` channels."""
    widths = ladder_widths(width, levels)
    downs = [Down(dims, widths[level], widths[level + 1], norm) for level in range(levels)]
    ups = [
        Up(dims, 2 * widths[level], widths[level], widths[max(level - 1, 0)], norm) for level in reversed(range(levels))
    ]
    return nn.Sequential(DoubleConv(dims, width, width, width, norm), HalvingUShape(downs, ups))
