r"""Attention of linear cost: products are taken in the order Q (K^T V), so no matrix of points by points is made.

    Galerkin      z_i = 1/N sum_j (q_i . k~_j) v~_j                       k~, v~: norm of k, v in each head
    normalised    z_i = [q~_i +] sum_j (q~_i . k~_j) v_j / sum_j q~_i . k~_j    q~, k~: softmax of q, k over channels

q, k, v are linear images of the tokens in `heads` groups of channels. The first is a Petrov-Galerkin projection, with
integrals as means over the points: it is one of the functions where points are spread evenly, and a mesh with dense and
thin parts weighs the dense ones more. The second is a mean over points with positive weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.token_blocks import check_heads, merge_heads, split_heads

SMALL = 1e-2


def without_masked(u: Tensor, mask: Tensor | None) -> Tensor:
    """(b, h, N, c) with zeros at the points that `mask` (b, N) lacks."""
    return u if mask is None else u.masked_fill(~mask[:, None, :, None], 0.0)


class GalerkinAttention(nn.Module):
    """Attention as a Galerkin projection, (b, N, width) at (b, N, d) -> (b, N, width).

    Positions are appended to q, k and v of every head, after the norms.

    Args:
        width: number of channels, in and out.
        heads: groups of channels that attend by themselves; a divisor of `width`.
        dims: coordinates of a position.
    """

    def __init__(self, width: int, heads: int, dims: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.maps = nn.Linear(width, 3 * width)
        with torch.no_grad():  # small and next to a multiple of the identity
            for part in self.maps.weight.view(3, width, width):
                nn.init.xavier_uniform_(part, SMALL).add_(SMALL * torch.eye(width, device=part.device))
            self.maps.bias.zero_()
        self.gain = nn.Parameter(torch.ones(2, heads, 1, width // heads))
        self.shift = nn.Parameter(torch.zeros(2, heads, 1, width // heads))
        self.out = nn.Linear(width + heads * dims, width)

    def forward(self, v: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer; points that `mask` (b, N) lacks are given values and give none."""
        q, *others = self.maps(v).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).contiguous()
        normed = (
            F.layer_norm(u, u.shape[-1:]) * gain + shift
            for u, gain, shift in zip(others, self.gain, self.shift, strict=True)
        )
        beside = places.unsqueeze(1).expand(-1, self.heads, -1, -1)
        q, k, u = (torch.cat((part, beside.to(part.dtype)), -1) for part in (q, *normed))  # (b, h, N, c + d)
        count = v.shape[1] if mask is None else mask.sum(1).clamp_min(1)[:, None, None, None]
        return self.out(merge_heads(torch.matmul(q, torch.matmul(without_masked(k, mask).mT, u) / count)))


class NormalisedAttention(nn.Module):
    """Attention with positive weights that sum to 1, from sources (b, M, width) to (b, N, width).

    Args:
        width: number of channels, in and out.
        heads: groups of channels that attend by themselves; a divisor of `width`.
        keep_query: add q~ to what is gathered.
    """

    def __init__(self, width: int, heads: int, keep_query: bool) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.keep_query = heads, keep_query
        self.query = nn.Linear(width, width)
        self.maps = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, v: Tensor, sources: Tensor, mask: Tensor | None = None) -> Tensor:
        """What v hears of `sources`; points that `mask` (b, M) lacks give no values."""
        k, u = (split_heads(part, self.heads) for part in self.maps(sources).chunk(2, -1))  # (b, h, M, c)
        q, k = split_heads(self.query(v), self.heads).softmax(-1), without_masked(k.softmax(-1), mask)
        gathered, total = torch.matmul(k.mT, u), k.sum(-2).unsqueeze(-1)  # (b, h, c, c), (b, h, c, 1)
        least = torch.finfo(total.dtype).tiny  # of a cloud without points
        z = torch.matmul(q, gathered) / torch.matmul(q, total).clamp_min(least)
        return self.out(merge_heads(z + q if self.keep_query else z))
