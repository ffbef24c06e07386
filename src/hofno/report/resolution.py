"""A trained operator on other grids: error against resolution as a figure and a table, the grid of training marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hofno.report.digits import number, plus_minus
from hofno.report.drawing import GREY, draw_curve, expect_some, legend_below, log_ticks, panels, series_styles, styled
from hofno.report.tables import MISSING, statistic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = dict[str, list[dict[int, float]]]
"""By label, one mapping {points along each axis: mean test rel. L2} for each seed."""

APART = 0.17
"""Part of an axis that two names of grids above it must be apart to stand side by side."""


Records = Sequence[tuple[str, Mapping[str, Any]]]
"""Labels of runs that were evaluated on other grids, with the `resolutions` of each in a results file."""


def records_of(results: Mapping[str, Any]) -> Records:
    """Those of a results file."""
    return [(run["label"], run["resolutions"]) for run in results["runs"] if "resolutions" in run]


def curves_of(records: Records) -> tuple[Curves, dict[str, int]]:
    """Curves, and the resolution of training.

    Runs of one label are its seeds; of these the resolutions are kept that all of them were evaluated at.
    """
    errors: Curves = {}
    trained: dict[str, int] = {}
    for label, record in records:
        errors.setdefault(label, []).append({int(n): float(error) for n, error in record["rel_l2"].items()})
        trained[label] = int(record["trained_at"])
    for label, seeds in errors.items():
        common = sorted(set.intersection(*(set(seed) for seed in seeds)))
        errors[label] = [{n: seed[n] for n in common} for seed in seeds]
    return errors, trained


def resolution_rows(errors: Curves, trained_at: Mapping[str, int]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table: for each label a column of errors by resolution, its grid of training and seeds."""

    def error(seeds: Sequence[Mapping[int, float]], n: int) -> str:
        if n not in seeds[0]:
            return MISSING
        found = statistic([seed[n] for seed in seeds])
        return plus_minus(found.mean, found.std)

    every = sorted({n for seeds in errors.values() for n in seeds[0]})
    rows = [[f"rel. L2 at {n}", *(error(seeds, n) for seeds in errors.values())] for n in every]
    rows.append(["trained at", *(str(trained_at[label]) for label in errors)])
    rows.append(["seeds", *(str(len(seeds)) for seeds in errors.values())])
    return ["points along each axis", *errors], rows


@styled
def error_against_resolution(
    errors: Mapping[str, Sequence[Mapping[int, float]]], trained_at: Mapping[str, int], among: Sequence[str] = ()
) -> Figure:
    """Mean test rel. L2 by points along each axis, one line per label.

    `errors` holds, by label, one mapping {resolution: error} for each seed, all with the same resolutions; a band shows
    one standard deviation over several. `trained_at` is the resolution that the runs of a label were trained at: a
    dotted line, and a larger marker on the curve. `among` are all labels of a study in its order: a label has the same
    colour here as in other figures of that study.
    """
    from matplotlib.ticker import NullLocator

    expect_some(errors, "run")
    figure, (axis,) = panels(1, 1, height=3.9)
    styles = series_styles(list(dict.fromkeys([*among, *errors])))
    told: list[str] = []
    for label, seeds in errors.items():
        expect_some(seeds, f"seed of {label}")
        points = sorted(seeds[0])
        found = [statistic([seed[n] for seed in seeds]) for n in points]
        mean = draw_curve(axis, points, [one.mean for one in found], [one.std for one in found], styles, label)
        (colour, _, marker), own = styles[label], trained_at[label]
        axis.plot(own, mean[points.index(own)], color=colour, marker=marker, ms=11, mec="white", mew=1.5)
        told.append(f"{label} {', '.join(f'{number(e)} at {n}' for n, e in zip(points, mean, strict=True))}")
    every = sorted({n for seeds in errors.values() for n in seeds[0]})
    axis.set(xscale="log", yscale="log", xlabel="points along each axis", ylabel="test rel. L2")
    low, high = axis.get_ylim()
    if high / low < 4:  # nearly level curves are to look level
        axis.set_ylim(low / 1.4, high * 1.4)
    axis.set_xticks(every, [str(n) for n in every])
    axis.xaxis.set_minor_locator(NullLocator())
    log_ticks(axis.yaxis)
    _mark_training(axis, sorted(set(trained_at.values())))
    legend_below(figure, axis)
    figure.set_label(f"Test rel. L2 by points along each axis: {'; '.join(told)}.")
    return figure


def _mark_training(axis: Axes, grids: list[int]) -> None:
    """A dotted line at each grid of training, named above the panel, where there are no curves."""
    left, right = axis.get_xlim()
    height = 0
    for before, own in zip([0, *grids], grids, strict=False):
        axis.axvline(own, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        near = before > 0 and math.log(own / before) / math.log(right / left) < APART
        height = height + 1 if near else 0
        frame: Any = ("data", "axes fraction")
        axis.annotate(
            f"trained at {own}",
            (own, 1),
            (0, 3 + 12 * height),
            xycoords=frame,
            textcoords="offset points",
            color=GREY,
            fontsize=9,
            ha="center",
            va="bottom",
        )
