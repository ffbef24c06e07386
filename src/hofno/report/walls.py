"""Values along the wall of a mesh: truth and predictions over x, where a shock or a peak that is misplaced shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import ShapeError
from hofno.report.drawing import GREY, INK, expect_some, legend_below, panels, series_styles, styled
from hofno.report.planes import Sheet
from hofno.report.scenes import Scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDES = "upper side", "lower side"
ALIKE = 0.03
"""Sides that are nowhere farther apart than this part of what a curve spans are one to the eye, and have no names."""


@styled
def along_wall(x: Any, y: Any, predictions: Mapping[str, Any], scene: Scene) -> Figure:
    """Targets of one sample, `(c, I, J)`, at the nodes j = 0 that are no cut; one panel for each channel.

    A channel that has a coefficient in the scene is drawn as that.
    """
    expect_some(predictions, "prediction")
    inputs, truth = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if scene.nodes is None or truth.ndim != 3 or inputs.shape[1:] != truth.shape[1:]:
        raise ShapeError(
            f"expected one sample (c, I, J) of fields on a mesh with its nodes among the inputs; got {inputs.shape} "
            f"and {truth.shape}"
        )
    sheet = Sheet(inputs[list(scene.nodes)])
    wall, styles = sheet.wall(), series_styles(list(predictions))
    nodes = sheet.nodes[:, wall, 0]
    figure, axes = panels(len(truth), 1, height=3.3)
    for channel, axis in enumerate(axes):
        name = scene.targets[channel] if channel < len(scene.targets) else f"target {channel + 1}"
        coefficient = scene.coefficients.get(channel)
        curves = [np.asarray(fields, dtype=float)[channel, wall, 0] for fields in (truth, *predictions.values())]
        if coefficient is not None:
            name, curves = coefficient.name, [coefficient.of(curve, inputs) for curve in curves]
        axis.plot(nodes[0], curves[0], color=INK, linewidth=2.2, label="truth")
        for label, curve in zip(predictions, curves[1:], strict=True):
            colour, dash, _ = styles[label]
            axis.plot(nodes[0], curve, color=colour, linestyle=dash, lw=1.3, label=label)
        if scene.level is not None and channel == 0:
            axis.axhline(scene.level[0], color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
        axis.set_xlabel(f"x ({scene.lengths})" if scene.lengths else "x")
        axis.set_ylabel(name)
        axis.set_title(f"{name[:1].upper()}{name[1:]} along the {scene.wall}")
        if coefficient is not None and coefficient.downwards:
            axis.invert_yaxis()
        _name_sides(axis, nodes, curves)
    legend_below(figure, axes[0])
    return figure


def _name_sides(axis: Axes, nodes: np.ndarray, curves: list[np.ndarray]) -> None:
    """Say which curves are of which side, where the first of them, the truth, is farthest apart on both.

    Nodes (2, n) run round the wall, and each curve (n,) with them.
    """
    nose = int(nodes[0].argmin())
    if min(nose, nodes.shape[1] - 1 - nose) < 2:
        return  # the wall has one side
    table = np.stack((*nodes, *curves))
    sides = [side[:, side[0].argsort()] for side in (table[:, : nose + 1], table[:, nose:])]
    places = np.linspace(max(side[0, 0] for side in sides), min(side[0, -1] for side in sides), 101)[5:-5]
    found = np.array([[np.interp(places, side[0], row) for row in side[1:]] for side in sides])  # (2, 1 + curves, x)
    upper, apart = int(found[:, 0].mean(1).argmax()), np.abs(found[0, 1] - found[1, 1])
    if apart.max() < ALIKE * np.ptp(curves[0]):
        return
    at = int(apart.argmax())
    for name, side in zip(SIDES, (upper, 1 - upper), strict=True):
        above = bool(found[side, 1, at] > found[1 - side, 1, at])
        level = found[side, 1:, at].max() if above else found[side, 1:, at].min()
        raised = above != axis.yaxis_inverted()
        where: Any = {"ha": "center", "va": "bottom" if raised else "top", "textcoords": "offset points"}
        axis.annotate(name, (places[at], level), (0, 5 if raised else -5), fontsize=9, color=GREY, **where)
    axis.margins(y=0.14)
