"""Figure of a trained operator on other grids: error against resolution, with the grid of training marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.report.digits import number
from hofno.report.drawing import GREY, expect_some, legend_below, log_ticks, panels, positive, series_styles, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def error_against_resolution(
    errors: Mapping[str, Sequence[Mapping[int, float]]], trained_at: Mapping[str, int]
) -> Figure:
    """Mean test rel. L2 by points along each axis, one line per label.

    `errors` holds, by label, one mapping {resolution: error} for each seed, all with the same resolutions; a band shows
    one standard deviation over several. `trained_at` is the resolution that the runs of a label were trained at: a
    dotted line, and a larger marker on the curve.
    """
    from matplotlib.ticker import NullLocator

    expect_some(errors, "run")
    figure, (axis,) = panels(1, 1, height=3.9)
    styles = series_styles(list(errors))
    told: list[str] = []
    for label, seeds in errors.items():
        expect_some(seeds, f"seed of {label}")
        points = sorted(seeds[0])
        values = np.array([[seed[n] for n in points] for seed in seeds], dtype=float)  # (seed, resolution)
        mean = positive(values.mean(0))
        colour, dash, marker = styles[label]
        axis.plot(points, mean, color=colour, linestyle=dash, marker=marker, ms=5.5, label=label)
        if len(seeds) > 1:
            std = values.std(0, ddof=1)
            axis.fill_between(points, np.maximum(mean - std, mean / 10), mean + std, color=colour, alpha=0.18, lw=0)
        own = trained_at[label]
        axis.plot(own, mean[points.index(own)], color=colour, marker=marker, ms=11, mec="white", mew=1.5)
        told.append(f"{label} {', '.join(f'{number(e)} at {n}' for n, e in zip(points, mean, strict=True))}")
    every = sorted({n for seeds in errors.values() for n in seeds[0]})
    axis.set(xscale="log", yscale="log", xlabel="points along each axis", ylabel="test rel. L2")
    low, high = axis.get_ylim()
    if high / low < 4:  # nearly level curves are to look level
        axis.set_ylim(low / 1.4, high * 1.4)
    for own in sorted(set(trained_at.values())):
        axis.axvline(own, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        left = own == every[-1]  # there is no room to the right of the finest grid
        place: dict[str, Any] = {"xytext": (-4 if left else 4, -4), "ha": "right" if left else "left", "va": "top"}
        frame: Any = ("data", "axes fraction")
        axis.annotate(
            f"trained at {own}", (own, 1), xycoords=frame, textcoords="offset points", color=GREY, fontsize=9, **place
        )
    axis.set_xticks(every, [str(n) for n in every])
    axis.xaxis.set_minor_locator(NullLocator())
    log_ticks(axis.yaxis)
    legend_below(figure, axis)
    figure.set_label(f"Test rel. L2 by points along each axis: {'; '.join(told)}.")
    return figure
