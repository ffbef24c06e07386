"""A body that moves, frame by frame under the tool that presses it, where the truth and where each model says it is.

    colour = |u|, how far a node has moved;     error = |û - u| at the true nodes

Truth and predictions share their colours, and so do all frames; the errors of all models share theirs. Predictions are
drawn on the nodes that were predicted, with the outline of the true body: one in the wrong place is seen there. Lines
are those of the mesh, or as many as can be told apart.
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
from hofno.report.drawing import GREY, INK, WIDTH, expect_some, series_styles, styled
from hofno.report.film import FIELD_COLOURS, Film, Scale, Strip, png
from hofno.report.planes import Limits, Sheet, Window, error_reach, mapped, row_bar
from hofno.report.scenes import Motion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ERROR_COLOURS = "magma_r"
COLUMNS, LABEL_WIDTH = 3, 11
FRAME_PIXELS = 420
"""Width of a frame of a film."""

BESIDE, BELOW = 30, 28
"""Of them, and of its height, what the numbers on the axes take."""

MESH_COLOUR = "#8a94a080"

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
        """Most errors of all models; a prediction that runs away does not set the scale."""
        return 0.0, error_reach([self.error(label) for label in self.guesses], self.limits[1])

    @cached_property
    def lines(self) -> tuple[int, int]:
        """Every how many lines of the mesh one is drawn, the same in all frames."""
        return Sheet(self.truth.nodes[0], self.window).steps

    def label(self, frame: int) -> str:
        return f"t = {frame * self.motion.interval:.3g} {self.motion.units[1]}"

    def draw(self, axis: Axes, body: Body, values: np.ndarray, frame: int, colours: str, limits: Limits) -> None:
        """One frame: the body in its place, the tool above it."""
        x, y = self.tool
        y = y - self.motion.speed * self.motion.interval * frame
        axis.fill_between(x, y, np.maximum(y, self.window[3]), color="#d5dae0", linewidth=0)
        sheet = Sheet(body.nodes[frame], self.window)
        sheet.paint(axis, values[frame], colours, limits)
        sheet.mesh(axis, self.lines, MESH_COLOUR)
        if body is not self.truth:
            axis.plot(*_outline(self.truth.nodes[frame]), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.plot(x, y, color=GREY, linewidth=1.4)
        axis.grid(visible=False)
        axis.tick_params(labelsize=7.5, length=2, pad=2)
        axis.locator_params(axis="x", nbins=6)
        axis.locator_params(axis="y", nbins=4)


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


def _outline(nodes: np.ndarray) -> np.ndarray:
    """The border of a mesh (2, I, J), once round."""
    sides = nodes[:, :, 0], nodes[:, -1], nodes[:, ::-1, -1], nodes[:, 0, ::-1]
    return np.concatenate(sides, 1)


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
    height = (WIDTH - 1.3) / len(chosen) / seen.aspect + 0.3
    figure = Figure(figsize=(WIDTH, rows * height), layout="constrained")
    space = figure.subplots(rows, len(chosen), squeeze=False)
    length = seen.motion.units[0]
    for column, frame in enumerate(chosen):
        seen.draw(space[0, column], seen.truth, seen.truth.distance, frame, FIELD_COLOURS, seen.limits)
        space[0, column].set_title(seen.label(frame))
        for index, (label, guess) in enumerate(seen.guesses.items()):
            seen.draw(space[1 + 2 * index, column], guess, guess.distance, frame, FIELD_COLOURS, seen.limits)
            below, error = space[2 + 2 * index, column], seen.error(label)
            seen.draw(below, seen.truth, error, frame, ERROR_COLOURS, seen.error_limits)
            below.set_title(f"rms {number(float(np.sqrt(np.mean(error[frame] ** 2))))} {length}", fontsize=9)
    for axis in space[:-1].flat:
        axis.tick_params(labelbottom=False)
    for axis in space[:, 1:].flat:
        axis.tick_params(labelleft=False)
    for axis in space[-1]:
        axis.set_xlabel(f"x ({length})", fontsize=8.5, labelpad=1)
    space[0, 0].set_ylabel("truth")
    for index, label in enumerate(seen.guesses):
        colour = styles[label][0]
        space[1 + 2 * index, 0].set_ylabel(textwrap.fill(label, LABEL_WIDTH), color=colour)
        space[2 + 2 * index, 0].set_ylabel("error", color=colour)
    moved, wrong = f"|u| ({length})", f"|û − u| ({length})"
    row_bar(figure, list(space[0]), mapped(FIELD_COLOURS, seen.limits), moved)
    for index in range(len(seen.guesses)):
        row_bar(figure, list(space[1 + 2 * index]), mapped(FIELD_COLOURS, seen.limits), moved)
        row_bar(figure, list(space[2 + 2 * index]), mapped(ERROR_COLOURS, seen.error_limits), wrong)
    times = ", ".join(seen.label(frame) for frame in chosen)
    figure.set_label(
        f"A body under a tool at {times}: truth, then prediction and error of {', '.join(seen.guesses)}. Colours: "
        f"displacement |u| up to {number(seen.limits[1])} {length}; errors |û − u| up to "
        f"{number(seen.error_limits[1])} {length}. Axes: x and y in {length}."
    )
    return figure


@styled
def _strip(seen: Pressing, body: Body, values: np.ndarray, colours: str, limits: Limits) -> Figure:
    """All frames of one panel side by side, without anything between them."""
    from matplotlib.figure import Figure

    count, height = len(values), frame_height(seen)
    figure = Figure(figsize=(count * FRAME_PIXELS / 100, height / 100), dpi=100)
    left, bottom = BESIDE / FRAME_PIXELS, BELOW / height
    for frame in range(count):
        axis = figure.add_axes(((frame + left) / count, bottom, (0.985 - left) / count, 1 - bottom))
        seen.draw(axis, body, values, frame, colours, limits)
        axis.set(aspect="auto")
    return figure


def frame_height(seen: Pressing) -> int:
    """Pixels of a frame of a film."""
    return round((FRAME_PIXELS - BESIDE) / seen.aspect) + BELOW


def body_film(seen: Pressing) -> Film:
    """All frames, moving."""
    unit = seen.motion.units[0]
    moved = Scale(f"displacement |u| in {unit}", FIELD_COLOURS, *seen.limits)

    def strip(title: str, body: Body, values: np.ndarray, scale: Scale) -> Strip:
        return Strip(title, png(_strip(seen, body, values, scale.colours, (scale.low, scale.high))), scale)

    strips = [strip("Truth", seen.truth, seen.truth.distance, moved)]
    wrong = Scale(f"error |û − u| in {unit}", ERROR_COLOURS, *seen.error_limits)
    for label, guess in seen.guesses.items():
        strips.append(strip(label, guess, guess.distance, moved))
        strips.append(strip(f"Error of {label}", seen.truth, seen.error(label), wrong))
    labels = tuple(seen.label(frame) for frame in range(len(seen.truth.nodes)))
    return Film(tuple(strips), labels, FRAME_PIXELS / frame_height(seen))
