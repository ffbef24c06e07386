"""Data in memory: three splits of channel-first fields in physical units, and where they live."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from hofno.errors import DataError
from hofno.geometry import Grid

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
    """Training, validation and test split on one grid."""

    train: Split
    valid: Split
    test: Split
    grid: Grid
    origin: Origin
    stamp: dict[str, Any] = field(default_factory=dict)
    card: str = ""

    @property
    def in_channels(self) -> int:
        return self.train.x.shape[1]

    @property
    def out_channels(self) -> int:
        return self.train.y.shape[1]


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
