"""Arrays of the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from hofno.data.clouds import bounding_points, is_list_of_samples, masked_split, ragged_split
from hofno.data.dataset import Dataset, Split, refuse_not_finite
from hofno.data.ondisk import Values, fits, in_memory, joined
from hofno.data.rounding import warn_of_rounding
from hofno.data.values import as_float32, as_mask, as_values
from hofno.errors import DataError, SpecError
from hofno.geometry import Geometry, Grid, Mesh, Points, Surface
from hofno.problems.axes import warn_of_channels_last
from hofno.problems.symmetry import Symmetry
from hofno.spec import check_seed


def from_arrays(
    x: object | None,
    y: object,
    coords: object | None = None,
    *,
    mask: object | None = None,
    periodic: bool = False,
    surface: Surface | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = 0,
    symmetry: Symmetry | None = None,
) -> Dataset:
    """A dataset from inputs x (n, c, *grid) and targets y (n, c', *grid), in physical units.

    With a `surface`, fields are at its vertices, (n, c, N). Other kinds of places are told apart by `coords`:

    - none: a regular grid of one to three axes, whose coordinates models append;
    - (d, *grid) for all samples or (n, d, *grid): a structured mesh; coordinates are appended to x as channels;
    - (d, N) or (n, d, N) with d > 1, or with a mask, or a list of (d, N_i): scattered points, for models on points.
      A list, then for x and y too, holds samples with as many points as each has.

    Arrays may be mapped from files (`numpy.load(file, mmap_mode="r")`). Those that take more than half of the free
    memory stay in them, and training and evaluation read the samples of each batch; the files must not change.

    Args:
        x: arrays or tensors; with coords, None where the places are the only input.
        y: likewise.
        coords: places of the grid's points, see above.
        mask: which points are there, (n, N), where arrays of scattered points are filled up to one length.
        periodic: whether a regular grid is periodic (samples at i/n) or includes both ends of each axis.
        surface: the triangulated surface that all samples are on, `Surface(vertices=(N, 3), triangles=(F, 3))`.
        split: training, validation and test part, as fractions that sum to 1 or as numbers of samples.
        seed: seed of the shuffle before the split; None keeps the given order.
        symmetry: motions that take samples to other solutions of the same problem, for training with `augment`, from
            `hofno.problems.symmetry`. square() are turns and reflections of a square grid, mirror(..) one reflection
            of a grid, mesh or cloud: of meshes with nodes (x, y), x=None and y -> -y where the second axis runs
            backwards, mirror(1, inputs=Channels(signs=(1, -1))); of points with x -> 1 - x,
            mirror(coords=Channels(signs=(-1, 1), offsets=(1, 0))).
    """
    if surface is not None and (coords is not None or mask is not None or periodic):
        raise DataError("a surface says where its vertices are; leave coords, mask and periodic out")
    if coords is not None and periodic:
        raise DataError("periodic=True is for regular grids; with coords, leave it out")
    whole = split_from(x, y, coords, mask)
    if surface is not None:
        _check_surface(surface, whole)
    counts = sample_counts(split, len(whole))
    ragged, places = is_list_of_samples(coords), cast(Any, coords)
    there = None if ragged else whole.parts.mask
    for name, part in (("x", x), ("y", y)):
        if part is not None:
            warn_of_rounding(part, name, mask=there)
    if coords is not None:
        shared = not ragged and np.ndim(places) < len(whole.parts.y.shape)  # by all samples
        warn_of_rounding([places] if shared else places, "coords", mask=None if shared else there)
    order = torch.arange(len(whole))
    seed = None if seed is None else check_seed(seed)
    if seed is not None:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    chosen = [whole.take(rows) for rows in order[: sum(counts)].split(counts)]
    if whole.on_disk and fits(sum(split.nbytes for split in chosen)):
        chosen = [split[:] for split in chosen]
    train, valid, test = chosen
    shape, geometry = tuple(whole.parts.y.shape[2:]), surface
    if whole.parts.coords is not None:
        geometry = bounding_points(train)
    elif coords is not None:
        geometry = Mesh(shape=shape)
    if geometry is None or isinstance(geometry, Mesh):
        warn_of_channels_last("y", tuple(whole.parts.y.shape))
    stamp = {"origin": "user", "samples": list(counts), "shuffle_seed": seed}
    if geometry is None and min(shape) < 2:
        raise DataError(
            f"the grid of y is {shape}, and each axis needs at least two points; arrays whose channels come last go "
            "through numpy.moveaxis(x, -1, 1)"
        )
    grid = geometry or Grid(shape=shape, periodic=periodic)
    found = check_symmetry(symmetry, grid, whole.parts.x.shape[1], whole.parts.y.shape[1])
    if found is not None and isinstance(grid, Points):
        grid = found.box(grid)
    return Dataset(train, valid, test, grid, origin="user", stamp=stamp, symmetry=symmetry)


def split_from(x: object | None, y: object, coords: object | None = None, mask: object | None = None) -> Split:
    """All samples of arrays in the forms that `from_arrays` takes, finite, in their order."""
    if coords is None:
        whole = _on_grid(x, y, mask)
    elif is_list_of_samples(coords):
        if mask is not None:
            raise DataError("lists of samples have the points they have; leave the mask out")
        whole = ragged_split(x, y, coords, as_float32)
    else:
        whole = _placed(x, y, coords, mask)
    for name, part in zip(("x", "y", "coords"), whole.parts[:3], strict=True):
        if part is not None:
            refuse_not_finite(part, name)
    return whole


def _check_surface(surface: object, whole: Split) -> None:
    """Refuse what is no surface, and fields that are not at its vertices."""
    if not isinstance(surface, Surface):
        raise DataError(f"surface is a hofno.Surface(vertices=.., triangles=..); got {type(surface).__name__}")
    found = tuple(whole.parts.y.shape)
    if found[2:] != surface.shape:
        raise DataError(
            f"fields on a surface of {surface.shape[0]} vertices are (n, channels, {surface.shape[0]}); got {found}"
        )


def check_symmetry(symmetry: object, grid: Geometry, inputs: int, targets: int) -> Symmetry | None:
    """Refuse what is not a symmetry, such as the function that makes it, or is one of other places or channels."""
    if symmetry is None:
        return None
    if not isinstance(symmetry, Symmetry):
        raise DataError(f"symmetry is a Symmetry, such as hofno.problems.symmetry.square(); got {symmetry!r}")
    try:
        symmetry.check_places(grid)
        symmetry.check(grid.shape)
        symmetry.check_channels(inputs, targets, grid.dim if isinstance(grid, Points) else 0)
    except SpecError as error:
        raise DataError(str(error)) from None
    return symmetry


def _on_grid(x: object | None, y: object, mask: object | None) -> Split:
    if x is None or mask is not None:
        raise DataError(f"{'x=None' if x is None else 'a mask'} is for data with coords; give the coords too")
    inputs, targets = as_values(x, "x"), as_values(y, "y")
    whole = Split(inputs, targets)
    _refuse_rank(inputs)
    return whole


def _placed(x: object | None, y: object, coords: object, mask: object | None) -> Split:
    """Samples on a mesh, its coordinates among their channels, or at points."""
    convert = partial(as_values, masked=mask is not None)
    targets, places = convert(y, "y"), convert(coords, "coords")
    if len(targets.shape) < 3:
        raise DataError(
            f"y must be (n, channels, *grid); got shape {tuple(targets.shape)}; a single channel needs its axis: "
            "y[:, None]"
        )
    inputs = convert(x, "x") if x is not None else torch.empty(len(targets), 0, *targets.shape[2:], dtype=torch.float32)
    Split(inputs, targets)
    _refuse_rank(inputs)
    places = _spread(places, inputs)
    if mask is None and (len(inputs.shape) > 3 or places.shape[1] == 1):
        return Split(joined(inputs, places), targets)
    return masked_split(inputs, targets, places, None if mask is None else as_mask(mask))


def _refuse_rank(inputs: Values) -> None:
    if not 3 <= len(inputs.shape) <= 5:
        raise DataError(f"x must be (n, channels, *grid) with one to three grid axes; got shape {tuple(inputs.shape)}")


def _spread(coords: Values, inputs: Values) -> Values:
    """Coordinates for every sample, (n, d, *grid)."""
    grid, axes = tuple(inputs.shape[2:]), len(coords.shape)
    if axes == len(grid) + 1 and tuple(coords.shape[1:]) == grid:
        return in_memory(coords).expand(inputs.shape[0], *coords.shape)
    if axes == len(inputs.shape) and coords.shape[0] == inputs.shape[0] and tuple(coords.shape[2:]) == grid:
        return coords
    raise DataError(
        f"coords must be (d, *grid) or (n, d, *grid) with grid {grid} and n = {inputs.shape[0]}; "
        f"got {tuple(coords.shape)}"
    )


def sample_counts(split: Sequence[float], samples: int) -> list[int]:
    """Sizes of the three parts."""
    try:
        parts = () if isinstance(split, str) else tuple(map(float, split))
    except (TypeError, ValueError):
        parts = ()
    if len(parts) != 3 or not all(0 <= part < math.inf for part in parts):
        raise DataError(
            "split needs three parts (training, validation, test), none negative, such as (0.8, 0.1, 0.1); got "
            f"{split!r}"
        )
    if all(part.is_integer() for part in parts) and sum(parts) != 1:
        counts = [int(part) for part in parts]
    elif abs(sum(parts) - 1) < 1e-6:
        counts = [round(part * samples) for part in parts[1:]]
        counts = [samples - sum(counts), *counts]
    else:
        raise DataError(f"split must be fractions that sum to 1, or numbers of samples; got {tuple(split)}")
    if min(counts) < 1 or sum(counts) > samples:
        remedy = f"say how many: split=({samples - 2}, 1, 1)" if samples > 2 else "give at least 3 samples"
        raise DataError(
            f"split {tuple(split)} of {samples} samples gives {counts}; each part needs at least one sample and "
            f"together no more than {samples}; {remedy}"
        )
    return counts
