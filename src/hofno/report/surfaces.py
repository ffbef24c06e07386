"""Fields on a triangulated surface, seen from two opposite sides.

Whatever one side hides the other one shows, but for folds. Triangles are painted from the farthest to the nearest,
those of a coarse surface in several parts, each in the colour of the field at its centre, which is linear on the
triangle, a little darker the more it is turned away from the light.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.report.planes import Limits, Window, mapped
from hofno.surface import Surface

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ELEVATION = math.radians(48)
"""Of the eye over the plane of the two longest axes of the surface."""

LIGHT = np.array([-0.35, 0.45, 0.82])
"""Where light comes from: to the right, up, and towards the eye."""

DARKEST = 0.66
"""Of a colour, what is left of it where the light falls along the surface."""

FINE, MOST_PARTS = 9000, 5
"""Parts that are painted of all triangles together, about, and along each side of one, at most."""

GAP = 0.06
"""Between the two views, of their height."""


@dataclass(frozen=True)
class Skin:
    """Fields `(N,)` at the vertices of a surface."""

    surface: Surface
    framed = False

    @cached_property
    def axes(self) -> np.ndarray:
        """Right, up and towards the eye, the rows of a rotation (3, 3): the longest axis of the surface lies right."""
        centred = self.surface.vertices - self.surface.vertices.mean(0)
        frame = np.linalg.eigh(centred.T @ centred)[1][:, ::-1].T
        for row in (0, 2):
            frame[row] *= np.sign(frame[row, np.abs(frame[row]).argmax()])
        frame[1] = np.cross(frame[2], frame[0])  # no mirror image
        sin, cos = math.sin(ELEVATION), math.cos(ELEVATION)
        return np.stack((frame[0], sin * frame[1] + cos * frame[2], -cos * frame[1] + sin * frame[2]))

    @cached_property
    def views(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each side: the triangles from the farthest on, their corners (F, 3, 2), and how light they are, (F,)."""
        found = []
        seen = self.surface.corners @ self.axes.T  # right, up, towards the eye
        for turned in (np.array([1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0])):  # from the other side, by half a turn
            corners = seen * turned
            normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            normal *= (np.sign(normal[:, 2]) / (2 * self.surface.areas))[:, None]  # of the side that is seen
            lit = np.clip(normal @ LIGHT / np.linalg.norm(LIGHT), 0.0, 1.0)
            order = np.argsort(corners[..., 2].mean(1))
            found.append((order, corners[order, :, :2], DARKEST + (1 - DARKEST) * lit[order]))
        first, second = found[0][1], found[1][1]
        height = float(np.ptp(first[..., 1]))
        second -= [second[..., 0].mean() - first[..., 0].mean(), height * (1 + GAP)]
        return found

    @cached_property
    def bounds(self) -> Window:
        places = np.concatenate([corners.reshape(-1, 2) for _, corners, _ in self.views])
        (left, low), (right, high) = places.min(0), places.max(0)
        margin = 0.02 * max(right - left, high - low)
        return float(left - margin), float(right + margin), float(low - margin), float(high + margin)

    @property
    def aspect(self) -> float:
        left, right, low, high = self.bounds
        return (right - left) / (high - low)

    @property
    def shown(self) -> np.ndarray:
        return np.ones(len(self.surface.vertices), dtype=bool)

    def paint(self, axis: Axes, field: np.ndarray, colours: str, limits: Limits) -> Any:
        from matplotlib.collections import PolyCollection

        scale = mapped(colours, limits)
        parts = _parts(min(MOST_PARTS, math.ceil(math.sqrt(FINE / len(self.surface.triangles)))))  # (parts, 3, 3)
        values = field[self.surface.triangles] @ parts.mean(1).T  # (F, parts)
        painted = scale.to_rgba(np.ma.masked_invalid(values))  # (F, parts, 4)
        for order, corners, light in self.views:
            shade = np.append(np.repeat(light[:, None], 3, 1), np.ones((len(light), 1)), 1)
            faces = (painted[order] * shade[:, None]).reshape(-1, 4)
            pieces = np.einsum("pqc,fcd->fpqd", parts, corners).reshape(-1, 3, 2)
            axis.add_collection(
                PolyCollection(pieces, facecolors=faces, edgecolors=faces, linewidths=0.25, rasterized=True),
                autolim=False,
            )
        axis.set(xlim=self.bounds[:2], ylim=self.bounds[2:], aspect="equal")
        return scale


def _parts(count: int) -> np.ndarray:
    """Corners of the count^2 equal parts of a triangle, as weights of its own corners, (count^2, 3, 3)."""
    upright = [[(i, j), (i + 1, j), (i, j + 1)] for i in range(count) for j in range(count - i)]
    turned = [[(i + 1, j), (i + 1, j + 1), (i, j + 1)] for i in range(count) for j in range(count - 1 - i)]
    found = np.array(upright + turned, dtype=float) / count
    return np.concatenate((1 - found.sum(-1, keepdims=True), found), -1)
