"""A body that moves, frame by frame under the tool that presses it, where the truth and where each model says it is.

    colour = |u|, how far a node has moved;     error = |û - u| at the true nodes

Truth and predictions share their colours, and so do all errors and all frames. Predictions are drawn on the nodes that
were predicted: a body in the wrong place is seen in the wrong place.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import ShapeError
from hofno.report.digits import number
from hofno.report.drawing import GREY, WIDTH, expect_some, series_styles, styled
from hofno.report.film import FIELD_COLOURS, Film, Scale, Strip, png
from hofno.report.planes import Limits, Sheet, Window, mapped
from hofno.report.scenes import Motion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ERROR_COLOURS = "magma_r"
COLUMNS, LABEL_WIDTH = 3, 11
FRAME_PIXELS = 420
"""Width of a frame of a film."""

ROOM_ABOVE = 0.3
"""How much of the tool is seen above the body, of the height of the body."""


@dataclass(frozen=True)
class Body:
    """Frames of nodes and displacements, (t, 2, I, J) each."""

    nodes: np.ndarray
    moved: np.ndarray

    @classmethod
    def of(cls, targets: np.ndarray, motion: Motion) -> Body:
        """From the channels of one sample, (c, I, J, t)."""
        frames = np.moveaxis(targets, -1, 0)
        return cls(frames[:, list(motion.positions)], frames[:, list(motion.displacements)])

    @property
    def distance(self) -> np.ndarray:
        """(t, I, J)"""
        return np.hypot(self.moved[:, 0], self.moved[:, 1])


@dataclass(frozen=True)
class Pressing:
    """One sample: the true body, those that were predicted, and the tool."""

    truth: Body
    guesses: dict[str, Body]
    tool: np.ndarray  # (2, I + 2) in the first frame, by increasing x; beyond its ends it goes on flat
    motion: Motion

    @cached_property
    def window(self) -> Window:
        """Where the true body is at any time, and a little of the tool above it."""
        x, y = self.truth.nodes[:, 0], self.truth.nodes[:, 1]
        height, margin = float(np.ptp(y)), 0.02 * float(np.ptp(x))
        left, right = float(x.min()) - margin, float(x.max()) + margin
        return left, right, float(y.min()) - margin, float(y.max()) + ROOM_ABOVE * height

    @property
    def aspect(self) -> float:
        left, right, low, high = self.window
        return (right - left) / (high - low)

    @cached_property
    def limits(self) -> Limits:
        return 0.0, float(self.truth.distance.max()) or 1.0

    def error(self, label: str) -> np.ndarray:
        """How far each prediction of a displacement is off, (t, I, J)."""
        off = self.guesses[label].moved - self.truth.moved
        return np.hypot(off[:, 0], off[:, 1])

    @cached_property
    def error_limits(self) -> Limits:
        """Most errors; a prediction that runs away does not set the scale."""
        errors = [self.error(label) for label in self.guesses]
        found = [error[np.isfinite(error)] for error in errors]
        reach = max((float(np.percentile(values, 99.5)) for values in found if values.size), default=0.0)
        return 0.0, min(reach, self.limits[1]) or 1.0

    def label(self, frame: int) -> str:
        return f"t = {frame * self.motion.interval:.3g} {self.motion.units[1]}"

    def draw(self, axis: Axes, body: Body, values: np.ndarray, frame: int, colours: str, limits: Limits) -> None:
        """One frame: the body in its place, the tool above it."""
        x, y = self.tool
        y = y - self.motion.speed * self.motion.interval * frame
        axis.fill_between(x, y, np.maximum(y, self.window[3]), color="#d5dae0", linewidth=0)
        Sheet(body.nodes[frame], self.window).paint(axis, values[frame], colours, limits)
        axis.plot(x, y, color=GREY, linewidth=1.4)


def pressing(x: Any, y: Any, predictions: Mapping[str, Any], motion: Motion) -> Pressing:
    """One sample, seen: inputs, targets and predictions by model label, `(1, c, I, J, t)` or frames `(t, c, I, J)`."""
    expect_some(predictions, "prediction")
    inputs, truth = _in_time(x), _in_time(y)
    if inputs.shape[1:] != truth.shape[1:]:
        raise ShapeError(f"expected inputs and targets on the same nodes, got {inputs.shape} and {truth.shape}")
    guesses = {label: _in_time(values) for label, values in predictions.items()}
    for label, guess in guesses.items():
        if guess.shape != truth.shape:
            raise ShapeError(f"expected a prediction of shape {truth.shape}, got {guess.shape} from {label!r}")
    body = Body.of(truth, motion)
    places, heights = (body.nodes - body.moved)[0, 0, :, 0], inputs[motion.tool, :, 0, 0]
    order = np.argsort(places)
    tool = np.stack((places[order], heights if motion.tool_from_left else heights[order]))
    width = np.array([[np.ptp(places)], [0.0]])
    tool = np.concatenate((tool[:, :1] - width, tool, tool[:, -1:] + width), 1)
    return Pressing(body, {label: Body.of(guess, motion) for label, guess in guesses.items()}, tool, motion)


def _in_time(values: Any) -> np.ndarray:
    """The channels of one sample with time as the last axis, (c, I, J, t)."""
    array = np.asarray(values, dtype=float)
    found = array[0] if array.ndim == 5 and len(array) == 1 else np.moveaxis(array, 0, -1)
    if found.ndim != 4 or found.shape[-1] < 2:
        raise ShapeError(
            f"expected two or more frames of one body, (1, c, I, J, t) or (t, c, I, J); got shape {array.shape}"
        )
    return found


@styled
def body_frames(seen: Pressing) -> Figure:
    """A few frames: the truth in the first row, then prediction and error of each model."""
    from matplotlib.figure import Figure

    count = len(seen.truth.nodes)
    chosen = np.linspace(0, count - 1, min(COLUMNS + 1, count)).round().astype(int)[1:]
    styles, rows = series_styles(list(seen.guesses)), 1 + 2 * len(seen.guesses)
    height = (WIDTH - 0.6) / len(chosen) / seen.aspect + 0.3
    figure = Figure(figsize=(WIDTH, rows * height + 0.8), layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2 * len(chosen), height_ratios=[*(rows * [1.0]), 0.09 / height])
    space = np.array(
        [
            [figure.add_subplot(grid[row, 2 * column : 2 * column + 2]) for column in range(len(chosen))]
            for row in range(rows)
        ]
    )
    length = seen.motion.units[0]
    for column, frame in enumerate(chosen):
        seen.draw(space[0, column], seen.truth, seen.truth.distance, frame, FIELD_COLOURS, seen.limits)
        space[0, column].set_title(seen.label(frame))
        for index, (label, guess) in enumerate(seen.guesses.items()):
            seen.draw(space[1 + 2 * index, column], guess, guess.distance, frame, FIELD_COLOURS, seen.limits)
            below, error = space[2 + 2 * index, column], seen.error(label)
            seen.draw(below, seen.truth, error, frame, ERROR_COLOURS, seen.error_limits)
            below.set_title(f"rms {number(float(np.sqrt(np.mean(error[frame] ** 2))))} {length}", fontsize=9)
    for axis in space.flat:
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    space[0, 0].set_ylabel("truth")
    for index, label in enumerate(seen.guesses):
        colour = styles[label][0]
        space[1 + 2 * index, 0].set_ylabel(textwrap.fill(label, LABEL_WIDTH), color=colour)
        space[2 + 2 * index, 0].set_ylabel("error", color=colour)
    half = len(chosen)
    for place, drawn, name in (
        (grid[rows, :half], mapped(FIELD_COLOURS, seen.limits), f"displacement |u| ({length})"),
        (grid[rows, half:], mapped(ERROR_COLOURS, seen.error_limits), f"error |û − u| ({length})"),
    ):
        bar = figure.colorbar(drawn, cax=figure.add_subplot(place), orientation="horizontal", extend="neither")
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8, length=2)
        bar.set_label(name, fontsize=9)
    times = ", ".join(seen.label(frame) for frame in chosen)
    figure.set_label(
        f"A body under a tool at {times}: truth, then prediction and error of {', '.join(seen.guesses)}. Colours: "
        f"displacement up to {number(seen.limits[1])} {length}, error up to {number(seen.error_limits[1])} {length}."
    )
    return figure


@styled
def _strip(seen: Pressing, body: Body, values: np.ndarray, colours: str, limits: Limits) -> Figure:
    """All frames of one panel side by side, without anything between them."""
    from matplotlib.figure import Figure

    count, height = len(values), round(FRAME_PIXELS / seen.aspect)
    figure = Figure(figsize=(count * FRAME_PIXELS / 100, height / 100), dpi=100)
    for frame in range(count):
        axis = figure.add_axes((frame / count, 0, 1 / count, 1))
        seen.draw(axis, body, values, frame, colours, limits)
        axis.set(aspect="auto")
        axis.set_axis_off()
    return figure


def body_film(seen: Pressing) -> Film:
    """All frames, moving."""
    strips = [Strip("Truth", png(_strip(seen, seen.truth, seen.truth.distance, FIELD_COLOURS, seen.limits)))]
    for label, guess in seen.guesses.items():
        strips.append(Strip(label, png(_strip(seen, guess, guess.distance, FIELD_COLOURS, seen.limits))))
        error = _strip(seen, seen.truth, seen.error(label), ERROR_COLOURS, seen.error_limits)
        strips.append(Strip(f"Error of {label}", png(error)))
    labels = tuple(seen.label(frame) for frame in range(len(seen.truth.nodes)))
    unit = seen.motion.units[0]
    moved = Scale(f"displacement |u| in {unit}", FIELD_COLOURS, *seen.limits)
    wrong = Scale(f"error |û − u| in {unit}", ERROR_COLOURS, *seen.error_limits)
    return Film(tuple(strips), labels, moved, wrong, seen.aspect)
