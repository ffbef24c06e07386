r"""Galerkin Transformer: attention without softmax, as a Petrov-Galerkin projection, on grids, meshes and points.

    v_i = MLP(u_i, x_i)                                                    lift
    v <- v + A(v, x),   v <- v + MLP(v)                                    blocks, A see `hofno.layers.attention`
    G u = MLP(v)                                                           at every point

There is no norm but that of keys and values inside of A. This is the encoder of the paper, for any set of points: the
published model for Darcy's equation on a square has convolutions that coarsen the grid before the blocks and refine it
after them, spectral convolutions in place of the last MLP, and relu for gelu. The re-implementation that benchmarks
quote is another model: norms around every part, a softmax over channels, and the query added inside of A.
"""

from __future__ import annotations

from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.attention import GalerkinAttention
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of


class GalerkinBlock(nn.Module):
    """v + A(v, x), then v + MLP(v)."""

    def __init__(self, width: int, heads: int, dims: int, expansion: int) -> None:
        super().__init__()
        self.attention = GalerkinAttention(width, heads, dims)
        self.mlp = MLP(width, expansion * width, width)

    def forward(self, state: tuple[Tensor, Tensor], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        v, places = state  # (b, N, width), (b, N, d)
        v = v + self.attention(v, places, mask)
        return v + self.mlp(v), places


class GalerkinTransformer(TokenModel):
    """Galerkin Transformer on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 128 (Darcy).
        depth: number of blocks. Published: 6 (Darcy).
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 4 (Darcy).
        expansion: hidden width of the MLPs over `width`. Published: 2.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
        expansion: int = 2,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(GalerkinTransformer, locals()), in_channels, out_channels, dims, coordinates)
        self.need_places()
        at_least(1, width=width, depth=depth, expansion=expansion)
        self.lift = MLP(self.known, expansion * width, width)
        self.blocks = nn.ModuleList(GalerkinBlock(width, heads, dims, expansion) for _ in range(depth))
        self.project = MLP(width, expansion * width, out_channels)

    def start(self, known: Tensor) -> tuple[Tensor, Tensor]:
        known = known.flatten(1, -2)
        return self.lift(known), known[..., -self.dims :]

    def end(self, state: tuple[Tensor, Tensor]) -> Tensor:
        return state[0]
