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
    from matplotlib.figure import Figure


@styled
def along_wall(x: Any, y: Any, predictions: Mapping[str, Any], scene: Scene) -> Figure:
    """Targets of one sample, `(c, I, J)`, at the nodes j = 0 that are no cut; one panel for each channel."""
    expect_some(predictions, "prediction")
    inputs, truth = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if scene.nodes is None or truth.ndim != 3 or inputs.shape[1:] != truth.shape[1:]:
        raise ShapeError(
            f"expected one sample (c, I, J) of fields on a mesh with its nodes among the inputs; got {inputs.shape} "
            f"and {truth.shape}"
        )
    sheet = Sheet(inputs[list(scene.nodes)])
    wall, styles = sheet.wall(), series_styles(list(predictions))
    places = sheet.nodes[0, wall, 0]
    figure, axes = panels(len(truth), 1, height=3.3)
    for channel, axis in enumerate(axes):
        axis.plot(places, truth[channel, wall, 0], color=INK, linewidth=2.2, label="truth")
        for label, guess in predictions.items():
            colour, dash, _ = styles[label]
            axis.plot(places, np.asarray(guess)[channel, wall, 0], color=colour, linestyle=dash, lw=1.3, label=label)
        if scene.level is not None and channel == 0:
            axis.axhline(scene.level[0], color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
        axis.set_xlabel(f"x ({scene.lengths})" if scene.lengths else "x")
        axis.set_ylabel(scene.targets[channel] if channel < len(scene.targets) else f"target {channel + 1}")
        axis.set_title(f"Along the {scene.wall}")
    legend_below(figure, axes[0])
    return figure
