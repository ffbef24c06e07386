"""What `hofno predict` says about the errors of its predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hofno.evaluation.score import COVERAGE, LEAST_KNOWN
from hofno.geometry import Points
from hofno.surrogate import Surrogate

STRANGE = 1.5
"""Inputs this many times as far from those of training as any validation input are named."""

NAMED = 5


def what_to_expect(operator: Surrogate, x: Any, coords: Any, *, steps: int | None) -> list[str]:
    """Lines on the error of predictions from these inputs; none where the operator knows nothing of its errors."""
    if operator.experience is None:
        return []
    strange = np.atleast_1d(operator.strangeness(x, coords))
    lines, wrong = [], np.flatnonzero(strange > STRANGE)
    if len(wrong) < len(strange) and len(operator.experience.errors) >= LEAST_KNOWN:
        lines.append(_bound(operator, tuple(np.shape(coords if x is None else x)), steps))
    if len(wrong) > 0:
        order = wrong[np.argsort(-strange[wrong])]
        named = ", ".join(f"{index} ({strange[index]:.3g})" for index in order[:NAMED])
        more = f" and {len(order) - NAMED} more" if len(order) > NAMED else ""
        lines.append(
            f"unlike the inputs of training: {len(order)} of {len(strange)}, by number {named}{more}; in brackets how "
            "far, 1 being the farthest validation input; their errors may be far larger than any that was measured"
        )
    return lines


def _bound(operator: Surrogate, shape: tuple[int, ...], steps: int | None) -> str:
    known = operator.experience
    assert known is not None
    told = (
        f"relative L2 error expected: at most {known.error_bound(COVERAGE):.3g} for {COVERAGE:.0%} of inputs like "
        f"those of validation ({len(known.errors)} samples)"
    )
    but = []
    if known.selected:
        but.append("the weights were chosen by these samples, so a little more")
    if operator.rollout is not None and steps is not None and steps > operator.rollout.horizon:
        but.append(f"up to {operator.rollout.horizon} steps, not to {steps}")
    if not isinstance(operator.grid, Points) and tuple(shape[-len(operator.grid.shape) :]) != operator.grid.shape:
        but.append(f"on the {' x '.join(map(str, operator.grid.shape))} points of training, not on those given")
    if not math.isfinite(known.error_bound(COVERAGE)):
        but.append("some validation predictions are not finite")
    return "; ".join([told, *but])
