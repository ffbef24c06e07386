"""What comes of the fields: predicted lifts, largest stresses and the like against the true ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.report.digits import number
from hofno.report.drawing import GREY, expect_some, legend_below, panels, series_styles, styled
from hofno.report.page import Page
from hofno.report.tables import MISSING, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def outcomes_chapter(page: Page, runs: Sequence[Mapping[str, Any]], records: Mapping[str, Any]) -> None:
    """Errors of outcomes of all `runs` that have some, means over seeds; drawn by sample from evaluation records."""
    page.section("Quantities of interest")
    cells = []
    for group in grouped([run for run in runs if "outcomes" in run]):
        for name, first in group[0]["outcomes"].items():
            found = [run["outcomes"][name] for run in group if name in run["outcomes"]]
            means = [statistics.fmean(one[key] for one in found) for key in ("mean_error", "deviation_of_truth")]
            kept = [(one["bound"], one["kept"]) for one in found if "bound" in one]
            bounds = [number(statistics.fmean(bound for bound, _ in kept))] if kept else [MISSING]
            within = [f"{statistics.fmean(share for _, share in kept):.0%}"] if kept else [MISSING]
            cells.append([named(name, first["unit"]), group[0]["label"], *map(number, means), *bounds, *within])
    header = ["quantity", "model", "mean error", "deviation of the truth", "bound for 90%", "test samples within"]
    names = list(dict.fromkeys(row[0] for row in cells))
    page.table(header, sorted(cells, key=lambda row: names.index(row[0])))
    page.text(
        "One number for each sample, by the same formula from predicted and true fields. Errors are absolute, in its "
        "unit; errors near the deviation of the truth are those of a constant. The bound is what the error of "
        "90% of samples should stay below, by the validation samples (split conformal prediction)."
    )
    if shown := {label: record["per_sample"]["outcomes"] for label, record in records.items() if _has(record)}:
        units = {name: one["unit"] for record in records.values() for name, one in record.get("outcomes", {}).items()}
        page.figure(
            predicted_against_true(shown, units),
            "Every test sample: what is predicted against what is true, which are the same on the line.",
        )


def named(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _has(record: Mapping[str, Any]) -> bool:
    return bool(record.get("per_sample", {}).get("outcomes"))


@styled
def predicted_against_true(values: Mapping[str, Mapping[str, Any]], units: Mapping[str, str]) -> Figure:
    """One panel for each outcome; `values` holds by label and name {"truth": [..], "prediction": [..]}.

    Labels whose data have other outcomes are in the panels of those that they have.
    """
    expect_some(values, "label")
    names = list(dict.fromkeys(name for found in values.values() for name in found))
    expect_some(names, "outcome")
    columns = min(COLUMNS, len(names))
    figure, axes = panels(-(-len(names) // columns), columns, height=8.6 / columns if columns > 1 else 4.0)
    styles, drawn = series_styles(list(values)), dict[str, Any]()
    for axis, name in zip(axes, names, strict=False):
        known = {label: found[name] for label, found in values.items() if name in found}
        truths = np.concatenate([np.asarray(found["truth"], dtype=float) for found in known.values()])
        low, high = float(truths.min()), float(truths.max())
        room = 0.08 * (high - low) or 1.0
        ends = low - room, high + room
        axis.plot(ends, ends, color=GREY, linewidth=1.0, zorder=1.5)
        for label, found in known.items():
            colour, _, marker = styles[label]
            truth, guess = (np.asarray(found[key], dtype=float) for key in ("truth", "prediction"))
            inside = np.clip(guess, *ends)
            (dots,) = axis.plot(truth, inside, ls="none", color=colour, marker=marker, ms=4, alpha=0.6, mew=0)
            dots.set_label(label)
            drawn.setdefault(label, dots)
        axis.set(xlim=ends, ylim=ends, xlabel="true", ylabel="predicted", title=named(name, units.get(name, "")))
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    legend_below(figure, axes[0], [dots for dots in drawn.values() if dots.axes is not axes[0]])
    return figure
