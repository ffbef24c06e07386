"""A triangulated surface: what it refuses, what it is equal to, and that its text gives it back."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import ShapeError
from hofno.surface import Surface
from triangulated import icosphere, square, torus

VERTICES = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
TRIANGLES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


def test_areas() -> None:
    corner = Surface(vertices=VERTICES, triangles=TRIANGLES)
    np.testing.assert_allclose(corner.areas, [0.5, 0.5, 0.5, 3**0.5 / 2])
    assert corner.shape == (4,)
    assert square(5).areas.sum() == pytest.approx(1.0)
    assert icosphere(3).areas.sum() == pytest.approx(4 * np.pi, rel=0.02)


@pytest.mark.parametrize(
    ("vertices", "triangles", "words"),
    [
        (VERTICES.T, TRIANGLES, r"real numbers \(N, 3\).*got shape \(3, 4\).*through \.T"),
        (VERTICES[:2], TRIANGLES[:1], "three vertices at least"),
        (VERTICES.astype(complex), TRIANGLES, "real numbers"),
        ([[0.0, 1.0], [2.0]], TRIANGLES, "vertices of a surface must be one array"),
        (VERTICES, TRIANGLES.astype(float), r"whole numbers \(F, 3\).*of float64"),
        (VERTICES, TRIANGLES[:, :2], r"\(F, 3\)"),
        (VERTICES, TRIANGLES[:0], r"got shape \(0, 3\)"),
        (VERTICES, TRIANGLES + 1, r"vertices 0 to 3; triangle 1 has \[1, 2, 4\]; .*triangles - 1"),
        (VERTICES, TRIANGLES - 1, "triangle 0 has"),
        (np.where(VERTICES == 1, np.nan, 0.0), TRIANGLES, "finite coordinates; vertex 1 has not"),
        (VERTICES, [*TRIANGLES, [1, 1, 2]], r"needs an area; triangle 4, with vertices \[1, 1, 2\]"),
        ([*VERTICES, [2.0, 0, 0]], [*TRIANGLES, [0, 1, 4]], "needs an area; triangle 4"),
        (VERTICES, [*TRIANGLES, [3, 1, 2]], "counts once"),
        ([*VERTICES, [2.0, 0, 0]], TRIANGLES, "vertex 4 has none"),
    ],
)
def test_what_is_no_surface_is_refused(vertices: object, triangles: object, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        Surface(vertices=vertices, triangles=np.asarray(triangles))  # pyright: ignore[reportArgumentType]


def test_equal_numbers_are_one_surface() -> None:
    one, same = torus(6, 5), Surface(vertices=torus(6, 5).vertices.tolist(), triangles=torus(6, 5).triangles)
    moved = Surface(vertices=one.vertices + np.eye(30, 3) * 1e-12, triangles=one.triangles)
    assert one == same
    assert hash(one) == hash(same)
    assert one not in (moved, torus(5, 6), "a torus")
    assert len({one, same, moved}) == 2
    assert repr(one) == f"Surface(30 vertices, 60 triangles, {one.digest})"


def test_nothing_changes_it() -> None:
    given = VERTICES.copy()
    corner = Surface(vertices=given, triangles=TRIANGLES)
    given[0] = 9.0
    assert corner.vertices[0].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        corner.vertices[0] = 1.0
    with pytest.raises(FrozenInstanceError):
        corner.vertices = given  # pyright: ignore[reportAttributeAccessIssue]


@given(st.integers(3, 8), st.integers(3, 8), st.floats(1e-6, 1e6))
def test_its_text_gives_every_bit_back(rows: int, columns: int, size: float) -> None:
    made = Surface(vertices=size * torus(rows, columns).vertices, triangles=torus(rows, columns).triangles)
    read = Surface.from_plain(json.loads(json.dumps(made.plain())))
    assert read == made
    assert np.array_equal(read.vertices, made.vertices)
    assert np.array_equal(read.triangles, made.triangles)


def test_a_damaged_text_is_told() -> None:
    plain = torus(4, 4).plain()
    with pytest.raises(TypeError, match="the surface"):
        Surface.from_plain({**plain, "vertices": plain["vertices"][:13]})
    with pytest.raises(KeyError):
        Surface.from_plain({"vertices": plain["vertices"]})
