r"""U-Net: convolutions on a ladder of grids, with what was seen on the way down handed across.

    v = lift(u, x)                                         at each point
    e_0 = double(v),    e_l = double(pool e_l-1)           l = 1, ..., L, on grids of n / 2^l points
    v <- double([e_l, interpolate v])                      l = L - 1, ..., 0
    G u = MLP(W v)

with double = (convolution of 3 points per axis, norm, relu) twice, C, 2C, 4C, 8C, 8C channels on the way down and 4C,
2C, C, C on the way up. The published networks normalise over the batch in steady problems and over the points of each
sample in others; here it is always the latter, over groups of channels unless told (see `hofno.layers.convolutions`).
"""

from __future__ import annotations

from torch import Tensor

from hofno.geometry import Coordinates
from hofno.layers.convolutions import CONVOLUTIONS
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.ushape import pyramid
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel


class UNet(GridModel):
    """U-Net on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    It is the map of one grid: on a finer one the same kernels reach less far.

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: channels on the finest grid. Published: 32 (airfoil, elasticity), 128, 256 (Navier-Stokes).
        levels: how often the grid is halved. Published: 4.
        norm: "group", "instance" or "none", see `hofno.layers.convolutions`; an instance norm at the start forgets how
            large a field is. Published: "instance" (Navier-Stokes), otherwise a norm over the batch.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 32,
        levels: int = 4,
        norm: str = "group",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(UNet, locals()), in_channels, out_channels, dims, coordinates)
        at_least(1, width=width, levels=levels)
        self.lift = MLP(self.known, 2 * width, width)
        self.body = pyramid(dims, width, levels, norm)
        self.last = CONVOLUTIONS[dims](width, width, 1)
        self.project = MLP(width, width, out_channels)

    def through(self, v: Tensor) -> Tensor:
        return self.last(self.body(v.movedim(-1, 1).contiguous())).movedim(1, -1)
