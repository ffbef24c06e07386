"""Arrays of the user's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Split, refuse_not_finite
from hofno.errors import DataError
from hofno.geometry import Grid


def as_float32(values: object, name: str) -> Tensor:
    """A float32 CPU tensor from a NumPy array, tensor or nested list of real numbers."""
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
    else:
        try:
            array = np.asarray(values)
        except ValueError:
            raise DataError(
                f"{name} must be one array; got rows of different lengths; make them equally long"
            ) from None
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"{name} must hold real numbers; got dtype {array.dtype}; convert it, e.g. with .astype('float32')"
            )
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused later
            tensor = torch.from_numpy(np.require(array, np.float32, ["C", "W"]))
    if tensor.is_complex():
        raise DataError(f"{name} must hold real numbers; got {tensor.dtype}; split it into real and imaginary channels")
    return tensor.float()


def from_arrays(
    x: object,
    y: object,
    coords: object | None = None,
    *,
    periodic: bool = False,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = 0,
) -> Dataset:
    """A dataset from inputs x (n, c, *grid) and targets y (n, c', *grid), in physical units.

    Args:
        x, y: arrays or tensors on the same grid of one to three axes.
        coords: positions of the grid points, (d, *grid) for all samples or (n, d, *grid), appended to x as channels:
            for curvilinear meshes. A regular grid needs none: models append its coordinates.
        periodic: whether the grid is periodic (samples at i/n) or includes both ends of each axis.
        split: training, validation and test part, as fractions that sum to 1 or as numbers of samples.
        seed: seed of the shuffle before the split; None keeps the given order.
    """
    inputs, targets = as_float32(x, "x"), as_float32(y, "y")
    whole = Split(inputs, targets)
    if not 3 <= inputs.ndim <= 5:
        raise DataError(f"x must be (n, channels, *grid) with one to three grid axes; got shape {tuple(inputs.shape)}")
    if coords is not None:
        inputs = torch.cat((inputs, _spread(as_float32(coords, "coords"), inputs)), 1)
    refuse_not_finite(inputs, "x")
    refuse_not_finite(targets, "y")
    counts = _counts(split, len(whole))
    order = torch.arange(len(whole))
    if seed is not None:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    parts = [Split(inputs[i], targets[i]) for i in order[: sum(counts)].split(counts)]
    stamp = {"origin": "user", "samples": list(counts), "shuffle_seed": seed}
    grid = Grid(shape=tuple(inputs.shape[2:]), periodic=periodic)
    return Dataset(*parts, grid=grid, origin="user", stamp=stamp)


def _spread(coords: Tensor, inputs: Tensor) -> Tensor:
    """Coordinates for every sample, (n, d, *grid)."""
    grid = tuple(inputs.shape[2:])
    if coords.ndim == len(grid) + 1 and tuple(coords.shape[1:]) == grid:
        return coords.expand(inputs.shape[0], *coords.shape)
    if coords.ndim == inputs.ndim and coords.shape[0] == inputs.shape[0] and tuple(coords.shape[2:]) == grid:
        return coords
    raise DataError(
        f"coords must be (d, *grid) or (n, d, *grid) with grid {grid} and n = {inputs.shape[0]}; "
        f"got {tuple(coords.shape)}"
    )


def _counts(split: Sequence[float], samples: int) -> list[int]:
    """Sizes of the three parts."""
    if len(split) != 3 or any(part < 0 for part in split):
        raise DataError(f"split needs three parts (training, validation, test), none negative; got {tuple(split)}")
    if all(float(part).is_integer() for part in split) and sum(split) != 1:
        counts = [int(part) for part in split]
    elif abs(sum(split) - 1) < 1e-6:
        counts = [round(part * samples) for part in split[1:]]
        counts = [samples - sum(counts), *counts]
    else:
        raise DataError(f"split must be fractions that sum to 1, or numbers of samples; got {tuple(split)}")
    if min(counts) < 1 or sum(counts) > samples:
        raise DataError(
            f"split {tuple(split)} of {samples} samples gives {counts}; each part needs at least one sample and "
            f"together no more than {samples}"
        )
    return counts
