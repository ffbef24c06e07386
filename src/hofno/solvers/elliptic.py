r"""Flow through conductances on a rectangular grid: the five-point form of -div(a grad u) = f with u = 0 outside.

    (A u)_ij = sum over the four faces of g_face (u_ij - u_neighbour) = f_ij h^2,      u = 0 beyond the outermost faces

Every face has one conductance, so A is symmetric, and what leaves through the outermost faces is what the sources put
in. Two ways to get conductances from a coefficient a (all in units where a face is as long as the step h):

    cells   a in each cell, two half cells in series:  g = 2 a b / (a + b),  outermost faces 2 a (half a step to u = 0)
    nodes   a at each node, ends of the axis included: g = (a + b) / 2 between neighbours; end nodes hold u = 0

The system is solved by conjugate gradients with a preconditioner, for all fields of a batch at once. A field that has
reached the tolerance is frozen: its numbers do not depend on how long the others take.

Shapes: b fields of n x m unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError


class FivePoint:
    """The operator A of conductances.

    Args:
        rows: faces between neighbours on the first axis, with both outermost ones, (b, n + 1, m).
        columns: faces between neighbours on the second axis, with both outermost ones, (b, n, m + 1).
    """

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        if (
            rows.dim() < 2
            or rows.shape[:-2] != columns.shape[:-2]
            or rows.shape[-2] != columns.shape[-2] + 1
            or rows.shape[-1] + 1 != columns.shape[-1]
            or rows.dtype != columns.dtype
        ):
            raise ShapeError(
                "expected rows of shape (b, n + 1, m) and columns of shape (b, n, m + 1) of one precision; "
                f"got {rows.dtype} {tuple(rows.shape)} and {columns.dtype} {tuple(columns.shape)}"
            )
        self.rows, self.columns = rows, columns
        self.diagonal = rows[..., 1:, :] + rows[..., :-1, :] + columns[..., 1:] + columns[..., :-1]
        self._between_rows = rows[..., 1:-1, :].contiguous()
        self._between_columns = columns[..., 1:-1].contiguous()

    @classmethod
    def of_cells(cls, a: Tensor) -> FivePoint:
        """Conductances of a coefficient given in cells, harmonic means. (b, n, m)"""
        rows = 2 * a[:, 1:] * a[:, :-1] / (a[:, 1:] + a[:, :-1])
        columns = 2 * a[..., 1:] * a[..., :-1] / (a[..., 1:] + a[..., :-1])
        rows = torch.cat((2 * a[:, :1], rows, 2 * a[:, -1:]), 1)
        return cls(rows, torch.cat((2 * a[..., :1], columns, 2 * a[..., -1:]), 2))

    @classmethod
    def of_nodes(cls, a: Tensor) -> FivePoint:
        """Conductances of a coefficient given at nodes, arithmetic means. (b, n + 2, m + 2), unknowns are inside."""
        rows, columns = a[:, :, 1:-1], a[:, 1:-1]
        return cls((rows[:, 1:] + rows[:, :-1]) / 2, (columns[..., 1:] + columns[..., :-1]) / 2)

    def to(self, dtype: torch.dtype) -> FivePoint:
        return FivePoint(self.rows.to(dtype), self.columns.to(dtype))

    def apply(self, u: Tensor) -> Tensor:
        """A u. (b, n, m) -> (b, n, m)"""
        out = self.diagonal * u
        out[..., 1:, :].addcmul_(self._between_rows, u[..., :-1, :], value=-1)
        out[..., :-1, :].addcmul_(self._between_rows, u[..., 1:, :], value=-1)
        out[..., 1:].addcmul_(self._between_columns, u[..., :-1], value=-1)
        out[..., :-1].addcmul_(self._between_columns, u[..., 1:], value=-1)
        return out

    def outflow(self, u: Tensor) -> Tensor:
        """What leaves through the outermost faces. (b, n, m) -> (b,)"""
        ends = (self.rows[..., 0, :] * u[..., 0, :] + self.rows[..., -1, :] * u[..., -1, :]).sum(-1)
        sides = self.columns[..., 0] * u[..., 0] + self.columns[..., -1] * u[..., -1]
        return ends + sides.sum(-1)


class IndefiniteError(SolverError):
    """A matrix that is not positive definite, so that conjugate gradients mean nothing; `sample` is its place."""

    def __init__(self, sample: int) -> None:
        super().__init__(
            f"the matrix of sample {sample} of the batch is not positive definite; conductances must be positive"
        )
        self.sample = sample


@dataclass(frozen=True)
class Solution:
    """u (b, n, m), its relative residual ||f - A u|| / ||f|| (b,), and the iterations that the slowest field took."""

    u: Tensor
    residual: Tensor
    iterations: int


def conjugate_gradients(
    operator: FivePoint,
    source: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float = 1e-9,
    most_iterations: int = 200,
) -> Solution:
    """Solve A u = source. A direction p with p.A p < 0 is an error: there A is not positive definite.

    Args:
        operator: A, in float64.
        source: right-hand side, (b, n, m), float64.
        precondition: r -> z, a symmetric positive approximation of the inverse of A.
        tolerance: relative residual at which a field is done, checked on the true residual in the end. The error of u
            is far smaller, about 1e-12 for 1e-9 on 421 x 421; rounding keeps the residual above 1e-11 there.
        most_iterations: fields that are not done by then are an error.
    """
    if source.shape != operator.diagonal.shape or source.dtype != operator.diagonal.dtype:
        raise ShapeError(
            f"expected a source of {operator.diagonal.dtype} {tuple(operator.diagonal.shape)}; "
            f"got {source.dtype} {tuple(source.shape)}"
        )
    check_every = 1 if source.device.type == "cpu" else 4  # a look at the residual waits for the device
    goal = tolerance**2 * dot(source, source)  # (b,)
    u, r = torch.zeros_like(source), source.clone()
    p = precondition(r)
    rz, zero = dot(r, p), torch.zeros_like(goal)
    active, iterations = dot(r, r) > goal, 0
    indefinite = torch.zeros_like(active)
    for iterations in range(1, most_iterations + 1):
        q = operator.apply(p)
        energy = dot(p, q)
        indefinite |= active & (energy < 0)
        step = torch.where(active, rz / energy, zero)[:, None, None]
        u.addcmul_(step, p)
        r.addcmul_(step, q, value=-1)
        active = (dot(r, r) > goal) & ~indefinite
        if iterations % check_every == 0 and not bool(active.any()):
            break
        z = precondition(r)
        before, rz = rz, dot(r, z)
        p.mul_(torch.where(active, rz / before, zero)[:, None, None]).add_(z)
    return Solution(u, _checked_residual(operator, u, source, indefinite, tolerance, iterations), iterations)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product of each pair of fields. (b, n, m), (b, n, m) -> (b,)"""
    return torch.linalg.vecdot(x.flatten(1), y.flatten(1))


def _checked_residual(
    operator: FivePoint, u: Tensor, source: Tensor, indefinite: Tensor, tolerance: float, iterations: int
) -> Tensor:
    """The true relative residual; rounding may leave it a little above the one that the iteration follows."""
    left = source - operator.apply(u)
    size = dot(source, source).sqrt()
    residual = torch.where(size > 0, dot(left, left).sqrt() / size, size)
    bad = indefinite | ~(residual <= 3 * tolerance)
    if bool(bad.any()):
        worst = int(bad.nonzero()[0])
        if bool(indefinite[worst]):
            raise IndefiniteError(worst)
        found = float(residual[worst])
        if not bool(operator.diagonal[worst].isfinite().all() & source[worst].isfinite().all()):
            raise SolverError(f"the coefficient or source of sample {worst} of the batch is not finite; repair it")
        raise SolverError(
            f"sample {worst} of the batch has relative residual {found:.3g} after {iterations} iterations, expected "
            f"{tolerance:g}; its coefficient has too much contrast: lower that"
        )
    return residual
