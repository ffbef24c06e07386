"""Figures: what went in, what came out, how wrong it is, how training went, and how error falls with depth.

Every function returns a Matplotlib `Figure` that belongs to nobody else: no global state, no window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import DataError
from hofno.report.digits import number
from hofno.report.drawing import (
    GREY,
    ORDER_COLOURS,
    ORDER_MARKERS,
    expect_some,
    legend_below,
    log_ticks,
    panels,
    positive,
    series_styles,
    styled,
)
from hofno.report.fields import fields
from hofno.report.tables import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["error_against_depth", "error_dots", "fields", "learning_curves", "per_sample"]

PUBLISHED_DASH = (0, (4, 2.5))
LEVEL = 2.5
"""The least ratio of the ends of an axis of errors."""


@styled
def learning_curves(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Training loss and validation rel. L2 against epoch, one line per label.

    History rows hold "epoch", "train_loss" and "valid_rel_l2"; an epoch that was not validated leaves the
    last one out (or None). Where none was, there is no panel for it.
    """
    from matplotlib.ticker import MaxNLocator

    expect_some(histories, "history")
    shown = {"train_loss": "Training loss", "valid_rel_l2": "Validation rel. L2"}
    if not any(row.get("valid_rel_l2") is not None for history in histories.values() for row in history):
        del shown["valid_rel_l2"]
    figure, axes = panels(1, len(shown), height=3.5)
    styles = series_styles(list(histories))
    for axis, (key, title) in zip(axes, shown.items(), strict=True):
        for label, history in histories.items():
            rows = [(row["epoch"], row[key]) for row in history if row.get(key) is not None]
            epochs, values = np.array(rows, dtype=float).reshape(-1, 2).T
            colour, dash, _ = styles[label]
            dot = "o" if len(rows) == 1 else None
            axis.plot(epochs, positive(values), color=colour, linestyle=dash, marker=dot, label=label)
        axis.set(yscale="log", title=title, xlabel="epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        log_ticks(axis.yaxis)
        axis.set_xlim(axes[0].get_xlim())  # the same epochs, however many of them were validated
    legend_below(figure, axes[0])
    return figure


@styled
def error_against_depth(
    measured: Mapping[int, Mapping[tuple[int, int], Mapping[str, tuple[float, float | None]]]],
    published: Mapping[int, Mapping[tuple[int, int], Mapping[str, tuple[float, float]]]],
    metric: str,
) -> Figure:
    """Test error by number of layers, one panel per degree of the source, one colour per order.

    `measured` and `published` map a degree to `{(order, depth): {metric: (mean, std)}}`, as
    `tables.poisson_cells` and `published.poisson` give them. Solid with a band of one standard deviation:
    measured. Dashed, hollow: published.
    """
    from matplotlib.ticker import NullLocator

    names = {"mse": "test MSE (standardised targets)", "rel_l2": "test rel. L2"}
    if metric not in names:
        raise DataError(f"expected a metric of {tuple(names)}, got {metric!r}; choose one of these")
    degrees = sorted(set(measured) | set(published))
    expect_some(degrees, "degree")
    columns = min(2, len(degrees))
    figure, axes = panels(-(-len(degrees) // columns), columns, height=3.2)
    for index, (axis, degree) in enumerate(zip(axes, degrees, strict=False)):
        ours, theirs = measured.get(degree, {}), published.get(degree, {})
        depths = sorted({depth for _, depth in (*ours, *theirs)})
        for order in sorted({order for order, _ in (*ours, *theirs)}):
            colour, marker = ORDER_COLOURS.get(order, GREY), ORDER_MARKERS.get(order, "v")
            x, mean, _ = _by_depth(theirs, order, metric)
            axis.plot(x, mean, color=colour, ls=PUBLISHED_DASH, lw=1.2, marker=marker, mfc="white", ms=5, alpha=0.85)
            x, mean, std = _by_depth(ours, order, metric)
            axis.plot(x, mean, color=colour, marker=marker, ms=5)
            axis.fill_between(x, np.maximum(mean - std, mean / 10), mean + std, color=colour, alpha=0.18, lw=0)
        axis.set(xscale="log", yscale="log", title=f"p = {degree}", xlabel="layers")
        axis.set_ylabel(names[metric] if index % columns == 0 else "")
        axis.set_xticks(depths, [str(depth) for depth in depths])
        axis.xaxis.set_minor_locator(NullLocator())
        log_ticks(axis.yaxis)
    for axis in axes[len(degrees) :]:
        axis.set_visible(False)
    _depth_legend(figure, sorted({order for cells in (*measured.values(), *published.values()) for order, _ in cells}))
    return figure


def _by_depth(
    cells: Mapping[tuple[int, int], Mapping[str, tuple[float, float | None]]], order: int, metric: str
) -> np.ndarray:
    """Depths, means and standard deviations (0 where unknown) of one order, sorted by depth."""
    points = sorted((depth, *cells[place, depth][metric]) for place, depth in cells if place == order)
    return np.array([(depth, mean, std or 0.0) for depth, mean, std in points], dtype=float).reshape(-1, 3).T


def _depth_legend(figure: Figure, orders: Sequence[int]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            label="FNO (order 1)" if order == 1 else f"HO-FNO order {order}",
            color=ORDER_COLOURS.get(order, GREY),
            marker=ORDER_MARKERS.get(order, "v"),
        )
        for order in orders
    ]
    hollow = Line2D([], [], label="published", color=GREY, marker="o", mfc="white", ls=PUBLISHED_DASH, lw=1.2)
    handles += [Line2D([], [], label="measured", color=GREY, marker="o"), hollow]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


@styled
def error_dots(rows: Sequence[Summary]) -> Figure:
    """Test rel. L2 of each model as a dot on a logarithmic axis, with its value beside it.

    Of several seeds the dot is their mean, a line reaches one standard deviation to both sides, and small pale dots
    below are the seeds themselves.
    """
    expect_some(rows, "row")
    if lacking := [row.label for row in rows if "rel_l2" not in row.metrics]:
        raise DataError(f"expected rel_l2 for every row, got none for {lacking}; evaluate their runs again")
    statistics = [row.metrics["rel_l2"] for row in rows]
    means = np.array([statistic.mean for statistic in statistics])
    if not (means > 0).all():
        raise DataError(
            f"expected positive rel. L2 for a logarithmic axis, got {means.tolist()}; leave out exact models"
        )
    styles = series_styles([row.label for row in rows])
    figure, (axis,) = panels(1, 1, height=0.9 + 0.42 * len(rows))
    low, high = float(means.min()), float(means.max())
    for place, (row, statistic) in enumerate(zip(rows, statistics, strict=True)):
        colour, _, marker = styles[row.label]
        least = reach = statistic.mean
        if statistic.std is not None:
            ends = [max(statistic.mean - statistic.std, statistic.mean / 10), statistic.mean + statistic.std]
            axis.plot(ends, [place, place], color=colour, linewidth=2.0, solid_capstyle="butt")
            axis.plot(statistic.values, [place + 0.26] * statistic.n, "o", color=colour, ms=4.5, alpha=0.5, mew=0)
            seen = [value for value in (*ends, *statistic.values) if value > 0]
            least, reach = min(seen), max(seen)
        axis.plot(statistic.mean, place, color=colour, marker=marker, ms=9, mec="white", mew=0.8, linestyle="none")
        axis.annotate(number(statistic.mean), (reach, place), (9, 0), textcoords="offset points", va="center")
        low, high = min(low, least), max(high, reach)
    if high / low < LEVEL:  # nearly equal errors are to look so
        low, high = ((low * high) ** 0.5 * LEVEL**power for power in (-0.5, 0.5))
    room = (high / low) ** 0.06
    axis.set(xscale="log", xlabel="test rel. L2 (further left is better)", xlim=(low / room, high * room**2))
    log_ticks(axis.xaxis)
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    values = (f"{row.label} {number(mean)}" for row, mean in zip(rows, means, strict=True))
    figure.set_label(f"Test rel. L2 of each model: {'; '.join(values)}.")
    return figure


@styled
def per_sample(errors: Mapping[str, Any]) -> Figure:
    """Share of test samples whose rel. L2 is at most x, per label; the median is marked, at a share of one half.

    An error that is not finite counts as larger than every x: such a curve ends below 1.
    """
    expect_some(errors, "array of errors")
    figure, (axis,) = panels(1, 1, height=3.6)
    styles = series_styles(list(errors))
    for label, values in errors.items():
        ordered = np.sort(np.nan_to_num(np.asarray(values, dtype=float).ravel(), nan=np.inf, posinf=np.inf))
        expect_some(ordered, f"error of {label}")
        share = np.arange(len(ordered) + 1) / len(ordered)
        colour, dash, marker = styles[label]
        risen = positive([ordered[0], *ordered])  # the curve rises from 0 at the least error
        axis.step(risen, share, where="post", color=colour, linestyle=dash, label=label)
        middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]].mean()
        axis.plot(positive(middle), 0.5, color=colour, marker=marker, ms=8, mec="white")
    axis.set(
        xscale="log",
        ylim=(0, 1.02),
        xlabel="rel. L2 of one test sample",
        ylabel="share of samples at or below",
    )
    log_ticks(axis.xaxis)
    legend_below(figure, axis)
    return figure
