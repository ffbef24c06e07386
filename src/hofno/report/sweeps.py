"""A study that sweeps a number: the error against it as a figure, and how fast it falls with more training samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hofno.report.digits import number
from hofno.report.drawing import draw_curve, expect_some, legend_below, log_ticks, panels, series_styles, styled
from hofno.report.page import Page
from hofno.report.tables import Statistic, Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = "data.train"
NAMES = {SAMPLES: "training samples", "model.depth": "layers", "model.order": "order", "train.epochs": "epochs"}
"""What swept keys are called in figures; others by their own names."""

WIDE = 4.0
"""Values whose largest is so many times the smallest stand on a logarithmic axis."""

Curves = dict[str, dict[float, Statistic]]
"""By what runs are called but for the swept key: errors at its values."""


def add_sweeps(
    page: Page, rows: Sequence[Summary], sweep: Mapping[str, Sequence[Any]], label: str, by_depth: bool = False
) -> None:
    """A figure for each number that is swept; `label` is that of the spec's own runs.

    With `by_depth` depth and order have a figure of their own already.
    """
    keys = [key for key in swept_numbers(sweep) if not (by_depth and key in ("model.depth", "model.order"))]
    found = {key: curves for key in keys if (curves := curves_of(rows, sweep, key, label))}
    if found:
        page.section("What is swept")
    for key, curves in found.items():
        name = NAMES.get(key, key)
        page.figure(error_against(name, curves), f"Test rel. L2 against {name}; bands are one deviation over seeds.")
        if key == SAMPLES and (told := [line for label, curve in curves.items() if (line := rate(label, curve))]):
            page.text("\n".join(told))


def side_by_side(
    rows: Sequence[Summary], valid: Sequence[Statistic | None], sweep: Mapping[str, Sequence[Any]]
) -> list[int]:
    """Which rows the spec's own runs are judged by, its own first: all with the swept values that suit these best.

    The best is that of the lowest validation error, where it is known of all of them, else of test error. Empty where
    none of the spec's own runs is there.
    """
    own = [index for index, row in enumerate(rows) if "label" not in row.cell]
    if not own:
        return []
    known = [found.mean for index in own if (found := valid[index]) is not None]
    errors = known if len(known) == len(own) else [rows[index].metrics["rel_l2"].mean for index in own]
    best = own[errors.index(min(errors))]
    keys = [key for key in sweep if key != "seed"]
    alike = [i for i, row in enumerate(rows) if all(row.cell.get(key) == rows[best].cell.get(key) for key in keys)]
    return [best, *(index for index in alike if index != best)]


def swept_numbers(sweep: Mapping[str, Sequence[Any]]) -> list[str]:
    """The keys with two different numbers or more, seeds excepted."""
    return [
        key
        for key, values in sweep.items()
        if key != "seed" and len(set(map(repr, values))) > 1 and all(type(value) in (int, float) for value in values)
    ]


def curves_of(rows: Sequence[Summary], sweep: Mapping[str, Sequence[Any]], key: str, label: str) -> Curves:
    """Errors by the values of a swept key, of runs that differ in nothing else; a single value makes no curve."""
    found: Curves = {}
    for row in rows:
        if key in row.cell:
            others = [other for other in sweep if other not in (key, "seed") and other in row.cell]
            told = [f"{other.rsplit('.', 1)[-1]} {row.cell[other]}" for other in others]
            name = ", ".join([str(row.cell.get("label", label)), *told])
            found.setdefault(name, {})[row.cell[key]] = row.metrics["rel_l2"]
    return {name: dict(sorted(curve.items())) for name, curve in found.items() if len(curve) > 1}


def rate(label: str, curve: Mapping[float, Statistic]) -> str:
    """How the error falls with the number of samples, and what twice as many would give; nothing where it does not."""
    few, many = min(curve), max(curve)
    first, last = curve[few], curve[many]
    if not 0 < last.mean < first.mean:
        return ""
    power = math.log(first.mean / last.mean) / math.log(many / few)
    return (
        f"- {label}: from {few:g} to {many:g} training samples the error falls by the power {power:.2f} of their "
        f"number; at that rate {2 * many:g} would give {number(last.mean / 2**power)}."
    )


@styled
def error_against(name: str, curves: Curves) -> Figure:
    """Mean test rel. L2 by a swept number, one line for each kind of runs, with a band of one standard deviation."""
    from matplotlib.ticker import NullLocator

    expect_some(curves, "curve")
    figure, (axis,) = panels(1, 1, height=3.9)
    styles, told = series_styles(list(curves)), []
    for label, curve in curves.items():
        errors = list(curve.values())
        draw_curve(axis, curve, [one.mean for one in errors], [one.std for one in errors], styles, label)
        told.append(f"{label} {', '.join(f'{number(one.mean)} at {value:g}' for value, one in curve.items())}")
    every = sorted({value for curve in curves.values() for value in curve})
    axis.set(yscale="log", xlabel=name, ylabel="test rel. L2")
    if every[0] > 0 and every[-1] >= WIDE * every[0]:
        axis.set_xscale("log")
    axis.set_xticks(every, [f"{value:g}" for value in every])
    axis.xaxis.set_minor_locator(NullLocator())
    log_ticks(axis.yaxis)
    legend_below(figure, axis)
    figure.set_label(f"Test rel. L2 by {name}: {'; '.join(told)}.")
    return figure
