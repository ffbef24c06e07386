"""How far the predictions lie apart whose mean is given as one: of several networks, or seen from several sides."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def mean_and_deviation(predictions: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Of two or more predictions (n, c, *grid), at each point, in float64."""
    count, total, square = 0, torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for prediction in predictions:
        values = prediction.double()
        count, total, square = count + 1, total + values, square + values.square()
    mean = total / count
    return mean, ((square - total * mean) / (count - 1)).clamp_min(0.0).sqrt()


def relative_spread(mean: Tensor, deviation: Tensor, together: int) -> Tensor:
    """Norm of the deviation over that of the mean, (n / together,): of samples that belong together as one.

    It is infinite where a prediction has no size.
    """
    sizes = [part.flatten(1).square().sum(1).view(-1, together).sum(1).sqrt() for part in (deviation, mean)]
    found = sizes[0] / sizes[1].clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(found.isfinite(), found, math.inf)
