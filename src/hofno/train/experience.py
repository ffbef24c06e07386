"""What a run learns about its own errors once it is trained, from validation samples; test samples are not touched."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Rollout, Split
from hofno.data.experience import Experience, cells_of, channels_of, distance, numbers_of, parts_of, whitened
from hofno.evaluation.metrics import UNBOUNDED
from hofno.evaluation.score import measure
from hofno.surrogate import Surrogate

LOOKED_AT = 500
"""Inputs of each split that are looked at, evenly spread, so that data larger than memory cost no more."""


def gain_experience(surrogate: Surrogate, data: Dataset, *, selected: bool) -> Experience | None:
    """Errors of the validation samples, and what training inputs are like; None without validation samples.

    `selected`: the weights were chosen by their validation error. Of models in time, inputs are windows of any time.
    """
    if len(data.valid) == 0:
        return None
    errors = measure(surrogate, data.valid).rel_l2.double().cpu()
    mean, deviation, alike = _channel_statistics(data.train, data.rollout)
    cells = cells_of(data.grid)
    numbers, seen = (
        torch.cat([numbers_of(*part, mean, deviation, cells) for part in _looked_at(split, data.rollout)])
        for split in (data.train, data.valid)
    )
    centre, whitening = whitened(numbers, alike.repeat(numbers.shape[1] // len(alike)))
    facts = (data.valid.together, selected, surrogate.symmetry is not None)
    return Experience(
        torch.where(errors < UNBOUNDED, errors, math.inf).sort().values,
        distance(seen, centre, whitening).sort().values,
        mean,
        deviation,
        centre,
        whitening,
        cells,
        *(torch.tensor(float(fact), dtype=torch.float64) for fact in facts),
    )


def _looked_at(split: Split, rollout: Rollout | None) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Inputs, places and masks of some samples of a split, in parts that fit into memory."""
    chosen = torch.linspace(0, len(split) - 1, min(len(split), LOOKED_AT), dtype=torch.float64).round().long()
    parts = split.parts
    size = math.prod(parts.x.shape[1:]) + (0 if rollout is None else math.prod(parts.y.shape[1:]))
    for rows in parts_of(len(chosen), size):
        part = split[chosen[rows]]
        yield part.x if rollout is None else _windows(part, rollout, rows.start), part.coords, part.mask


def _windows(part: Split, rollout: Rollout, first: int) -> Tensor:
    """What a model in time is given of each sample, at one time after the other from sample to sample."""
    frames, length = torch.cat((part.x, part.y), 1), part.x.shape[1]
    windows = (frames.shape[1] - length) // rollout.fields  # one for each predicted frame
    starts = [rollout.fields * ((first + index) % windows) for index in range(len(frames))]
    return torch.stack([sample[start : start + length] for sample, start in zip(frames, starts, strict=True)])


def _channel_statistics(split: Split, rollout: Rollout | None) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and deviation of each input channel over what is looked at, and whether it is the same in all samples, (c,).

    The deviation of one that is the same everywhere is its mean.
    """
    count, total, square, first = 0.0, torch.zeros(()), torch.zeros(()), None
    differ = torch.zeros((), dtype=torch.float64)
    for x, coords, mask in _looked_at(split, rollout):
        values = channels_of(x, coords).flatten(2)
        there = None if mask is None else mask[:, None].double()
        count += float(values[:, 0].numel() if there is None else there.sum())
        values = values if there is None else values * there
        total = total + values.sum((0, 2))
        square = square + values.square().sum((0, 2))
        first = values[:1] if first is None else first
        differ = torch.maximum(differ, (values - first).abs().amax((0, 2)))
    mean = total / count
    deviation = (square / count - mean.square()).clamp_min(0).sqrt()
    constant = torch.where(mean == 0, 1.0, mean.abs())
    deviation = torch.where(deviation > 1e-6 * mean.abs(), deviation, constant)
    return mean, deviation, differ <= 1e-6 * deviation
