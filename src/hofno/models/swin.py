r"""Swin: attention in small windows of a grid that are shifted from block to block, on grids and structured meshes.

    v = MLP(u, x)                                                      lift
    v <- v + W(norm v),   v <- v + MLP(norm v)                         blocks, W see `hofno.layers.windows`
    G u = MLP(norm v)                                                  at every point

W is among the cells of a window, and in every second block windows are shifted by half of their length. There is no
merging of windows: the grid and the width stay what they are, as in the network that benchmarks of operators quote, and
what a cell can hear of grows by one and a half windows every two blocks. So it is the map of one grid: on a finer one
the same windows reach less far.

The quoted network has a third linear map inside its MLPs, of the hidden width on itself and with a residual around it,
which is 4.2 of its 7.4 million parameters; here MLPs are those of Swin. It also lets cells past the end of the grid be
seen, and never goes across the ends of a torus.
"""

from __future__ import annotations

from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.token_blocks import TokenBlock
from hofno.layers.windows import WindowAttention
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel


class Swin(GridModel):
    """Swin on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: hidden channels. Published: 128.
        depth: number of blocks; every second one has shifted windows. Published: 16.
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 8.
        window: points of a window along each axis, at least 2. Published: 4.
        expansion: hidden width of the MLPs over `width`. Published: 4.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". If
            "periodic", shifted windows go across the ends of axes that are made of whole windows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 16,
        heads: int = 8,
        window: int = 4,
        expansion: int = 4,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(Swin, locals()), in_channels, out_channels, dims, coordinates)
        at_least(1, width=width, depth=depth, expansion=expansion)
        at_least(2, window=window)
        self.lift = MLP(self.known, 2 * width, width)
        self.blocks = nn.ModuleList(
            TokenBlock(
                WindowAttention(width, heads, window, dims, shifted=index % 2 == 1, wraps=coordinates == "periodic"),
                width,
                expansion,
            )
            for index in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.project = MLP(width, 2 * width, out_channels)

    def end(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        return self.project(self.norm(v))
