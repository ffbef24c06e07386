"""Data: three splits of channel-first fields in physical units, and where they live.

Fields at points come with the places of these, other ones in each sample. Samples with fewer points than others are
filled up, and a mask says which points are there; fields and places are 0 where none is.

With a rollout, the channels of a split are frames in time: x holds `history` of them and y those that follow. A model
takes `history` channels to one, and the splits are views of the trajectories. Frames of several fields are that many
channels each, one frame after the other. Fields of a sample that do not change in time are the first channels of x.

Data that take more than half of the free memory stay in their files: samples of a split are read when they are asked
for, `split[rows]`, `split.batches(size)`, and all of them by `split.x` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from hofno.data.ondisk import FileArray, Values, bytes_of, in_memory, pieces_of, ranges, taken
from hofno.data.values import as_mask, as_values
from hofno.errors import DataError
from hofno.geometry import Geometry, kind_of
from hofno.problems.axes import on_one_grid
from hofno.problems.base import Arrays, Origin, Rollout, Trajectories
from hofno.problems.symmetry import Symmetry

__all__ = ["Dataset", "Origin", "Rollout", "Split", "refuse_not_finite", "split_of", "trajectory_dataset"]


class Parts(NamedTuple):
    """What a split is made of, wherever it lies: shapes can be asked for without a reading."""

    x: Values
    y: Values
    coords: Values | None
    mask: Tensor | None


class Split:
    """Inputs x (n, c, *grid) and targets y (n, c', *grid), physical units, float32; arrays of other kinds become that.

    At points: x (n, c, N), y (n, c', N), coords (n, d, N), and where samples differ in their number of points, a
    boolean mask (n, N). Errors are those of `together` consecutive samples as one, such as the frames of one block;
    samples that were taken out of their blocks are not `whole` and have no such errors.
    """

    __slots__ = ("parts", "together", "whole")

    def __init__(
        self,
        x: Values | np.ndarray,
        y: Values | np.ndarray,
        coords: Values | np.ndarray | None = None,
        mask: Tensor | np.ndarray | None = None,
        together: int = 1,
    ) -> None:
        x, y, coords = _float32(x, "x"), _float32(y, "y"), None if coords is None else _float32(coords, "coords")
        mask = mask if mask is None or isinstance(mask, Tensor) else as_mask(mask)
        self.parts, self.together, self.whole = Parts(x, y, coords, mask), together, True
        if len(x.shape) < 3 or len(y.shape) < 3 or x.shape[2:] != y.shape[2:]:
            raise DataError(
                f"x and y must be (n, channels, *grid) on one grid; got x {tuple(x.shape)} and y "
                f"{tuple(y.shape)}; {on_one_grid(tuple(x.shape), tuple(y.shape))}"
            )
        if x.shape[0] % together:
            raise DataError(f"errors are taken of {together} samples together, and there are {x.shape[0]} of them")
        if x.shape[0] != y.shape[0]:
            raise DataError(f"x has {x.shape[0]} samples and y has {y.shape[0]}; give one target for each input")
        if coords is not None:
            self._check_points(coords)
        elif mask is not None:
            raise DataError("a mask says which points are there; give their coords too")

    def _check_points(self, coords: Values) -> None:
        y, mask = self.parts.y, self.parts.mask
        n, points = y.shape[0], tuple(y.shape[2:])
        if len(points) != 1 or len(coords.shape) != 3 or (coords.shape[0], coords.shape[2]) != (n, *points):
            raise DataError(
                f"points need y (n, channels, N) and coords (n, d, N); got y {tuple(y.shape)} and coords "
                f"{tuple(coords.shape)}; coordinates of a mesh are channels of x"
            )
        if mask is not None and (mask.shape != (n, *points) or mask.dtype != torch.bool):
            raise DataError(
                f"the mask must be boolean, one value for each of {(n, *points)} samples and points; got "
                f"{mask.dtype} of shape {tuple(mask.shape)}"
            )
        if mask is not None and not bool(mask.any(1).all()):
            raise DataError("the mask leaves a sample without a single point; drop that sample")

    @property
    def x(self) -> Tensor:
        return in_memory(self.parts.x)

    @property
    def y(self) -> Tensor:
        return in_memory(self.parts.y)

    @property
    def coords(self) -> Tensor | None:
        return None if self.parts.coords is None else in_memory(self.parts.coords)

    @property
    def mask(self) -> Tensor | None:
        return self.parts.mask

    @property
    def nbytes(self) -> int:
        """Bytes of all samples in memory."""
        return sum(bytes_of(part) for part in self.parts if part is not None)

    @property
    def on_disk(self) -> bool:
        return any(part is not None and not isinstance(part, Tensor) for part in self.parts)

    def __len__(self) -> int:
        return self.parts.x.shape[0]

    def __repr__(self) -> str:
        x, y = self.parts.x.shape, self.parts.y.shape
        return f"Split({x[0]} samples, {x[1]} to {y[1]} channels, {' x '.join(map(str, y[2:]))} points)"

    @overload
    def __getitem__(self, rows: int) -> tuple[Tensor, ...]: ...

    @overload
    def __getitem__(self, rows: slice | Tensor) -> Split: ...

    def __getitem__(self, rows: int | slice | Tensor) -> tuple[Tensor, ...] | Split:
        """The chosen samples, in memory; of a number, the tensors of that sample: x and y, then coords and mask if any.

        So a split is a dataset for `torch.utils.data.DataLoader`.
        """
        if isinstance(rows, int | np.integer) or (isinstance(rows, Tensor) and rows.ndim == 0):
            return self._sample(int(rows))
        x, y, coords, mask = self.parts
        made = Split(x[rows], y[rows], None if coords is None else coords[rows], None if mask is None else mask[rows])
        return self._in_blocks(made, rows)

    def _sample(self, number: int) -> tuple[Tensor, ...]:
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} samples; got number {number}")
        row = torch.tensor([number % len(self)])
        return tuple(part[row][0] for part in self.parts if part is not None)

    def take(self, rows: Tensor) -> Split:
        """The chosen samples, by number; those on disk stay there."""
        x, y, coords, mask = self.parts
        mask = None if mask is None else mask[rows]
        made = Split(taken(x, rows), taken(y, rows), None if coords is None else taken(coords, rows), mask)
        return self._in_blocks(made, rows)

    def _in_blocks(self, made: Split, rows: slice | Tensor) -> Split:
        """Some samples of this split, as those that belong together; not whole where some of a block are missing."""
        if self.together > 1:
            made.together, made.whole = self.together, False
            if self.whole and len(made) % self.together == 0:
                blocks = torch.arange(len(self))[rows].view(-1, self.together)  # numbers in this split
                first = blocks[:, :1]
                follow = blocks == first + torch.arange(self.together)
                made.whole = bool((follow & (first % self.together == 0)).all())
        return made

    def refuse_broken_blocks(self) -> None:
        """Fail where errors are asked for that these samples do not have."""
        if not self.whole:
            raise DataError(
                f"errors of these data are those of {self.together} samples as one, and some were taken out of their "
                f"blocks; take whole blocks, such as split[:{self.together}]"
            )

    def batches(self, size: int) -> Iterator[Split]:
        """The samples in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def _float32(values: Values | np.ndarray, name: str) -> Values:
    return values.float() if isinstance(values, Tensor) and not values.is_complex() else as_values(values, name)


@dataclass(frozen=True, repr=False)
class Dataset:
    """Training, validation and test split on one geometry.

    Attributes:
        rollout: how a problem in time is rolled out; None for a steady one.
        trajectories: with a rollout, the samples of the benchmark in their order, (n, frames, *grid).
        later: with a rollout, the test frames after its horizon, (n, rest, *grid).
            Both are tensors, or where data stay on disk, arrays that give the rows they are asked for as tensors.
        symmetry: motions that take samples to other solutions of the same equations, where they are known.
    """

    train: Split
    valid: Split
    test: Split
    grid: Geometry
    origin: Origin
    stamp: dict[str, Any] = field(default_factory=dict)
    card: str = ""
    rollout: Rollout | None = None
    trajectories: Values | None = None
    later: Values | None = None
    symmetry: Symmetry | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self.train)} training, {len(self.valid)} validation and {len(self.test)} test samples"
        points = " x ".join(map(str, self.grid.shape))
        return f"Dataset({sizes}, {self.in_channels} to {self.out_channels} channels, {kind_of(self.grid)} of {points})"

    @property
    def in_channels(self) -> int:
        return self.train.parts.x.shape[1]

    @property
    def out_channels(self) -> int:
        return self.train.parts.y.shape[1] if self.rollout is None else self.rollout.fields


def split_of(arrays: Arrays, together: int = 1) -> Split:
    """A generated or read split."""
    coords = None if arrays.coords is None else values_of(arrays.coords)
    return Split(values_of(arrays.x), values_of(arrays.y), coords, together=together)


def values_of(array: np.ndarray) -> Values:
    """An array without a copy: what is mapped from a file stays there."""
    if array.size == 0:
        return torch.empty(array.shape, dtype=torch.float32)
    mapped = FileArray.of(array)
    return torch.from_numpy(array) if mapped is None else mapped


def trajectory_dataset(
    found: Trajectories,
    grid: Geometry,
    rollout: Rollout,
    origin: Origin,
    stamp: dict[str, Any],
    card: str,
    symmetry: Symmetry | None,
) -> Dataset:
    """The dataset of a problem in time; every tensor is a view of its trajectories."""
    splits = {name: split_of(arrays) for name, arrays in found.splits.items()}
    return Dataset(
        train=splits["train"],
        valid=splits["valid"],
        test=splits["test"],
        grid=grid,
        origin=origin,
        stamp=stamp,
        card=card,
        rollout=rollout,
        trajectories=values_of(found.frames),
        later=values_of(found.later),
        symmetry=symmetry,
    )


def refuse_not_finite(values: Values, name: str) -> None:
    """NaN or infinity in the data is an error that says how much and where first."""
    count, bad, first = 0, 0, 0
    for rows, piece in zip(ranges(values.shape), pieces_of(values), strict=True):
        finite = torch.isfinite(piece)
        if not bool(finite.all()):
            wrong = (~finite).flatten(1).any(1).nonzero().flatten()
            first = rows.start + int(wrong[0]) if bad == 0 else first
            count, bad = count + int((~finite).sum()), bad + len(wrong)
    if bad > 0:
        what = "NaN or infinite" if isinstance(values, Tensor) else "NaN, infinite or too large for float32"
        raise DataError(
            f"{name} holds {count} values that are {what}, in {bad} of {values.shape[0]} samples, first in "
            f"sample {first}; repair or drop those samples"
        )
