r"""Multigrid for conductances on a grid: one V-cycle, used as preconditioner of conjugate gradients.

    z = V(r):   smooth z <- z + w D^{-1} (r - A z),   correct z <- z + P V_coarse(P^T (r - A z)),   smooth in reverse

Two neighbours on each axis make one coarse cell, an odd last one stays alone, so any size works. A coarse face is fine
faces side by side, whose conductances add, with fine cells in series behind it, whose lengths add:

    g_coarse = sum of the crossing g / (distance of the coarse centres in fine steps)

P interpolates linearly between cell centres and to 0 at the boundary, one small matrix for each axis. The smoother is
Chebyshev's of degree 2 on the upper part [1/2, 2] of the spectrum of D^{-1} A. The coarsest level is inverted.

For positive conductances z = V(r) is symmetric and positive, whatever its accuracy, so it may work in float32 while
conjugate gradients work in float64: rounding at 1e-7 costs no iteration.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hofno.solvers.elliptic import FivePoint

COARSEST = 6
"""Levels end where the longer axis has no more cells than this."""

WEIGHTS = tuple(1 / (1.25 + 0.75 * math.cos(math.pi * angle)) for angle in (0.25, 0.75))
"""Steps of the smoother: inverse roots of Chebyshev's polynomial of degree 2 on [0.5, 2]."""


class VCycle:
    """One V-cycle for the operator of positive conductances, in `dtype`."""

    def __init__(self, operator: FivePoint, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._levels: list[FivePoint] = [operator.to(dtype)]
        while max(self._levels[-1].diagonal.shape[-2:]) > COARSEST:
            self._levels.append(coarsen(self._levels[-1]))
        self._inverse_diagonals = [level.diagonal.reciprocal() for level in self._levels]
        self._bottom = torch.linalg.inv(dense(self._levels[-1]).double()).to(dtype)  # (b, nm, nm)

    def __call__(self, r: Tensor) -> Tensor:
        """z = V(r), in the precision of r. (b, n, m) -> (b, n, m)"""
        return self._cycle(r.to(self.dtype), 0).to(r.dtype)

    def _cycle(self, r: Tensor, depth: int) -> Tensor:
        level, inverse = self._levels[depth], self._inverse_diagonals[depth]
        if depth == len(self._levels) - 1:
            return (self._bottom @ r.flatten(1)[..., None]).view_as(r)
        z = r * inverse * WEIGHTS[0]
        for weight in WEIGHTS[1:]:
            z.addcmul_(r - level.apply(z), inverse, value=weight)
        down, across = (interpolation(n, self.dtype, r.device) for n in r.shape[-2:])
        coarse = self._cycle(down.mT @ (r - level.apply(z)) @ across, depth + 1)
        z += down @ coarse @ across.mT
        for weight in reversed(WEIGHTS):
            z.addcmul_(r - level.apply(z), inverse, value=weight)
        return z


def coarsen(fine: FivePoint) -> FivePoint:
    """Half as many cells on each axis, rounded up."""
    return FivePoint(_coarse_faces(fine.rows, -2, -1), _coarse_faces(fine.columns, -1, -2))


def _coarse_faces(g: Tensor, through: int, side: int) -> Tensor:
    """Conductances of coarse faces: fine ones added in pairs along axis `side`, thinned out along `through`."""
    n = g.shape[through] - 1
    fine = g.movedim((through, side), (-2, -1))  # (b, n + 1, m)
    if fine.shape[-1] % 2:
        fine = torch.nn.functional.pad(fine, (0, 1))
    beside = fine.unflatten(-1, (-1, 2)).sum(-1)
    kept = torch.cat((beside[..., 0:n:2, :], beside[..., n:, :]), -2)
    distance = coarse_distances(n).to(g)
    return (kept / distance[:, None]).movedim((-2, -1), (through, side)).contiguous()


def centres(n: int) -> Tensor:
    """Centres of the coarse cells in fine steps: 1, 3, 5, ..., and n - 1/2 for an odd one left over."""
    return torch.tensor([min(2.0 * j + 1, n - 0.5) for j in range((n + 1) // 2)], dtype=torch.float64)


def coarse_distances(n: int) -> Tensor:
    """Lengths that the faces of the coarse level stand for, in those of the fine one. ((n + 1) // 2 + 1,)

    Between centres in fine steps; at the boundary, where a fine cell has half a step, in halves.
    """
    at = centres(n)
    return torch.cat((2 * at[:1], at.diff(), 2 * (n - at[-1:])))


@functools.lru_cache(maxsize=64)
def interpolation(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Linear interpolation from coarse centres to fine ones, 0 at both boundaries. (n, (n + 1) // 2)"""
    coarse = torch.cat((torch.zeros(1), centres(n), torch.full((1,), float(n)))).double()
    x = torch.arange(n, dtype=torch.float64) + 0.5
    hats = torch.minimum(
        (x[:, None] - coarse[:-2]) / (coarse[1:-1] - coarse[:-2]),
        (coarse[2:] - x[:, None]) / (coarse[2:] - coarse[1:-1]),
    )
    return hats.clamp_min(0).to(device, dtype)


def dense(operator: FivePoint) -> Tensor:
    """The matrix of a small operator. (b, nm, nm)"""
    n, m = operator.diagonal.shape[-2:]
    unit = torch.eye(n * m, dtype=operator.diagonal.dtype, device=operator.diagonal.device).view(n * m, n, m)
    spread = FivePoint(operator.rows[:, None], operator.columns[:, None])
    return spread.apply(unit).flatten(2)
