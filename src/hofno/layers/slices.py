r"""Attention among slices of a domain (Transolver): points are gathered into a few tokens, which attend to each other.

    w_ij = softmax_j (S a_i / t)                       the share of point i in slice j
    s_j  = sum_i w_ij z_i / (sum_i w_ij + eps)         slices are means over points
    s'_j = sum_k softmax_k (Q s_j . K s_k / sqrt d) V s_k
    y_i  = W sum_j w_ij s'_j                           and go back to the points they came from

a and z are linear images of v, in `heads` groups of d channels. The maps S, Q, K, V are the same for all heads. Shares
sum to 1 at each point; the means do not depend on the number of points. Work grows as points times slices.

- `SliceAttention`: a and z by two maps of their own, one temperature t for each head, kept in [0.1, 5].
- `AdaptiveSliceAttention` (Transolver++): z = a, and a temperature for each point, t_i = max(0.01, t_0 + gelu(B gelu(A
  a_i))), so that shares are sharp where they should be. In training Gumbel noise is added to S a_i, which makes the
  shares samples of a slice at low temperatures.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import choose
from hofno.layers.convolutions import CONVOLUTIONS
from hofno.layers.fields import at_least
from hofno.layers.token_blocks import check_heads, merge_heads, split_heads

PROJECTIONS = ("linear", "conv")
EPSILON = 1e-5
START = 0.5
ONES = 8  # one channel of ones would do; eight keep the products on the hardware's grid


class _Slices(nn.Module):
    """Shares of points in slices, and the means over points that make the slices."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        at_least(1, width=width, slices=slices)
        check_heads(width, heads)
        self.width, self.heads, self.slices = width, heads, slices
        self.assign = nn.Linear(width // heads, slices)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), START))

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}, slices={self.slices}"

    def logits(self, a: Tensor, cold: Tensor) -> Tensor:
        """S a / t of a with ones behind it (b, h, N, d + 8) and cold = 1 / t -> (b, h, N, G).

        What is wide is written once and kept once: the bias goes through the product, and t before it.
        """
        weight = F.pad(torch.cat((self.assign.weight, self.assign.bias.unsqueeze(-1)), -1), (0, ONES - 1))
        return F.linear(a * cold, weight)

    def gather(self, shares: Tensor, z: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Shares (b, h, N, G), 0 where no point is, and slices (b, h, G, d) of values with ones (b, h, N, d + 8)."""
        if mask is not None:
            shares = shares.masked_fill(~mask[:, None, :, None], 0.0)
        shares = shares.to(z.dtype)
        sums, total = torch.matmul(shares.mT, z).split((z.shape[-1] - ONES, ONES), -1)
        return shares, sums / (total[..., :1] + EPSILON)


class _SliceAttention(_Slices):
    """From shares and values of the points to what the slices give back to them."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__(width, heads, slices)
        size = width // heads
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def exchange(self, shares: Tensor, z: Tensor, mask: Tensor | None) -> Tensor:
        """Shares (b, h, N, G) and values with ones behind them (b, h, N, d + 8) -> (b, N, width)."""
        shares, means = self.gather(shares, z, mask)
        heard = F.scaled_dot_product_attention(self.query(means), self.key(means), self.value(means))
        return self.out(merge_heads(torch.matmul(shares, heard.to(z.dtype))))


def with_ones(u: Tensor, heads: int) -> Tensor:
    """(b, N, h c) -> (b, h, N, c + 8)"""
    return F.pad(split_heads(u, heads), (0, ONES), value=1.0)


def image_maps(width: int, projection: str, dims: int) -> nn.Module:
    """What makes a and z, a linear map or on grids a convolution of 3 points along each of `dims` axes."""
    if choose(projection, PROJECTIONS, "projection") == "conv":
        return CONVOLUTIONS[dims](width, 2 * width, 3, padding=1)
    return nn.Linear(width, 2 * width)


def images(maps: nn.Module, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """a and z of (b, *n, width), each (b, h, N, d + 8) with ones behind it."""
    if isinstance(maps, nn.Linear):
        both = maps(v.flatten(1, -2))
    else:
        weight = maps.weight
        assert isinstance(weight, Tensor)
        if v.ndim != weight.ndim:
            raise ShapeError(
                f"projection='conv' needs a grid of {weight.ndim - 2} axes; got tokens {tuple(v.shape)}; use "
                "projection='linear'"
            )
        both = maps(v.movedim(-1, 1)).movedim(1, -1).flatten(1, -2)
    a, z = both.chunk(2, -1)
    return with_ones(a, heads), with_ones(z, heads)


def even_shares(layer: _Slices, a: Tensor) -> Tensor:
    """w of a (b, h, N, d + 8) with one temperature for each head. (b, h, N, G)"""
    return layer.logits(a, layer.temperature.clamp(0.1, 5.0).reciprocal()).softmax(-1)


class Slicing(_Slices):
    """The first half of `SliceAttention`, of the same arguments: shares (b, h, N, G) and slices (b, h, G, d)."""

    def __init__(self, width: int, heads: int, slices: int, projection: str = "linear", dims: int = 2) -> None:
        super().__init__(width, heads, slices)
        self.maps = image_maps(width, projection, dims)

    def forward(self, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a, z = images(self.maps, v, self.heads)
        return self.gather(even_shares(self, a), z, mask)


class SliceAttention(_SliceAttention):
    """Slices of one temperature for each head, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        heads: groups of channels with slices of their own; a divisor of `width`.
        slices: number of slices of each head.
        projection: what makes a and z, "linear" or on grids "conv", a convolution of 3 points per axis.
        dims: number of axes of a convolution.
    """

    def __init__(self, width: int, heads: int, slices: int, projection: str = "linear", dims: int = 2) -> None:
        super().__init__(width, heads, slices)
        self.maps = image_maps(width, projection, dims)

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer; points that `mask` (b, N) lacks are given values and give none."""
        a, z = images(self.maps, v, self.heads)
        return self.exchange(even_shares(self, a), z, mask).unflatten(1, v.shape[1:-1])


class AdaptiveSliceAttention(_SliceAttention):
    """Slices of a temperature for each point and head, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        heads: groups of channels with slices of their own; a divisor of `width`.
        slices: number of slices of each head.
        noise: size of the Gumbel noise in training.
    """

    def __init__(self, width: int, heads: int, slices: int, noise: float = 1.0) -> None:
        super().__init__(width, heads, slices)
        if not noise >= 0.0:
            raise SpecError(f"noise is a size of at least 0; got {noise}")
        self.noise = noise
        self.maps = nn.Linear(width, width)
        self.warm = nn.Linear(width // heads, slices)
        self.warmer = nn.Linear(slices, 1)

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer; points that `mask` (b, N) lacks are given values and give none."""
        images = self.maps(v.flatten(1, -2))
        z = with_ones(images, self.heads)  # (b, h, N, d + 8)
        warmth = F.gelu(self.warmer(F.gelu(self.warm(split_heads(images, self.heads)))))  # (b, h, N, 1)
        cold = (self.temperature + warmth).clamp_min(0.01).reciprocal()
        logits = self.logits(z, cold)
        if self.training and self.noise > 0.0:
            logits = logits + self.noise * cold * gumbel_like(logits)
        return self.exchange(logits.softmax(-1), z, mask).unflatten(1, v.shape[1:-1])


def gumbel_like(x: Tensor) -> Tensor:
    """Draws of -log(-log u), u uniform in (0, 1), in the shape of x and in float32."""
    u = torch.rand_like(x, dtype=torch.float32).clamp(1e-10, 1.0 - 1e-7)
    return -(-u.log()).log()
