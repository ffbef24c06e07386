"""What a run learns about its own errors once it is trained, from validation samples; test samples are not touched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Rollout, Split
from hofno.data.experience import (
    Experience,
    Family,
    cells_of,
    channels_of,
    distance,
    numbers_of,
    over_cells,
    whitened,
)
from hofno.data.moments import moments
from hofno.data.ondisk import ranges
from hofno.data.rounding import CONSTANT
from hofno.evaluation.metrics import UNBOUNDED
from hofno.evaluation.score import measure
from hofno.evaluation.spread import Spreads, has_spread
from hofno.geometry import Mesh
from hofno.surrogate import Surrogate
from hofno.train.tasks import windows

LOOKED_AT = 500
"""Inputs of each split that are looked at, evenly spread, so that data larger than memory cost no more."""


def gain_experience(surrogate: Surrogate, data: Dataset, *, selected: bool) -> Experience | None:
    """Errors of the validation samples, and what training inputs are like; None without validation samples.

    `selected`: the weights were chosen by their validation error. Of models in time, inputs are windows of any time.
    """
    if len(data.valid) == 0:
        return None
    spreads = Spreads() if has_spread(surrogate) else None
    errors = measure(surrogate, data.valid, spreads=spreads).rel_l2.double().cpu()
    mean, deviation = _channel_statistics(data.train, data.rollout)
    cells = cells_of(data.grid)

    def look(split: Split) -> tuple[Tensor, Tensor]:
        """Numbers of inputs, and their fields over cells of a mesh."""
        numbers, meshes = list[Tensor](), list[Tensor]()
        for part in _looked_at(split, data.rollout):
            numbers.append(numbers_of(*part, mean, deviation, cells))
            meshes.append(over_cells(part[0], mean, deviation, cells) if on_mesh else torch.zeros(0))
        return torch.cat(numbers), torch.cat(meshes)

    on_mesh = isinstance(data.grid, Mesh)
    (numbers, meshes), (seen, valid_meshes) = look(data.train), look(data.valid)
    centre, whitening = whitened(numbers, len(mean))
    family = _family(meshes, valid_meshes, len(mean), data.train.parts.x.shape[2:]) if on_mesh else {}
    errors, ratios = _bounded(errors), torch.zeros(0).double()
    if spreads is not None:
        ratios = _bounded(errors / spreads.all())  # infinite too where both are
    facts = {"together": data.valid.together, "selected": selected, "symmetric": surrogate.symmetry is not None}
    return Experience(
        errors.sort().values,
        distance(seen, centre, whitening).sort().values,
        mean,
        deviation,
        centre,
        whitening,
        cells,
        **{name: torch.tensor(float(fact), dtype=torch.float64) for name, fact in facts.items()},
        ratios=ratios.sort().values,
        **family,
    )


def _family(train: Tensor, valid: Tensor, channels: int, shape: Sequence[int]) -> dict[str, Tensor]:
    """How training inputs on a mesh of this shape differ, and how far validation inputs are from them."""
    family = Family.of(train, channels)
    found = {item.name: getattr(family, item.name) for item in fields(family)}
    return found | {
        "farthest": family.distances(valid).amax(0),
        "shape": torch.tensor(shape, dtype=torch.float64),
    }


def _bounded(errors: Tensor) -> Tensor:
    """Infinite where an error is no number, or too large for one."""
    return torch.where(errors < UNBOUNDED, errors, math.inf)


def _looked_at(split: Split, rollout: Rollout | None) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Inputs, places and masks of some samples of a split, in parts that fit into memory."""
    chosen = torch.linspace(0, len(split) - 1, min(len(split), LOOKED_AT), dtype=torch.float64).round().long()
    x, y = split.parts.x.shape, split.parts.y.shape
    for rows in ranges((len(chosen), x[1] if rollout is None else x[1] + y[1], *x[2:])):
        part = split[chosen[rows]]
        yield part.x if rollout is None else _windows(part, rollout, rows.start), part.coords, part.mask


def _windows(part: Split, rollout: Rollout, first: int) -> Tensor:
    """What a model in time is given of each sample, at one time after the other from sample to sample."""
    fixed, frames = part.x[:, : rollout.fixed], part.x[:, rollout.fixed :]
    every = windows(torch.cat((frames, part.y), 1).unflatten(1, (-1, rollout.fields)), rollout.history)
    each, number = len(every) // len(part), torch.arange(len(part))
    return torch.cat((fixed, every[each * number + (first + number) % each]), 1)


def _channel_statistics(split: Split, rollout: Rollout | None) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each input channel over what is looked at, (c,); the mean for both where it is constant."""
    found = ((channels_of(x, coords), mask) for x, coords, mask in _looked_at(split, rollout))
    pieces = (values if mask is None else values.movedim(1, -1)[mask] for values, mask in found)
    count, mean, square = moments(pieces, kept=[1])
    mean, deviation = mean.flatten(), (square / count).sqrt().flatten()
    constant = torch.where(mean == 0, 1.0, mean.abs())
    return mean, torch.where(deviation > CONSTANT * mean.abs(), deviation, constant)
