"""Motions of samples: those of a problem commute with its solver, and a grid that does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import Grid
from hofno.problems.navier_stokes import NavierStokesFlow
from hofno.problems.symmetry import (
    Channels,
    Motion,
    Symmetry,
    describe_symmetry,
    driven_flow,
    mirror,
    read_symmetry,
    square,
)
from hofno.solvers.darcy import solve_darcy

FLOW = NavierStokesFlow(samples=1, resolution=16, solver_resolution=16, viscosity=1e-3)  # pyright: ignore[reportCallIssue]


def moved(w: Tensor, motion: Motion, slide: tuple[int, int] = (0, 0)) -> Tensor:
    """w'(i, j) = sign * w(M (i, j) + s), one point at a time."""
    n, m = w.shape[-2:]
    (a, b), (c, d) = motion.matrix
    s, t = motion.points((n, m))
    s, t = s + slide[0], t + slide[1]
    out = torch.empty_like(w)
    for i in range(n):
        for j in range(m):
            out[..., i, j] = motion.sign * w[..., (a * i + b * j + s) % n, (c * i + d * j + t) % m]
    return out


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("motion", driven_flow().motions)
@pytest.mark.parametrize("steps", [0, 5])
def test_the_flow_of_a_moved_field_is_the_moved_flow(motion: Motion, steps: int) -> None:
    solver = FLOW.solver()
    w = solver.field_of(FLOW.initial_modes(0, 1, solver)) * 20  # advection matters
    slide = driven_flow().slide
    assert slide is not None
    along = (steps * slide[0], steps * slide[1])
    later = solver.advance(w, 0.2)
    assert difference(later, w) > 0.1
    assert difference(solver.advance(moved(w, motion, along), 0.2), moved(later, motion, along)) < 1e-11


@pytest.mark.parametrize(
    "wrong",
    [
        Motion(matrix=((0, 1), (1, 0)), sign=-1),  # without its shift
        Motion(matrix=((-1, 0), (0, -1)), shift=(Fraction(3, 4), Fraction(0))),
        Motion(matrix=((0, 1), (1, 0)), shift=(Fraction(1, 2), Fraction(0))),  # without its sign
    ],
)
def test_other_motions_change_the_flow(wrong: Motion) -> None:
    solver = FLOW.solver()
    w = solver.field_of(FLOW.initial_modes(0, 1, solver)) * 20
    assert difference(solver.advance(moved(w, wrong), 0.2), moved(solver.advance(w, 0.2), wrong)) > 1e-3


@pytest.mark.parametrize("scheme", ["published", "finite_volume"])
def test_darcy_has_the_symmetries_of_the_square(scheme: str) -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.rand(1, 7, 7, generator=generator, dtype=torch.float64) > 0.5
    a = torch.where(blocks.repeat_interleave(3, 1).repeat_interleave(3, 2), 12.0, 3.0)
    u = solve_darcy(a, scheme=scheme)  # pyright: ignore[reportArgumentType]
    motions = square().motions
    assert len({tuple(moved(a, m).flatten().tolist()) for m in motions}) == 8
    for motion in motions:
        assert difference(solve_darcy(moved(a, motion), scheme=scheme), moved(u, motion)) < 1e-6  # pyright: ignore


@pytest.mark.parametrize(("symmetry", "shape"), [(driven_flow(), (18, 18)), (square(), (8, 9))])
def test_a_grid_that_points_leave_is_refused(symmetry: Symmetry, shape: tuple[int, int]) -> None:
    with pytest.raises(SpecError, match="square grid"):
        symmetry.check(shape)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Symmetry(motions=()), "has motions"),
        (lambda: Motion(sign=3), "sign is 1 or -1; got 3"),
        (lambda: Channels(offsets=(float("nan"),)), "offsets are numbers"),
        (lambda: Channels(signs=("x",)), r"signs is a sequence of numbers such as \(1, -1\); got \('x',\)"),  # pyright: ignore[reportArgumentType]
        (lambda: Channels(signs=1), "signs is a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Channels(offsets=np.zeros((2, 2))), "offsets is a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Motion(shift=(float("inf"),)), "shift is a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Motion(steps=(0.5,)), "steps is a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Motion(matrix=(1, 0)), "matrix is a sequence of numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: Motion(inputs=(1, -1)), r"inputs is Channels\(signs"),  # pyright: ignore[reportArgumentType]
        (lambda: Symmetry(motions=Motion()), "has motions"),  # pyright: ignore[reportArgumentType]
        (lambda: mirror(), "give the axis"),
        (lambda: mirror(2), r"axes 0 to 1; got axis=2; .* mirror\(axis, axes=3\)"),
    ],
)
def test_what_is_no_motion(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_numbers_of_arrays_become_plain_ones(kind: Callable[[Any], Any]) -> None:
    """So that a symmetry can be saved, whatever it was made of."""
    channels = Channels(signs=kind([1, -1]), offsets=kind([0.5, 0.0]))
    assert channels == Channels(signs=(1, -1), offsets=(0.5, 0.0))
    motion = Motion(
        matrix=kind([[0, -1], [1, 0]]),
        shift=kind([0.5, 1.0]),
        steps=kind([-1, 0]),
        sign=kind([-1])[0],
        inputs=channels,
    )
    plain = Motion(
        matrix=((0, -1), (1, 0)), shift=(Fraction(1, 2), Fraction(1)), steps=(-1, 0), sign=-1, inputs=channels
    )
    assert motion == plain
    symmetry = Symmetry(motions=[Motion(), motion], slide=kind([1, -1]))  # pyright: ignore[reportArgumentType]
    assert read_symmetry(json.loads(json.dumps(describe_symmetry(symmetry)))) == symmetry
    assert mirror(kind([1])[0]) == mirror(1)


def test_shifts_may_be_decimal_numbers() -> None:
    found = Motion(shift=(1 / 3, np.float32(0.25), np.int64(1)))  # pyright: ignore[reportArgumentType]
    assert found.shift == (Fraction(1, 3), Fraction(1, 4), Fraction(1))


def test_points_do_not_leave_a_grid_with_ends() -> None:
    ends = Grid(shape=(8, 8), periodic=False)
    for symmetry in (square(), mirror(1)):
        symmetry.check_places(ends)
    half = Symmetry(motions=(Motion(), Motion(shift=(Fraction(1, 2), Fraction(0)))))
    for symmetry in (driven_flow(), half):
        symmetry.check_places(Grid(shape=(8, 8), periodic=True))
        with pytest.raises(SpecError, match="beyond the ends of a grid that is not periodic"):
            symmetry.check_places(ends)
    with pytest.raises(SpecError, match=r"mirror\(axis, axes=3\)"):
        mirror(0).check_places(Grid(shape=(8, 8, 8), periodic=True))
