"""What a run learns about its own errors once it is trained, from validation samples; test samples are not touched."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Split
from hofno.data.experience import Experience, cells_of, channels_of, distance, numbers_of, whitened
from hofno.evaluation.score import measure
from hofno.surrogate import Surrogate

LOOKED_AT = 500
"""Inputs of each split that are looked at, evenly spread, so that data larger than memory cost no more."""


def gain_experience(surrogate: Surrogate, data: Dataset, *, selected: bool) -> Experience | None:
    """Errors of the validation samples, and what training inputs are like; None without validation samples."""
    if len(data.valid) == 0:
        return None
    errors = measure(surrogate, data.valid).rel_l2
    mean, deviation = _channel_statistics(data.train)
    cells = cells_of(tuple(data.train.parts.x.shape[2:]))
    numbers, seen = (_numbers(split, mean, deviation, cells) for split in (data.train, data.valid))
    centre, whitening = whitened(numbers)
    scores = distance(seen, centre, whitening)
    return Experience(
        errors.double().cpu().sort().values,
        scores.sort().values,
        mean,
        deviation,
        centre,
        whitening,
        cells,
        torch.tensor(float(selected), dtype=torch.float64),
    )


def _looked_at(split: Split) -> Iterator[Split]:
    """Some of a split's samples, in parts that fit into memory."""
    chosen = torch.linspace(0, len(split) - 1, min(len(split), LOOKED_AT), dtype=torch.float64).round().long()
    for part in chosen.split(32):
        yield split[part]


def _channel_statistics(split: Split) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each input channel over the samples that are looked at, (c,); 1 where nothing varies."""
    count, total, square = 0.0, torch.zeros(()), torch.zeros(())
    for part in _looked_at(split):
        values = channels_of(part.x, part.coords).flatten(2)
        there = None if part.mask is None else part.mask[:, None].double()
        count += float(values[:, 0].numel() if there is None else there.sum())
        values = values if there is None else values * there
        total = total + values.sum((0, 2))
        square = square + values.square().sum((0, 2))
    mean = total / count
    deviation = (square / count - mean.square()).clamp_min(0).sqrt()
    return mean, torch.where(deviation > 1e-6 * mean.abs(), deviation, 1.0)


def _numbers(split: Split, mean: Tensor, deviation: Tensor, cells: Tensor) -> Tensor:
    parts = (numbers_of(part.x, part.coords, part.mask, mean, deviation, cells) for part in _looked_at(split))
    return torch.cat(list(parts))
