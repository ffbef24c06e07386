r"""MWT, the multiwavelet operator: every point of a grid is a cell with polynomials on it, told coarse to fine.

    v_i = P [u_i, x_i]                     coefficients of `width` functions, order^d polynomials each
    v <- relu(M v)                         blocks, M see `hofno.layers.wavelets`; the last without relu
    G u = W_2 relu(W_1 v)                  at each point

Details of all 2^d - 1 types are kept, so that what is taken apart comes back; published code on planes keeps one of
three (`details="diagonal"`). Its networks join all cells into one, on squares of 2^l points that grids are extended to;
here grids are extended by zeros to multiples of 2^levels, and the answer cropped.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates, check_mode_counts, check_modes
from hofno.layers.cells import crop, extend
from hofno.layers.fields import at_least
from hofno.layers.wavelets import MultiwaveletLayer
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

HEAD = 128


class MWTBlock(nn.Module):
    """relu(M v), or M v as the last."""

    def __init__(self, layer: MultiwaveletLayer, last: bool) -> None:
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, v: Tensor) -> Tensor:
        return self.layer(v) if self.last else F.relu(self.layer(v))


class MWT(GridModel):
    """Multiwavelet operator on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept wavenumbers of the kernels on each axis, |k| < m; its length is the number of dimensions. Coarse
            levels have fewer if they hold fewer. Published: 12 x 12 (Darcy).
        width: functions that a cell has polynomials of. Published: 4 (Darcy).
        depth: number of blocks. Published: 4.
        order: polynomials along an axis, of degrees 0, ..., order - 1. Published: 4 (Darcy), 3.
        levels: how often cells are joined. Published: as often as they can be, 6 on 64 points along an axis.
        details: "all", or "diagonal" for the published ones, see `hofno.transforms.multiwavelets`. With all of them on
            a plane there are three times as many weights.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 4,
        depth: int = 4,
        order: int = 4,
        levels: int = 6,
        details: str = "all",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(MWT, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width, depth=depth, order=order)
        self.in_channels, self.out_channels, self.modes, self.levels = in_channels, out_channels, modes, levels
        channels = width * order ** len(modes)
        self.lift = nn.Linear(self.known, channels)
        self.blocks = nn.ModuleList(
            MWTBlock(MultiwaveletLayer(modes, width, order, levels, details), index == depth - 1)
            for index in range(depth)
        )
        self.project = nn.Sequential(nn.Linear(channels, HEAD), nn.ReLU(), nn.Linear(HEAD, out_channels))

    def through(self, v: Tensor) -> Tensor:
        points = tuple(v.shape[1:-1])
        return crop(super().through(extend(v, self.extended(points))), points)

    def extended(self, points: tuple[int, ...]) -> tuple[int, ...]:
        """Multiples of 2^levels."""
        return tuple(n + -n % 2**self.levels for n in points)

    def check(self, x: Tensor) -> None:
        """Refuse an input of the wrong rank or channel count, and modes that its extended grid cannot tell apart."""
        super().check(x)
        check_modes(self.modes, "symmetric", self.extended(tuple(x.shape[2:])))
