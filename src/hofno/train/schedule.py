r"""Learning rate over the steps, as a fraction of its peak.

    constant   1
    cosine     f + (1 - f) (1 + cos(pi s)) / 2,  s from 0 to 1 after the warm-up
    onecycle   cosine rise from 1/25 over the warm-up (0.3 of the steps unless given), then cosine fall to f

with f = `final`. A warm-up rises linearly from 0 (constant and cosine).
"""

from __future__ import annotations

import math


def rate(kind: str, step: int, total: int, warmup: float, final: float) -> float:
    """The fraction of the peak learning rate at `step` of `total`, counted from 0."""
    if kind == "onecycle":
        rise = (warmup or 0.3) * total
        if step < rise:
            return 0.04 + 0.96 * _half_cosine(1.0 - step / rise)
        return final + (1.0 - final) * _half_cosine((step - rise) / max(total - rise, 1.0))
    rise = warmup * total
    if step < rise:
        return (step + 1) / (rise + 1)
    if kind == "constant":
        return 1.0
    return final + (1.0 - final) * _half_cosine((step - rise) / max(total - rise, 1.0))


def _half_cosine(s: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * min(s, 1.0)))
