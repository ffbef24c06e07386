"""Splines as a matrix: against scipy, exact for cubics, and outside the knots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from hofno.errors import SolverError
from hofno.solvers.splines import spline_matrix


@settings(deadline=None, max_examples=30)
@given(n=st.integers(4, 40), start=st.floats(-3, 3), step=st.floats(0.01, 2), seed=st.integers(0, 99))
def test_scipy_agrees(n: int, start: float, step: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    knots, values = start + step * np.arange(n), rng.normal(size=n)
    points = np.sort(rng.uniform(knots[0] - step / 2, knots[-1] + step / 2, 50))
    expected = CubicSpline(knots, values, bc_type="not-a-knot")(points)
    np.testing.assert_allclose(spline_matrix(knots, points) @ values, expected, rtol=0, atol=1e-9)


def test_cubics_are_exact_also_outside() -> None:
    knots, points = np.linspace(0.1, 0.9, 7), np.linspace(0, 1, 23)
    cubic = np.polynomial.Polynomial([1.0, -2.0, 3.0, 4.0])
    np.testing.assert_allclose(spline_matrix(knots, points) @ cubic(knots), cubic(points), rtol=0, atol=1e-13)
    np.testing.assert_allclose(spline_matrix(knots, knots), np.eye(7), rtol=0, atol=1e-14)


def test_bad_knots() -> None:
    with pytest.raises(SolverError, match="at least 4 values; got 3"):
        spline_matrix(np.arange(3.0), np.arange(3.0))
    with pytest.raises(SolverError, match="equally spaced"):
        spline_matrix(np.array([0.0, 1.0, 2.0, 4.0]), np.arange(3.0))
