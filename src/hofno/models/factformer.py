r"""FactFormer: attention factorised over the axes of a grid, on grids and structured meshes.

    v = MLP(u, x)                                                     lift
    v <- v + A(norm(v + P [sin, cos](2 pi B x)))                      blocks, A see `hofno.layers.factorised`
    G u = MLP(norm v)                                                 at every point

B is a matrix of normal numbers that is drawn once and not learned. Published kernels are sums over the points of an
axis and start small; here they are means, so that a finer grid of the same function gives the same, and start as linear
maps do. The published model for Darcy's equation ends in convolutions that coarsen and refine the grid; here the end is
an MLP. The re-implementation that benchmarks quote takes a softmax along each axis and has an MLP in each block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import Coordinates, cached_coordinates, choose
from hofno.layers.factorised import FactorisedAttention
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.precision import full_precision, like_weights, wide
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

PLACED: tuple[Coordinates, ...] = ("endpoint", "periodic")


class FactFormerBlock(nn.Module):
    """v + A(norm(v + positions))."""

    frequencies: Tensor

    def __init__(self, width: int, dims: int, heads: int, head_width: int, rank: int, coordinates: Coordinates) -> None:
        super().__init__()
        self.coordinates: Coordinates = coordinates
        self.register_buffer("frequencies", 2.0 * math.pi * torch.randn(dims, width // 2))
        self.places = nn.Linear(2 * (width // 2), width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.attention = FactorisedAttention(width, dims, heads, head_width, rank)

    def forward(self, v: Tensor) -> Tensor:
        frequencies = wide(self.frequencies)
        with full_precision(v):
            angles = torch.matmul(cached_coordinates(tuple(v.shape[1:-1]), self.coordinates, frequencies), frequencies)
        told = self.places(like_weights(torch.cat((angles.sin(), angles.cos()), -1), self.places))  # (*n, width)
        return v + self.attention(self.norm(v + told), self.coordinates)


class FactFormer(GridModel):
    """FactFormer on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: hidden channels. Published: 128 (Darcy).
        depth: number of blocks. Published: 3 (Darcy).
        heads: kernels of each axis. Published: 12 (Darcy).
        head_width: channels of the values of each head. Published: 64.
        rank: channels of the queries and keys of each head, an even number. Published: 128 (Darcy).
        coordinates: positions of the grid's points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 3,
        heads: int = 12,
        head_width: int = 64,
        rank: int = 128,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(FactFormer, locals()), in_channels, out_channels, dims, coordinates)
        at_least(1, depth=depth)
        at_least(2, width=width, rank=rank)
        choose(coordinates, PLACED, "coordinates")
        if rank % 2:
            raise SpecError(f"rank must be even, as channels are turned in pairs; got {rank}")
        self.lift = MLP(in_channels + dims, 2 * width, width)
        self.blocks = nn.ModuleList(
            FactFormerBlock(width, dims, heads, head_width, rank, coordinates) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.project = MLP(width, 2 * width, out_channels)

    def end(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        return self.project(self.norm(v))
