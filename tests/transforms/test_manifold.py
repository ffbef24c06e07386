"""The Laplace-Beltrami basis: matrices, exact eigenvalues, both eigensolvers, the transform, other triangulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.problems.lumpy_torus import lumpy_torus
from hofno.surface import Surface
from hofno.transforms import manifold
from hofno.transforms.manifold import (
    assembled,
    basis,
    dense_basis,
    local_mass,
    local_stiffness,
    masses,
    sparse_basis,
)
from triangulated import icosphere, square, torus


def tensors(surface: Surface, count: int) -> tuple[Tensor, Tensor]:
    return torch.tensor(basis(surface, count)[1]), torch.tensor(masses(surface))


class TestMatrices:
    def test_slopes_of_hat_functions(self) -> None:
        """Every triangle laid flat, its three hat functions solved for, and the products of their slopes."""
        surface = lumpy_torus(8)
        for corners, area, found in zip(
            surface.corners[::7], surface.areas[::7], local_stiffness(surface)[::7], strict=True
        ):
            right = (corners[1] - corners[0]) / np.linalg.norm(corners[1] - corners[0])
            away = (corners[2] - corners[0]) - ((corners[2] - corners[0]) @ right) * right
            flat = (corners - corners[0]) @ np.stack((right, away / np.linalg.norm(away)), -1)  # (3, 2)
            slopes = np.linalg.inv(np.column_stack((np.ones(3), flat)))[1:].T  # hat i is a_i + slope_i . x
            np.testing.assert_allclose(found, area * slopes @ slopes.T, atol=1e-12)

    def test_cotangents(self) -> None:
        """Off the diagonal, minus half the sum of the cotangents of the two angles opposite to an edge."""
        surface = torus(5, 4)
        expected = np.zeros((20, 20))
        for triangle in surface.triangles:
            for turn in range(3):
                a, b, c = np.roll(triangle, turn)
                u, v = surface.vertices[a] - surface.vertices[c], surface.vertices[b] - surface.vertices[c]
                half = 0.5 * (u @ v) / np.linalg.norm(np.cross(u, v))
                for i, j, sign in ((a, b, -1), (b, a, -1), (a, a, 1), (b, b, 1)):
                    expected[i, j] += sign * half
        np.testing.assert_allclose(assembled(local_stiffness(surface), surface), expected, atol=1e-12)

    def test_masses(self) -> None:
        surface = lumpy_torus(8)
        assert masses(surface).sum() == pytest.approx(surface.areas.sum())
        np.testing.assert_allclose(assembled(local_mass(surface), surface).sum(0), masses(surface))
        assert masses(square(3))[4] == pytest.approx(6 * 0.125 / 3)  # six triangles meet in the middle


class TestExactEigenvalues:
    def test_the_sphere_to_second_order(self) -> None:
        """l (l + 1), 2 l + 1 times each; halving the triangles divides errors by four."""
        exact = np.concatenate([np.full(2 * n + 1, n * (n + 1.0)) for n in range(5)])
        errors = [np.abs(basis(icosphere(times), 25)[0] - exact)[1:].max() for times in (2, 3, 4)]
        orders = np.log2(np.divide(errors[:-1], errors[1:]))
        assert (np.abs(orders - 2) < 0.2).all(), orders

    def test_a_square_without_slope_across_its_border(self) -> None:
        exact = np.sort([math.pi**2 * (i**2 + j**2) for i in range(6) for j in range(6)])[:12]
        errors = [np.abs(basis(square(n), 12)[0] - exact)[1:].max() for n in (9, 17, 33)]
        orders = np.log2(np.divide(errors[:-1], errors[1:]))
        assert (np.abs(orders - 2) < 0.25).all(), orders

    def test_pieces_have_a_constant_each(self) -> None:
        one = icosphere(1)
        apart = np.concatenate((one.vertices, one.vertices + 5.0))
        both = Surface(vertices=apart, triangles=np.concatenate((one.triangles, one.triangles + 42)))
        values, _ = basis(both, 5)
        np.testing.assert_allclose(values[:2], 0.0, atol=1e-9)
        np.testing.assert_allclose(values[2:], basis(one, 2)[0][1], rtol=1e-9)

    @given(st.floats(0.1, 10.0), st.integers(0, 100))
    def test_moved_turned_and_scaled(self, size: float, seed: int) -> None:
        surface, rng = lumpy_torus(8), np.random.default_rng(seed)
        turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        moved = Surface(vertices=size * surface.vertices @ turn + rng.standard_normal(3), triangles=surface.triangles)
        values, functions = dense_basis(surface, 8)
        scaled, others = dense_basis(moved, 8)
        np.testing.assert_allclose(scaled * size**2, values, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(others * size, functions, atol=1e-6)


class TestEigensolvers:
    @pytest.mark.parametrize("surface", [lumpy_torus(12), square(14)], ids=["closed", "border"])
    def test_orthonormal_solutions_of_the_equation(self, surface: Surface) -> None:
        for values, functions in (dense_basis(surface, 20), sparse_basis(surface, 20)):
            area = masses(surface)
            np.testing.assert_allclose(functions.T @ (area[:, None] * functions), np.eye(20), atol=1e-10)
            left = assembled(local_stiffness(surface), surface) @ functions
            np.testing.assert_allclose(left, area[:, None] * functions * values, atol=1e-9)
            assert (values >= 0).all()
            assert (np.diff(values) >= -1e-9).all()
            np.testing.assert_allclose(functions[:, 0], area.sum() ** -0.5, rtol=1e-6)

    def test_both_agree(self) -> None:
        surface = lumpy_torus(18)  # without symmetries: no two eigenvalues are the same
        (values, functions), (others, found) = dense_basis(surface, 40), sparse_basis(surface, 40)
        assert np.diff(values).min() > 1e-4
        np.testing.assert_allclose(others, values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found, functions, atol=1e-6)
        assert np.array_equal(sparse_basis(surface, 40)[1], found), "the same bits each time"

    def test_signs(self) -> None:
        for functions in (basis(lumpy_torus(10), 30)[1], basis(lumpy_torus(18), 30)[1]):
            for function in functions.T:
                large = function[np.abs(function) > 0.5 * np.abs(function).max()]
                assert large[0] > 0

    def test_which_one_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        used: list[str] = []
        monkeypatch.setattr(manifold, "dense_basis", lambda *given: used.append("dense") or dense_basis(*given))
        monkeypatch.setattr(manifold, "sparse_basis", lambda *given: used.append("sparse") or sparse_basis(*given))
        basis.__wrapped__(lumpy_torus(12), 8)
        basis.__wrapped__(lumpy_torus(18), 8)
        basis.__wrapped__(lumpy_torus(18), 170)  # more than a quarter of all
        monkeypatch.setattr(manifold, "find_spec", lambda _: None)
        basis.__wrapped__(lumpy_torus(18), 8)
        assert used == ["dense", "sparse", "dense", "dense"]
        monkeypatch.setattr(manifold, "LARGEST_DENSE", 640)
        with pytest.raises(SpecError, match=r"install scipy \(pip install 'hofno\[files\]'\)"):
            basis.__wrapped__(lumpy_torus(18), 8)

    @pytest.mark.parametrize("count", [0, 31])
    def test_more_functions_than_vertices(self, count: int) -> None:
        with pytest.raises(ShapeError, match=f"1 to 30 basis functions; got functions={count}; lower it"):
            basis(torus(6, 5), count)

    @pytest.mark.parametrize("count", [9, 16, 25])
    def test_no_function_of_eigenvalues_that_coincide_is_missed(self, count: int) -> None:
        surface = icosphere(3)
        np.testing.assert_allclose(sparse_basis(surface, count)[0], dense_basis(surface, count)[0], atol=1e-9)

    def test_what_an_iteration_misses_is_found_by_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from scipy.sparse import linalg

        eigsh, calls = linalg.eigsh, []

        def careless(matrix: object, count: int, *given: object, **named: object) -> tuple[np.ndarray, np.ndarray]:
            values, functions = eigsh(matrix, count + 4, *given, **named)
            calls.append(count)
            order = np.argsort(values)
            kept = [k for k in range(count + 4) if len(calls) > 1 or k not in (2, 6, 7, 8)][:count]
            return values[order][kept], functions[:, order][:, kept]

        monkeypatch.setattr(linalg, "eigsh", careless)
        surface = icosphere(3)
        values, functions = sparse_basis(surface, 20)
        np.testing.assert_allclose(values, dense_basis(surface, 20)[0], atol=1e-9)
        products = functions.T @ (functions * masses(surface)[:, None])
        np.testing.assert_allclose(products, np.eye(20), atol=1e-9)
        assert len(calls) == 4, "twice for four missed, and once to see that none is left"


class TestTransform:
    def test_sums_over_vertices(self) -> None:
        surface = torus(6, 5)
        functions, area = tensors(surface, 7)
        x, spectrum = torch.randn(2, 30, 3, dtype=torch.float64), torch.randn(2, 7, 3, dtype=torch.float64)
        forward, inverse = torch.zeros(2, 7, 3, dtype=torch.float64), torch.zeros(2, 30, 3, dtype=torch.float64)
        for vertex in range(30):
            for j in range(7):
                forward[:, j] += functions[vertex, j] * area[vertex] * x[:, vertex]
                inverse[:, vertex] += functions[vertex, j] * spectrum[:, j]
        torch.testing.assert_close(manifold.forward(x, functions, area), forward)
        torch.testing.assert_close(manifold.inverse(spectrum, functions), inverse)
        torch.testing.assert_close(manifold.inverse(spectrum, functions, x), inverse + x)

    def test_with_all_functions_there_and_back(self) -> None:
        functions, area = tensors(torus(6, 5), 30)
        x = torch.randn(2, 30, 3, dtype=torch.float64)
        torch.testing.assert_close(manifold.inverse(manifold.forward(x, functions, area), functions), x)

    @given(st.integers(1, 29), st.integers(0, 100))
    def test_with_fewer_the_nearest_function(self, count: int, seed: int) -> None:
        functions, area = tensors(torus(6, 5), count)
        x = torch.randn(1, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        kept = manifold.inverse(manifold.forward(x, functions, area), functions)
        torch.testing.assert_close(manifold.inverse(manifold.forward(kept, functions, area), functions), kept)
        left = manifold.forward(x - kept, functions, area)  # orthogonal to all that is kept
        torch.testing.assert_close(left, torch.zeros_like(left), atol=1e-10, rtol=0)

    def test_gradients(self) -> None:
        functions, area = tensors(torus(4, 3), 5)
        x = torch.randn(2, 12, 2, dtype=torch.float64, requires_grad=True)
        spectrum = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda v: manifold.forward(v, functions, area), x)
        assert torch.autograd.gradcheck(lambda v: manifold.inverse(v, functions), spectrum)


class TestOtherTriangulations:
    """What one function has in common on two triangulations of a surface."""

    def test_coefficients_of_single_eigenvalues_converge(self) -> None:
        """Up to signs, which converge too, and to second order."""

        def coefficients(resolution: int) -> np.ndarray:
            surface = lumpy_torus(resolution)
            x, y, z = surface.vertices.T
            return basis(surface, 12)[1].T @ (masses(surface) * np.exp(0.5 * x) * np.cos(2 * y + z))

        coarse, medium, fine = map(coefficients, (12, 24, 48))
        errors = [np.linalg.norm(np.abs(found) - np.abs(fine)) for found in (coarse, medium)]
        assert errors[1] < 0.05 * np.linalg.norm(fine)
        assert errors[0] / errors[1] > 3.0

    def test_of_multiple_ones_their_squares_do(self) -> None:
        """On a sphere the functions of a degree come out rotated among themselves; the power of a degree is known."""
        powers, found = [], []
        turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
        for surface in (icosphere(3), Surface(vertices=icosphere(3).vertices @ turn, triangles=icosphere(3).triangles)):
            values = surface.vertices[:, 0] + surface.vertices[:, 0] * surface.vertices[:, 1]
            spectrum = basis(surface, 9)[1].T @ (masses(surface) * values)
            found.append(np.abs(spectrum))
            powers.append([np.square(spectrum[n**2 : (n + 1) ** 2]).sum() for n in range(3)])
        exact = [0.0, 4 * math.pi / 3, 4 * math.pi / 15]
        np.testing.assert_allclose(powers[0], exact, rtol=0.02, atol=1e-6)
        np.testing.assert_allclose(powers[1], exact, rtol=0.02, atol=1e-6)
        assert np.abs(found[0] - found[1]).max() > 0.05, "one by one they are not the same"
