"""Darcy in the square: the series, orders of convergence, balance, symmetry, and a direct solution of both schemes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.problems.darcy import Darcy
from hofno.solvers.darcy import Scheme, solve_darcy, spline_matrices
from hofno.solvers.elliptic import FivePoint
from hofno.solvers.multigrid import dense

SCHEMES: tuple[Scheme, ...] = ("finite_volume", "published")


def centres(n: int) -> tuple[Tensor, Tensor]:
    x = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    return x[:, None], x[None, :]


def speckled(n: int, count: int = 1, seed: int = 0) -> Tensor:
    """A coefficient of 12 and 3 that is the sign of a few random waves."""
    rng = np.random.default_rng(seed)
    x, y = centres(n)
    waves = torch.zeros(count, n, n, dtype=torch.float64)
    for _ in range(12):
        k, m, phase, size = rng.integers(1, 8), rng.integers(1, 8), rng.uniform(0, 6, count), rng.normal(size=count)
        waves += torch.from_numpy(size)[:, None, None] * torch.cos(math.pi * (k * x + m * y) + _column(phase))
    return torch.where(waves >= 0, 12.0, 3.0).double()


def _column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)[:, None, None]


def difference(u: Tensor, v: Tensor) -> float:
    return float((u - v).norm() / v.norm())


def direct_published(a: np.ndarray) -> np.ndarray:
    """The published steps one by one: splines, a sparse matrix by loops, LU, columns first, splines, transposition."""
    n = len(a)
    centre, node = (np.arange(n) + 0.5) / n, np.arange(n) / (n - 1)

    def interpolate(values: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        half = CubicSpline(old, values, axis=0, bc_type="not-a-knot")(new)
        return CubicSpline(old, half, axis=1, bc_type="not-a-knot")(new)

    c, f = interpolate(a, centre, node), interpolate(np.ones_like(a), centre, node)
    inside, index = n - 2, lambda i, j: (i - 1) + (j - 1) * (n - 2)  # first axis fastest
    matrix = scipy.sparse.lil_matrix((inside**2, inside**2))
    for i, j in itertools.product(range(1, n - 1), repeat=2):
        for p, q in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            g = (c[i, j] + c[p, q]) / 2 * (n - 1) ** 2
            matrix[index(i, j), index(i, j)] += g
            if 0 < p < n - 1 and 0 < q < n - 1:
                matrix[index(i, j), index(p, q)] = -g
    found = scipy.sparse.linalg.spsolve(matrix.tocsc(), f[1:-1, 1:-1].flatten(order="F"))
    rows = np.zeros((n, n))
    rows[1:-1, 1:-1] = found.reshape(inside, inside)  # row by row: transposed
    return interpolate(rows, node, centre).T


def direct_finite_volume(a: np.ndarray) -> np.ndarray:
    """Resistances of half cells in series, a sparse matrix by loops, LU."""
    n = len(a)
    matrix = scipy.sparse.lil_matrix((n**2, n**2))
    for i, j in itertools.product(range(n), repeat=2):
        for p, q in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            outside = not (0 <= p < n and 0 <= q < n)
            g = 1 / (0.5 / a[i, j] + (0 if outside else 0.5 / a[p, q]))
            matrix[i * n + j, i * n + j] += g
            if not outside:
                matrix[i * n + j, p * n + q] = -g
    return scipy.sparse.linalg.spsolve(matrix.tocsc(), np.full(n**2, 1 / n**2)).reshape(n, n)


@pytest.mark.parametrize("scheme", SCHEMES)
class TestBoth:
    def test_the_series_of_a_constant_coefficient(self, scheme: Scheme) -> None:
        """u(1/2, 1/2) = 0.0736713.../a on the published 421 points; the centre is one of them."""
        odd = np.arange(1, 400, 2.0)
        k, m = odd[:, None], odd
        signs = np.sin(math.pi * k / 2) * np.sin(math.pi * m / 2)
        series = (16 / math.pi**4 * signs / (k * m * (k**2 + m**2))).sum()
        assert series == pytest.approx(0.0736713, abs=1e-6)
        u = solve_darcy(torch.full((1, 421, 421), 12.0), scheme)
        assert float(u[0, 210, 210]) * 12 == pytest.approx(series, rel=1e-5)

    def test_second_order_on_smooth_coefficients(self, scheme: Scheme) -> None:
        errors = []
        for n in (24, 48, 96):
            x, y = centres(n)
            a = 2 + torch.sin(3 * x) * torch.cos(2 * y) + 0.5 * x
            u = torch.sin(math.pi * x) * torch.sin(2 * math.pi * y)
            u_x = math.pi * torch.cos(math.pi * x) * torch.sin(2 * math.pi * y)
            u_y = 2 * math.pi * torch.sin(math.pi * x) * torch.cos(2 * math.pi * y)
            a_x = 3 * torch.cos(3 * x) * torch.cos(2 * y) + 0.5
            a_y = -2 * torch.sin(3 * x) * torch.sin(2 * y)
            f = 5 * math.pi**2 * a * u - a_x * u_x - a_y * u_y
            errors.append(difference(solve_darcy(a[None], scheme, f[None])[0], u))
        assert [math.log2(a / b) for a, b in itertools.pairwise(errors)] == pytest.approx([2, 2], abs=0.1)
        assert errors[-1] < 1e-3

    def test_order_at_a_jump_on_faces(self, scheme: Scheme) -> None:
        """a = 12 for x < 1/2 and 3 beyond, a u_x continuous: harmonic means keep order 2, the others do not."""
        errors = []
        for n in (32, 64, 128):
            x, y = centres(n)
            left = x < 0.5
            a = torch.where(left, 12.0, 3.0).double() + 0 * y
            # u = v(x) sin(pi y), v = s/12 and s/3 of one s with s(1/2) = 0: u and a u_x are continuous
            s = torch.sin(2 * math.pi * x)
            u = s / a * torch.sin(math.pi * y)
            f = (4 + 1) * math.pi**2 * s * torch.sin(math.pi * y)
            errors.append(difference(solve_darcy(a[None], scheme, f[None])[0], u))
        orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
        assert orders == pytest.approx([2, 2] if scheme == "finite_volume" else [1, 1], abs=0.2)

    def test_the_direct_solution(self, scheme: Scheme) -> None:
        direct = direct_published if scheme == "published" else direct_finite_volume
        a = speckled(26, count=2)
        expected = torch.from_numpy(np.stack([direct(part) for part in a.numpy()]))
        assert difference(solve_darcy(a, scheme), expected) < 1e-10

    def test_symmetries(self, scheme: Scheme) -> None:
        a = speckled(40)
        u = solve_darcy(a, scheme)
        assert difference(u.mT, u) > 0.01
        for move in (lambda v: v.mT, lambda v: v.flip(-1), lambda v: v.flip(-2)):
            assert difference(solve_darcy(move(a).contiguous(), scheme), move(u)) < 1e-9

    def test_scaling(self, scheme: Scheme) -> None:
        a, f = speckled(30), torch.rand(1, 30, 30)
        u = solve_darcy(a, scheme, f)
        assert difference(solve_darcy(5 * a, scheme, f), u / 5) < 1e-9
        assert difference(solve_darcy(a, scheme, -2 * f), -2 * u) < 1e-9

    def test_a_batch_is_its_samples(self, scheme: Scheme) -> None:
        a = torch.cat((speckled(33, 3), torch.ones(1, 33, 33).double()))
        together = solve_darcy(a, scheme)
        apart = torch.cat([solve_darcy(part[None], scheme) for part in a])
        torch.testing.assert_close(together, apart, rtol=0, atol=1e-14)

    def test_the_tolerance_is_kept(self, scheme: Scheme) -> None:
        a = speckled(48)
        fine = solve_darcy(a, scheme, tolerance=1e-11)
        errors = [difference(solve_darcy(a, scheme, tolerance=t), fine) for t in (1e-3, 1e-6, 1e-9)]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 1e-9

    def test_bad_input(self, scheme: Scheme) -> None:
        for wrong in (torch.ones(8, 8), torch.ones(1, 8, 9), torch.ones(1, 3, 3), torch.ones(1, 8, 8) + 1j):
            with pytest.raises(ShapeError, match=r"shape \(b, K, K\), K >= 4"):
                solve_darcy(wrong, scheme)
        for value in (0.0, -1.0, math.nan, math.inf):
            a = torch.ones(3, 8, 8)
            a[1, 2, 3] = value
            with pytest.raises(SolverError, match="positive and finite; it is not in sample 1"):
                solve_darcy(a, scheme)
        with pytest.raises(ShapeError, match=r"source of shape \(1, 8, 8\)"):
            solve_darcy(torch.ones(1, 8, 8), scheme, torch.ones(8, 8))


def test_all_that_is_put_in_flows_out() -> None:
    a = speckled(64, count=3)
    u = solve_darcy(a, "finite_volume", tolerance=1e-11)
    torch.testing.assert_close(FivePoint.of_cells(a).outflow(u), torch.ones(3).double(), rtol=1e-10, atol=0)


def test_published_conductances_may_be_negative() -> None:
    """Specks of single cells on the boundary: extrapolated beyond it, the coefficient is negative, and still solved."""
    a = torch.full((1, 40, 40), 3.0).double()
    a[0, 1, 5::7] = 12.0
    to_nodes, _ = spline_matrices(40)
    assert float(FivePoint.of_nodes(to_nodes @ a @ to_nodes.mT).rows.min()) < -1
    expected = torch.from_numpy(direct_published(a[0].numpy()))
    assert difference(solve_darcy(a, "published")[0], expected) < 1e-9


def sampled(upper: float, n: int, count: int) -> Tensor:
    """Coefficients of the benchmark."""
    given = Darcy(upper=upper, solver_resolution=n, resolution=n)
    draws = torch.from_numpy(np.stack([given.draws(0, sample) for sample in range(count)]))
    return torch.where(given.field(draws) >= 0, upper, 3.0).double()


@pytest.mark.parametrize("n", [13, 22, 43])
def test_published_solutions_without_meaning_are_refused(n: int) -> None:
    """At a contrast of 10 up to 170 times too large; what passes is within the error of such a grid."""
    refusals: list[str] = []
    for a in sampled(30.0, n, 60):
        try:
            found = solve_darcy(a[None], "published")
        except SolverError as error:
            refusals.append(str(error))
            continue
        assert difference(found, solve_darcy(a[None], "finite_volume")) < (0.7 if n == 13 else 0.3)
    assert 10 < len(refusals) < 30
    assert all("take scheme='finite_volume', less contrast" in told for told in refusals)


def test_a_matrix_that_is_only_just_positive_definite_is_refused() -> None:
    """All directions have positive energy, and u is hundreds of times what the equation allows."""
    a = sampled(30.0, 13, 60)
    to_nodes, _ = spline_matrices(13)
    smallest = torch.linalg.eigvalsh(dense(FivePoint.of_nodes(to_nodes @ a @ to_nodes.mT)))[:, 0]
    near = int(torch.where(smallest > 0, smallest, math.inf).argmin())
    assert 0 < float(smallest[near]) < 0.01
    with pytest.raises(SolverError, match="sample 0 of the batch has no meaningful solution"):
        solve_darcy(a[near : near + 1], "published")


def test_the_published_contrast_is_solved() -> None:
    a = sampled(12.0, 43, 100)
    assert difference(solve_darcy(a, "published"), solve_darcy(a, "finite_volume")) < 0.03


def test_a_constant_coefficient_is_solved_on_any_grid() -> None:
    """It comes nearest to the bound max|f| / (4 pi a) beyond which solutions are refused: 0.926 of it."""
    for n in (4, 5, 9, 40):
        assert 0.6 < float(solve_darcy(torch.full((1, n, n), 2.0), "published").max()) * 8 * math.pi < 0.95


def test_an_unknown_scheme() -> None:
    with pytest.raises(SolverError, match="one of finite_volume, published; got 'spectral'"):
        solve_darcy(torch.ones(1, 8, 8), "spectral")  # pyright: ignore[reportArgumentType]
