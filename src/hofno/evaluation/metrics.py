"""Metrics per sample. Every one reduces over channels and points and keeps the sample axis.

rel_l2             ||p - y||_2 / ||y||_2 in physical units (the paper's nRMSE)
mse                mean (p - y)^2 in physical units
mse_standardised   mean ((p - y) / std)^2 with the standard deviation of each target channel over the training set;
                   with those of the operator's normaliser, that is of each place, or 1 where it has none

A rollout can grow without bound, and weights that training has ruined can give anything. Such relative or standardised
errors are told as `UNBOUNDED`, which tables and files can hold. An error in physical units may be as large as its units
make it: only one that is not finite is told as a number, `UNBOUNDED_SQUARE`.
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny
UNBOUNDED = 1e9
UNBOUNDED_SQUARE = 1e78
"""Larger than the square of any difference of float32 numbers."""


def rel_l2(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L2 error of each sample, (n, ...) -> (n,)."""
    error = (prediction - target).flatten(1).double().norm(dim=1)
    return error / target.flatten(1).double().norm(dim=1).clamp_min(TINY)


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of each sample, (n, ...) -> (n,)."""
    return (prediction - target).flatten(1).double().square().mean(dim=1)


def known(errors: Tensor) -> Tensor:
    """Errors without a unit, those that are larger than `UNBOUNDED` or not finite told as that."""
    return errors.nan_to_num(nan=UNBOUNDED, posinf=UNBOUNDED).clamp_max(UNBOUNDED)


def known_square(errors: Tensor) -> Tensor:
    """Squared errors in physical units, those that are not finite told as `UNBOUNDED_SQUARE`."""
    return errors.nan_to_num(nan=UNBOUNDED_SQUARE, posinf=UNBOUNDED_SQUARE)
