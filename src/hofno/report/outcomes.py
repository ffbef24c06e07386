"""What comes of the fields: predicted lifts, largest stresses and the like against the true ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.problems.quantities import Quantity
from hofno.report.digits import number
from hofno.report.drawing import GREY, expect_some, legend_below, panels, series_styles, styled
from hofno.report.page import Page
from hofno.report.tables import MISSING, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def outcomes_chapter(
    page: Page, runs: Sequence[Mapping[str, Any]], records: Mapping[str, Any], least: int, together: int = 1
) -> None:
    """Errors of outcomes of all `runs` that have some, means over seeds; drawn by sample from evaluation records.

    Bounds take at least so many validation samples. So many consecutive samples are `together`, as frames of a block.
    """
    page.section("Quantities of interest")
    cells = []
    for group in grouped([run for run in runs if "outcomes" in run]):
        for name, first in group[0]["outcomes"].items():
            found = [run["outcomes"][name] for run in group if name in run["outcomes"]]
            means = [statistics.fmean(one[key] for one in found) for key in ("mean_error", "deviation_of_truth")]
            kept = [(one["bound"], one["kept"]) for one in found if "bound" in one]
            bounds = [number(statistics.fmean(bound for bound, _ in kept))] if kept else [MISSING]
            within = [f"{statistics.fmean(share for _, share in kept):.0%}"] if kept else [MISSING]
            cells.append([str(Quantity(name, first["unit"])), group[0]["label"], *map(number, means), *bounds, *within])
    header = ["quantity", "model", "mean error", "deviation of the truth", "bound for 90%", "test samples within"]
    bounded = any(row[4] != MISSING for row in cells)
    if not bounded:
        header, cells = header[:4], [row[:4] for row in cells]
    names = list(dict.fromkeys(row[0] for row in cells))
    page.table(header, sorted(cells, key=lambda row: names.index(row[0])))
    each = "sample" if together == 1 else f"of the {together} frames of each sample"
    most = "the error of 90% of samples" if together == 1 else "the largest error of the frames, in 90% of samples,"
    bound = f"The bound is what {most} should stay below, by the validation samples (split conformal prediction)."
    page.text(
        f"One number for each {each}, by the same formula from predicted and true fields. Errors are absolute, in its "
        "unit; errors near the deviation of the truth are those of a constant. "
        + (bound if bounded else f"Bounds of these errors take {least} validation samples, which were not there.")
    )
    if shown := {label: record["per_sample"]["outcomes"] for label, record in records.items() if _has(record)}:
        units = {name: one["unit"] for record in records.values() for name, one in record.get("outcomes", {}).items()}
        page.figure(
            predicted_against_true(shown, units),
            f"Every {'test sample' if together == 1 else 'frame of every test sample'}: what is predicted against what "
            "is true, which are the same on the line. What is predicted far off is drawn at the edge.",
        )


def _has(record: Mapping[str, Any]) -> bool:
    return bool(record.get("per_sample", {}).get("outcomes"))


def _ends(truths: np.ndarray, guesses: Sequence[np.ndarray]) -> tuple[float, float]:
    """Where both axes end: all truths are seen, and predictions that are off by half of their range at most."""
    low, high = float(truths.min()), float(truths.max())
    off = 0.5 * (high - low)
    near = np.concatenate([truths, *(guess[(guess >= low - off) & (guess <= high + off)] for guess in guesses)])
    low, high = float(near.min()), float(near.max())
    room = 0.08 * (high - low) or 1.0
    return low - room, high + room


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
        truths, guesses = (
            [np.asarray(found[key], dtype=float) for found in known.values()] for key in ("truth", "prediction")
        )
        ends = _ends(np.concatenate(truths), guesses)
        axis.plot(ends, ends, color=GREY, linewidth=1.0, zorder=1.5)
        for label, found in known.items():
            colour, _, marker = styles[label]
            truth, guess = (np.asarray(found[key], dtype=float) for key in ("truth", "prediction"))
            inside = np.clip(guess, *ends)
            (dots,) = axis.plot(truth, inside, ls="none", color=colour, marker=marker, ms=4, alpha=0.6, mew=0)
            dots.set(label=label, clip_on=False)
            drawn.setdefault(label, dots)
        axis.set(
            xlim=ends, ylim=ends, xlabel="true", ylabel="predicted", title=str(Quantity(name, units.get(name, "")))
        )
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    legend_below(figure, axes[0], [dots for dots in drawn.values() if dots.axes is not axes[0]])
    return figure
