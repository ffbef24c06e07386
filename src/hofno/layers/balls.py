r"""Attention inside balls of points, and balls that become points of a coarser cloud. Tokens stand ball by ball.

    z_i = sum_j softmax_j(q_i . k_j / sqrt d + s |x_i - x_j|) u_j        over the points j of the ball of i
    coarser      v_B = norm W [v_1, ..., v_s, x_1 - x_B, ..., x_s - x_B]    s neighbours into their centre x_B
    finer        v_i <- norm(v_i + W_i [v_B, x_1 - x_B, ..., x_s - x_B])

q, k, u are linear images of v_i + P(x_i - centre of the ball), and s is a number for each head that begins near -1, so
that points hear those next to them best. Slots that hold no point are 0 where they are gathered, and are not attended.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.parts import RMSNorm
from hofno.layers.token_blocks import check_heads, hidden_score


class Balls(NamedTuple):
    """Where the points of balls are: from their centre (b, S, d), from each other and hidden or not (b, W, 1, B, B)."""

    offsets: Tensor
    distances: Tensor
    hidden: Tensor | None


def groups(v: Tensor, size: int, filled: Tensor | None) -> Tensor:
    """Every `size` consecutive slots, 0 where none is filled. (b, S, c) -> (b, S / size, size, c)"""
    v = v if filled is None else v.masked_fill(~filled.unsqueeze(-1), 0.0)
    return v.unflatten(1, (-1, size))


def centres(places: Tensor, size: int, filled: Tensor | None) -> Tensor:
    """Mean places of every `size` consecutive slots. (b, S, d) -> (b, S / size, 1, d)"""
    total = groups(places, size, filled).sum(2, keepdim=True)
    if filled is None:
        return total / size
    return total / filled.unflatten(1, (-1, size)).sum(2).clamp_min(1)[..., None, None]


def offsets_from_centres(places: Tensor, size: int, filled: Tensor | None) -> Tensor:
    """Steps from the centre of every `size` consecutive slots to each of them. (b, S, d) -> (b, S, d)"""
    steps = places.unflatten(1, (-1, size)) - centres(places, size, filled)
    return groups(steps.flatten(1, 2), size, filled).flatten(1, 2)


def balls_of(places: Tensor, size: int, filled: Tensor | None) -> Balls:
    """Balls of `size` slots each, of places (b, S, d)."""
    apart = places.new_zeros(())
    for axis in places.unflatten(1, (-1, size)).unbind(-1):  # (b, W, B)
        apart = apart + (axis.unsqueeze(-1) - axis.unsqueeze(-2)).square()
    distances = (apart + 1e-12).sqrt().unsqueeze(2)  # 1e-12: a slope at 0
    hidden = None
    if filled is not None:
        seen = filled.unflatten(1, (-1, size))[:, :, None, None]
        hidden = torch.zeros_like(seen, dtype=places.dtype).masked_fill(
            ~seen, hidden_score(places.dtype)
        )  # (b, W, 1, 1, B)
    return Balls(offsets_from_centres(places, size, filled), distances, hidden)


class BallAttention(nn.Module):
    """Attention inside balls, (b, S, width) -> (b, S, width).

    Args:
        width: number of channels, in and out.
        heads: groups of channels that attend by themselves; a divisor of `width`.
        dims: coordinates of a point.
    """

    def __init__(self, width: int, heads: int, dims: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.places = nn.Linear(dims, width)
        self.maps = nn.Linear(width, 3 * width)
        self.slope = nn.Parameter(0.01 * torch.randn(heads, 1, 1) - 1.0)
        self.out = nn.Linear(width, width)

    def forward(self, v: Tensor, balls: Balls) -> Tensor:
        number, size = balls.distances.shape[1], balls.distances.shape[-1]
        images = self.maps(v + self.places(balls.offsets)).view(len(v), number, size, 3, self.heads, -1)
        q, k, u = images.permute(3, 0, 1, 4, 2, 5).flatten(2, 3)  # (b, W h, B, d)
        bias = self.slope * balls.distances  # (b, W, h, B, B)
        bias = bias if balls.hidden is None else bias + balls.hidden
        heard = F.scaled_dot_product_attention(q, k, u, attn_mask=bias.flatten(1, 2).to(q.dtype))
        return self.out(heard.unflatten(1, (number, -1)).transpose(2, 3).reshape(v.shape))


class GatedMLP(nn.Module):
    """W (silu(A v) * B v), also called SwiGLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, v: Tensor) -> Tensor:
        gate, values = self.up(v).chunk(2, -1)
        return self.down(F.silu(gate) * values)


class BallBlock(nn.Module):
    """v + A(norm v), then v + MLP(norm v), with the attention of balls and a gated MLP."""

    def __init__(self, width: int, heads: int, dims: int, expansion: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = BallAttention(width, heads, dims)
        self.mlp = GatedMLP(width, expansion * width)

    def forward(self, v: Tensor, balls: Balls) -> Tensor:
        v = v + self.attention(self.norm1(v), balls)
        return v + self.mlp(self.norm2(v))


class Coarsen(nn.Module):
    """`stride` consecutive tokens into one, (b, S, width) with offsets (b, S, d) -> (b, S / stride, width)."""

    def __init__(self, width: int, stride: int, dims: int) -> None:
        super().__init__()
        self.stride = stride
        self.map = nn.Linear(stride * (width + dims), width)
        self.norm = RMSNorm(width)

    def forward(self, v: Tensor, offsets: Tensor, filled: Tensor | None) -> Tensor:
        inside = torch.cat((v, offsets.to(v.dtype).expand(len(v), -1, -1)), -1)
        return self.norm(self.map(groups(inside, self.stride, filled).flatten(2)))


class Refine(nn.Module):
    """One token into `stride`, added to those kept: (b, S / stride, width) and (b, S, width) -> (b, S, width)."""

    def __init__(self, width: int, stride: int, dims: int) -> None:
        super().__init__()
        self.stride = stride
        self.map = nn.Linear(width + stride * dims, stride * width)
        self.norm = RMSNorm(width)

    def forward(self, v: Tensor, kept: Tensor, offsets: Tensor) -> Tensor:
        steps = offsets.unflatten(1, (-1, self.stride)).flatten(2).to(v.dtype).expand(len(v), -1, -1)
        return self.norm(kept + self.map(torch.cat((v, steps), -1)).unflatten(-1, (self.stride, -1)).flatten(1, 2))
