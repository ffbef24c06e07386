r"""Flow through a porous square: -div(a grad u) = f on (0, 1)^2, u = 0 on the boundary.

Coefficient, source and solution are given in the K x K cell centres ((i + 1/2)/K, (j + 1/2)/K). Two discretisations:

finite volume   the cells themselves, harmonic means on their faces: flux is conserved, u is of second order, also
                where a jumps, if it jumps on faces
published       that of the released data: a and f go by cubic splines to the K x K nodes i/(K - 1), which include the
                boundary; five-point differences with arithmetic means there; u goes back to the cell centres by
                splines. Of second order where a is smooth. Splines overshoot at jumps, and beyond the outermost
                centres they extrapolate: some coefficients and conductances at the boundary are negative, at the
                published contrast of 4 in nearly every sample. There the system still stays positive definite on 40
                cells and more; with more contrast, or fewer cells, it may not, or only just, and u means nothing.
                Such samples are refused, by a direction of negative energy or a u beyond what the equation allows.

The published solver ends with a transposition, which undoes that of its reshape: u lies as a does.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.solvers.elliptic import FivePoint, IndefiniteError, conjugate_gradients
from hofno.solvers.multigrid import VCycle
from hofno.solvers.splines import spline_matrix

Scheme = Literal["finite_volume", "published"]


@torch.no_grad()
def solve_darcy(a: Tensor, scheme: Scheme, source: Tensor | None = None, tolerance: float = 1e-9) -> Tensor:
    """The solution u in the cell centres, float64, on the device of `a`. (b, K, K) -> (b, K, K)

    Args:
        a: positive coefficient in the cell centres, (b, K, K).
        scheme: the discretisation.
        source: f in the cell centres, (b, K, K); 1 everywhere if None.
        tolerance: relative residual of the linear systems.
    """
    if scheme not in get_args(Scheme):
        raise SolverError(f"scheme must be one of {', '.join(get_args(Scheme))}; got {scheme!r}")
    a, source = _checked(a, source)
    if scheme == "finite_volume":
        operator, right = FivePoint.of_cells(a), source / a.shape[-1] ** 2
        return conjugate_gradients(operator, right, VCycle(operator), tolerance).u
    to_nodes, to_centres = (matrix.to(a) for matrix in spline_matrices(a.shape[-1]))
    operator = FivePoint.of_nodes(to_nodes @ a @ to_nodes.mT)
    at_nodes = (to_nodes @ source @ to_nodes.mT)[:, 1:-1, 1:-1]
    try:
        inside = conjugate_gradients(operator, at_nodes / (a.shape[-1] - 1) ** 2, VCycle(operator), tolerance).u
    except IndefiniteError as error:
        raise _meaningless(error.sample) from None
    _refuse_above_bound(inside, a, at_nodes)
    return to_centres[:, 1:-1] @ inside @ to_centres[:, 1:-1].mT


def bytes_per_field(points: int) -> int:
    """Memory that solving one more field takes, about: 32 arrays of K x K in float64."""
    return 256 * points**2


@functools.lru_cache(maxsize=4)
def spline_matrices(points: int) -> tuple[Tensor, Tensor]:
    """Splines from the cell centres (i + 1/2)/K to the nodes i/(K - 1), and back. (K, K) each"""
    centres, nodes = (np.arange(points) + 0.5) / points, np.arange(points) / (points - 1)
    return torch.from_numpy(spline_matrix(centres, nodes)), torch.from_numpy(spline_matrix(nodes, centres))


def _refuse_above_bound(u: Tensor, a: Tensor, source: Tensor) -> None:
    r"""Refuse solutions that the equation cannot have. (b, n, n), (b, K, K), (b, n, n)

    Talenti: |u| <= max|f| / (4 pi min a), the value in the middle of the disc of area 1 with the least coefficient. A
    constant coefficient reaches 0.926 of it. A matrix that is only just positive definite exceeds it many times.
    """
    bound = source.abs().flatten(1).amax(1) / (4 * math.pi * a.flatten(1).amin(1))
    above = u.abs().flatten(1).amax(1) > bound
    if bool(above.any()):
        raise _meaningless(int(above.nonzero()[0]))


def _meaningless(sample: int) -> SolverError:
    return SolverError(
        f"sample {sample} of the batch has no meaningful solution: the splines of scheme='published' overshoot at its "
        "jumps until the matrix is not (or only just) positive definite; take scheme='finite_volume', less contrast, "
        "or a finer solver_resolution"
    )


def _checked(a: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor]:
    if a.dim() != 3 or a.shape[-1] != a.shape[-2] or a.shape[-1] < 4 or len(a) == 0 or a.is_complex():
        raise ShapeError(f"expected a real coefficient of shape (b, K, K), K >= 4; got {a.dtype} {tuple(a.shape)}")
    a = a.double()
    wrong = ~(a.isfinite() & (a > 0)).flatten(1).all(1)
    if bool(wrong.any()):
        raise SolverError(
            f"the coefficient must be positive and finite; it is not in sample {int(wrong.nonzero()[0])} of the batch"
        )
    if source is None:
        return a, torch.ones_like(a)
    if source.shape != a.shape or source.is_complex():
        raise ShapeError(f"expected a real source of shape {tuple(a.shape)}; got {source.dtype} {tuple(source.shape)}")
    return a, source.to(a)
