"""Conductances on a grid and conjugate gradients: against loops and a direct solution, balance, freezing, failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.solvers.elliptic import FivePoint, IndefiniteError, conjugate_gradients
from hofno.solvers.multigrid import VCycle, dense


def random_operator(b: int, n: int, m: int, seed: int = 0) -> FivePoint:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(b, n + 1, m, generator=generator, dtype=torch.float64) + 0.2
    return FivePoint(rows, torch.rand(b, n, m + 1, generator=generator, dtype=torch.float64) + 0.2)


def jacobi(operator: FivePoint) -> Callable[[Tensor], Tensor]:
    return lambda r: r / operator.diagonal


class TestFivePoint:
    def test_it_is_the_sum_over_faces(self) -> None:
        operator, u = random_operator(2, 3, 4), torch.randn(2, 3, 4, dtype=torch.float64)
        found = operator.apply(u)
        padded = torch.nn.functional.pad(u, (1, 1, 1, 1))
        for s, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(4)).tolist():
            here = u[s, i, j]
            expected = (
                operator.rows[s, i, j] * (here - padded[s, i, j + 1])
                + operator.rows[s, i + 1, j] * (here - padded[s, i + 2, j + 1])
                + operator.columns[s, i, j] * (here - padded[s, i + 1, j])
                + operator.columns[s, i, j + 1] * (here - padded[s, i + 1, j + 2])
            )
            torch.testing.assert_close(found[s, i, j], expected)

    def test_cells_are_two_half_cells_in_series(self) -> None:
        a = torch.tensor([[[1.0, 3.0], [2.0, 6.0]]], dtype=torch.float64)
        operator = FivePoint.of_cells(a)
        half = 0.5 / a[0]
        assert operator.columns[0].tolist() == [[2, 1.5, 6], [4, 3, 12]]
        torch.testing.assert_close(operator.rows[0, 1], 1 / (half[0] + half[1]))
        torch.testing.assert_close(operator.rows[0, ::2], 1 / half)

    def test_nodes_are_arithmetic_means(self) -> None:
        a = torch.arange(12.0).view(1, 3, 4)
        operator = FivePoint.of_nodes(a)
        assert operator.rows.tolist() == [[[3, 4], [7, 8]]]
        assert operator.columns.tolist() == [[[4.5, 5.5, 6.5]]]

    def test_bad_shapes(self) -> None:
        for rows, columns in (((1, 4, 3), (1, 4, 4)), ((1, 4, 3), (2, 3, 4)), ((1, 4, 3), (1, 3, 3))):
            with pytest.raises(ShapeError, match=r"rows of shape \(b, n \+ 1, m\)"):
                FivePoint(torch.ones(rows), torch.ones(columns))
        with pytest.raises(ShapeError, match="one precision"):
            FivePoint(torch.ones(1, 4, 3), torch.ones(1, 3, 4).double())


class TestConjugateGradients:
    def test_the_direct_solution(self) -> None:
        operator, f = random_operator(3, 9, 7), torch.randn(3, 9, 7, dtype=torch.float64)
        found = conjugate_gradients(operator, f, VCycle(operator), tolerance=1e-12)
        expected = torch.linalg.solve(dense(operator), f.flatten(1)).view_as(f)
        torch.testing.assert_close(found.u, expected, rtol=0, atol=1e-11)
        assert float(found.residual.max()) <= 1e-12

    def test_what_comes_in_goes_out(self) -> None:
        operator, f = random_operator(2, 20, 13), torch.rand(2, 20, 13, dtype=torch.float64)
        u = conjugate_gradients(operator, f, VCycle(operator), tolerance=1e-12).u
        torch.testing.assert_close(operator.outflow(u), f.sum((1, 2)), rtol=1e-11, atol=0)

    def test_any_preconditioner_gives_the_same_solution(self) -> None:
        operator, f = random_operator(2, 24, 24), torch.rand(2, 24, 24, dtype=torch.float64)
        good = conjugate_gradients(operator, f, VCycle(operator), tolerance=1e-11)
        poor = conjugate_gradients(operator, f, jacobi(operator), tolerance=1e-11)
        torch.testing.assert_close(good.u, poor.u, rtol=0, atol=1e-8)
        assert good.iterations < poor.iterations / 3

    def test_a_finished_field_does_not_change(self) -> None:
        """The first field is an eigenvector of its operator and done at once; the others go on. Same bits alone."""
        operator = FivePoint(torch.ones(1, 17, 16).double(), torch.ones(1, 16, 17).double())
        sine = torch.sin(torch.pi * torch.arange(1, 17).double() / 17)
        easy = (sine[:, None] * sine)[None]
        hard = torch.randn(1, 16, 16, dtype=torch.float64)
        both = FivePoint(operator.rows.expand(2, -1, -1), operator.columns.expand(2, -1, -1))
        alone = conjugate_gradients(operator, easy, jacobi(operator))
        together = conjugate_gradients(both, torch.cat((easy, hard)), jacobi(both))
        assert alone.iterations == 1
        assert together.iterations > 5
        assert torch.equal(together.u[0], alone.u[0])

    def test_no_source(self) -> None:
        operator = random_operator(2, 8, 8)
        f = torch.stack((torch.zeros(8, 8), torch.ones(8, 8))).double()
        found = conjugate_gradients(operator, f, VCycle(operator))
        assert not found.u[0].any()
        assert found.u[1].isfinite().all()

    def test_the_tolerance_matters(self) -> None:
        operator, f = random_operator(1, 32, 32), torch.rand(1, 32, 32, dtype=torch.float64)
        counts = [conjugate_gradients(operator, f, VCycle(operator), t).iterations for t in (1e-3, 1e-6, 1e-12)]
        assert counts[0] < counts[1] < counts[2]

    def test_a_matrix_that_is_not_positive_definite(self) -> None:
        """One negative conductance of the second field: its solution exists, and is the top of no energy."""
        operator, f = random_operator(3, 9, 7), torch.rand(3, 9, 7, dtype=torch.float64)
        operator.rows[1, 4, 3] = -20.0
        broken = FivePoint(operator.rows, operator.columns)
        assert [float(torch.linalg.eigvalsh(part)[0]) > 0 for part in dense(broken)] == [True, False, True]
        for precondition in (jacobi(random_operator(3, 9, 7)), VCycle(broken)):
            with pytest.raises(IndefiniteError, match="matrix of sample 1 of the batch is not positive") as caught:
                conjugate_gradients(broken, f, precondition)
            assert caught.value.sample == 1

    def test_failures(self) -> None:
        operator, f = random_operator(2, 16, 16), torch.rand(2, 16, 16, dtype=torch.float64)
        with pytest.raises(SolverError, match=r"sample 0 of the batch has relative residual .* after 3 iterations"):
            conjugate_gradients(operator, f, jacobi(operator), most_iterations=3)
        f[1, 3, 3] = torch.nan
        with pytest.raises(SolverError, match="of sample 1 of the batch is not finite"):
            conjugate_gradients(operator, f, VCycle(operator), most_iterations=30)
        with pytest.raises(ShapeError, match=r"expected a source of torch.float64 \(2, 16, 16\)"):
            conjugate_gradients(operator, f[:1], VCycle(operator))
        with pytest.raises(ShapeError, match=r"expected a source of torch\.float64"):
            conjugate_gradients(operator, f.float(), VCycle(operator))


def as_matrix(v: VCycle, n: int, m: int) -> Tensor:
    unit = torch.eye(n * m, dtype=torch.float64).view(n * m, 1, n, m)
    return torch.stack([v(column).flatten() for column in unit], 1)


class TestVCycle:
    @pytest.mark.parametrize("shape", [(13, 13), (16, 9), (7, 22)])
    def test_symmetric_and_positive(self, shape: tuple[int, int]) -> None:
        matrix = as_matrix(VCycle(random_operator(1, *shape), torch.float64), *shape)
        torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=1e-13)
        assert float(torch.linalg.eigvalsh(matrix).min()) > 0

    def test_close_to_the_inverse_on_every_size(self) -> None:
        """The condition of V A for a constant coefficient; rounding up odd sizes costs little."""
        for n in (12, 13, 15, 16, 19):
            operator = FivePoint.of_cells(torch.ones(1, n, n, dtype=torch.float64))
            product = as_matrix(VCycle(operator, torch.float64), n, n) @ dense(operator)[0]
            spectrum = torch.linalg.eigvals(product).real
            assert float(spectrum.max() / spectrum.min()) < 1.6, n

    @pytest.mark.parametrize("points", [64, 128, 255])
    def test_iterations_do_not_grow_with_the_grid(self, points: int) -> None:
        a = torch.where(torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(3)) > 0, 12.0, 3.0).double()
        a = torch.nn.functional.interpolate(a[None], size=(points, points), mode="nearest")[0]
        operator = FivePoint.of_cells(a)
        f = torch.full_like(a, points**-2.0)
        assert conjugate_gradients(operator, f, VCycle(operator)).iterations <= 13

    def test_float32_costs_no_iteration(self) -> None:
        a = torch.where(torch.randn(1, 100, 100, generator=torch.Generator().manual_seed(3)) > 0, 12.0, 3.0).double()
        operator, f = FivePoint.of_cells(a), torch.full_like(a, 1e-4)
        counts = [conjugate_gradients(operator, f, VCycle(operator, d)).iterations for d in (torch.float32, a.dtype)]
        assert counts[0] <= counts[1] + 1

    def test_a_small_grid_is_inverted(self) -> None:
        operator, r = random_operator(2, 5, 6), torch.rand(2, 5, 6, dtype=torch.float64)
        torch.testing.assert_close(operator.apply(VCycle(operator, torch.float64)(r)), r, rtol=0, atol=1e-12)
