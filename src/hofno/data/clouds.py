"""Point clouds of the user's own: fields at scattered points, as many in each sample as it has.

    x_i (c, N_i), y_i (c', N_i), coords_i (d, N_i)   ->   x (n, c, N), y (n, c', N), coords (n, d, N), mask (n, N)

with N the largest N_i; the rest is filled with zeros and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hofno.data.dataset import Split
from hofno.data.ondisk import Values, in_memory, ranges
from hofno.errors import DataError
from hofno.geometry import Points

Convert = Callable[[object, str], Tensor]


def is_list_of_samples(values: object) -> bool:
    """Whether these are samples one by one, each (rows, points), rather than one array."""
    return isinstance(values, list | tuple) and len(values) > 0 and all(_rank(sample) == 2 for sample in values)


def _rank(sample: object) -> int:
    """Axes of an array or tensor; of nested lists, the depth of the first entries."""
    if hasattr(sample, "ndim"):
        return int(getattr(sample, "ndim"))  # noqa: B009
    rank = 0
    while isinstance(sample, list | tuple) and sample:
        rank, sample = rank + 1, sample[0]
    return rank


def pad_samples(parts: dict[str, object], convert: Convert) -> tuple[dict[str, Tensor], Tensor | None]:
    """Lists of samples (rows, points) by name, each as one array (n, rows, N), and the mask of the points there are."""
    samples: dict[str, list[Tensor]] = {}
    for name, values in parts.items():
        if not is_list_of_samples(values):
            raise DataError(
                f"coords is a list of samples (d, points), and so must {name} be: (channels, points) each; give lists "
                "for all, or arrays for all"
            )
        assert isinstance(values, Sequence)
        samples[name] = [convert(sample, f"{name}[{index}]") for index, sample in enumerate(values)]
    counts = [sample.shape[1] for sample in samples["coords"]]
    for name, values in samples.items():
        if len(values) != len(counts):
            raise DataError(f"coords has {len(counts)} samples and {name} has {len(values)}; give one for each")
        for index, (sample, count) in enumerate(zip(values, counts, strict=True)):
            if count == 0:
                raise DataError(f"sample {index} has no points; leave it out")
            if sample.shape[1] != count:
                raise DataError(
                    f"sample {index} has {count} points in coords and {sample.shape[1]} in {name}; it needs as many "
                    "in all"
                )
            if sample.shape[0] != values[0].shape[0]:
                raise DataError(
                    f"{name}[{index}] has {sample.shape[0]} rows and {name}[0] has {values[0].shape[0]}; give all "
                    "samples the same"
                )
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    filled = {name: _fill(values, max(counts)) for name, values in samples.items()}
    return filled, None if min(counts) == max(counts) else mask


def ragged_split(x: object | None, y: object, coords: object, convert: Convert) -> Split:
    """A split from lists of samples that may differ in their number of points."""
    parts = {"coords": coords, "y": y} | ({} if x is None else {"x": x})
    filled, mask = pad_samples(parts, convert)
    return Split(filled.get("x", filled["y"][:, :0]), filled["y"], filled["coords"], mask)


def _fill(samples: list[Tensor], points: int) -> Tensor:
    filled = torch.zeros(len(samples), samples[0].shape[0], points, dtype=torch.float32)
    for row, sample in zip(filled, samples, strict=True):
        row[:, : sample.shape[1]] = sample
    return filled


def masked_split(x: Values, y: Values, coords: Values, mask: Tensor | None) -> Split:
    """A split of arrays; whatever stands where no point is becomes 0, for which arrays on disk are read."""
    split = Split(x, y, coords, mask)
    if mask is None or bool(mask.all()):
        return Split(x, y, coords)
    x, y, coords = (torch.where(mask[:, None], part, 0.0) for part in (split.x, split.y, in_memory(coords)))
    return Split(x, y, coords, mask)


def bounding_points(split: Split) -> Points:
    """The geometry of a split's points: the smallest box around them."""
    coords, mask = split.parts.coords, split.parts.mask
    assert coords is not None
    lows: list[Tensor] = []
    highs: list[Tensor] = []
    for rows in ranges(coords.shape):
        places = coords[rows].movedim(1, -1)  # (n, N, d)
        places = places.flatten(0, 1) if mask is None else places[mask[rows]]
        lows.append(places.amin(0))
        highs.append(places.amax(0))
    low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    if bool((low >= high).any()):
        axis = int((low >= high).nonzero()[0, 0])
        raise DataError(
            f"coordinate {axis} is {float(low[axis]):g} at every point; leave it out, or give points that differ in it"
        )
    return Points(count=coords.shape[2], low=tuple(low.tolist()), high=tuple(high.tolist()))
