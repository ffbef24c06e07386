r"""Layers of selective state spaces (`hofno.layers.scan`) that look both ways along a list of tokens.

Every one of them makes z and x of its tokens, mixes what is near, scans, and gates the answer:

    D_t = softplus(d_t + bias),   a_t = -exp(s) D_t,   u_t = D_t x_t           d, B, C linear in x or in the tokens

- `TwoWayScan` (Mamba-2 both ways): y is the mean of a scan and of one from the end, with causal convolutions of 4
  tokens, biases and decays of their own; W norm(y * silu z).
- `Hydra`: one convolution of 3 tokens, two sets of d, B, C; y_t hears of the tokens before it and of those behind it by
  scans that stop short of t, and of x_t itself by a factor of its own: the lower and the upper half of one matrix, and
  its diagonal. W (norm(y) * silu z).
- `GridScan`: a convolution of 3 points per axis, then scans along the list of all points from both ends, once for each
  axis that runs fastest in the list; W (norm(sum) * gelu z).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.convolutions import CONVOLUTIONS
from hofno.layers.fields import at_least
from hofno.layers.parts import RMSNorm
from hofno.layers.precision import like_weights, wide
from hofno.layers.scan import scan

HEAD = 32
REACH = 4  # tokens of a causal convolution
SLOWEST, FASTEST = 1e-3, 1e-1  # steps D at the start


class Rates(nn.Module):
    """Steps D and decays a of heads, from d (..., heads); decays start between 1 and `fastest` of a step."""

    def __init__(self, heads: int, fastest: float) -> None:
        super().__init__()
        steps = SLOWEST * (FASTEST / SLOWEST) ** torch.rand(heads)
        self.bias = nn.Parameter(steps.expm1().log())  # softplus of it is a step
        self.log_decay = nn.Parameter((1.0 + (fastest - 1.0) * torch.rand(heads)).log())

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        steps = F.softplus(wide(raw) + self.bias)
        return steps, -self.log_decay.exp() * steps


def count_heads(inner: int, groups: int = 1) -> int:
    """Heads of 32 channels each, or of what divides both this and the channels of a group."""
    if inner % groups:
        raise SpecError(f"groups must divide the {inner} channels that are scanned; got {groups}")
    return inner // math.gcd(HEAD, inner // groups)


def by_heads(x: Tensor, heads: int) -> Tensor:
    """Heads of k scans. (b, k, L, h p) -> (b, k h, L, p)"""
    return x.unflatten(-1, (heads, -1)).transpose(2, 3).flatten(1, 2)


def without_heads(y: Tensor, scans: int) -> Tensor:
    """The inverse of `by_heads`. (b, k h, L, p) -> (b, k, L, h p)"""
    return y.unflatten(1, (scans, -1)).transpose(2, 3).flatten(3)


def both_ways(x: Tensor, dim: int) -> Tensor:
    """Two copies on a new axis 1, the second from its end along `dim` of x. (b, ...) -> (b, 2, ...)"""
    return torch.stack((x, x.flip(dim)), 1)


def each_way(first: Tensor, second: Tensor) -> Tensor:
    """Both on a new axis 1, the second from its end. (b, L, c), (b, L, c) -> (b, 2, L, c)"""
    return torch.stack((first, second.flip(1)), 1)


class TwoWayScan(nn.Module):
    """Mamba-2 from both ends, (b, L, width) -> (b, L, width).

    Args:
        width: number of channels, in and out.
        states: numbers that are remembered for each channel.
        growth: channels that are scanned over `width`.
        groups: sets of B and C, each for some of the heads; a divisor of the channels.
    """

    def __init__(self, width: int, states: int, growth: int, groups: int) -> None:
        super().__init__()
        at_least(1, width=width, states=states, growth=growth, groups=groups)
        inner = growth * width
        self.heads, self.groups = count_heads(inner, groups), groups
        self.parts = (inner, groups * states, groups * states)
        self.maps = nn.Linear(width, inner + sum(self.parts) + self.heads, bias=False)
        self.conv = nn.Conv1d(2 * sum(self.parts), 2 * sum(self.parts), REACH, groups=2 * sum(self.parts))
        self.rates = Rates(2 * self.heads, 16.0)
        self.skip = nn.Parameter(torch.ones(2 * self.heads, 1, 1))
        self.norm = RMSNorm(inner)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, v: Tensor) -> Tensor:
        z, mixed, raw = self.maps(v).split((self.parts[0], sum(self.parts), self.heads), -1)
        both = both_ways(mixed.mT, 2).flatten(1, 2)  # (b, 2 c, L)
        both = F.silu(self.conv(F.pad(both, (REACH - 1, 0)))).unflatten(1, (2, -1)).mT  # (b, 2, L, c)
        x, b, c = both.split(self.parts, -1)
        steps, decays = self.rates(torch.cat((raw, raw.flip(1)), -1))  # (b, L, 2 h) each
        x, b, c = by_heads(x, self.heads), by_heads(b, self.groups), by_heads(c, self.groups)
        y = scan(steps.mT.unsqueeze(-1) * x, decays.mT, b, c) + self.skip * x
        ahead, back = without_heads(y, 2).unbind(1)  # (b, L, inner) each
        return self.out(self.norm(like_weights((ahead + back.flip(1)) / 2 * F.silu(z), self.norm)))


class Hydra(nn.Module):
    """A quasi-separable matrix of tokens by tokens, (b, L, width) -> (b, L, width). Arguments as of `TwoWayScan`."""

    def __init__(self, width: int, states: int, growth: int, groups: int) -> None:
        super().__init__()
        at_least(1, width=width, states=states, growth=growth, groups=groups)
        inner = growth * width
        self.heads, self.groups = count_heads(inner, groups), groups
        self.parts = (inner, *(groups * states,) * 4)
        self.maps = nn.Linear(width, inner + sum(self.parts) + 2 * self.heads, bias=False)
        self.conv = nn.Conv1d(sum(self.parts), sum(self.parts), 3, padding=1, groups=sum(self.parts))
        self.rates = Rates(2 * self.heads, 16.0)
        self.start = nn.Parameter(torch.zeros(self.heads, states, inner // self.heads))
        self.diagonal = nn.Linear(inner, self.heads, bias=False)
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = RMSNorm(inner)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, v: Tensor) -> Tensor:
        z, mixed, raw = self.maps(v).split((self.parts[0], sum(self.parts), 2 * self.heads), -1)
        x, *others = F.silu(self.conv(mixed.mT)).mT.split(self.parts, -1)  # (b, L, .) each
        b, c = (by_heads(each_way(*pair), self.groups) for pair in (others[:2], others[2:]))  # (b, 2 g, L, n)
        ahead, back = raw.chunk(2, -1)
        steps, decays = self.rates(torch.cat((ahead, back.flip(1)), -1))  # (b, L, 2 h) each
        u = steps.mT.unsqueeze(-1) * by_heads(both_ways(x, 1), self.heads)
        y = scan(u, decays.mT, b, c, self.start.repeat(2, 1, 1))
        before, behind = without_heads(F.pad(y[:, :, :-1], (0, 0, 1, 0)), 2).unbind(1)  # (b, L, inner) each
        own = ((self.diagonal(x) + self.skip).unsqueeze(-1) * x.unflatten(-1, (self.heads, -1))).flatten(-2)
        return self.out(self.norm(like_weights(before + behind.flip(1) + own, self.norm)) * F.silu(z))


class GridScan(nn.Module):
    """Scans of a grid along each of its axes from both ends, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        dims: number of axes.
        states: numbers that are remembered for each channel.
        growth: channels that are scanned over `width`.
    """

    def __init__(self, width: int, dims: int, states: int, growth: int) -> None:
        super().__init__()
        at_least(1, width=width, states=states, growth=growth)
        inner = growth * width
        self.dims, self.heads, self.scans = dims, count_heads(inner), 2 * dims
        self.parts = (self.heads, states, states)
        self.maps = nn.Linear(width, 2 * inner)
        self.conv = CONVOLUTIONS[dims](inner, inner, 3, padding=1, groups=inner)
        self.select = nn.Linear(inner, self.scans * sum(self.parts), bias=False)
        self.rates = Rates(self.scans * self.heads, 1.0)
        self.skip = nn.Parameter(torch.full((inner,), float(self.scans)))
        self.norm = nn.LayerNorm(inner)
        self.out = nn.Linear(inner, width)

    def forward(self, v: Tensor, mask: None = None) -> Tensor:
        x, z = self.maps(v).chunk(2, -1)
        x = F.gelu(self.conv(x.movedim(-1, 1))).movedim(1, -1)  # (b, *n, inner)
        chosen = self.select(x).unflatten(-1, (self.scans, -1)).movedim(-2, 1)  # (b, k, *n, .)
        raw, b, c = self.lists(chosen).split(self.parts, -1)  # (b, k, L, .) each
        steps, decays = self.rates(by_heads(raw, self.heads).squeeze(-1).mT)  # (b, L, k h) each
        all_x = by_heads(self.lists(x.unsqueeze(1).expand(-1, self.scans, *x.shape[1:])), self.heads)
        y = without_heads(scan(steps.mT.unsqueeze(-1) * all_x, decays.mT, b, c), self.scans)  # (b, k, L, inner)
        y = like_weights(self.fields(y, tuple(v.shape[1:-1])) + self.skip * x, self.norm)
        return self.out(self.norm(y) * F.gelu(z))

    def lists(self, fields: Tensor) -> Tensor:
        """Points in the order of every scan, two for each axis that runs fastest. (b, k, *n, c) -> (b, k, L, c)"""
        ordered = []
        for axis in range(self.dims):
            pair = fields[:, 2 * axis : 2 * axis + 2].movedim(2 + axis, 1 + self.dims).flatten(2, -2)
            ordered += [pair[:, 0], pair[:, 1].flip(1)]
        return torch.stack(ordered, 1)

    def fields(self, lists: Tensor, points: tuple[int, ...]) -> Tensor:
        """The sum over all scans, each back in its place. (b, k, L, c) -> (b, *n, c)"""
        total: Tensor | None = None
        for axis in range(self.dims):
            both = lists[:, 2 * axis] + lists[:, 2 * axis + 1].flip(1)
            there = [*points[:axis], *points[axis + 1 :], points[axis]]
            field = both.unflatten(1, there).movedim(self.dims, 1 + axis)
            total = field if total is None else total + field
        assert total is not None
        return total
