r"""Targets that a relative error says nothing about.

    ||p - y|| / ||y||      with ||y|| = 0, or below 1e-6 of the median norm of all samples

The smallest error of such a sample outweighs those of all others, in a loss and in a mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.data.ondisk import Values, ranges

FAINT = 1e-6
NAMED = 5
"""Samples that a message names."""


def target_norms(y: Values, *, fields: int = 0) -> Tensor:
    """||y|| of each sample (n, c, *grid), (n,), or with `fields` of each of its frames, (n, t); in float64."""
    split = y.shape[1] // (fields or y.shape[1])  # frames
    norms = torch.empty(y.shape[0], split, dtype=torch.float64)  # at once: small results between pieces hold memory
    for rows in ranges(y.shape):
        norms[rows] = y[rows].unflatten(1, (split, -1)).flatten(2).double().norm(dim=2)
    return norms if fields else norms[:, 0]


def faint(norms: Tensor) -> Tensor:
    """Whether each of these is 0 or far below the others, of the same shape."""
    seen = norms[norms > 0]
    typical = float(seen.median()) if len(seen) else 0.0
    return norms <= FAINT * typical


def named(rows: Tensor) -> str:
    """The numbers of samples, (k,), for a message: the first few."""
    text = ", ".join(map(str, rows[:NAMED].tolist()))
    return f"{text} and {len(rows) - NAMED} more" if len(rows) > NAMED else text
