r"""Transolver++: Transolver whose slices have a temperature at every point, on grids, meshes and points.

    v_i = MLP(u_i, x_i)                                                lift
    v <- v + slices(norm v),   v <- v + MLP(norm v)                    blocks, see `hofno.layers.slices`
    G u = W norm v                                                     at every point

Published code adds the Gumbel noise when it predicts as well, so that no prediction is made twice; here it is for
training alone.
"""

from __future__ import annotations

from torch import nn

from hofno.geometry import Coordinates
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.slices import AdaptiveSliceAttention
from hofno.layers.token_blocks import TokenBlock, normal_weights
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of


class TransolverPlus(TokenModel):
    """Transolver++ on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 256 (aircraft); no other configuration is.
        depth: number of blocks. Published: 4.
        heads: groups of channels with slices of their own; a divisor of `width`. Published: 8.
        slices: slices of each head. Published: 32.
        expansion: hidden width of the MLPs over `width`. Published: 2.
        noise: size of the Gumbel noise on the slices' logits in training. Published: 1.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". The last
            leaves positions out, those of points too.
        landmarks: tell positions by their distances to a grid of this many points per axis; 0 tells coordinates.
        spread: standard deviation of the weights of linear maps at the start. Published: 0.02.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 256,
        depth: int = 4,
        heads: int = 8,
        slices: int = 32,
        expansion: int = 2,
        noise: float = 1.0,
        coordinates: Coordinates = "endpoint",
        landmarks: int = 0,
        spread: float = 0.02,
    ) -> None:
        super().__init__(config_of(TransolverPlus, locals()), in_channels, out_channels, dims, coordinates, landmarks)
        at_least(1, width=width, depth=depth, expansion=expansion)
        self.lift = MLP(self.known, 2 * width, width)
        self.blocks = nn.ModuleList(
            TokenBlock(AdaptiveSliceAttention(width, heads, slices, noise), width, expansion) for _ in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        normal_weights(self, spread)
