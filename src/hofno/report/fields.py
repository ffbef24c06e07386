"""One test sample, seen: inputs, truth, and per model the prediction ŷ and its error ŷ - y.

Predictions share the colour limits of the truth, so equal colours mean equal values; an error has its own
limits, symmetric about zero, and its title says ‖ŷ - y‖ / ‖y‖ over the whole field. 2-D fields are images,
1-D fields are lines, and of 3-D fields the middle slice along the first axis is shown. Fields at scattered points
of the plane are coloured points.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import DataError, ShapeError
from hofno.report.digits import number
from hofno.report.drawing import GREY, INK, expect_some, panels, series_styles, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH = 22
MOST_COLUMNS = 4
HEIGHTS = {2: 3.1, 3: 2.35, 4: 1.8}
"""Inches per row of images, by number of columns: what a square image and its title take."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One field with its title, its limits, and what it is: "input", "truth", "prediction" or "error"."""

    kind: str
    title: str
    values: np.ndarray
    limits: tuple[float, float]
    colour: str = INK
    behind: np.ndarray | None = None


@styled
def fields(x: Any, y: Any, predictions: Mapping[str, Any], sample: int = 0, places: Any = None) -> Figure:
    """Draw one sample of arrays `(b, c, *n)`: inputs `x`, truth `y`, and `predictions` by model label.

    `places` `(b, 2, N)` are the points of the plane that fields `(b, c, N)` are known at.
    """
    expect_some(predictions, "prediction")
    x_fields, truth = _sample(x, sample), _sample(y, sample)  # (c, *n)
    guesses = {label: _sample(prediction, sample) for label, prediction in predictions.items()}
    for label, guess in guesses.items():
        if guess.shape != truth.shape:
            raise ShapeError(f"expected a prediction of shape {truth.shape}, got {guess.shape} from {label!r}")
    if not 1 <= truth.ndim - 1 <= 3:
        raise ShapeError(f"expected fields (b, c, *n) in one to three dimensions, got shape {np.shape(y)}")

    opening = [
        Panel("input", _name("input", index, len(x_fields)), field, _range(field))
        for index, field in enumerate(map(_visible, x_fields))
    ]
    opening += [
        Panel("truth", _name("truth", index, len(truth)), field, _range(field))
        for index, field in enumerate(map(_visible, truth))
    ]
    columns = min(MOST_COLUMNS, max(2, len(opening), len(guesses)))
    rows = _wrap(opening, columns)
    for channel in range(len(truth)):
        wrong, right = _model_panels(guesses, truth, channel)
        together = len(wrong) + len(right) <= columns
        rows += [right + wrong] if together else _interleave(_wrap(right, columns), _wrap(wrong, columns))
    return _draw(rows, columns, truth.shape[1:], None if places is None else _sample(places, sample))


def _model_panels(
    guesses: Mapping[str, np.ndarray], truth: np.ndarray, channel: int
) -> tuple[list[Panel], list[Panel]]:
    """Errors and predictions of every model, for one output channel."""
    styles = series_styles(list(guesses))
    true = truth[channel]
    errors, shown = [], []
    for label, guess in guesses.items():
        error = guess[channel] - true
        size, colour = float(np.linalg.norm(true)), styles[label][0]
        relative = number(float(np.linalg.norm(error)) / size) if size > 0 else "undefined (truth is 0)"
        finite = np.abs(_visible(error)[np.isfinite(_visible(error))])
        reach = float(finite.max(initial=0.0)) or 1.0
        name = _name(label, channel, len(truth))
        shown.append(
            Panel("prediction", name, _visible(guess[channel]), _range(_visible(true)), colour, _visible(true))
        )
        errors.append(Panel("error", f"error, rel. L2 {relative}", _visible(error), (-reach, reach), colour))
    return errors, shown


def _draw(rows: list[list[Panel]], columns: int, space: tuple[int, ...], places: np.ndarray | None) -> Figure:
    flat = len(space) == 1 and places is None
    figure, axes = panels(len(rows), columns, height=HEIGHTS[columns] if not flat else 2.0)
    for index, axis in enumerate(axes):
        row = rows[index // columns]
        if index % columns >= len(row):
            axis.set_visible(False)
        elif flat:
            _draw_line(axis, row[index % columns])
        elif places is not None:
            _draw_points(axis, row[index % columns], places)
        else:
            _draw_image(axis, row[index % columns])
    if len(space) == 3:
        figure.suptitle(
            f"Middle slice of 3-D fields: index {space[0] // 2} of {space[0]} along the first axis",
            fontsize=10,
        )
    return figure


def _draw_line(axis: Axes, panel: Panel) -> None:
    if panel.behind is not None:
        axis.plot(panel.behind, color=GREY, linewidth=1.0, linestyle=(0, (3, 2)))
    axis.plot(panel.values, color=panel.colour, linewidth=1.3)
    margin = (0.06 if panel.behind is None else 0.25) * (panel.limits[1] - panel.limits[0])
    axis.set_ylim(panel.limits[0] - margin, panel.limits[1] + margin)
    axis.set_title(panel.title if panel.behind is None else f"{panel.title} (dashed: truth)")
    axis.margins(x=0)


def _draw_image(axis: Axes, panel: Panel) -> None:
    low, high = panel.limits
    stretched = max(panel.values.shape) > 2 * min(panel.values.shape)
    image = axis.imshow(
        panel.values.T,
        origin="lower",
        cmap=_colours(panel),
        vmin=low,
        vmax=high,
        aspect="auto" if stretched else "equal",
        interpolation="nearest",
    )
    _finish(axis, panel, image)


def _draw_points(axis: Axes, panel: Panel, places: np.ndarray) -> None:
    low, high = panel.limits
    size = 9000.0 / max(panel.values.size, 100)
    drawn = axis.scatter(*places, c=panel.values, s=size, cmap=_colours(panel), vmin=low, vmax=high, linewidths=0)
    axis.set_aspect("equal")
    _finish(axis, panel, drawn)


def _colours(panel: Panel) -> str:
    return "RdBu_r" if panel.kind == "error" else "viridis"


def _finish(axis: Axes, panel: Panel, image: Any) -> None:
    """Title and colour bar, and nothing else around."""
    axis.set_title(textwrap.fill(panel.title, TITLE_WIDTH))
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.92, aspect=18, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.ax.locator_params(nbins=4)


def _sample(batch: Any, sample: int) -> np.ndarray:
    array = np.asarray(batch, dtype=float)
    if array.ndim < 3 or not 0 <= sample < len(array):
        raise DataError(
            f"expected sample {sample} of an array (b, c, *n), got shape {array.shape}; choose a sample in it"
        )
    return array[sample]


def _visible(field: np.ndarray) -> np.ndarray:
    """What of one field `(*n,)` is drawn: all of it, or the middle slice of a 3-D field."""
    return field[field.shape[0] // 2] if field.ndim == 3 else field


def _range(field: np.ndarray) -> tuple[float, float]:
    finite = field[np.isfinite(field)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _name(name: str, index: int, count: int) -> str:
    """The name alone for a single channel, else with its number."""
    if count == 1:
        return name
    return f"{name} {index + 1}" if name in ("input", "truth") else f"{name}, channel {index + 1}"


def _wrap(row: list[Panel], columns: int) -> list[list[Panel]]:
    return [row[start : start + columns] for start in range(0, len(row), columns)]


def _interleave(first: list[list[Panel]], second: list[list[Panel]]) -> list[list[Panel]]:
    """Prediction rows, each followed by the row of its errors."""
    return [row for pair in zip(first, second, strict=True) for row in pair]
