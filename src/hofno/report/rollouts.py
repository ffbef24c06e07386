"""Figures of models in time: the error of each frame, how much of the flow is left late, and which scales are right."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import ShapeError
from hofno.report.digits import number
from hofno.report.drawing import (
    GREY,
    TRUTH,
    expect_some,
    leaving_handles,
    legend_below,
    log_ticks,
    mark_leaving,
    panels,
    positive,
    series_styles,
    styled,
)
from hofno.report.planes import error_reach, mapped, row_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELD_COLUMNS, LABEL_WIDTH = 5, 16
PAD = 10
"""Points between a panel and its title, for marks on the edge."""

DOTTED: Any = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1, 2))}
FAINTEST, LARGEST = 1e-3, 10.0
"""How far below the least and above the largest of the truth mean squares are drawn; beyond they leave the picture."""

WORST = 10.0
"""Relative errors are drawn up to here, or up to ten times the least of them."""


WAVES = "shells of wavenumbers; shell s holds the waves with |k| from s − 1/2 to s + 1/2, k in waves per side"


def in_words(record: Mapping[str, Any]) -> dict[str, str]:
    """What the squares and spectra of a rollout's record are called: of vorticity they are enstrophy and energy."""
    if "energy" in record["spectra"]:
        return {
            "kind": "energy",
            "square": "enstrophy",
            "formula": "mean(w²)/2",
            "spectrum": "Energy spectrum",
            "shell": "energy in a shell",
            "sum": "half the mean square of the velocity, which follows from the vorticity, without unit",
            "axis": "wavenumber |k|, waves per side",
            "shells": WAVES,
        }
    words = {
        "kind": "power",
        "square": "mean square",
        "formula": "mean(u²)/2",
        "spectrum": "Spectrum",
        "shell": "half the mean square in a shell",
        "sum": "half the mean square of the frame, in squared units of the data",
        "axis": "wavenumber |k|, waves per side",
        "shells": WAVES,
    }
    if "degrees" not in record["spectra"]:
        return words
    return words | {
        "kind": "degrees",
        "shell": "half the mean square of a degree",
        "sum": "half the mean square over the sphere, in squared units of the data",
        "axis": "degree",
        "shells": "degrees of spherical harmonics, the shells of a sphere",
    }


@styled
def error_by_step(records: Mapping[str, Mapping[str, Any]], start: int) -> Figure:
    """Relative L2 of each predicted frame, and mean squares of predictions beside those of the truth.

    `records` holds, by label, what `RolloutScores.record` gives; `start` is the time of the first predicted frame. Runs
    on different data have truths and horizons of their own.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    expect_some(records, "rollout")
    figure, (errors, squares) = panels(1, 2, height=3.6)
    styles, first = series_styles(list(records)), next(iter(records.values()))
    horizons, words = {len(record["rel_l2_per_step"]) for record in records.values()}, in_words(first)
    truths = _distinct([positive(record["past"]["true_power"]) for record in records.values()])
    for truth in truths:
        squares.plot(_times(start, truth), truth, **TRUTH)
    drawn: list[tuple[Axes, Sequence[float | None], str]] = []
    for label, record in records.items():
        colour, dash, marker = styles[label]
        wrong = [*record["rel_l2_per_step"], *record["later_rel_l2"]]
        errors.plot(
            _times(start, wrong), positive(wrong), color=colour, linestyle=dash, marker=marker, ms=4, label=label
        )
        found = record["past"]["power"]
        squares.plot(_times(start, found), positive(found), color=colour, linestyle=dash)
        drawn += [(errors, wrong, colour), (squares, found, colour)]
    for axis in (errors, squares):
        for horizon in horizons:
            axis.axvline(start + horizon - 0.5, **DOTTED)
        axis.set(yscale="log", xlabel="t")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    errors.set_title("Rel. L2 of each frame", pad=PAD)
    squares.set_title(f"{words['square'].capitalize()} {words['formula']} of each frame", pad=PAD)
    _limit_errors(errors, [values for axis, values, _ in drawn if axis is errors])
    _limit_squares(squares, np.concatenate(truths), [values for axis, values, _ in drawn if axis is squares])
    left = set().union(*(mark_leaving(axis, _times(start, v), v, colour) for axis, v, colour in drawn))
    for axis in (errors, squares):
        log_ticks(axis.yaxis)
    truth, end = Line2D([], [], label="truth", **TRUTH), Line2D([], [], label="end of the horizon", **DOTTED)
    legend_below(figure, errors, [truth, end, *leaving_handles(left)])
    return figure


def _distinct(truths: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Those of different data, each once."""
    found: list[np.ndarray] = []
    for truth in truths:
        if not any(np.array_equal(truth, other, equal_nan=True) for other in found):
            found.append(truth)
    return found


def _limit_errors(axis: Axes, curves: Sequence[Sequence[float | None]]) -> None:
    """Relative errors of a rollout that runs away do not flatten the others."""
    every = positive([value for curve in curves for value in curve])
    every = every[np.isfinite(every)]
    if every.size and every.max() > (top := max(WORST, 10 * float(every.min()))):
        axis.set_ylim(top=top)


def _limit_squares(axis: Axes, known: np.ndarray, curves: Sequence[Sequence[float | None]]) -> None:
    """All of the truth, and of the predictions what is not far from it."""
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    every = positive([value for curve in curves for value in curve])
    least, most = float(np.nanmin(every, initial=low)), float(np.nanmax(every, initial=high))
    axis.set_ylim(min(low / 2, max(least / 1.5, FAINTEST * low)), max(high * 2, min(most * 1.5, LARGEST * high)))


@styled
def spectra(records: Mapping[str, Mapping[str, Any]], of: str = "") -> Figure:
    """Spectrum of truth and predictions by shell of wavenumbers, and the error of each shell relative to the truth.

    `of` says what part of the data they are of. Runs on different data have truths of their own.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    expect_some(records, "rollout")
    figure, (sizes, errors) = panels(1, 2, height=3.6)
    styles, words = series_styles(list(records)), in_words(next(iter(records.values())))
    every = {label: positive(record["spectra"][words["kind"]]["truth"]) for label, record in records.items()}
    drawn: list[tuple[Axes, np.ndarray, np.ndarray, str]] = []
    for truth in (truths := _distinct(list(every.values()))):
        sizes.plot(np.arange(len(truth)), truth, **TRUTH)
        there = np.flatnonzero(np.isfinite(truth))  # the energy has no shell 0
        drawn.append((sizes, there, truth[there], TRUTH["color"]))
    for label, record in records.items():
        colour, dash, _ = styles[label]
        truth = every[label]
        there = np.flatnonzero(np.isfinite(truth))
        found = {
            name: np.array(values, dtype=float)[there] for name, values in record["spectra"][words["kind"]].items()
        }
        wrong = np.sqrt(found["error"] / truth[there])
        sizes.plot(there, positive(found["prediction"]), color=colour, linestyle=dash, label=label)
        errors.plot(there, positive(wrong), color=colour, linestyle=dash)
        drawn += [(sizes, there, found["prediction"], colour), (errors, there, wrong, colour)]
    errors.axhline(1.0, **DOTTED)
    sizes.set_title(", ".join(filter(None, (words["spectrum"], of))), pad=PAD)
    errors.set_title(", ".join(filter(None, ("Rel. L2 of each shell", of))), pad=PAD)
    sizes.set(ylabel=words["shell"])
    errors.set(ylabel="rel. L2")
    for axis in (sizes, errors):
        axis.set(yscale="log", xlabel=words["axis"])
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    least, most = (float(end(np.concatenate(truths))) for end in (np.nanmin, np.nanmax))
    sizes.set_ylim(bottom=max(least / 10, 1e-13 * most))  # what is less is rounding
    errors.set_ylim(top=min(errors.get_ylim()[1], 5.0))  # at 1 nothing of a shell is right
    left = set().union(*(mark_leaving(*of_line) for of_line in drawn))
    for axis in (sizes, errors):
        log_ticks(axis.yaxis)
    nothing = Line2D([], [], label="as wrong as predicting 0", **DOTTED)
    legend_below(figure, sizes, [Line2D([], [], label="truth", **TRUTH), nothing, *leaving_handles(left)])
    return figure


@styled
def frames(truth: Any, predictions: Mapping[str, Any], start: int, name: str = "fields") -> Figure:
    """A few frames of one sample, (t, h, w): the truth in the first row, then prediction and error of each model.

    Predictions have the colours of the truth; the errors of all models share theirs. `name` is what the fields are.
    """
    expect_some(predictions, "prediction")
    true = np.asarray(truth, dtype=float)
    if true.ndim != 3:
        raise ShapeError(f"expected frames (t, h, w), got shape {true.shape}; give one sample of a field in the plane")
    chosen = np.unique(np.linspace(0, len(true) - 1, FIELD_COLUMNS).round().astype(int))
    guesses = {label: np.asarray(values, dtype=float) for label, values in predictions.items()}
    styles = series_styles(list(guesses))
    aspect = true.shape[1] / true.shape[2]  # fields that are wider than high take less room
    figure, axes = panels(1 + 2 * len(guesses), len(chosen), height=min(1.6, 1.35 / aspect + 0.35))
    rows = np.array(axes, dtype=object).reshape(-1, len(chosen))
    low, high = float(true.min()), float(true.max())
    limits = (low, high) if high > low else (low, low + 1.0)
    scales = [("viridis", limits, name)]
    reach = error_reach([guess - true for guess in guesses.values()], limits[1] - limits[0])
    for _ in guesses:
        scales += [("viridis", limits, name), ("RdBu_r", (-reach, reach), "prediction − truth")]
    for column, index in enumerate(chosen):
        _image(rows[0, column], true[index], limits, "viridis", f"t = {start + index}")
        for row, guess in enumerate(guesses.values()):
            error = guess[index] - true[index]
            size = number(float(np.linalg.norm(error) / np.linalg.norm(true[index])))
            _image(rows[1 + 2 * row, column], guess[index], limits, "viridis", "")
            _image(rows[2 + 2 * row, column], error, scales[2 + 2 * row][1], "RdBu_r", f"rel. L2 {size}")
    rows[0, 0].set_ylabel("truth")
    for row, label in enumerate(guesses):
        rows[1 + 2 * row, 0].set_ylabel(textwrap.fill(label, LABEL_WIDTH), color=styles[label][0])
        rows[2 + 2 * row, 0].set_ylabel("error", color=styles[label][0])
    for row, (colours, ends, what) in zip(rows, scales, strict=True):
        row_bar(figure, list(row), mapped(colours, ends), what)
    figure.set_label(
        f"Frames of one test sample at {len(chosen)} times: truth, then prediction and error of each model. Colours: "
        f"{name} from {number(limits[0])} to {number(limits[1])}; errors of {', '.join(guesses)} up to {number(reach)}."
    )
    return figure


def _image(axis: Axes, field: np.ndarray, limits: tuple[float, float], colours: str, title: str) -> None:
    low, high = limits
    axis.imshow(field.T, origin="lower", cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def _times(start: int, values: Sequence[Any] | np.ndarray) -> np.ndarray:
    return start + np.arange(len(values))
