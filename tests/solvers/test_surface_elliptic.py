"""The screened Poisson equation on surfaces: exact solutions, order of convergence, symmetry, what it conserves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import ShapeError, SpecError
from hofno.problems.lumpy_torus import lumpy_torus
from hofno.solvers.surface_elliptic import SurfaceElliptic
from hofno.transforms.manifold import masses
from triangulated import angles, icosphere, square, torus


def orders(errors: list[float]) -> np.ndarray:
    return np.log2(np.divide(errors[:-1], errors[1:]))


def test_symmetric_and_positive() -> None:
    matrix = SurfaceElliptic(lumpy_torus(10), 0.3).matrix
    assert torch.equal(matrix, matrix.T) or (matrix - matrix.T).abs().max() < 1e-13
    assert torch.linalg.eigvalsh(matrix).min() > 0


@given(st.floats(0.01, 100), st.floats(-10, 10))
def test_constants_are_exact(kappa: float, value: float) -> None:
    for surface in (lumpy_torus(8), square(5)):
        found = SurfaceElliptic(surface, kappa).solve(torch.full(surface.shape, value))
        torch.testing.assert_close(found, torch.full_like(found, value / kappa), rtol=1e-6, atol=1e-9)


def test_the_integral_of_the_source_is_kept() -> None:
    surface = lumpy_torus(10)
    source = torch.randn(3, 2, 200, dtype=torch.float64)
    area = torch.from_numpy(masses(surface))
    found = SurfaceElliptic(surface, 2.5).solve(source)
    torch.testing.assert_close(2.5 * (found @ area), source @ area)


def test_a_batch_is_solved_one_by_one() -> None:
    solver, source = SurfaceElliptic(lumpy_torus(8)), torch.randn(2, 3, 128, dtype=torch.float64)
    found = solver.solve(source)
    assert found.shape == source.shape
    torch.testing.assert_close(found[1, 2], torch.linalg.solve(solver.matrix, solver.mass @ source[1, 2]))


def test_spherical_harmonics_to_second_order() -> None:
    """-Laplace Y = l (l + 1) Y: degrees 1, 2 and 3 at once."""
    errors = []
    for times in (2, 3, 4):
        surface = icosphere(times)
        x, y, z = torch.tensor(surface.vertices).T
        harmonics = torch.stack((z, x * y, z * (5 * z**2 - 3)))
        source = (torch.tensor([2.0, 6.0, 12.0])[:, None] + 1.5) * harmonics
        errors.append(float((SurfaceElliptic(surface, 1.5).solve(source) - harmonics).abs().max()))
    assert errors[-1] < 1e-2
    assert (np.abs(orders(errors) - 2) < 0.3).all(), orders(errors)


def test_a_torus_of_revolution_to_second_order() -> None:
    """Laplace u = u_ss / w^2 + (u_tt - r sin t u_t / w) / r^2, w = R + r cos t, for u = cos 2s sin t."""
    errors = []
    for points in (10, 20, 40):
        s, t = angles(2 * points, points)
        width = 1.0 + 0.4 * np.cos(t)
        u = np.cos(2 * s) * np.sin(t)
        across = (-np.sin(t) - 0.4 * np.sin(t) * np.cos(t) / width) / 0.4**2 * np.cos(2 * s)
        source = u - (-4 * u / width**2 + across)
        found = SurfaceElliptic(torus(2 * points, points)).solve(torch.from_numpy(source.ravel()))
        errors.append(float(np.abs(found.numpy() - u.ravel()).max()))
    assert (np.abs(orders(errors) - 2) < 0.3).all(), orders(errors)


def test_a_square_has_no_slope_across_its_border() -> None:
    errors = []
    for points in (9, 17, 33):
        x, y, _ = torch.tensor(square(points).vertices).T
        u = torch.cos(torch.pi * x) * torch.cos(2 * torch.pi * y)
        found = SurfaceElliptic(square(points)).solve((5 * torch.pi**2 + 1) * u)
        errors.append(float((found - u).abs().max()))
    assert (np.abs(orders(errors) - 2) < 0.3).all(), orders(errors)


def test_what_is_refused() -> None:
    with pytest.raises(SpecError, match="kappa must be above 0"):
        SurfaceElliptic(square(3), 0.0)
    with pytest.raises(ShapeError, match=r"sources \(.., 9\) at the vertices; got shape \(2, 8\)"):
        SurfaceElliptic(square(3)).solve(torch.zeros(2, 8))
