"""Where in the plane the values of one sample lie, and how a field there is painted.

- `Raster`: points of a grid, an image;
- `Sheet`: nodes of a structured mesh, colours interpolated over its cells;
- `Cloud`: scattered points, colours interpolated over the triangles between neighbours.

What a mesh or a cloud does not cover, a foil or a void, stays empty and is outlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.report.drawing import GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.tri import Triangulation

Limits = tuple[float, float]
Window = tuple[float, float, float, float]

BAD = "#9aa5b1"
"""The colour of values that are not finite."""

MESH_LINES = 48
"""Lines of a mesh that are drawn are apart by about the size of the window over this number."""

SHADES = 128
"""Steps of colour of a field on a mesh: more than can be told apart."""

LONG = 12.0
"""A box so many times as long as wide has a scale of its own on each axis: nothing is seen of it otherwise."""

LOCAL_REACH, OVERALL_REACH = 2.0, 3.0
"""Triangles belong to a cloud if their circle is at most so many local spacings, or so many median circles."""


@dataclass(frozen=True)
class Raster:
    """An image of a field `(h, w)`: x to the right, y upwards, without axes."""

    shape: tuple[int, int]
    framed = False

    @property
    def aspect(self) -> float:
        """Width by height; long grids are squeezed into a square."""
        h, w = self.shape
        return h / w if max(h, w) <= 2 * min(h, w) else 1.0

    @property
    def shown(self) -> np.ndarray:
        return np.ones(self.shape, dtype=bool)

    def paint(self, axis: Axes, field: np.ndarray, colours: str, limits: Limits) -> Any:
        stretched = max(field.shape) > 2 * min(field.shape)
        return axis.imshow(
            field.T,
            origin="lower",
            cmap=_colours(colours),
            vmin=limits[0],
            vmax=limits[1],
            aspect="auto" if stretched else "equal",
            interpolation="nearest",
        )


@dataclass(frozen=True)
class Sheet:
    """Fields `(I, J)` at nodes `(2, I, J)`; only the window is seen, by default all of it."""

    nodes: np.ndarray
    window: Window | None = None
    framed = True

    @cached_property
    def bounds(self) -> Window:
        return self.window or _around(self.nodes)

    @property
    def aspect(self) -> float:
        return _aspect(self.bounds)

    @cached_property
    def shown(self) -> np.ndarray:
        """Which nodes can be seen."""
        left, right, low, high = self.bounds
        x, y = self.nodes
        return (x >= left) & (x <= right) & (y >= low) & (y <= high)

    def paint(self, axis: Axes, field: np.ndarray, colours: str, limits: Limits) -> Any:
        scale = mapped(colours, limits)
        given: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm}
        if self.folded:
            axis.tripcolor(self._triangles(field), field.ravel(), shading="gouraud", rasterized=True, **given)
        else:
            axis.contourf(
                *self.nodes, np.ma.masked_invalid(field), np.linspace(*limits, SHADES + 1), extend="both", **given
            )
        _lines(axis, self.rim(), 0.9)
        _frame(axis, self.bounds)
        return scale

    @cached_property
    def folded(self) -> bool:
        """Whether some cells are turned over: bands of colour that run both ways round cancel where they overlap."""
        first, second = self.nodes[:, 1:, 1:] - self.nodes[:, :-1, :-1], self.nodes[:, :-1, 1:] - self.nodes[:, 1:, :-1]
        area = first[0] * second[1] - first[1] * second[0]
        rounding = 1e-6 * float(np.abs(area).max(initial=0.0))
        return bool((area < -rounding).any() and (area > rounding).any())

    def _triangles(self, field: np.ndarray) -> Triangulation:
        """Two triangles of each cell, but for those with values that are not finite."""
        from matplotlib.tri import Triangulation

        index = np.arange(field.size).reshape(field.shape)
        corners = [index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]]
        found = np.concatenate([np.stack([corners[k].ravel() for k in three], 1) for three in ((0, 1, 2), (0, 2, 3))])
        lost = ~np.isfinite(field.ravel()[found]).all(1)
        return Triangulation(*self.nodes.reshape(2, -1), triangles=found, mask=lost if lost.any() else None)

    def level(self, axis: Axes, field: np.ndarray, value: float) -> None:
        """The line along which the field has a value."""
        finite = field[self.shown & np.isfinite(field)]
        if finite.size and finite.min() < value < finite.max():
            axis.contour(*self.nodes, np.ma.masked_invalid(field), levels=[value], colors="white", linewidths=1.0)

    @property
    def title(self) -> str:
        """What the sketch shows."""
        size = " x ".join(map(str, self.nodes.shape[1:]))
        return f"mesh of {size} nodes" if self.steps == (1, 1) else f"mesh of {size} nodes (some of its lines)"

    def sketch(self, axis: Axes) -> None:
        """The lines of the mesh, or as many as can be told apart."""
        self.mesh(axis, self.steps, GREY)
        _lines(axis, self.rim(), 0.9)
        _frame(axis, self.bounds)

    def mesh(self, axis: Axes, steps: tuple[int, int], colour: str) -> None:
        """Every so many of the lines of the mesh, each way, and those at its ends."""
        first, second = steps
        ends = [self.nodes[:, index].T for index in _every(self.nodes.shape[1], first)]
        ends += [self.nodes[:, :, index].T for index in _every(self.nodes.shape[2], second)]
        _lines(axis, ends, 0.4, colour)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """Every how many lines one is drawn, each way, so that they are apart by at least a part of the window."""
        scales = _scales(self.bounds)
        least = float(np.max(_extent(self.bounds) / scales)) / MESH_LINES
        found = []
        for axis in (1, 2):
            edges = np.hypot(*(np.diff(self.nodes, axis=axis) / scales[:, None, None]))
            inside = np.delete(self.shown, -1, axis - 1)
            found.append(max(1, round(least / float(np.median(edges[inside])))) if inside.any() else 1)
        return found[0], found[1]

    def rim(self) -> np.ndarray:
        """Edges of the border of the mesh, (n, 2, 2): those of cuts, where the mesh meets itself, are left out."""
        sides = (self.nodes[:, 0], self.nodes[:, -1], self.nodes[:, :, 0], self.nodes[:, :, -1])
        border = np.concatenate([_edges(side) for side in sides])
        return border[_once(border)]

    def wall(self) -> np.ndarray:
        """Which nodes of the line j = 0 are on the border of the mesh and not on a cut, (I,)."""
        free = _once(_edges(self.nodes[:, :, 0]))
        return np.append(free, False) | np.insert(free, 0, False)


@dataclass(frozen=True)
class Cloud:
    """Fields `(N,)` at points `(2, N)`."""

    places: np.ndarray
    framed = True

    @cached_property
    def bounds(self) -> Window:
        return _around(self.places)

    @property
    def aspect(self) -> float:
        return _aspect(self.bounds)

    @property
    def shown(self) -> np.ndarray:
        return np.ones(self.places.shape[1], dtype=bool)

    @cached_property
    def triangles(self) -> Triangulation | None:
        """Triangles between neighbours; None where the points span no area.

        The circle through the corners of a triangle is empty of points. In the midst of the points it is about as large
        as they are apart; one that reaches over a void or along a border is larger, and is left out.
        """
        from matplotlib.tri import Triangulation

        places = self.places / _scales(self.bounds)[:, None]
        if np.linalg.matrix_rank(places - places.mean(1, keepdims=True)) < 2:
            return None
        found = Triangulation(*self.places, triangles=Triangulation(*places).triangles)
        corners = places[:, found.triangles]  # (2, n, 3)
        sides = corners - np.roll(corners, 1, axis=2)
        lengths = np.hypot(*sides)  # (n, 3)
        area = 0.5 * np.abs(sides[0, :, 0] * sides[1, :, 1] - sides[1, :, 0] * sides[0, :, 1])
        radius = lengths.prod(1) / (4 * np.maximum(area, np.finfo(float).tiny))
        spacing = np.full(self.places.shape[1], np.inf)
        for ends in (found.triangles, np.roll(found.triangles, 1, axis=1)):
            np.minimum.at(spacing, ends, lengths)
        local = spacing[found.triangles].max(1)
        found.set_mask((radius > LOCAL_REACH * local) & (radius > OVERALL_REACH * np.median(radius)))
        return found

    def paint(self, axis: Axes, field: np.ndarray, colours: str, limits: Limits) -> Any:
        scale = mapped(colours, limits)
        given: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm}
        if self.triangles is None or not np.isfinite(field).all():
            axis.scatter(*self.places, c=field, s=9000.0 / max(field.size, 100), linewidths=0, **given)
        else:
            axis.tripcolor(self.triangles, field, shading="gouraud", rasterized=True, **given)
            _lines(axis, self.rim(), 0.9)
        _frame(axis, self.bounds)
        return scale

    @property
    def title(self) -> str:
        """What the sketch shows."""
        count = self.places.shape[1]
        return f"{count} points" if count > 1 else "1 point"

    def sketch(self, axis: Axes) -> None:
        """The points themselves."""
        axis.scatter(*self.places, s=min(4.0, 2500.0 / self.places.shape[1]), color=INK, linewidths=0)
        _lines(axis, self.rim(), 0.6, GREY)
        _frame(axis, self.bounds)

    def rim(self) -> np.ndarray:
        """Sides that belong to one triangle only, (n, 2, 2)."""
        if self.triangles is None:
            return np.empty((0, 2, 2))
        kept = self.triangles.get_masked_triangles()
        sides = np.sort(np.concatenate((kept[:, :2], kept[:, 1:], kept[:, ::2])), axis=1)
        once, count = np.unique(sides, axis=0, return_counts=True)
        return self.places.T[once[count == 1]]


Plane = Raster | Sheet | Cloud


def _edges(line: np.ndarray) -> np.ndarray:
    """Both ends of each edge of a line of nodes, (2, n + 1) -> (n, 2, 2)."""
    return np.stack((line[:, :-1].T, line[:, 1:].T), 1)


def _once(edges: np.ndarray) -> np.ndarray:
    """Which edges (n, 2, 2) no other one lies on, whichever way it runs."""
    size = float(np.nanmax(np.abs(edges), initial=0.0)) or 1.0
    ends = np.sort(np.round(edges / size * 1e7) @ np.array([1.0, 1j]), axis=1)
    _, place, count = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    return count[place.ravel()] == 1


def _colours(name: str) -> Any:
    import matplotlib

    return matplotlib.colormaps[name].with_extremes(bad=BAD)


def mapped(colours: str, limits: Limits) -> ScalarMappable:
    """What a colour bar shows."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(*limits), _colours(colours))


def error_reach(errors: Sequence[np.ndarray], most: float) -> float:
    """The end of one scale for the errors of all models: most lie below, and what runs away does not set it."""
    sizes = [np.abs(error[np.isfinite(error)]) for error in errors]
    return min(max((float(np.percentile(size, 99.5)) for size in sizes if size.size), default=0.0), most) or 1.0


def row_bar(figure: Figure, row: list[Axes], colours: ScalarMappable, name: str) -> None:
    """A colour bar at the right of a row of panels."""
    bar = figure.colorbar(colours, ax=row, aspect=12, pad=0.01, shrink=0.9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.ax.locator_params(nbins=5)
    bar.set_label(name, fontsize=8.5)


def _lines(axis: Axes, lines: Any, width: float, colour: str = INK) -> None:
    from matplotlib.collections import LineCollection

    axis.add_collection(LineCollection(lines, linewidths=width, colors=colour, capstyle="round"), autolim=False)


def _frame(axis: Axes, bounds: Window) -> None:
    axis.set(xlim=bounds[:2], ylim=bounds[2:], aspect="auto" if _is_long(bounds) else "equal")
    axis.set_box_aspect(1.0 if _is_long(bounds) else None)


def _around(places: np.ndarray) -> Window:
    """The box of places `(2, ...)` and a little more, of a long box a little on each axis."""
    low, high = (end(places.reshape(2, -1), axis=1) for end in (np.min, np.max))
    extent = high - low
    most = float(extent.max()) or 1.0
    own = 0 < float(extent.min()) * LONG < most
    margin = 0.02 * (extent if own else np.full(2, most))
    (left, bottom), (right, top) = low - margin, high + margin
    return float(left), float(right), float(bottom), float(top)


def _extent(bounds: Window) -> np.ndarray:
    """Width and height."""
    left, right, low, high = bounds
    return np.array([right - left, high - low])


def _is_long(bounds: Window) -> bool:
    extent = _extent(bounds)
    return bool(extent.max() > LONG * extent.min())


def _scales(bounds: Window) -> np.ndarray:
    """What lengths along x and y are measured in: one unit, or in a long box its sides. (2,)"""
    return _extent(bounds) if _is_long(bounds) else np.ones(2)


def _aspect(bounds: Window) -> float:
    """Width by height; long boxes are squeezed into a square."""
    width, height = _extent(bounds)
    return 1.0 if _is_long(bounds) else float(width / height)


def _every(count: int, step: int) -> list[int]:
    """Every so many of `count`, both ends in."""
    return sorted({*range(0, count, step), count - 1})
