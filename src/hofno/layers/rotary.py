r"""Galerkin attention that sees how far apart points are (OFormer): queries and keys are turned by their positions.

    z_i = W [ 1/N sum_j (T(x_i) q_i . T(x_j) k~_j) v~_j ]         k~, v~: k, v with mean 0, variance 1 over the points

T(x) turns pairs of channels by angles that are linear in x, a share of the pairs for each coordinate, so the product of
two of them knows x_i - x_j alone. Every head has as many channels as the tokens. Cost is linear in the points.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.fields import at_least
from hofno.layers.precision import like_weights, wide
from hofno.layers.token_blocks import merge_heads

EPSILON = 1e-6
SLOWEST = 1e4  # the fastest pair of channels is turned so much faster than the slowest


def angles_at(places: Tensor, pairs: int, reach: float) -> Tensor:
    """Angles of pairs of channels at (..., d), the same number for each coordinate and 0 for the rest: (..., pairs).

    The angles of a coordinate x are reach x 10^(-4 j / count), j = 0, ..., count - 1.
    """
    dims = places.shape[-1]
    count = pairs // dims
    slower = torch.arange(count, dtype=places.dtype, device=places.device) / count
    angles = (reach * places.unsqueeze(-1) * SLOWEST**-slower).flatten(-2)  # (..., d count)
    return F.pad(angles, (0, pairs - dims * count))


def turned(u: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Channels j and j + pairs of (..., c) turned by angles (..., pairs); of an odd number the last stays."""
    pairs = cos.shape[-1]
    first, second = u[..., :pairs], u[..., pairs : 2 * pairs]
    return torch.cat((first * cos - second * sin, first * sin + second * cos, u[..., 2 * pairs :]), -1)


def over_points(u: Tensor, mask: Tensor | None) -> Tensor:
    """(b, N, c) with mean 0 and variance 1 over the points of `mask` (b, N), 0 at others."""
    if mask is None:
        u = u - u.mean(1, keepdim=True)
        return u * torch.rsqrt(u.square().mean(1, keepdim=True) + EPSILON)
    there, count = mask.unsqueeze(-1), mask.sum(1).clamp_min(1)[:, None, None]
    u = (u - u.masked_fill(~there, 0.0).sum(1, keepdim=True) / count).masked_fill(~there, 0.0)
    return u * torch.rsqrt(u.square().sum(1, keepdim=True) / count + EPSILON)


class RotaryAttention(nn.Module):
    """Attention from sources (b, N, width) to tokens (b, N, width) at the same positions (b, N, d).

    Args:
        width: number of channels of tokens, of sources and of each head.
        heads: how often there are queries, keys and values.
        dims: coordinates of a position.
        reach: the fastest pair of channels is turned by this angle over a unit of length.
        gain: the matrices of q, k and v start as gain / width times an orthogonal one and the identity.
    """

    def __init__(self, width: int, heads: int, dims: int, reach: float, gain: float) -> None:
        super().__init__()
        at_least(1, heads=heads)
        if width < 2 * dims:
            raise SpecError(f"channels are turned in pairs, at least one for each of {dims} axes; got {width} channels")
        self.heads, self.reach = heads, reach
        self.query = nn.Linear(width, heads * width, bias=False)
        self.maps = nn.Linear(width, 2 * heads * width, bias=False)
        self.out = nn.Linear(heads * width, width)
        with torch.no_grad():
            for weight in (self.query.weight, self.maps.weight):
                for part in weight.view(-1, width, width):
                    nn.init.orthogonal_(part).add_(torch.eye(width, device=part.device)).mul_(gain / width)

    def forward(self, v: Tensor, sources: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """What v hears of `sources`; points that `mask` (b, N) lacks are given values and give none."""
        angles = angles_at(places, v.shape[-1] // 2, self.reach).unsqueeze(2)
        cos, sin = angles.cos(), angles.sin()
        q = turned(wide(self.query(v)).unflatten(-1, (self.heads, -1)), cos, sin).transpose(1, 2)  # (b, h, N, c)
        k, u = over_points(wide(self.maps(sources)), mask).unflatten(-1, (2, self.heads, -1)).unbind(2)
        k = turned(k, cos, sin).transpose(1, 2)
        count = v.shape[1] if mask is None else mask.sum(1).clamp_min(1)[:, None, None, None]
        heard = merge_heads(torch.matmul(q, torch.matmul(k.mT, u.transpose(1, 2)) / count))
        return self.out(like_weights(heard, self.out))
