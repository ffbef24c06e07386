"""Data in memory: three splits of channel-first fields in physical units, and where they live.

Fields at points come with the places of these, other ones in each sample. Samples with fewer points than others are
filled up, and a mask says which points are there; fields and places are 0 where none is.

With a rollout, the channels of a split are frames in time: x holds `history` of them and y those that follow. A model
takes `history` channels to one, and the splits are views of the trajectories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from hofno.errors import DataError
from hofno.geometry import Geometry
from hofno.problems.base import Arrays, Rollout, Trajectories

__all__ = ["Dataset", "Origin", "Rollout", "Split", "refuse_not_finite", "split_of", "trajectory_dataset"]

Origin = Literal["generated", "original", "user"]


@dataclass(frozen=True)
class Split:
    """Inputs x (n, c, *grid) and targets y (n, c', *grid), physical units, float32.

    At points: x (n, c, N), y (n, c', N), coords (n, d, N), and where samples differ in their number of points, a
    boolean mask (n, N).
    """

    x: Tensor
    y: Tensor
    coords: Tensor | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.x.ndim < 3 or self.y.ndim < 3 or self.x.shape[2:] != self.y.shape[2:]:
            raise DataError(
                f"x and y must be (n, channels, *grid) on one grid; got x {tuple(self.x.shape)} and y "
                f"{tuple(self.y.shape)}; a single channel needs its axis: y[:, None]"
            )
        if self.x.shape[0] != self.y.shape[0]:
            raise DataError(
                f"x has {self.x.shape[0]} samples and y has {self.y.shape[0]}; give one target for each input"
            )
        if self.coords is not None:
            self._check_points(self.coords)
        elif self.mask is not None:
            raise DataError("a mask says which points are there; give their coords too")

    def _check_points(self, coords: Tensor) -> None:
        n, points = self.y.shape[0], tuple(self.y.shape[2:])
        if len(points) != 1 or coords.ndim != 3 or (coords.shape[0], coords.shape[2]) != (n, *points):
            raise DataError(
                f"points need y (n, channels, N) and coords (n, d, N); got y {tuple(self.y.shape)} and coords "
                f"{tuple(coords.shape)}; coordinates of a mesh are channels of x"
            )
        if self.mask is not None and (self.mask.shape != (n, *points) or self.mask.dtype != torch.bool):
            raise DataError(
                f"the mask must be boolean, one value for each of {(n, *points)} samples and points; got "
                f"{self.mask.dtype} of shape {tuple(self.mask.shape)}"
            )
        if self.mask is not None and not bool(self.mask.any(1).all()):
            raise DataError("the mask leaves a sample without a single point; drop that sample")

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Split:
        """The chosen samples."""
        coords, mask = (None if part is None else part[rows] for part in (self.coords, self.mask))
        return Split(self.x[rows], self.y[rows], coords, mask)

    def batches(self, size: int) -> Iterator[Split]:
        """The samples in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test split on one geometry.

    Attributes:
        rollout: how a problem in time is rolled out; None for a steady one.
        trajectories: with a rollout, the samples of the benchmark in their order, (n, frames, *grid).
        later: with a rollout, the test frames after its horizon, (n, rest, *grid).
    """

    train: Split
    valid: Split
    test: Split
    grid: Geometry
    origin: Origin
    stamp: dict[str, Any] = field(default_factory=dict)
    card: str = ""
    rollout: Rollout | None = None
    trajectories: Tensor | None = None
    later: Tensor | None = None

    @property
    def in_channels(self) -> int:
        return self.train.x.shape[1] if self.rollout is None else self.rollout.history

    @property
    def out_channels(self) -> int:
        return self.train.y.shape[1] if self.rollout is None else 1


def split_of(arrays: Arrays) -> Split:
    """The tensors of a generated or read split."""
    coords = None if arrays.coords is None else torch.from_numpy(arrays.coords)
    return Split(torch.from_numpy(arrays.x), torch.from_numpy(arrays.y), coords)


def trajectory_dataset(
    found: Trajectories, grid: Geometry, rollout: Rollout, origin: Origin, stamp: dict[str, Any], card: str
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
        trajectories=torch.from_numpy(found.frames),
        later=torch.from_numpy(found.later),
    )


def refuse_not_finite(values: Tensor, name: str) -> None:
    """NaN or infinity in the data is an error that says how much and where first."""
    finite = torch.isfinite(values)
    if bool(finite.all()):
        return
    bad = (~finite).flatten(1).any(1).nonzero().flatten()
    count = int((~finite).sum())
    raise DataError(
        f"{name} holds {count} values that are NaN or infinite, in {len(bad)} of {len(values)} samples, first in "
        f"sample {int(bad[0])}; repair or drop those samples"
    )
