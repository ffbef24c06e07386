"""How far the predictions lie apart whose mean is given as one: of several networks, or seen from several sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from hofno.data.views import Views
from hofno.models.ensemble import mean_of

Outputs = Callable[[Tensor, Tensor | None, Tensor | None], Sequence[Tensor]]
"""Inputs, and of points their coordinates and which are there, to what each of several networks gives for them."""


def predicted_apart(
    outputs: Outputs,
    decode: Callable[[Tensor], Tensor],
    views: Views | None,
    x: Tensor,
    coords: Tensor | None,
    inside: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """A prediction, and those whose mean it is, by network and then by view; each network sees each view once.

    The mean over networks is that of their outputs, and the mean over views that of decoded ones.
    """
    seen: list[list[Tensor]] = []

    def apply(x: Tensor, coords: Tensor | None, inside: Tensor | None) -> Tensor:
        found = outputs(x, coords, inside)
        seen.append([decode(output) for output in found])
        return seen[-1][0] if len(found) == 1 else decode(mean_of(found, len(found)))

    if views is None:
        predicted = apply(x, coords, inside)
    else:
        predicted = views.mean(apply, x, coords, inside)
        seen = [[views.taken_back(k, one) for one in side] for k, side in enumerate(seen)]
    return predicted, [one for of_network in zip(*seen, strict=True) for one in of_network]


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
