"""What a benchmark is: a validated set of parameters that generates its splits, and a card that says what they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from hofno.geometry import Grid

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) while data are generated."""


@dataclass(frozen=True)
class Arrays:
    """One split in physical units: x (n, c, *grid), y (n, c', *grid), float32."""

    x: np.ndarray
    y: np.ndarray


class Problem(BaseModel):
    """Base of the benchmarks. The fields of a subclass are its parameters; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    summary: ClassVar[str]
    card: ClassVar[str]

    train: int = Field(1000, ge=1, description="training samples")
    valid: int = Field(100, ge=1, description="validation samples, from a stream of their own")
    test: int = Field(200, ge=1, description="test samples, never used for choices")
    seed: int = Field(0, ge=0, description="seed of all random draws")

    @property
    def grid_geometry(self) -> Grid:
        raise NotImplementedError

    @property
    def channels(self) -> tuple[int, int]:
        """Input and target channels of a sample."""
        raise NotImplementedError

    def generate(self, progress: Progress) -> dict[str, Arrays]:
        """The three splits. The same parameters give the same bytes; more samples extend a split, never change it."""
        raise NotImplementedError

    def memory_bytes(self) -> int:
        """Bytes the finished data take, so that a run can be refused before it starts."""
        raise NotImplementedError

    def parameters(self) -> dict[str, Any]:
        return self.model_dump()


def ignore_progress(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""
