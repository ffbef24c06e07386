"""What the steps of an epoch have in common: their precision and the grids that they learn from.

A run has few such phases, one after the other: on a coarser grid (`train.coarse_first`), on the whole one, and at the
end in float32 (`train.finish`). Each is a graph of its own where steps are captured.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from hofno.spec import TrainSpec
from hofno.train.grids import Stride
from hofno.train.precision import policy_of


class Phase(NamedTuple):
    """Steps by one precision policy that learn from every n-th point of their samples, for each n of `strides`."""

    policy: str
    strides: tuple[Stride, ...] = (1,)

    def __str__(self) -> str:
        return self.policy if 1 in self.strides else f"{self.policy} on {share_of_points(self.strides[0])}"


def share_of_points(stride: Stride) -> str:
    """Which points are every n-th, in words."""
    if isinstance(stride, int):
        return f"one point in {stride} along each axis"
    return f"one point in {' x '.join(map(str, stride))} along the axes"


def coarse_epochs(spec: TrainSpec) -> int:
    """How many epochs, the first ones, are on the coarser grid of `coarse_by` alone; the last epoch never is."""
    if spec.coarse_first == 0.0:
        return 0
    return min(spec.epochs - 1, max(1, round(spec.coarse_first * spec.epochs)))


def phase_of(spec: TrainSpec, epoch: int, device: torch.device) -> Phase:
    """The phase of an epoch, counted from 0."""
    coarse = epoch < coarse_epochs(spec)
    return Phase(policy_of(spec, epoch, device), (spec.coarse_by,) if coarse else (1, *spec.coarser))


def phases_of(spec: TrainSpec, device: torch.device) -> list[Phase]:
    """The phases of a run, each once, in the order they come."""
    return list(dict.fromkeys(phase_of(spec, epoch, device) for epoch in range(spec.epochs)))
