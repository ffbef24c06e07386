r"""A trained operator on other grids than its own, without retraining: the same functions, sampled more or less finely.

    error(n) = mean over test functions of rel_l2 on n points along each axis

Where a problem solves on a fine grid and keeps strided values, its samples on every coarser grid are taken from one
solution: point i of n is point i s of N, with s = (N - 1) / (n - 1) on grids that include both ends and s = N / n on
periodic ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hofno.data.dataset import Split
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import ShapeError
from hofno.evaluation.score import Scores, score
from hofno.geometry import PADDED_BY, Grid, padded_shape
from hofno.surrogate import Surrogate

BATCH = 32
"""Samples in a forward pass on the training grid; fewer on finer ones, so that they take no more memory."""
LONGER = 5e-4
"""Padded domains whose lengths differ by less are the same."""


def is_bound_elsewhere(surrogate: Surrogate, shape: Sequence[int]) -> bool:
    """Whether the normalisers of an operator know only the grid that it was trained on, and this is another one."""
    statistics = surrogate.inputs, surrogate.targets
    return tuple(shape) != tuple(surrogate.grid.shape) and any(isinstance(n, PointwiseNormaliser) for n in statistics)


def refuse_fixed_grid(surrogate: Surrogate, shape: Sequence[int]) -> None:
    """Fail early for an operator whose normalisers know only the grid that it was trained on."""
    own = tuple(surrogate.grid.shape)
    if is_bound_elsewhere(surrogate, shape):
        raise ShapeError(
            f"the run has train.normaliser='pixel' or 'column', statistics of the places of its grid {own}; got a grid "
            f"{tuple(shape)}; evaluate it on its own grid, or train a run with train.normaliser='channel'"
        )


def longer_by(surrogate: Surrogate, resolutions: Sequence[int]) -> dict[int, float]:
    """By resolution, how much longer than on its own grid the padded domain of an operator is there, as a fraction.

    Padding by a fraction of the points makes it so on grids with both ends in them; an operator that was trained with
    another period is another operator there. Only those that are longer or shorter by more than `LONGER` are told.
    """
    if isinstance(surrogate.grid, Grid) and surrogate.grid.periodic:
        return {}
    own, apart = surrogate.grid.shape[0], {}
    for module in surrogate.model.modules():
        fraction, by = getattr(module, "domain_padding", 0.0), getattr(module, "padded_by", None)
        if not fraction or by not in PADDED_BY:
            continue
        periods = {n: padded_shape((n,), fraction, by)[0] / (n - 1) for n in (own, *resolutions)}
        apart |= {n: periods[n] / periods[own] - 1 for n in resolutions if abs(periods[n] / periods[own] - 1) > LONGER}
    return apart


def strided(split: Split, grid: Grid, resolution: int) -> Split:
    """The samples of a split on `grid`, on every s-th of its points along each axis."""
    ends = 0 if grid.periodic else 1
    steps = [(points - ends) // (resolution - ends) for points in grid.shape]
    assert all((resolution - ends) * step == points - ends for step, points in zip(steps, grid.shape, strict=True))
    kept = (..., *(slice(None, None, step) for step in steps))
    return Split(split.x[kept], split.y[kept], together=split.together)


def score_on(surrogate: Surrogate, split: Split) -> Scores:
    """Errors of every sample of a split on any grid."""
    refuse_fixed_grid(surrogate, split.parts.y.shape[2:])
    finer = math.prod(split.parts.y.shape[2:]) / math.prod(surrogate.grid.shape)
    return score(surrogate, split, max(1, min(BATCH, int(BATCH / finer))))
