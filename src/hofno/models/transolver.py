r"""Transolver: a transformer whose attention is among slices of the domain, on grids, meshes and points.

    v_i = MLP(u_i, x_i)                                                lift
    v <- v + slices(norm v),   v <- v + MLP(norm v)                    blocks, see `hofno.layers.slices`
    G u = W norm v                                                     at every point

Published code adds a learned vector to the lifted tokens where there are no input fields, which is a second bias of the
lift and left out here. Its temperatures are clamped on grids alone; here everywhere.

It is trained with a rising rate and clipped gradients (published: one cycle up to 1e-3, norm 0.1); with a large rate
from the start it may get stuck at the mean.
"""

from __future__ import annotations

from torch import nn

from hofno.geometry import Coordinates
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.slices import SliceAttention
from hofno.layers.token_blocks import TokenBlock, normal_weights
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of


class Transolver(TokenModel):
    """Transolver on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 128, 256 (Navier-Stokes).
        depth: number of blocks. Published: 8.
        heads: groups of channels with slices of their own; a divisor of `width`. Published: 8.
        slices: slices of each head. Published: 64, 32 (Navier-Stokes).
        expansion: hidden width of the MLPs over `width`. Published: 1, 2 (Pipe).
        projection: "linear", or "conv" for convolutions of 3 points per axis before the slices. Published: "conv" on
            grids and meshes, which ties the model to their resolution, and "linear" at points.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". The last
            leaves positions out, those of points too.
        landmarks: tell positions by their distances to a grid of this many points per axis; 0 tells coordinates.
            Published: 8 (Darcy, Navier-Stokes), 0.
        spread: standard deviation of the weights of linear maps at the start. Published: 0.02.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        slices: int = 64,
        expansion: int = 1,
        projection: str = "linear",
        coordinates: Coordinates = "endpoint",
        landmarks: int = 0,
        spread: float = 0.02,
    ) -> None:
        super().__init__(config_of(Transolver, locals()), in_channels, out_channels, dims, coordinates, landmarks)
        self.needs_grid = "projection='conv'" if projection == "conv" else ""
        at_least(1, width=width, depth=depth, expansion=expansion)
        self.lift = MLP(self.known, 2 * width, width)
        self.blocks = nn.ModuleList(
            TokenBlock(SliceAttention(width, heads, slices, projection, dims), width, expansion) for _ in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        normal_weights(self, spread)
