r"""What a point hears from those nearest to it: messages along the edges of a graph of k nearest neighbours.

m_ij = norm gelu(A h_i + B h_j + C (x_j - x_i) + b)            message from neighbour j to point i
h_i <- h_i + norm(D [h_i, mean_j m_ij])
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.balltree import marks, take

TILE = 2**24  # pairs of points whose distances are known at a time
MOST = 2**20  # of the numbers by which positions are compared: a squared distance and a point are one integer


@torch.no_grad()
def nearest(places: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Numbers of the `count` points nearest to each one of (b, N, d), and with a mask (b, N) which of them are there.

    Both (b, N, k), with k = min(count, N - 1). All pairs of points are looked at, in tiles. Positions are compared to a
    millionth of the cloud's extent, so that of points equally far, as in grids, every device takes the same.
    """
    batch, number, _ = places.shape
    k = min(count, number - 1)
    if k == 0:
        none = torch.empty(batch, number, 0, dtype=torch.long, device=places.device)
        return none, None if mask is None else none.bool()
    every = torch.arange(number, device=places.device)
    axes = marks(places, mask, MOST).long().unbind(-1)
    never = torch.iinfo(torch.long).max
    found, there = [], []
    step = max(1, TILE // (batch * number))
    for first in range(0, number, step):
        rows = slice(first, first + step)
        apart = every.expand(batch, 1, -1)
        for axis in axes:
            apart = apart + (axis[:, rows, None] - axis[:, None]).square_().mul_(number)
        apart = apart.masked_fill(every[rows, None] == every, never)
        if mask is not None:
            apart = apart.masked_fill(~mask.unsqueeze(1), never)
        apart, index = apart.topk(k, -1, largest=False)
        found.append(index)
        there.append(apart < never)
    return torch.cat(found, 1), None if mask is None else torch.cat(there, 1)


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
