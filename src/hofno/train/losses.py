"""Training losses by name: scalars, means over the batch.

    rel_l2   mean_b ||p - y||_2 / ||y||_2 over channels and points, in physical units
    mse      mean over everything of (p - y)^2, in standardised units
    mae      mean over everything of |p - y|, in standardised units
    rel_l2_gradient   rel_l2 of the field and 0.1 times that of its differences, see `hofno.train.gradient_loss`

Predictions and targets come standardised; `std` and `mean` of the targets, broadcast against a sample, undo it where
needed.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from hofno.train.gradient_loss import rel_l2_gradient

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def rel_l2(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    error = ((prediction - target) * std).flatten(1).norm(dim=1)
    size = (target * std + mean).flatten(1).norm(dim=1)
    return (error / size.clamp_min(1e-12)).mean()


def mse(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (prediction - target).square().mean()


def mae(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (prediction - target).abs().mean()


LOSSES: dict[str, Loss] = {"rel_l2": rel_l2, "mse": mse, "mae": mae, "rel_l2_gradient": rel_l2_gradient}
