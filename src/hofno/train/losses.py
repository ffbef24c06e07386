"""Training losses by name: scalars, means over the batch.

    rel_l2   mean_b ||p - y||_2 / ||y||_2 over channels and points, in physical units
    mse      mean_b of the mean over channels and points of (p - y)^2, in standardised units
    mae      mean_b of the mean over channels and points of |p - y|, in standardised units
    rmse     mean_b of the root of the mean over channels and points of (p - y)^2, in standardised units
    rel_l2_gradient   rel_l2 of the field and 0.1 times that of its differences, see `hofno.train.gradient_loss`

Predictions and targets come standardised; `std` and `mean` of the targets, broadcast against a sample, undo it where
needed. Relative errors have no unit: `in_own_units` takes one out of both that squares do not overflow or vanish in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hofno.train.gradient_loss import rel_l2_gradient

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
RELATIVE = ("rel_l2", "rel_l2_gradient")
"""Losses that divide by the norm of each target."""


def in_own_units(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Statistics of targets divided by one power of two near the size of these: no digit of a relative loss changes."""
    size = max(float(mean.abs().max()), float(std.abs().max()))
    unit = 2.0 ** min(max(math.frexp(size)[1], -126), 126)  # its inverse is a number of float32 too
    return mean / unit, std / unit


def rel_l2(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    error = ((prediction - target) * std).flatten(1).norm(dim=1)
    size = (target * std + mean).flatten(1).norm(dim=1)
    return (error / size.clamp_min(1e-12)).mean()


def _mean(of: Callable[[Tensor], Tensor], error: Tensor, share: Tensor | None) -> Tensor:
    values = of(error)
    return values.mean() if share is None else (values.flatten(1).mean(1) / share).mean()


def _root(error: Tensor, share: Tensor | None) -> Tensor:
    """By norms, whose gradient is 0 where there is no error."""
    each = error.flatten(1).norm(dim=1) / error[0].numel() ** 0.5
    return (each if share is None else each / share.sqrt()).mean()


MEANS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "mse": partial(_mean, torch.square),
    "mae": partial(_mean, torch.abs),
    "rmse": _root,
}
"""Losses that are means over points, of errors and of the share of the points that are there."""


def _standardised(of: Callable[[Tensor, Tensor | None], Tensor]) -> Loss:
    return lambda prediction, target, mean, std: of(prediction - target, None)


LOSSES: dict[str, Loss] = {
    "rel_l2": rel_l2,
    "rel_l2_gradient": rel_l2_gradient,
    **{name: _standardised(of) for name, of in MEANS.items()},
}


def loss_of(
    loss: str, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, share: Tensor | None = None
) -> Tensor:
    """The loss by this name. Of clouds (b, c, N) a share (b,) of the points may be all that is there.

    At the others both are 0 in physical units. Relative errors do not see those, and means are over the points that
    are there.
    """
    if loss in MEANS:
        return MEANS[loss](prediction - target, share)
    return LOSSES[loss](prediction, target, mean, std)
