r"""What a point hears from those nearest to it: messages along the edges of a graph of k nearest neighbours.

m_ij = norm gelu(A h_i + B h_j + C (x_j - x_i) + b)            message from neighbour j to point i
h_i <- h_i + norm(D [h_i, mean_j m_ij])
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.balltree import ball_tree, marks, splits_of, take

TILE = 2**24  # pairs whose distances are known at a time
MOST = 2**20  # of the numbers by which positions are compared: a squared distance and a point are one integer
NEVER = torch.iinfo(torch.long).max
MANY = 1024  # points from which on a CPU looks at near ones alone
LEAF = 32  # the least of points in the boxes that it looks at


@torch.no_grad()
def nearest(places: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Numbers of the `count` points nearest to each one of (b, N, d), and with a mask (b, N) which of them are there.

    Both (b, N, k), with k = min(count, N - 1); a point that is not there itself has none. Positions are compared to a
    millionth of the cloud's extent, so that of points equally far, as in grids, every device takes the same. A GPU
    looks at all pairs of points, in tiles, a CPU at those of boxes that are near each other.
    """
    batch, number, _ = places.shape
    k = min(count, number - 1)
    if k == 0:
        none = torch.empty(batch, number, 0, dtype=torch.long, device=places.device)
        return none, None if mask is None else none.bool()
    at = marks(places, mask, MOST).long()
    if number >= MANY and places.device.type == "cpu" and not torch.compiler.is_compiling():
        return _by_clouds(at, k, mask)
    every = torch.arange(number, device=places.device)
    found, there = [], []
    step = max(1, TILE // (batch * number))
    for first in range(0, number, step):
        rows = slice(first, first + step)
        keys = _keys(at[:, rows], at, every, number).masked_fill(every[rows, None] == every, NEVER)
        if mask is not None:
            keys = keys.masked_fill(~(mask[:, rows, None] & mask.unsqueeze(1)), NEVER)
        keys, index = keys.topk(k, -1, largest=False)
        found.append(index)
        there.append(keys < NEVER)
    return torch.cat(found, 1), None if mask is None else torch.cat(there, 1)


def _keys(a: Tensor, b: Tensor, numbers: Tensor, most: int) -> Tensor:
    """What points are ordered by, their squared distance and then their number. (.., n, d), (.., m, d) -> (.., n, m)"""
    keys = numbers.unsqueeze(-2)
    for x, y in zip(a.unbind(-1), b.unbind(-1), strict=True):
        keys = keys + (x.unsqueeze(-1) - y.unsqueeze(-2)).square_().mul_(most)
    return keys


def _by_clouds(at: Tensor, k: int, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """As `nearest`, of each cloud by itself and of the points that are there."""
    if mask is None:
        return torch.stack([_among_near(cloud, k) for cloud in at]), None
    index, known = (torch.zeros(*mask.shape, k, dtype=kind) for kind in (torch.long, torch.bool))
    for i, there in enumerate(mask):
        chosen = there.nonzero().squeeze(1)
        if len(chosen) > 1:
            few = min(k, len(chosen) - 1)
            index[i, chosen, :few] = chosen[_among_near(at[i, chosen], few)]
            known[i, chosen, :few] = True
    return index, known


def _among_near(at: Tensor, k: int) -> Tensor:
    """Numbers of the k points nearest to each of (N, d), by the boxes around the leaves of a tree. (N, k)

    None is further away than the k-th in a point's own leaf, so that boxes beyond that need not be looked at.
    """
    number, ball = len(at), max(LEAF, 2 * k + 2)
    leaves = 1 << splits_of(number, ball)
    slots = ball_tree(at.double().unsqueeze(0), ball)
    source = slots.source[0].view(leaves, -1)  # (L, S)
    filled = torch.ones_like(source, dtype=torch.bool) if slots.filled is None else slots.filled[0].view(leaves, -1)
    inside, size = at[source], source.shape[1]
    empty = ~filled.unsqueeze(-1)
    low, high = inside.masked_fill(empty, 2 * MOST).amin(1), inside.masked_fill(empty, -2 * MOST).amax(1)  # (L, d)
    index = at.new_empty(number, k)
    for first in range(0, leaves, block := max(1, TILE // max(leaves, size * size))):
        rows = torch.arange(first, min(leaves, first + block))
        own = _keys(inside[rows], inside[rows], source[rows], number)
        own = own.masked_fill(~filled[rows].unsqueeze(1) | torch.eye(size, dtype=torch.bool), NEVER)
        bound = own.kthvalue(k, -1).values.masked_fill(~filled[rows], -1).amax(1) // number  # of squared distances
        gaps = torch.zeros(len(rows), leaves, dtype=torch.long)
        for a, b in zip(low.unbind(-1), high.unbind(-1), strict=True):
            gaps += torch.maximum(a - b[rows, None], a[rows, None] - b).clamp_min_(0).square_()
        counts, order = (gaps <= bound.unsqueeze(1)).sum(1).sort()
        while len(order):  # leaves that have about as many near ones, together
            part = max(1, min(len(order), TILE // (size * size * int(counts[0]))))
            part = max(1, int((counts[:part] <= 2 * counts[0]).sum()))
            near = gaps[order[:part]].topk(int(counts[part - 1]), 1, largest=False).indices  # (P, M)
            these, numbers = rows[order[:part]], source[near].flatten(1)
            keys = _keys(inside[these], at[numbers], numbers, number)  # (P, S, M S)
            hidden = ~filled[near].flatten(1).unsqueeze(1) | (source[these].unsqueeze(-1) == numbers.unsqueeze(1))
            best = keys.masked_fill(hidden, NEVER).topk(k, -1, largest=False).values % number
            index[source[these][filled[these]]] = best[filled[these]]
            counts, order = counts[part:], order[part:]
    return index


class Messages(nn.Module):
    """One round of messages, (b, N, width) -> (b, N, width).

    Args:
        width: number of channels.
        dims: coordinates of a point.
    """

    def __init__(self, width: int, dims: int) -> None:
        super().__init__()
        self.here = nn.Linear(width, width)
        self.there = nn.Linear(width, width, bias=False)
        self.apart = nn.Linear(dims, width, bias=False)
        self.update = nn.Linear(2 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, h: Tensor, neighbours: Tensor, steps: Tensor, known: Tensor | None = None) -> Tensor:
        """Neighbours (b, N, k) by number, steps (b, N, k, d) to them, and those that are `known` (b, N, k) if not all.

        What is the same for all samples may be one row.
        """
        sent = take(self.there(h), neighbours.flatten(1)).unflatten(1, neighbours.shape[1:])  # (b, N, k, width)
        messages = self.norm1(F.gelu(sent + self.here(h).unsqueeze(2) + self.apart(steps)))
        if known is None:
            mean = messages.sum(2) / max(1, neighbours.shape[2])
        else:
            mean = messages.masked_fill(~known.unsqueeze(-1), 0.0).sum(2) / known.sum(2).clamp_min(1).unsqueeze(-1)
        return h + self.norm2(self.update(torch.cat((h, mean.to(h.dtype)), -1)))
