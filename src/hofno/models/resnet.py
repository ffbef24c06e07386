r"""Residual network of convolutions at one resolution.

    v = k_0 * [u, x],    v <- relu(v + F_l(v)),  l = 1, ..., L,    G u = W v

with F = norm . convolution . relu . norm . convolution, kernels of 3 points per axis. Every block lets a point see two
points farther, and nothing else does: after L blocks a point knows of 2 L + 1 points around it. No configuration of the
row that others publish under this name is known; the defaults are ours.
"""

from __future__ import annotations

from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.convolutions import CONVOLUTIONS, ResidualConv
from hofno.layers.fields import at_least
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel


class ResNet(GridModel):
    """Residual network on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    It is the map of one grid: on a finer one the same kernels reach less far.

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: hidden channels.
        depth: number of blocks.
        norm: "group", "instance" or "none", see `hofno.layers.convolutions`.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 64,
        depth: int = 8,
        norm: str = "group",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(ResNet, locals()), in_channels, out_channels, dims, coordinates)
        at_least(1, width=width, depth=depth)
        self.lift = CONVOLUTIONS[dims](self.known, width, 3, padding=1)
        self.blocks = nn.ModuleList(ResidualConv(dims, width, norm) for _ in range(depth))
        self.project = CONVOLUTIONS[dims](width, out_channels, 1)

    def start(self, known: Tensor) -> Tensor:
        return self.lift(known.movedim(-1, 1).contiguous())  # (b, c, *n)

    def end(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        return self.project(v).movedim(1, -1)
