"""What `hofno predict` says about its predictions: what comes of them, and what errors to expect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hofno.data.dataset import Split
from hofno.data.experience import Experience
from hofno.data.given import Given
from hofno.errors import SpecError
from hofno.evaluation.outcomes import numbers_of
from hofno.evaluation.score import COVERAGE, LEAST_KNOWN
from hofno.evaluation.spread import has_spread
from hofno.geometry import Points
from hofno.problems.base import Problem
from hofno.problems.quantities import Quantity
from hofno.surrogate import Moments, Surrogate

Table = tuple[str, list[str], list[list[str]]]
"""Title, header and rows."""

STRANGE = 1.5
"""Inputs this many times as far from those of training as any validation input are named."""

NAMED = 5

LISTED = 10
"""Predictions whose outcomes are shown."""


def what_to_expect(
    operator: Surrogate,
    x: Any,
    coords: Any,
    mask: Any = None,
    fixed: Any = None,
    *,
    steps: int | None,
    moments: Moments | None = None,
) -> list[str]:
    """Lines on the error of predictions from these inputs, or one on why nothing is known of it.

    `moments` are those of the predictions by `Surrogate.predict_apart`, where they are known already.
    """
    known = operator.experience
    if known is None:
        return ["no error can be expected: the model was trained without validation samples, or by other means"]
    strange = np.atleast_1d(operator.strangeness(x, coords, mask=mask, fixed=fixed))
    lines, wrong = [], np.flatnonzero(strange > STRANGE)
    if len(wrong) < len(strange):
        lines.append(_bound(operator, known, tuple(np.shape(coords if x is None else x)), steps))
        if has_bounds(operator, steps):
            lines += _of_each(operator.bounds_of(operator.asked(x, coords, mask, fixed), COVERAGE, moments=moments))
    if len(wrong) > 0:
        order = wrong[np.argsort(-strange[wrong])]
        named = ", ".join(f"{index} ({strange[index]:.3g})" for index in order[:NAMED])
        more = f" and {len(order) - NAMED} more" if len(order) > NAMED else ""
        lines.append(
            f"unlike the inputs of training: {len(order)} of {len(strange)}, by number {named}{more}; in brackets how "
            "far, 1 being the farthest validation input; their errors may be far larger than any that was measured"
        )
    return lines


def has_bounds(operator: Surrogate, steps: int | None) -> bool:
    """Whether single predictions of so many frames have bounds of their own."""
    known, usual = operator.experience, operator.rollout is None or steps in (None, operator.rollout.horizon)
    if known is None or not usual or len(known.ratios) < LEAST_KNOWN or int(known.together) > 1:
        return False
    return known.is_of(operator.symmetry) and has_spread(operator)


def _of_each(bounds: Tensor) -> list[str]:
    """A line on the bounds of single predictions, where all have one."""
    values = bounds.numpy()
    if not np.isfinite(values).all():
        return []
    least = ", ".join(f"{index} ({values[index]:.3g})" for index in np.argsort(-values)[:NAMED])
    return [
        f"by how far its predictions lie apart, at most {values.min():.3g} to {values.max():.3g}; least sure: {least}"
    ]


def beside_the_bound(operator: Surrogate, split: Split) -> str:
    """What a split has other than the validation samples, where errors are no longer comparable with theirs."""
    found, rollout, grid = tuple(split.parts.y.shape), operator.rollout, operator.grid
    if rollout is not None and (frames := found[1] // rollout.fields) != rollout.horizon:
        return f"it is one of {rollout.horizon} frames together, and these are {frames}"
    if not isinstance(grid, Points) and found[2:] != grid.shape:
        points = (" x ".join(map(str, shape)) for shape in (grid.shape, found[2:]))
        return "it is one on {} points, and these are {}".format(*points)
    return ""


def what_was_kept(bound: Mapping[str, Any], beside: str = "") -> list[str]:
    """Lines on how many test samples keep the bounds of their errors; none where there are no bounds."""
    if not bound:
        return []
    lines = [
        f"bound for {bound['coverage']:.0%} of all samples, by {bound['validation_samples']} validation errors: "
        f"{bound['rel_l2']:.4g}; {bound['kept']:.0%} of these test samples stay below it"
        + "; the weights were chosen by the same validation samples" * bool(bound["selected"])
        + f"; {beside}" * bool(beside)
    ]
    if each := bound.get("each"):
        lines.append(
            f"bounds of single samples, {each['spreads']:.3g} times the spread of their predictions: "
            f"{each['lowest']:.4g} to {each['highest']:.4g}, half of them below {each['median']:.4g}; "
            f"{each['kept']:.0%} stay below their own" + _told(each["correlation"])
        )
    return lines


def names_of_errors(targets: Sequence[Quantity]) -> dict[str, str]:
    """What the errors of single fields are of, where their names are known; those with a unit have it too."""
    several = {f"rel_l2_field_{i}": target.name for i, target in enumerate(targets, 1)}
    return several | {f"rmse_field_{i}": str(target) for i, target in enumerate(targets, 1)}


def outcome_rows(outcomes: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of outcomes, from their records."""
    header = ["quantity", "mean error", "largest", "truth varies by", f"{COVERAGE:.0%} bound", "within"]
    rows = []
    for name, found in outcomes.items():
        numbers = [f"{found[key]:.4g}" for key in ("mean_error", "largest_error", "deviation_of_truth")]
        kept = [f"{found['bound']:.4g}", f"{found['kept']:.0%}"] if "bound" in found else ["-", "-"]
        rows.append([str(Quantity(name, found["unit"])), *numbers, *kept])
    return header, rows


def predicted_outcomes_table(run: Path, operator: Surrogate, batch: Given, y: Tensor) -> Table | None:
    """Title, header and rows of what comes of predictions: the first ones, of frames the last of each block.

    Each has its bound where that is known, of runs that were evaluated, and its input is not unlike those of training.
    None for problems that are not known, in time or without outcomes, and on other grids.
    """
    made = problem_of(run, operator)
    if made is None or not made.outcomes or made.rollout is not None:
        return None
    grid, together = made.grid_geometry, made.together
    if not isinstance(grid, Points) and tuple(y.shape[2:]) != grid.shape:
        return None
    together = together if len(y) % together == 0 else 1
    few = torch.arange(together - 1, len(y), together)[:LISTED]
    places, inside = (None if part is None else part[few] for part in (batch.coords, batch.inside))
    x, like = batch.fields[few], torch.ones(len(few), dtype=torch.bool)
    if operator.experience is not None:
        like = operator.experience.strangeness(x, places, inside) <= STRANGE
    known = bounds_of_outcomes(run)
    header, columns, bounded = ["input"], [list(map(str, few.tolist()))], False
    for name, values in numbers_of(made.outcomes, x, y[few]).items():
        unit, bound = made.outcomes[name].unit, known.get(name)
        header.append(str(Quantity(name, unit)))
        most = ["" if bound is None or not one else f" ± {bound:.2g}" for one in like.tolist()]
        bounded = bounded or any(most)
        columns.append([f"{value:.4g}{error}" for value, error in zip(values.tolist(), most, strict=True)])
    title = "quantities of interest" + f", the last of each {together} frames" * (together > 1)
    title += f", the first {len(few)} of {len(y) // together}" * (len(few) < len(y) // together)
    title += f"; ±: the error that {COVERAGE:.0%} stay below, by validation samples" * bounded
    return title, header, [list(row) for row in zip(*columns, strict=True)]


def bounds_of_outcomes(run: Path) -> dict[str, float]:
    """The errors that 90 % of what comes of predictions stay below, by name, as far as the evaluation knows them."""
    from hofno import storage

    file = run / "evaluation.json"
    found = storage.read_json(file).get("outcomes", {}) if file.exists() else {}
    return {name: one["bound"] for name, one in found.items() if "bound" in one}


def problem_of(run: Path, operator: Surrogate) -> Problem | None:
    """What the operator knows of it, or the spec of its run, if it has one."""
    from hofno.problems.registry import problem
    from hofno.stages import read_spec

    try:
        return operator.problem
    except SpecError:
        data = read_spec(run).data if (run / "spec.toml").exists() else None
    return None if data is None else problem(data.problem, data.parameters)


def _told(correlation: float | None) -> str:
    return "" if correlation is None else f"; correlation of spreads and errors, in logarithms: {correlation:.2f}"


def _bound(operator: Surrogate, known: Experience, shape: tuple[int, ...], steps: int | None) -> str:
    """The error that most predictions stay below, and for what it does not hold; or why none is known."""
    if (count := len(known.errors)) < LEAST_KNOWN:
        return (
            f"no error can be expected: a bound for {COVERAGE:.0%} of inputs takes {LEAST_KNOWN} validation samples, "
            f"and the training had {count}"
        )
    bound, together, horizon = operator.error_bound(COVERAGE), int(known.together), None
    if not math.isfinite(bound):
        return "no error can be expected: many predictions of the validation samples have no size"
    kind = "samples" if together == 1 else f"blocks of {together} samples, each as one"
    if operator.rollout is not None:
        horizon = operator.rollout.horizon
        kind = f"{kind}, all {horizon} frames together"
    told = (
        f"relative L2 error expected: at most {bound:.3g} for {COVERAGE:.0%} of inputs like those of validation "
        f"({len(known.errors)} {kind})"
    )
    but = []
    if known.selected:
        but.append("the weights were chosen by these samples, so a little more often above it")
    if horizon is not None and steps not in (None, horizon):
        but.append(f"nothing is known of {steps} frames")
    if not isinstance(operator.grid, Points) and tuple(shape[-len(operator.grid.shape) :]) != operator.grid.shape:
        but.append(f"on the {' x '.join(map(str, operator.grid.shape))} points of training, not on those given")
    return "; ".join([told, *but])
