r"""Learning rate over the steps, as a fraction of its peak.

    constant   1
    cosine     f + (1 - f) (1 + cos(pi s)) / 2,  s from 0 to 1 after the warm-up
    wsd        1 up to the last fifth of the steps, then a straight fall to f
    onecycle   cosine rise from 1/25 over the warm-up (0.3 of the steps unless given), then cosine fall to f

with f = `final`. A warm-up rises linearly from 0 (all but onecycle).
"""

from __future__ import annotations

import math

STABLE = 0.8


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
    if kind == "wsd":
        start = max(rise, STABLE * total)
        return 1.0 - (1.0 - final) * max(step - start, 0.0) / max(total - start, 1.0)
    return final + (1.0 - final) * _half_cosine((step - rise) / max(total - rise, 1.0))


def _half_cosine(s: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * min(s, 1.0)))
