"""What errors are to be seen beside: those of the mean of the training targets, given for every test sample.

Fields with large parts that all samples share, such as the coordinates of nodes, have small relative errors whatever
predicts them. The mean is that of each place: of each node, of each frame of a block that is scored as one. At
scattered points, which are others in each sample, it is one number for each channel; in time, one frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Split
from hofno.data.normalise import ChannelNormaliser
from hofno.data.ondisk import PIECE
from hofno.evaluation.score import Scores, errors_of
from hofno.geometry import Points


def errors_of_mean(data: Dataset) -> dict[str, float]:
    """Test errors of the mean training target, by the names that those of an operator have."""
    for split in (data.train, data.test):
        split.refuse_broken_blocks()
    mean, fields = mean_target(data), data.out_channels
    frames = data.test.parts.y.shape[1] // fields
    mean = mean.repeat(1, frames, *(1,) * (mean.ndim - 2))
    found: list[Scores] = []
    for part in _in_pieces(data.test):
        guess = mean.repeat(len(part) // len(mean), *(1,) * (mean.ndim - 1)).expand_as(part.y)
        found.append(errors_of(guess if part.mask is None else guess * part.mask[:, None], part, fields))
    scores = Scores.joined(found)
    errors = scores.means() | scores.in_units()
    del errors["mse_standardised"]  # in units of an operator
    return errors


def mean_target(data: Dataset) -> Tensor:
    """(together, c, *grid), one for each of the samples that belong together; at points (1, c, 1)."""
    train, y = data.train, data.train.parts.y
    if isinstance(data.grid, Points):
        return ChannelNormaliser.fit(y, train.mask).mean[None, :, None]
    total, axis = torch.zeros((), dtype=torch.float64), 0 if data.rollout is None else 1
    together = train.together if data.rollout is None else data.out_channels
    for part in _in_pieces(train):
        summed = part.y.unflatten(axis, (-1, together)).sum(tuple(range(axis + 1)), dtype=torch.float64)
        total = total + summed
    mean = total / (math.prod(y.shape[: axis + 1]) // together)
    return (mean if data.rollout is None else mean[None]).float()


def _in_pieces(split: Split) -> Iterator[Split]:
    """All samples, in whole blocks, about `PIECE` numbers of the targets at a time."""
    block = split.together * math.prod(split.parts.y.shape[1:])
    return split.batches(max(1, PIECE // block) * split.together)
