r"""GNOT: normalised linear attention with experts chosen by position, on grids, meshes and points.

    v_i = MLP(u_i, x_i),   y_i = MLP(u_i, x_i)                        queries, and what they ask: the input function
    v <- v + A(norm v, norm y),   v <- v + norm E(v, x)               blocks: cross-attention, see
    v <- v + A(norm v, norm v),   v <- v + norm E(v, x)               `hofno.layers.attention`, then among queries
    G u = W norm v                                                    at every point

    E(v, x) = sum_e g_e(x) MLP_e(v),   g = softmax MLP(x)             experts

y stays as it is while v goes through the blocks, as in the paper; in the re-implementation that benchmarks quote, v
stays and y is replaced. In the paper every input function has an attention of its own and the queries know their
positions alone; here the input fields are one function, known at the queries.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.attention import NormalisedAttention
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of

State = tuple[Tensor, Tensor, Tensor]


class Experts(nn.Module):
    """sum_e g_e MLP_e(v) of (b, N, width) and shares g (b, N, experts): all experts in two matrix products."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, experts * hidden)
        self.down = nn.Linear(experts * hidden, width, bias=False)
        self.offset = nn.Linear(experts, width, bias=False)  # the experts' biases, in the columns of its weight
        bound = hidden**-0.5  # of the inputs of one expert
        for part in (self.down, self.offset):
            nn.init.uniform_(part.weight, -bound, bound)

    def forward(self, v: Tensor, shares: Tensor) -> Tensor:
        hidden = F.gelu(self.up(v)).unflatten(-1, (shares.shape[-1], -1)) * shares.unsqueeze(-1)
        return self.down(hidden.flatten(-2)) + self.offset(shares)


class GNOTBlock(nn.Module):
    """Cross-attention, experts, self-attention, experts, each with a residual."""

    def __init__(self, width: int, heads: int, dims: int, expansion: int, experts: int) -> None:
        super().__init__()
        hidden = expansion * width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.cross = NormalisedAttention(width, heads, keep_query=True)
        self.own = NormalisedAttention(width, heads, keep_query=True)
        self.experts1, self.experts2 = Experts(width, hidden, experts), Experts(width, hidden, experts)
        self.gate = nn.Sequential(
            nn.Linear(dims, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, experts)
        )

    def forward(self, state: State, mask: Tensor | None = None) -> State:
        v, y, places = state  # (b, N, width) twice, (b, N, d)
        asking, asked, first, among, second = self.norms
        shares = self.gate(places).softmax(-1)  # (b, N, experts)
        v = v + self.cross(asking(v), asked(y), mask)
        v = v + first(self.experts1(v, shares))
        normed = among(v)
        v = v + self.own(normed, normed, mask)
        return v + second(self.experts2(v, shares)), y, places


class GNOT(TokenModel):
    """GNOT on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 64 to 128.
        depth: number of blocks. Published: 3; 8 in the re-implementation.
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 8.
        expansion: hidden width of the experts and of their gates over `width`. Published: 2.
        experts: number of experts. Published: 3.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 3,
        heads: int = 8,
        expansion: int = 2,
        experts: int = 3,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(GNOT, locals()), in_channels, out_channels, dims, coordinates)
        self.need_places()
        at_least(1, width=width, depth=depth, expansion=expansion)
        at_least(2, experts=experts)
        self.lift = MLP(self.known, 2 * width, width)
        self.branch = MLP(self.known, 2 * width, width)
        self.blocks = nn.ModuleList(GNOTBlock(width, heads, dims, expansion, experts) for _ in range(depth))
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))

    def start(self, known: Tensor) -> State:
        known = known.flatten(1, -2)
        return self.lift(known), self.branch(known), known[..., -self.dims :]

    def end(self, state: State) -> Tensor:
        return state[0]
