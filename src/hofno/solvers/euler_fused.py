r"""Newton steps of steady Euler flow on a GPU, in some 640 launches that a CUDA graph holds.

What is computed is `euler_steady.newton_step`: the same blocks, lines, GMRES vectors and step lengths, to rounding.
Flows lie innermost in all arrays, so that the threads of a warp do the same for different flows, and sums have an order
that does not depend on how many flows there are, as long as these are multiples of 32. So flows that are done can
leave: when no more than half are at work, the others go on alone, in room of half the size and with a graph of their
own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hofno.solvers.euler import Euler
from hofno.solvers.euler_block_kernels import FusedBlocks
from hofno.solvers.euler_kernels import FusedEuler
from hofno.solvers.euler_line_kernels import FusedLines
from hofno.solvers.euler_steady import LARGEST_CHANGE, TINY, Newton, next_cfl, relative_change
from hofno.solvers.gpu import Replayed, side_by_side
from hofno.solvers.krylov_kernels import Krylov

SMALLEST = 32  # flows: fewer are no faster


class FusedSteps:
    """Newton steps of the flows `chosen` (b,), from where `at` has them.

    Args:
        flow: meshes and exterior states, with a wall.
        at: what a step carries on, of all flows.
        scale: (all flows,), and
        tolerance: a flow with a norm of at most tolerance * scale is not changed any more.
        krylov: vectors of each linear solve.
    """

    def __init__(self, flow: Euler, chosen: Tensor, at: Newton, scale: Tensor, tolerance: float, krylov: int) -> None:
        self.chosen = chosen
        self._goal = tolerance * scale[chosen]
        self.norm, self.cfl = at.norm[chosen], at.cfl[chosen]
        self.state, self.residual = (part[chosen].movedim(0, -1).contiguous() for part in (at.state, at.residual))
        self._flow = FusedEuler(flow, chosen)
        self._blocks = FusedBlocks(self._flow)
        self._lines = FusedLines(self._blocks.diagonal, self._blocks.coupling, flow.wake)
        self._krylov = Krylov(self.state, krylov)
        self._trial, self._change, self._vector = (torch.empty_like(self.state) for _ in range(3))

    def advance(self) -> None:
        """One step of the flows that are not done; nothing is read back, and all tensors stay where they are."""
        flow, blocks, lines, krylov = self._flow, self._blocks, self._lines, self._krylov
        flow.primitive(self.state)
        blocks.assemble(self.cfl)
        lines.factorise()
        size = self.norm.clamp_min(TINY)
        krylov.scaled(self.residual, size, 0)
        for k in range(krylov.count):
            lines.solve(krylov.basis[k], self._change)
            length = 1e-8 / largest(self._change).clamp_min_(TINY)
            flow.derivative(self.state, self._change, length, self.residual, blocks.time_term, self._vector)
            krylov.orthogonalise(k, self._vector, TINY)
        linear = krylov.minimise(size, self._vector)
        lines.solve(self._vector, self._change)
        share = LARGEST_CHANGE / relative_change(self.state.movedim(-1, 0), self._change.movedim(-1, 0)).clamp_min(TINY)
        share.clamp_max_(1.0)
        torch.addcmul(self.state, share, self._change, out=self._trial)
        flow.residual(self._trial, self._vector)
        norm = krylov.norm(self._vector)
        good = norm < 10 * self.norm  # false where the norm is not a number
        taken = good & ~(self.norm <= self._goal)
        self.state.copy_(torch.where(taken, self._trial, self.state))
        self.residual.copy_(torch.where(taken, self._vector, self.residual))
        self.norm.copy_(torch.where(taken, norm, self.norm))
        self.cfl.copy_(next_cfl(self.cfl, linear, share, good))

    def leave(self, at: Newton) -> None:
        """Put what was reached back among all flows."""
        at.state[self.chosen], at.residual[self.chosen] = self.state.movedim(-1, 0), self.residual.movedim(-1, 0)
        at.norm[self.chosen], at.cfl[self.chosen] = self.norm, self.cfl

    def compile(self) -> None:
        """Have the kernels compiled side by side: they are some thirty, of seconds each. What they compute is lost."""
        krylov, lines, flow = self._krylov, self._lines, self._flow
        vector, change, length = self._vector, self._change, torch.ones_like(self.norm)
        term = self._blocks.time_term
        work: list[Callable[[], object]] = [
            lines.factorise,
            lambda: lines.solve(vector, change),
            lambda: self._blocks.assemble(self.cfl),
            lambda: flow.residual(self.state, vector),
            lambda: flow.derivative(self.state, change, length, self.residual, term, vector),
            lambda: krylov.orthogonalise(0, vector, TINY),
            lambda: krylov.orthogonalise(min(1, krylov.count - 1), vector, TINY),
            lambda: krylov.orthogonalise(min(15, krylov.count - 1), vector, TINY),
            lambda: krylov.minimise(self.norm, vector),
        ]
        side_by_side(work, self.state.device)


def largest(values: Tensor) -> Tensor:
    """The largest number of each flow, without its sign: a maximum is the same in any order. (.., b) -> (b,)"""
    return torch.linalg.vector_norm(values.flatten(0, -2), torch.inf, dim=0)


def march(
    flow: Euler,
    at: Newton,
    scale: Tensor,
    wanted: Tensor,
    tolerance: float,
    max_steps: int,
    krylov: int,
    watch: Callable[[int, Tensor], None] | None,
) -> Tensor:
    """Advance the flows `wanted` (b,) of `at` until they are done; others may move as well. Steps of each, (b,)."""
    steps = torch.zeros_like(wanted, dtype=torch.long)
    group: FusedSteps | None = None
    advance: Replayed | None = None  # not kept by the group, so that both go when they are dropped
    try:
        for step in range(max_steps):
            open_ = ~(at.norm <= tolerance * scale) & wanted
            count = int(open_.sum())  # read back for each step, like what `watch` looks at
            if count == 0:
                break
            size = group_size(count, len(scale) if group is None else len(group.chosen))
            if group is None or size < len(group.chosen):
                first = group is None
                if group is not None:
                    group.leave(at)
                group = advance = None  # before room for the next is taken
                chosen = torch.argsort((~open_).int(), stable=True)[:size]
                group = FusedSteps(flow, chosen, at, scale, tolerance, krylov)
                advance = Replayed(group.advance, at.norm.device)
                if first and at.norm.is_cuda:
                    group.compile()
            assert advance is not None
            advance()
            at.norm[group.chosen] = group.norm
            steps += open_
            if watch is not None:
                watch(step + 1, at.norm / scale)
    finally:
        if at.norm.is_cuda:
            torch.cuda.synchronize(at.norm.device)  # before a graph goes, also when interrupted
    if group is not None:
        group.leave(at)
    return steps


def group_size(count: int, now: int) -> int:
    """Places for `count` flows of `now`: halves, as long as that many are enough."""
    size = SMALLEST
    while size < count:
        size *= 2
    return min(size, now)
