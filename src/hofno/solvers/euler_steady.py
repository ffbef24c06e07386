r"""Steady Euler flow by Newton's method with pseudo-time, matrix-free.

    (S / CFL + R'(w)) dw = -R(w),        w <- w + lambda dw

R is the second-order residual with its limiter, never frozen; R'(w) v is its difference quotient. Each linear system is
solved by GMRES with a fixed number of vectors, preconditioned along the mesh lines. Every flow has its own CFL number,
as large as its linear system can still be solved for, and its own step length lambda: no density and no pressure
changes by more than 30 % in a step. The start is the flow on every second node, where the mesh allows it.

A step is a fixed sequence of operations on fixed shapes that reads nothing back from the device; between two steps one
number is read, and what `watch` looks at. What a flow computes does not depend on its neighbours in the batch. On a GPU
the steps are those of `euler_fused`, the same to rounding; on a CPU with a C compiler those of `euler_native`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hofno.errors import SolverError
from hofno.solvers.euler import GAMMA, Euler, primitive
from hofno.solvers.euler_lines import LinePreconditioner
from hofno.solvers.parallel import go_on
from hofno.triton_use import kernels_run_on

_FIRST_CFL, _SMALLEST_CFL, _LARGEST_CFL = 10.0, 1.0, 1e4
_GROWTH = 1.5  # of the CFL number in a step that succeeds
_LINEAR = 0.25  # what GMRES should leave of a right-hand side: the CFL number is steered towards it
_COARSE_TOLERANCE, _COARSE_STEPS = 1e-2, 40

LARGEST_CHANGE = 0.3
"""Of density and pressure in one step, relative."""

TINY = 1e-300
"""What divisors are at least."""


@dataclass(frozen=True)
class Steady:
    """Flows (b, 4, I, J) in conservative variables and how far each came."""

    state: Tensor
    residual: Tensor  # (b,), the norm of the residual relative to that of the uniform stream
    steps: Tensor  # (b,), Newton steps on the full mesh
    converged: Tensor  # (b,)


@dataclass
class Newton:
    """What a Newton step carries on, of all flows."""

    state: Tensor
    residual: Tensor
    norm: Tensor  # (b,)
    cfl: Tensor  # (b,)


@torch.no_grad()
def solve_steady(
    flow: Euler,
    start: Tensor | None = None,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 150,
    krylov: int = 20,
    wanted: Tensor | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Steady:
    """The steady flow on every mesh of `flow`; those that do not converge are marked, not raised.

    Args:
        flow: meshes and exterior states.
        start: first guess (b, 4, I, J); None starts from the flow on every second node.
        tolerance: relative residual at which a flow is done and is not changed any more.
        max_steps: Newton steps on the full mesh, at most.
        krylov: vectors of each linear solve.
        wanted: (b,) which flows to wait for; None waits for all.
        watch: called as watch(step, relative residuals (b,)) after every step.
    """
    if not (math.isfinite(tolerance) and 0 < tolerance < 1):
        raise SolverError(f"tolerance must lie between 0 and 1; got {tolerance}; 1e-6 is a good value")
    if max_steps < 1 or krylov < 2:
        raise SolverError(f"max_steps >= 1 and krylov >= 2 are needed; got {max_steps} and {krylov}")
    scale = norm_of(flow.residual(flow.uniform())).clamp_min(TINY)
    state = _first_guess(flow, krylov, wanted) if start is None else start.to(flow.nodes).clone()
    residual = flow.residual(state)
    at = Newton(state, residual, norm_of(residual), torch.full_like(scale, _FIRST_CFL))
    waiting = torch.ones_like(scale, dtype=torch.bool) if wanted is None else wanted.to(scale.device)
    advance = _march
    if fused_runs_on(flow):
        from hofno.solvers.euler_fused import march as advance
    elif native_is_for(flow, krylov):
        from hofno.solvers.euler_native import march as advance
    steps = advance(flow, at, scale, waiting, tolerance, max_steps, krylov, watch)
    relative = at.norm / scale
    return Steady(at.state, relative, steps, relative <= tolerance)


def fused_runs_on(flow: Euler) -> bool:
    """Whether the fused steps take these flows."""
    return flow.wall and flow.nodes.dtype == torch.float64 and kernels_run_on(flow.nodes)


def native_is_for(flow: Euler, krylov: int = 20) -> bool:
    """Whether compiled steps take these flows."""
    from hofno.solvers.euler_native import native_runs_on

    return native_runs_on(flow, krylov)


def _march(
    flow: Euler,
    at: Newton,
    scale: Tensor,
    wanted: Tensor,
    tolerance: float,
    max_steps: int,
    krylov: int,
    watch: Callable[[int, Tensor], None] | None,
) -> Tensor:
    """Advance `at` until the flows `wanted` (b,) are done. Steps of each flow, (b,)."""
    steps = torch.zeros_like(scale, dtype=torch.long)
    for step in range(max_steps):
        go_on()
        open_ = ~(at.norm <= tolerance * scale)  # a norm that is not a number stays open
        if not bool((open_ & wanted).any()):
            break
        newton_step(flow, at, open_, krylov)
        steps += open_
        if watch is not None:
            watch(step + 1, at.norm / scale)
    return steps


def _first_guess(flow: Euler, krylov: int, wanted: Tensor | None) -> Tensor:
    """The flow on every second node, if these make a mesh, else the exterior everywhere."""
    n_i, n_j = flow.nodes.shape[2:]
    if n_i % 2 == 0 or n_j % 2 == 0 or flow.wake % 2 or min(n_i, n_j) < 9:
        return flow.uniform()
    coarse = flow.coarse()
    found = solve_steady(
        coarse, coarse.uniform(), tolerance=_COARSE_TOLERANCE, max_steps=_COARSE_STEPS, krylov=krylov, wanted=wanted
    )
    fine = torch.nn.functional.interpolate(found.state, size=(n_i, n_j), mode="bilinear", align_corners=True)
    good = fine.isfinite().flatten(1).all(1)
    return torch.where(good[:, None, None, None], fine, flow.uniform())


def newton_step(flow: Euler, at: Newton, open_: Tensor, krylov: int) -> None:
    """One step of the flows that are open, in place."""
    lines = LinePreconditioner(flow, at.state, at.cfl)

    def operator(v: Tensor) -> Tensor:
        size = 1e-8 / v.abs().amax((1, 2, 3), keepdim=True).clamp_min(TINY)
        return lines.time_term * v + (flow.residual(at.state + size * v) - at.residual) / size

    change, linear = _gmres(operator, lines.solve, -at.residual, krylov)
    length = (LARGEST_CHANGE / relative_change(at.state, change).clamp_min(TINY)).clamp_max(1.0)
    state = at.state + length[:, None, None, None] * change
    residual = flow.residual(state)
    norm = norm_of(residual)
    good = norm < 10 * at.norm  # false where the norm is not a number
    taken = good & open_
    pick = taken[:, None, None, None]
    at.state = torch.where(pick, state, at.state)
    at.residual = torch.where(pick, residual, at.residual)
    at.norm = torch.where(taken, norm, at.norm)
    at.cfl = next_cfl(at.cfl, linear, length, good)


def next_cfl(cfl: Tensor, linear: Tensor, length: Tensor, good: Tensor) -> Tensor:
    """CFL numbers after a step of this length, `good` or not, with `linear` left of its right-hand side. (b,) each"""
    factor = torch.sqrt(_LINEAR / linear).clamp(0.4, _GROWTH)
    factor = torch.where(length < 1, length.clamp_min(0.3), factor)
    factor = factor.masked_fill(~good, 0.1)
    return (cfl * factor).clamp(_SMALLEST_CFL, _LARGEST_CFL)


def _gmres(
    operator: Callable[[Tensor], Tensor], inverse: Callable[[Tensor], Tensor], right: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """`count` vectors of right-preconditioned GMRES for every sample, and what is left of each right-hand side.

    (b, 4, I, J) -> (b, 4, I, J), (b,)
    """
    b = len(right)
    size = norm_of(right).clamp_min(TINY)
    basis = right.new_zeros(b, count + 1, right[0].numel())
    basis[:, 0] = right.flatten(1) / size[:, None]
    hessenberg = right.new_zeros(b, count + 1, count)
    for k in range(count):
        vector = operator(inverse(basis[:, k].reshape(right.shape))).flatten(1)
        known = basis[:, : k + 1]  # (b, k + 1, n)
        for _ in range(2):  # Gram-Schmidt twice is enough
            parts = torch.bmm(known, vector[..., None])  # (b, k + 1, 1)
            vector = vector - torch.bmm(parts.mT, known)[:, 0]
            hessenberg[:, : k + 1, k] += parts[..., 0]
        length = torch.linalg.vector_norm(vector, dim=1).clamp_min(TINY)
        hessenberg[:, k + 1, k] = length
        basis[:, k + 1] = vector / length[:, None]
    target = right.new_zeros(b, count + 1, 1)
    target[:, 0, 0] = size
    normal = hessenberg.mT @ hessenberg
    normal.diagonal(dim1=1, dim2=2).mul_(1 + 1e-14)
    weights = torch.linalg.solve_ex(normal, hessenberg.mT @ target).result  # (b, count, 1)
    left = torch.linalg.vector_norm(target - hessenberg @ weights, dim=(1, 2)) / size
    return inverse(torch.bmm(weights.mT, basis[:, :count]).reshape(right.shape)), left


def relative_change(state: Tensor, change: Tensor) -> Tensor:
    """The largest relative change of density or pressure, (b,)."""
    rho, u, v, p = primitive(state).unbind(1)
    kinetic = 0.5 * (u * u + v * v)
    dp = (GAMMA - 1) * (change[:, 3] - u * change[:, 1] - v * change[:, 2] + kinetic * change[:, 0])
    return torch.maximum(change[:, 0].abs() / rho, dp.abs() / p).amax((1, 2))


def norm_of(residual: Tensor) -> Tensor:
    return torch.linalg.vector_norm(residual, dim=(1, 2, 3))


def bytes_per_flow(n_i: int, n_j: int, krylov: int = 20) -> int:
    """Memory that one more flow on I x J nodes takes, about: the basis, the lines' factors and their making."""
    return 8 * n_i * n_j * (4 * (krylov + 1) + 320)
