"""Data in memory: three splits of channel-first fields in physical units, and where they live.

With a rollout, the channels of a split are frames in time: x holds `history` of them and y those that follow. A model
takes `history` channels to one, and the splits are views of the trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from hofno.errors import DataError
from hofno.geometry import Grid
from hofno.problems.base import Rollout, Trajectories

__all__ = ["Dataset", "Origin", "Rollout", "Split", "refuse_not_finite", "trajectory_dataset"]

Origin = Literal["generated", "original", "user"]


@dataclass(frozen=True)
class Split:
    """Inputs x (n, c, *grid) and targets y (n, c', *grid), physical units, float32."""

    x: Tensor
    y: Tensor

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

    def __len__(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test split on one grid.

    Attributes:
        rollout: how a problem in time is rolled out; None for a steady one.
        trajectories: with a rollout, the samples of the benchmark in their order, (n, frames, *grid).
        later: with a rollout, the test frames after its horizon, (n, rest, *grid).
    """

    train: Split
    valid: Split
    test: Split
    grid: Grid
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


def trajectory_dataset(
    found: Trajectories, grid: Grid, rollout: Rollout, origin: Origin, stamp: dict[str, Any], card: str
) -> Dataset:
    """The dataset of a problem in time; every tensor is a view of its trajectories."""
    splits = {name: Split(torch.from_numpy(a.x), torch.from_numpy(a.y)) for name, a in found.splits.items()}
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
