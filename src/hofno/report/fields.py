"""One test sample, seen: inputs, truth, and per model the prediction ŷ and its error ŷ - y.

Predictions share the colour limits of the truth. Errors share limits of their own, symmetric about zero and as wide as
the largest of all models, at most as the truth: models are compared by eye. The title of an error says ‖ŷ - y‖ / ‖y‖
over the whole field. Panels are called as their quantities are, where these are known. Fields of the plane are drawn
where their values lie: on a grid, on the nodes of a mesh, at scattered points (`hofno.report.planes`), and those of a
surface on it (`hofno.report.surfaces`). 1-D fields are lines, a prediction over the truth and both whole; values at
scattered points in space are dots, by the number of the point. Of 3-D fields the middle slice along the first axis is
shown. Inputs that are the same everywhere, such as the speed of a stream, are numbers above the figure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import DataError, ShapeError
from hofno.report.digits import number
from hofno.report.drawing import GREY, INK, WIDTH, expect_some, panels, series_styles, styled
from hofno.report.planes import Cloud, Plane, Raster, Sheet
from hofno.report.scenes import Scene
from hofno.report.surfaces import Skin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTER = 0.082
"""Inches: the mean width of a letter of a title."""

SPARED, SPARED_FRAMED = 0.2, 0.75
"""Inches of a panel's room that its title leaves free: a gap, and the numbers and name of an axis on its left."""

MOST_COLUMNS = 4
MOST_FRAMED, MOST_WIDE = 3, 2
"""Columns of panels with axes or of surfaces, and of those with axes that are wider than high."""

HEIGHTS = {2: 3.1, 3: 2.35, 4: 1.8}
"""Inches per row of images, by number of columns: what a square image and its title take."""

WIDE = 1.25
"""Width by height from which on a panel counts as wide and has its colour bar below."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One field with its title and limits, and what it is: "place", "input", "truth", "prediction" or "error".

    A "place" has no values: it shows where they are.
    """

    kind: str
    title: str
    values: np.ndarray
    limits: tuple[float, float] = (0.0, 1.0)
    colour: str = INK
    behind: np.ndarray | None = None
    name: str = ""


@styled
def fields(
    x: Any, y: Any, predictions: Mapping[str, Any], sample: int = 0, places: Any = None, scene: Scene | None = None
) -> Figure:
    """Draw one sample of arrays `(b, c, *n)`: inputs `x`, truth `y`, and `predictions` by model label.

    `places` `(b, d, N)` are the points that fields `(b, c, N)` are known at; `scene` says what channels are called and
    which of them are the nodes of a mesh.
    """
    expect_some(predictions, "prediction")
    scene = scene or Scene()
    x_fields, truth = _sample(x, sample), _sample(y, sample)  # (c, *n)
    guesses = {label: _sample(prediction, sample) for label, prediction in predictions.items()}
    for label, guess in guesses.items():
        if guess.shape != truth.shape:
            raise ShapeError(f"expected a prediction of shape {truth.shape}, got {guess.shape} from {label!r}")
    if not 1 <= truth.ndim - 1 <= 3:
        raise ShapeError(f"expected fields (b, c, *n) in one to three dimensions, got shape {np.shape(y)}")

    plane = _plane(x_fields, truth, None if places is None else _sample(places, sample), scene)
    shown = None if plane is None else plane.shown
    given = [index for index in range(len(x_fields)) if index not in (scene.nodes or ())]
    alike = {index: float(x_fields[index].flat[0]) for index in given if np.ptp(x_fields[index]) == 0}
    drawn = [index for index in given if index not in alike]
    said = ", ".join(
        f"{_named(scene.inputs, k) or _name('input', k, len(given), '')}: {number(alike[k])}" for k in alike
    )
    opening = []
    if isinstance(plane, Sheet | Cloud):
        opening.append(Panel("place", plane.title, np.empty(0)))
    for index in drawn:
        field, name = _visible(x_fields[index]), _named(scene.inputs, index)
        title = _name("input", index, len(given), name)
        opening.append(Panel("input", title, field, _range(field, shown), name=name))
    for index, field in enumerate(map(_visible, truth)):
        name = _named(scene.targets, index)
        title = _name("truth", index, len(truth), name)
        opening.append(Panel("truth", title, field, _range(field, shown), name=name))
    most = MOST_FRAMED if isinstance(plane, Skin) else MOST_COLUMNS
    if isinstance(plane, Sheet | Cloud):
        most = MOST_WIDE if plane.aspect > WIDE else MOST_FRAMED
    columns = min(most, max(2, len(opening), len(guesses)))
    rows = _wrap(opening, columns)
    for channel in range(len(truth)):
        wrong, right = _model_panels(guesses, truth, channel, shown, _named(scene.targets, channel))
        together = len(wrong) + len(right) <= columns
        rows += [right + wrong] if together else _interleave(_wrap(right, columns), _wrap(wrong, columns))
    figure = _draw(rows, columns, plane, scene, joined=places is None)
    if note := "\n".join(filter(None, (said, _which_slice(truth.shape[1:])))):
        figure.suptitle(note, fontsize=10)
    figure.set_label(_in_words(rows, scene, "values" if plane is None else "colours", said))
    return figure


def _plane(x_fields: np.ndarray, truth: np.ndarray, places: np.ndarray | None, scene: Scene) -> Plane | Skin | None:
    """Where the values of this sample lie in the plane or on a surface; None for values along a line or in space."""
    if scene.surface is not None:
        return Skin(scene.surface)
    if places is not None:
        return Cloud(places) if len(places) == 2 else None
    if scene.nodes is not None:
        return Sheet(x_fields[list(scene.nodes)], scene.window)
    return Raster(_visible(truth[0]).shape) if truth.ndim > 2 else None


def _model_panels(
    guesses: Mapping[str, np.ndarray], truth: np.ndarray, channel: int, shown: np.ndarray | None, named: str
) -> tuple[list[Panel], list[Panel]]:
    """Errors and predictions of every model, for one output channel."""
    styles = series_styles(list(guesses))
    true = truth[channel]
    reach = max(_reach(_visible(guess[channel] - true), shown) for guess in guesses.values()) or 1.0
    extent = float(np.ptp(_visible(true) if shown is None else _visible(true)[shown]))
    if shown is not None and extent > 0:  # a prediction that runs away does not set the scale of colours
        reach = min(reach, extent)
    errors, found = [], []
    for label, guess in guesses.items():
        error = guess[channel] - true
        size, colour = float(np.linalg.norm(true)), styles[label][0]
        relative = number(float(np.linalg.norm(error)) / size) if size > 0 else "undefined (truth is 0)"
        behind = _visible(true)
        seen = np.stack((behind, guess[channel])) if shown is None else behind  # all of a curve is seen
        limits, title = _range(seen, shown), _name(label, channel, len(truth), named)
        found.append(Panel("prediction", title, _visible(guess[channel]), limits, colour, behind, named))
        title, named_error = f"error, rel. L2 {relative}", "prediction − truth" if named else ""
        if named and len(truth) > 1:
            title = f"error of {named}, rel. L2 {relative}"
        errors.append(Panel("error", title, _visible(error), (-reach, reach), colour, name=named_error))
    return errors, found


def _draw(
    rows: list[list[Panel]],
    columns: int,
    plane: Plane | Skin | None,
    scene: Scene,
    joined: bool,
) -> Figure:
    height = 2.0 if plane is None else HEIGHTS[columns] if isinstance(plane, Raster) else _height(plane, columns)
    figure, axes = panels(len(rows), columns, height=height)
    spared = SPARED if isinstance(plane, Raster | Skin) else SPARED_FRAMED
    letters = int((WIDTH / columns - spared) / LETTER)
    for index, axis in enumerate(axes):
        row = rows[index // columns]
        if index % columns >= len(row):
            axis.set_visible(False)
        elif plane is None:
            _draw_line(axis, row[index % columns], letters, joined)
        else:
            _draw_plane(axis, row[index % columns], plane, scene, letters)
    return figure


def _which_slice(space: tuple[int, ...]) -> str:
    """What is seen of 3-D fields; of others all is."""
    if len(space) < 3:
        return ""
    return f"Middle slice of 3-D fields: index {space[0] // 2} of {space[0]} along the first axis"


def _height(plane: Sheet | Cloud | Skin, columns: int) -> float:
    """Inches per row: the panel in its proportions, its title and axes, and a colour bar beside or below."""
    room = WIDTH / columns
    if isinstance(plane, Skin):
        return (room - 0.9) / plane.aspect + 0.45
    return (room - 0.7) / plane.aspect + 1.25 if plane.aspect > WIDE else (room - 1.35) / plane.aspect + 0.75


def _draw_line(axis: Axes, panel: Panel, letters: int, joined: bool) -> None:
    """The curve under its title, which has lines of so many letters; of a prediction, the truth behind it.

    Values that are not `joined`, as neighbours by number are none in space, are dots.
    """
    dots: dict[str, Any] = {} if joined else {"marker": ".", "markersize": 3}
    if panel.behind is not None:
        axis.plot(panel.behind, color=GREY, linewidth=1.0, linestyle=(0, (3, 2)) if joined else "none", **dots)
    axis.plot(panel.values, color=panel.colour, linewidth=1.3, linestyle="solid" if joined else "none", **dots)
    margin = 0.06 * (panel.limits[1] - panel.limits[0])
    axis.set_ylim(panel.limits[0] - margin, panel.limits[1] + margin)
    title = panel.title if panel.behind is None else f"{panel.title} ({'dashed' if joined else 'grey'}: truth)"
    _entitle(axis, title, letters)
    axis.margins(x=0 if joined else 0.02)  # a dot at the end is a whole one


def _draw_plane(axis: Axes, panel: Panel, plane: Plane | Skin, scene: Scene, letters: int) -> None:
    """The field, its title in lines of so many letters, its colour bar; axes where lengths mean something."""
    below = plane.framed and plane.aspect > WIDE
    axis.grid(visible=False)
    axis.set_anchor((0.5, 0.0) if below else (1.0, 0.5))  # where a colour bar puts its panel: all are in line
    _entitle(axis, panel.title, letters)
    if isinstance(plane, Raster | Skin):
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    else:
        axis.tick_params(labelsize=8, length=2)
        axis.locator_params(nbins=min(7, letters // 5))  # fewer numbers on narrow panels
        unit = f" ({scene.lengths})" if scene.lengths else ""
        axis.set_xlabel(f"x{unit}", fontsize=8.5, labelpad=1)
        axis.set_ylabel(f"y{unit}", fontsize=8.5, labelpad=4)
    if panel.kind == "place":
        assert isinstance(plane, Sheet | Cloud)
        plane.sketch(axis)
        return
    painted = plane.paint(axis, panel.values, "RdBu_r" if panel.kind == "error" else "viridis", panel.limits)
    wanted = panel.kind in ("truth", "prediction") and panel.name == _named(scene.targets, 0)
    if scene.level is not None and isinstance(plane, Sheet) and wanted:
        plane.level(axis, panel.values, scene.level[0])
    where: dict[str, Any] = {"location": "bottom", "aspect": 32, "pad": 0.02} if below else {"aspect": 18, "pad": 0.03}
    bar = axis.figure.colorbar(painted, ax=axis, shrink=0.92 if plane.framed else 0.84, **where)  # below the title
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.ax.locator_params(nbins=4 if not plane.framed else 6)
    bar.set_label(panel.name, fontsize=8.5)


def _entitle(axis: Axes, title: str, letters: int) -> None:
    """A title over the left edge: one that is wider than its field goes on over the colour bar, not over the margin."""
    axis.set_title(textwrap.fill(title, letters), x=0.0, ha="left")


def _in_words(rows: list[list[Panel]], scene: Scene, what: str, said: str) -> str:
    """The figure for readers who do not see it; `what` shows the values of a field, and what is `said` is above it."""
    told = []
    for panel in (panel for row in rows for panel in row):
        low, high = (number(value) for value in panel.limits)
        name = f" ({panel.name})" if panel.name and panel.name not in panel.title else ""
        told.append(panel.title if panel.kind == "place" else f"{panel.title}{name}, {what} from {low} to {high}")
    level = f" A line marks {scene.level[1]}." if scene.level is not None else ""
    alike = f" {said}." if said else ""
    return f"One sample.{alike} Panels: {'; '.join(told)}.{level}"


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


def _range(field: np.ndarray, shown: np.ndarray | None) -> tuple[float, float]:
    seen = field if shown is None else field[shown]
    finite = seen[np.isfinite(seen)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _reach(error: np.ndarray, shown: np.ndarray | None) -> float:
    """The largest finite error in sight."""
    seen = error if shown is None else error[shown]
    return float(np.abs(seen[np.isfinite(seen)]).max(initial=0.0))


def _name(name: str, index: int, count: int, quantity: str) -> str:
    """The name alone for a single channel, else with what the channel is, or with its number."""
    if count == 1:
        return name
    if quantity:
        return f"{name}: {quantity}"
    return f"{name} {index + 1}" if name in ("input", "truth") else f"{name}, channel {index + 1}"


def _named(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else ""


def _wrap(row: list[Panel], columns: int) -> list[list[Panel]]:
    return [row[start : start + columns] for start in range(0, len(row), columns)]


def _interleave(first: list[list[Panel]], second: list[list[Panel]]) -> list[list[Panel]]:
    """Prediction rows, each followed by the row of its errors."""
    return [row for pair in zip(first, second, strict=True) for row in pair]
