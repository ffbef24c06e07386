r"""Selective state spaces: a linear recurrence along a list of tokens whose decay, input and readout follow the tokens.

    h_t = exp(a_t) h_t-1 + B_t u_t^T,     y_t = h_t^T C_t,      a_t <= 0

for every head: h is a matrix (states, channels), a_t a number. Written out, the recurrence is one matrix,

    y_i = sum_{j <= i} exp(a_j+1 + ... + a_i) (C_i . B_j) u_j + exp(a_1 + ... + a_i) h_0^T C_i

which a short list is multiplied with as it is (`dense`). A long one is cut into chunks (`chunked`): each has its own
small matrix, leaves a state behind, and hears of the states that the chunks before it left; these follow a recurrence
of the same kind, chunk by chunk, which is solved in the same way. All of it is matrix products, of a number that grows
as the list does; no token waits for the one before.

    u (b, h, L, p)    a (b, h, L)    B, C (b, g, L, n), each for h / g consecutive heads    h_0 (h, n, p)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.layers.precision import full_precision, wide

CHUNK = 64
SHORT = 2 * CHUNK  # up to here one matrix takes less time than chunks


def scan(u: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor | None = None) -> Tensor:
    """y of the recurrence above, (b, h, L, p), by the way that is faster."""
    return dense(u, a, b, c, start) if u.shape[2] <= SHORT else chunked(u, a, b, c, start)


def decays(a: Tensor) -> Tensor:
    """exp(a_j+1 + ... + a_i) for j <= i, otherwise 0. (..., L) -> (..., L, L)"""
    sums = a.cumsum(-1)
    later = torch.ones(a.shape[-1], a.shape[-1], dtype=torch.bool, device=a.device).triu(1)
    return (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()


def dense(u: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor | None = None) -> Tensor:
    """`scan` by one matrix of tokens by tokens for each head."""
    heads, groups = u.shape[1], b.shape[1]
    a = wide(a)
    scores = torch.matmul(c, b.mT).unsqueeze(2)  # (b, g, 1, L, L)
    matrix = (decays(a).unflatten(1, (groups, -1)) * scores).flatten(1, 2)  # (b, h, L, L)
    y = torch.matmul(matrix, u.to(matrix.dtype))
    if start is None:
        return y
    fading = a.cumsum(-1).exp().unsqueeze(-1)  # (b, h, L, 1)
    return y + fading * torch.matmul(c.repeat_interleave(heads // groups, 1), start.to(c.dtype))


def chunked(u: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor | None = None, size: int = CHUNK) -> Tensor:
    """`scan` by chunks of `size` tokens."""
    length, groups = u.shape[2], b.shape[1]
    missing = -length % size
    a = F.pad(wide(a), (0, missing)).unflatten(-1, (-1, size))  # (b, h, m, Q)
    u, b, c = (F.pad(part, (0, 0, 0, missing)).unflatten(2, (-1, size)) for part in (u, b, c))  # (b, h | g, m, Q, .)
    sums = a.cumsum(-1)
    total = sums[..., -1]  # (b, h, m)

    scores = torch.matmul(c, b.mT).unsqueeze(2)  # (b, g, 1, m, Q, Q)
    matrix = (decays(a).unflatten(1, (groups, -1)) * scores).flatten(1, 2)
    y = torch.matmul(matrix, u.to(matrix.dtype))  # within a chunk

    left = _beside((total.unsqueeze(-1) - sums).exp().unsqueeze(-1) * u, groups)  # (b, g, m, Q, r p)
    states = _apart(torch.matmul(b.mT, left.to(b.dtype)), u.shape[-1]).flatten(3)  # (b, h, m, n p), what each leaves
    with full_precision(u):
        heard = _before(wide(states), total, start)  # (b, h, m, n p), what each is given
    given = _beside(heard.unflatten(-1, (b.shape[-1], -1)), groups)  # (b, g, m, n, r p)
    across = _apart(torch.matmul(c, given.to(c.dtype)), u.shape[-1])  # (b, h, m, Q, p)
    return (y + sums.exp().unsqueeze(-1) * across).flatten(2, 3)[:, :, :length]


def _before(states: Tensor, total: Tensor, start: Tensor | None) -> Tensor:
    """What is left of all states before each chunk, (b, h, m, n p) and decays (b, h, m) -> (b, h, m, n p)."""
    one = states.new_ones(states.shape[0], 1, states.shape[2], 1)
    first = None if start is None else start.to(states.dtype).flatten(1).unsqueeze(1)  # (h, 1, n p)
    behind = scan(states, total, one, one, first)
    begin = torch.zeros_like(states[:, :, :1]) if first is None else first.expand(len(states), -1, -1, -1)
    return torch.cat((begin, behind[:, :, :-1]), 2)


def _beside(x: Tensor, groups: int) -> Tensor:
    """The heads of a group beside each other. (b, g r, m, s, p) -> (b, g, m, s, r p)"""
    return x.unflatten(1, (groups, -1)).permute(0, 1, 3, 4, 2, 5).flatten(4)


def _apart(x: Tensor, channels: int) -> Tensor:
    """The inverse of `_beside`. (b, g, m, s, r p) -> (b, g r, m, s, p)"""
    return x.unflatten(4, (-1, channels)).permute(0, 1, 4, 2, 3, 5).flatten(1, 2)
