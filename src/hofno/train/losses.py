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


MEANS: dict[str, Callable[[Tensor], Tensor]] = {"mse": torch.square, "mae": torch.abs}
"""Losses that are means: what they are means of."""


def _mean(of: Callable[[Tensor], Tensor]) -> Loss:
    def loss(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        return of(prediction - target).mean()

    return loss


def rmse(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, share: Tensor | float = 1.0) -> Tensor:
    """By norms, whose gradient is 0 where there is no error."""
    error = (prediction - target).flatten(1)
    return (error.norm(dim=1) / (error.shape[1] * share) ** 0.5).mean()


LOSSES: dict[str, Loss] = {
    "rel_l2": rel_l2,
    "rel_l2_gradient": rel_l2_gradient,
    "rmse": rmse,
    **{name: _mean(of) for name, of in MEANS.items()},
}


def loss_of(
    loss: str, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, share: Tensor | None = None
) -> Tensor:
    """The loss by this name. Of clouds (b, c, N) a share (b,) of the points may be all that is there.

    At the others both are 0 in physical units. Relative errors do not see those, and means are over the points that
    are there.
    """
    if share is not None and loss == "rmse":
        return rmse(prediction, target, mean, std, share)
    if share is None or loss not in MEANS:
        return LOSSES[loss](prediction, target, mean, std)
    return (MEANS[loss](prediction - target).flatten(1).mean(1) / share).mean()
