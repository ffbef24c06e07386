"""Fields on a surface are painted where they are seen: the near side over the far one, both sides, in their colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from hofno.problems.lumpy_torus import lumpy_torus
from hofno.problems.quantities import Quantities
from hofno.problems.registry import problem
from hofno.report import figures
from hofno.report.planes import BAD, mapped
from hofno.report.scenes import Scene, scene_of
from hofno.report.surfaces import DARKEST, Skin, _parts
from triangulated import icosphere, square, torus


def picture(skin: Skin, field: np.ndarray) -> tuple[Any, np.ndarray]:
    figure = Figure(figsize=(4, 8), dpi=100)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    skin.paint(axis, field, "viridis", (0.0, 1.0))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return axis, np.asarray(canvas.buffer_rgba())[..., :3] / 255


def colour_at(axis: Any, pixels: np.ndarray, place: Any) -> np.ndarray:
    column, row = np.round(axis.transData.transform(place)).astype(int)
    return pixels[len(pixels) - 1 - row, column]


def hue(colour: np.ndarray) -> np.ndarray:
    return colour / np.linalg.norm(colour)


def test_each_side_shows_what_is_in_front_of_it() -> None:
    """The half of a ball that faces the eye has another colour than the half behind it, and the views are opposite."""
    ball = icosphere(3)
    skin = Skin(ball)
    near = (ball.vertices @ skin.axes[2] > 0).astype(float)
    axis, pixels = picture(skin, near)
    bright, dark = (hue(np.array(mapped("viridis", (0, 1)).to_rgba(value)[:3])) for value in (1.0, 0.0))
    for (_, corners, _), expected in zip(skin.views, (bright, dark), strict=True):
        middle = corners.reshape(-1, 2).mean(0)
        np.testing.assert_allclose(hue(colour_at(axis, pixels, middle)), expected, atol=0.05)


def test_nothing_is_mirrored() -> None:
    rotation = Skin(lumpy_torus(8)).axes
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1.0)


@pytest.mark.parametrize("surface", [lumpy_torus(8), square(6), torus(20, 10)], ids=["lumpy", "border", "round"])
def test_all_of_it_is_in_the_frame_and_lit(surface: Any) -> None:
    skin = Skin(surface)
    left, right, low, high = skin.bounds
    for order, corners, light in skin.views:
        assert sorted(order) == list(range(len(surface.triangles)))
        assert (corners[..., 0] >= left).all()
        assert (corners[..., 0] <= right).all()
        assert (corners[..., 1] >= low).all()
        assert (corners[..., 1] <= high).all()
        assert (light >= DARKEST).all()
        assert (light <= 1.0).all()
    (_, first, _), (_, second, _) = skin.views
    assert first[..., 1].min() > second[..., 1].max(), "one above the other"


def test_parts_of_a_triangle() -> None:
    for count in (1, 2, 5):
        parts = _parts(count)
        assert parts.shape == (count**2, 3, 3)
        np.testing.assert_allclose(parts.sum(-1), 1.0)
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        a, b, c = (parts @ corners).swapaxes(0, 1)
        areas = 0.5 * np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])
        np.testing.assert_allclose(areas, 0.5 / count**2)


def test_values_that_are_not_finite_are_grey() -> None:
    skin = Skin(icosphere(2))
    axis, pixels = picture(skin, np.full(162, np.nan))
    middle = skin.views[0][1].reshape(-1, 2).mean(0)
    grey = np.array([int(BAD[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    np.testing.assert_allclose(hue(colour_at(axis, pixels, middle)), hue(grey), atol=0.02)


def test_a_sample() -> None:
    made = problem("surface_poisson", {"resolution": 8, "k_max": 1.0})
    scene = scene_of(made)
    assert scene.surface == made.grid_geometry
    x, y = np.random.default_rng(0).normal(size=(1, 2, 128)), np.ones((1, 1, 128))
    figure = figures.fields(x, y, {"HO-NORM order 2": 1.1 * y, "NORM": 0.5 * y}, scene=scene)
    titles = [axis.get_title(loc="center") for axis in figure.axes if axis.get_title(loc="center")]
    assert titles == [
        "input: f1",
        "input: f2",
        "truth",
        "HO-NORM order 2",
        "NORM",
        "error, rel. L2 0.100",
        "error, rel. L2 0.500",
    ]
    painted = [axis for axis in figure.axes if any(isinstance(c, PolyCollection) for c in axis.collections)]
    assert len(painted) >= len(titles)
    assert "solution u" in str(figure.get_label())


def test_own_surfaces_are_drawn_by_their_geometry() -> None:
    class Own:
        name, channels, grid_geometry, quantities = "arrays", (1, 1), square(5), Quantities()

    assert scene_of(Own()) == Scene(surface=square(5))  # pyright: ignore[reportArgumentType]
