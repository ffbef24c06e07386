r"""Numbers that differ by little beside their mean, as float32 holds them.

    float32 numbers of size m are u <= eps m apart, eps = 2^-23; rounding to them is wrong by u / sqrt(12) (rms)

Numbers that are all one of two neighbours deviate by u / 2 at most, which is up to `CONSTANT` m. Those that deviate by
more vary.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hofno.data.moments import moments
from hofno.data.ondisk import PIECE

CONSTANT = torch.finfo(torch.float32).eps / 2
"""Deviation, as a part of the mean, up to which float32 numbers count as constant."""
NOISE = 1e-12
"""The same for float64 numbers: that much is rounding in what computed them."""
SMALLEST = torch.finfo(torch.float32).tiny
"""Below it float32 numbers have ever fewer digits, and fields are taken for constant ones."""
NOTICED = 0.01
"""Rounding, as a part of the deviation, from which on it is told."""


def warn_of_rounding(values: Any, name: str, channel: int | None = 1, mask: Tensor | None = None) -> None:
    """One warning where float32 rounds numbers (n, ..) by a noticed part of their deviation, one where it loses them.

    Samples that are evenly spread are looked at, about `PIECE` numbers and two samples at least.

    Args:
        values: as they were given, array, tensor or list of samples; finite where the mask does not leave them out.
        name: what the warning calls them.
        channel: the axis that has a mean of its own at each place; None: there is one mean.
        mask: which points are there, (n, points), of (n, channels, points).
    """
    pieces = list(_some(values, mask))
    kept = [] if channel is None else [channel if mask is None else 1]
    count, mean, square = moments(map(torch.from_numpy, pieces), kept)
    means, deviations = mean.flatten().tolist(), (square / count).sqrt().flatten().tolist()
    small = [i for i, size in enumerate(map(math.hypot, means, deviations)) if 0 < size < SMALLEST]
    if small:
        what = name if channel is None else f"channel {small[0]} of {name}"
        more = f" (and {len(small) - 1} more channels)" if len(small) > 1 else ""
        warnings.warn(
            f"{what}{more} has numbers of about {math.hypot(means[small[0]], deviations[small[0]]):.3g}, and float32 "
            f"loses those below {SMALLEST:.2g}; rescale them, by another unit",
            stacklevel=3,
        )
    told = [
        (index, centre, spread, apart)
        for index, (centre, spread) in enumerate(zip(means, deviations, strict=True))
        if spread * NOTICED < (apart := float(np.spacing(np.float32(abs(centre))))) / math.sqrt(12)
    ]
    told = [row for row in told if row[0] not in small and row[2] > _least(pieces, kept, row[0]) * abs(row[1])]
    if told:
        index, centre, spread, apart = told[0]
        what = name if channel is None else f"channel {index} of {name}"
        more = f" (and {len(told) - 1} more channels)" if len(told) > 1 else ""
        warnings.warn(
            f"{what}{more} has mean {centre:.7g} and deviation {spread:.3g}, and float32 numbers of that size are "
            f"{apart:.2g} apart: rounding alone is an error of {100 * apart / math.sqrt(12) / spread:.2g} % of the "
            "deviation; subtract the mean first, in float64",
            stacklevel=3,
        )


def _least(pieces: list[np.ndarray], kept: list[int], channel: int) -> float:
    """The part of the mean above which a channel deviates if it varies: more where all of it are float32 numbers."""
    chosen = (piece.take(channel, kept[0]) if kept else piece for piece in pieces)
    return CONSTANT if all(np.array_equal(part, part.astype(np.float32)) for part in chosen) else NOISE


def _some(values: Any, mask: Tensor | None) -> Iterator[np.ndarray]:
    """Some samples, (n, ..) in float64; with a mask, the points that are there, (points, channels)."""
    listed = isinstance(values, list | tuple)
    values = values if listed or isinstance(values, Tensor) else np.asarray(values)
    each = math.prod(np.shape(values[0])) if listed else math.prod(values.shape[1:])
    count = min(len(values), max(2, PIECE // max(1, each)))
    rows = np.unique(np.linspace(0, len(values) - 1, count).round().astype(int))
    for some in [[row] for row in rows] if listed else [rows]:
        piece = np.stack([_array(values[row]) for row in some]) if listed else _array(values[some])
        yield piece if mask is None else np.moveaxis(piece, 1, -1)[mask.numpy()[some]]


def _array(values: Any) -> np.ndarray:
    values = values.double().numpy(force=True) if isinstance(values, Tensor) else values
    return np.asarray(values, np.float64)
