r"""Higher-order operator on scattered points, without a grid: every layer lives at the points and learns its basis.

    v_i <- lift(u_i, x_i, waves of x_i, densities around x_i)      at the points
    v <- v + H(norm v),   v <- v + MLP(norm v)                     blocks; H of order m, see `hofno.layers.tokens`
    u_i = project(norm v_i)

H multiplies m linear images of v at each point, takes means of the product over a few dozen regions (tokens), filters
them and spreads them over the points again. Regions are made anew in each layer from the features of the points: what
the first layers have gathered about the whole cloud, such as where its holes and edges are, shapes the regions of the
later ones. Where points are dense and which way they thin out is told to each point at the start: means over regions
do not see it, and it is what an edge or a hole looks like from nearby (`hofno.transforms.density`). The order of the
points does not matter, and clouds of different size go in one batch with a mask.

Bases that are learned are learned slowly by AdamW: train with Muon on the matrices of the blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP, DropPath, RMSNorm
from hofno.layers.precision import full_precision
from hofno.layers.tokens import TokenConv
from hofno.models.clouds import check_cloud
from hofno.models.config import config_of
from hofno.transforms.density import density_features


class PointBlock(nn.Module):
    """v + H(norm v), then v + MLP(norm v), each branch with DropPath."""

    def __init__(self, conv: TokenConv, expansion: int, drop_path: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(conv.width), RMSNorm(conv.width)
        self.conv = conv
        self.mlp = MLP(conv.width, expansion * conv.width, conv.width)
        self.drop = DropPath(drop_path)

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        v = v + self.drop(self.conv(self.norm1(v), mask))
        return v + self.drop(self.mlp(self.norm2(v)))


class PointHO(nn.Module):
    """Higher-order operator on scattered points, (b, in_channels, N) at (b, d, N) -> (b, out_channels, N).

    Args:
        in_channels: input fields at the points; 0 where the positions are all there is. Coordinates are not counted.
        out_channels: output fields.
        dims: number of coordinates of a point.
        width: hidden channels. Good values: 64 to 128.
        depth: number of blocks. Good values: 3 to 8.
        order: number of factors inside the sums of each convolution; one more multiplies what the sums give.
        tokens: basis functions of each head. Good values: 32, 64.
        heads: groups of channels with a basis of their own; a divisor of `width`.
        expansion: hidden width of the MLPs over `width`.
        factors: structure of the factors, see `hofno.layers.factors`.
        octaves: sines and cosines of pi 2^k x, k = 0, ..., octaves - 1, given to the lift; 0 gives it x alone.
        scales: lengths over which the density of the points is smoothed, in units of the box; none leaves it out.
            Good values: from the distance of neighbours to some tenths of the box.
        drop_path: rate of stochastic depth in the last block, rising linearly from 0 in the first.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 64,
        depth: int = 4,
        order: int = 2,
        tokens: int = 32,
        heads: int = 4,
        expansion: int = 2,
        factors: str = "dense",
        octaves: int = 3,
        scales: tuple[float, ...] = (0.03, 0.06, 0.12),
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        at_least(0, in_channels=in_channels, octaves=octaves)
        at_least(1, out_channels=out_channels, dims=dims, width=width, depth=depth, expansion=expansion)
        if not all(0.0 < s < math.inf for s in scales):
            raise SpecError(f"scales are lengths above 0, in units of the box; got {scales}")
        self.config = config_of(PointHO, locals())
        self.in_channels, self.out_channels, self.dims = in_channels, out_channels, dims
        self.octaves, self.scales = octaves, tuple(scales)
        told = dims * (1 + 2 * octaves) + (1 + dims) * len(self.scales)
        self.lift = MLP(in_channels + told, 2 * width, width)
        self.blocks = nn.ModuleList(
            PointBlock(
                TokenConv(width, tokens, heads, order, factors),
                expansion,
                drop_path * (index / (depth - 1) if depth > 1 else 1.0),
            )
            for index in range(depth)
        )
        self.norm = RMSNorm(width)
        self.project = MLP(width, 2 * width, out_channels)

    def forward(self, x: Tensor, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        """Fields x (b, c, N) at coords (b, d, N) in units of the box; points that `mask` (b, N) lacks become 0."""
        if not torch.compiler.is_compiling():
            self.check(x, coords, mask)
        if mask is not None:  # what stands where no point is must not matter, not even to gradients
            x, coords = x.masked_fill(~mask.unsqueeze(1), 0.0), coords.masked_fill(~mask.unsqueeze(1), 0.0)
        with full_precision(x):
            v = self.lift(torch.cat((x.mT, self.places(coords.mT, mask)), -1))  # (b, N, width)
        for block in self.blocks:
            v = block(v) if mask is None else block(v, mask)
        with full_precision(x):
            out = self.project(self.norm(v)).mT
        return out if mask is None else out.masked_fill(~mask.unsqueeze(1), 0.0)

    def places(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the lift is told of the places: 2 x - 1, sines and cosines, densities. (b, N, d) -> (b, N, told)"""
        waves = math.pi * 2.0 ** torch.arange(self.octaves, dtype=x.dtype, device=x.device)
        angles = (x.unsqueeze(-1) * waves).flatten(-2)
        known = [2.0 * x - 1.0, torch.sin(angles), torch.cos(angles)]
        if self.scales:
            known.append(density_features(x, self.scales, mask))
        return torch.cat(known, -1)

    def check(self, x: Tensor, coords: Tensor, mask: Tensor | None) -> None:
        """Refuse fields, points and masks of the wrong shape."""
        check_cloud(self, x, coords, mask, self.in_channels, self.dims, f"dims={self.dims}")
