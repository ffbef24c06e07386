"""Coordinates, wavenumbers and padded sizes."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.geometry import (
    KINDS,
    MODE_SETS,
    NODES,
    Grid,
    Mesh,
    ModeSet,
    Points,
    Sphere,
    axis_coordinates,
    axis_wavenumbers,
    cached,
    check_mode_counts,
    check_modes,
    choose,
    describe_geometry,
    grid_coordinates,
    kind_of,
    modes_held,
    padded_shape,
    read_geometry,
    sphere_coordinates,
    wavenumbers,
)
from triangulated import torus


def test_wavenumbers_are_stored_as_the_two_conventions_say() -> None:
    assert wavenumbers((3, 2)) == ((0, 1, 2, -2, -1), (0, 1))
    assert wavenumbers((3, 2), "reference") == ((0, 1, 2, -3, -2, -1), (0, 1))
    assert wavenumbers((4,), "reference") == wavenumbers((4,)) == ((0, 1, 2, 3),)
    assert wavenumbers((1, 1, 1)) == ((0,), (0,), (0,))


@given(st.integers(2, 40), st.sampled_from(MODE_SETS), st.booleans())
def test_modes_held_is_the_largest_count_without_two_equal_waves(n: int, mode_set: ModeSet, last: bool) -> None:
    def distinct(modes: int) -> bool:
        ks = axis_wavenumbers(modes, mode_set, last)
        folded = {k % n for k in ks}
        if last:  # and no kept wave may be the negative of another one
            return len(folded) == len(ks) and all((-k) % n not in folded or (2 * k) % n == 0 for k in ks)
        return len(folded) == len(ks)

    held = modes_held(n, mode_set, last)
    assert distinct(held)
    assert not distinct(held + 1)


def test_check_modes_names_the_axis_and_what_it_holds() -> None:
    check_modes((4, 5), "symmetric", (7, 8))
    with pytest.raises(ShapeError, match=r"modes\[0\]=5 is more than an axis of 8 points holds \(at most 4\)"):
        check_modes((5, 5), "symmetric", (8, 8))
    with pytest.raises(ShapeError, match=r"modes\[0\]=4 is more than an axis of 7 points holds \(at most 3\)"):
        check_modes((4, 4), "reference", (7, 8))
    with pytest.raises(ShapeError, match="2 spatial axes; the field has 3"):
        check_modes((4, 4), "symmetric", (8, 8, 8))


@pytest.mark.parametrize("modes", [(), (1, 2, 3, 4), (0,), (3, -1)])
def test_mode_counts_that_mean_nothing_are_refused(modes: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="modes"):
        check_mode_counts(modes)


def test_padding_by_two_thirds_is_the_integer_rule_of_the_released_code() -> None:
    for n in range(1, 3000):
        assert padded_shape((n,), 2 / 3) == (n + int(2 * n / 3),)
    assert padded_shape((8, 5), 0.0) == (8, 5)
    assert padded_shape((8, 5), 0.5) == (12, 7)
    for n in (43, 85, 106, 141, 211, 421):  # one period on every grid
        assert padded_shape((n,), 5 / 7, "length") == (12 * (n - 1) // 7,)
    assert padded_shape((8, 5), 0.01, "length") == (9, 6), "one point at least"


def test_coordinates() -> None:
    assert torch.equal(axis_coordinates(4, "periodic"), torch.tensor([0, 0.25, 0.5, 0.75], dtype=torch.float64))
    assert torch.equal(axis_coordinates(5, "endpoint"), torch.tensor([0, 0.25, 0.5, 0.75, 1], dtype=torch.float64))
    grid = grid_coordinates((3, 4), "periodic")
    assert grid.shape == (3, 4, 2)
    assert grid.dtype == torch.float64
    assert grid[2, 1].tolist() == [2 / 3, 1 / 4]
    with pytest.raises(SpecError, match="have no positions"):
        axis_coordinates(4, "none")


def test_grid_knows_whether_its_end_is_its_beginning() -> None:
    assert Grid(shape=(4,)).coordinates()[-1].item() == 0.75
    assert Grid(shape=(4,), periodic=False).coordinates()[-1].item() == 1.0
    assert Grid(shape=(4, 3)).coordinates().shape == (4, 3, 2)
    for shape in ((), (1,), (4, 1), (2, 2, 2, 2)):
        with pytest.raises(ShapeError, match="1 to 3 axes"):
            Grid(shape=shape)


@pytest.mark.parametrize("periodic", [(True, False), "no", None, np.array([True, False])])
def test_a_grid_is_periodic_along_all_axes_or_none(periodic: Any) -> None:
    with pytest.raises(ShapeError, match="periodic is true or false, for all axes of a grid; got"):
        Grid(shape=(4, 4), periodic=periodic)
    assert Grid(shape=(4, 4), periodic=cast(Any, np.bool_(True))).periodic is True


def test_choose_says_what_there_is() -> None:
    assert choose("a", ("a", "b"), "letter") == "a"
    with pytest.raises(HofnoError, match="letter must be one of a, b; got 'c'"):
        choose("c", ("a", "b"), "letter")


def test_a_geometry_is_told_in_plain_values_and_read_again() -> None:
    for geometry in (
        Grid(shape=(4, 3), periodic=False),
        Mesh(shape=(5, 6)),
        Points(count=7, low=(0.0, -1.0), high=(2.0, 1.0)),
        Sphere(shape=(4, 8), nodes="gauss"),
        torus(5, 4),
    ):
        plain = json.loads(json.dumps(describe_geometry(geometry)))
        assert read_geometry(plain) == geometry
        assert KINDS[kind_of(geometry)] is type(geometry)
    assert describe_geometry(Grid(shape=(4,))) == {"shape": [4], "periodic": True}, "as it was before other kinds"


def test_a_sphere_runs_from_north_to_south_and_eastwards() -> None:
    for nodes in NODES:
        found = Sphere(shape=(4, 8), nodes=nodes).coordinates()
        assert found.shape == (4, 8, 3)
        torch.testing.assert_close(found.square().sum(-1), torch.ones(4, 8, dtype=torch.float64))
        assert bool((found[..., 0].diff(dim=0) < 0).all())
        assert found[0, 0, 1] > 0
        assert found[0, 0, 2].item() == 0.0
        assert found[0, 2, 2] > 0
        assert torch.equal(sphere_coordinates((4, 8), nodes, "latitude"), found[..., :1])
    with pytest.raises(SpecError, match="'none' have no positions; use 'cartesian' or 'latitude'"):
        sphere_coordinates((4, 8), "gauss", "none")
    with pytest.raises(ShapeError, match="at least 2 rows of at least 2 points each"):
        Sphere(shape=(1, 8))
    with pytest.raises(SpecError, match="nodes must be one of gauss, equiangular"):
        Sphere(shape=(4, 8), nodes="cubed")  # pyright: ignore[reportArgumentType]


def test_points_see_their_box_as_the_unit_cube() -> None:
    points = Points(count=3, low=(0.0, -1.0), high=(2.0, 1.0))
    assert (points.dim, points.shape) == (2, (3,))
    found = points.to_unit(torch.tensor([[[0.0, 1.0, 4.0], [-1.0, 0.0, 1.0]]]))
    assert found.tolist() == [[[0.0, 0.5, 2.0], [0.0, 0.5, 1.0]]]
    for wrong in (((), ()), ((0.0,), (0.0,)), ((0.0,), (1.0, 2.0)), ((0.0,) * 4, (1.0,) * 4)):
        with pytest.raises(ShapeError, match="points"):
            Points(count=3, low=wrong[0], high=wrong[1])
    with pytest.raises(ShapeError, match="at least one point"):
        Points(count=0, low=(0.0,), high=(1.0,))
    with pytest.raises(ShapeError, match="a mesh has 1 to 3 axes"):
        Mesh(shape=(4, 1))


def test_places_in_a_box_and_back() -> None:
    box = Points(count=3, low=(-1.0, 2.0), high=(3.0, 2.5))
    unit = torch.tensor([[[0.0, 1.0, 0.25], [0.0, 1.0, 0.5]]])
    places = torch.tensor([[[-1.0, 3.0, 0.0], [2.0, 2.5, 2.25]]])
    torch.testing.assert_close(box.from_unit(unit), places)
    torch.testing.assert_close(box.to_unit(places), unit)


def test_what_is_kept_belongs_to_no_transform() -> None:
    """Made inside a second derivative, and used in a first one afterwards."""
    x = torch.randn(3, dtype=torch.float64)

    def cubes(x: torch.Tensor) -> torch.Tensor:
        powers = cached(("of this test",), lambda: torch.arange(3.0) - torch.ones(3), x)
        return (powers * x**3).sum()

    expected = 3 * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) * x**2
    second = torch.func.grad(lambda x: torch.func.grad(cubes)(x).sum())(x)
    torch.testing.assert_close(second, 2 * expected / x)
    torch.testing.assert_close(torch.func.grad(cubes)(x), expected)


def test_what_is_kept_by_compiled_predictions_is_of_no_harm_to_training() -> None:
    """Tensors that are made under inference_mode cannot be saved for a gradient."""

    def squares(x: torch.Tensor) -> torch.Tensor:
        weights = cached(("of compiled predictions",), lambda: torch.arange(3.0) + 1, x)
        return (weights * x**2).sum()

    compiled = torch.compile(squares, backend="aot_eager", fullgraph=True)
    x = torch.randn(3)
    with torch.inference_mode():
        expected = [compiled(x) for _ in range(2)][1].clone()
    for function in (squares, compiled):
        leaf = x.clone().requires_grad_()
        value = function(leaf)
        torch.testing.assert_close(value.detach(), expected)
        value.backward()
        torch.testing.assert_close(leaf.grad, 2 * torch.arange(1.0, 4.0) * x)
