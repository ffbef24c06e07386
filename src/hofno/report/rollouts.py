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
    INK,
    expect_some,
    legend_below,
    log_ticks,
    panels,
    positive,
    series_styles,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPECTRA = {"energy": "Energy spectrum, last frame", "power": "Power spectrum, last frame"}
FIELD_COLUMNS, LABEL_WIDTH = 5, 16


@styled
def error_by_step(records: Mapping[str, Mapping[str, Any]], start: int) -> Figure:
    """Relative L2 of each predicted frame, and the power of predictions beside that of the truth.

    `records` holds, by label, what `RolloutScores.record` gives; `start` is the time of the first predicted frame.
    """
    from matplotlib.ticker import MaxNLocator

    expect_some(records, "rollout")
    figure, (errors, power) = panels(1, 2, height=3.5)
    styles = series_styles(list(records))
    horizon = 0
    for label, record in records.items():
        colour, dash, marker = styles[label]
        horizon = len(record["rel_l2_per_step"])
        values = positive([*record["rel_l2_per_step"], *record["later_rel_l2"]])
        errors.plot(_times(start, values), values, color=colour, linestyle=dash, marker=marker, ms=4, label=label)
        values = positive(record["past"]["power"])
        power.plot(_times(start, values), values, color=colour, linestyle=dash)
    known = positive(next(iter(records.values()))["past"]["true_power"])
    power.plot(_times(start, known), known, color=INK, linewidth=1.2, linestyle=(0, (2, 2)), label="truth")
    for axis in (errors, power):
        axis.axvline(start + horizon - 0.5, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
        axis.set(yscale="log", xlabel="t (dotted line: end of the horizon)")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    errors.set(title="Rel. L2 of each frame")
    power.set(title="mean(w²)/2 of the frames, rolled on; dotted: truth")
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    power.set_ylim(low / 3, high * 6)  # a rollout that runs away leaves the picture
    for axis in (errors, power):
        log_ticks(axis.yaxis)
    legend_below(figure, errors)
    return figure


@styled
def spectra(records: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Spectrum of truth and predictions by shell of wavenumbers, and the error of each shell relative to the truth."""
    expect_some(records, "rollout")
    figure, (sizes, errors) = panels(1, 2, height=3.5)
    styles = series_styles(list(records))
    first = next(iter(records.values()))["spectra"]
    kind = "energy" if "energy" in first else "power"
    truth = positive(first[kind]["truth"])
    shells = np.arange(len(truth))
    sizes.plot(shells, truth, color=INK, linewidth=1.2, linestyle=(0, (2, 2)), label="truth")
    for label, record in records.items():
        colour, dash, _ = styles[label]
        found = record["spectra"][kind]
        sizes.plot(shells, positive(found["prediction"]), color=colour, linestyle=dash, label=label)
        errors.plot(shells, np.sqrt(positive(found["error"]) / truth), color=colour, linestyle=dash)
    errors.axhline(1.0, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
    for axis, title in ((sizes, SPECTRA[kind]), (errors, "Rel. L2 of each shell, last frame")):
        axis.set(yscale="log", title=title, xlabel="|k|")
    sizes.set_ylim(bottom=max(np.nanmin(truth) / 10, 1e-13 * np.nanmax(truth)))  # what is less is rounding
    errors.set_ylim(top=min(errors.get_ylim()[1], 5.0))  # at 1 nothing of a shell is right
    for axis in (sizes, errors):
        log_ticks(axis.yaxis)
    legend_below(figure, sizes)
    return figure


@styled
def frames(truth: Any, predictions: Mapping[str, Any], start: int) -> Figure:
    """A few frames of one sample, (t, h, w): the truth in the first row, then prediction and error of each model."""
    expect_some(predictions, "prediction")
    true = np.asarray(truth, dtype=float)
    if true.ndim != 3:
        raise ShapeError(f"expected frames (t, h, w), got shape {true.shape}; give one sample of a field in the plane")
    chosen = np.unique(np.linspace(0, len(true) - 1, FIELD_COLUMNS).round().astype(int))
    guesses = {label: np.asarray(values, dtype=float) for label, values in predictions.items()}
    styles = series_styles(list(guesses))
    reach = max((float(np.nanpercentile(np.abs(guess - true), 99.5)) for guess in guesses.values()), default=1.0)
    reach = min(reach, float(np.ptp(true))) or 1.0
    figure, axes = panels(1 + 2 * len(guesses), len(chosen), height=1.72)
    rows = np.array(axes, dtype=object).reshape(-1, len(chosen))
    limits = float(true.min()), float(true.max())
    for column, index in enumerate(chosen):
        _image(rows[0, column], true[index], limits, "viridis", f"t = {start + index}")
        for row, guess in enumerate(guesses.values()):
            error = guess[index] - true[index]
            size = number(float(np.linalg.norm(error) / np.linalg.norm(true[index])))
            _image(rows[1 + 2 * row, column], guess[index], limits, "viridis", "")
            _image(rows[2 + 2 * row, column], error, (-reach, reach), "RdBu_r", f"rel. L2 {size}")
    rows[0, 0].set_ylabel("truth")
    for row, label in enumerate(guesses):
        rows[1 + 2 * row, 0].set_ylabel(textwrap.fill(label, LABEL_WIDTH), color=styles[label][0])
        rows[2 + 2 * row, 0].set_ylabel("error", color=styles[label][0])
    figure.set_label(
        f"Frames of one test sample at {len(chosen)} times: truth, then prediction and error of each model."
    )
    return figure


def _image(axis: Axes, field: np.ndarray, limits: tuple[float, float], colours: str, title: str) -> None:
    low, high = limits
    axis.imshow(field.T, origin="lower", cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def _times(start: int, values: Sequence[float] | np.ndarray) -> np.ndarray:
    return start + np.arange(len(values))
