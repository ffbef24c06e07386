"""Several trained networks of one task as one: its output is the mean of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of networks that take and give the same standardised fields; called as each of them is.

    It is made of trained ones, by `hofno.combine`, and is no model of a spec.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *given: Any) -> Tensor:
        return mean_of((member(*given).float() for member in self.members), len(self.members))


def mean_of(outputs: Iterable[Tensor], count: int) -> Tensor:
    """The mean of so many outputs, added up in their order."""
    return reduce(torch.add, outputs) / count
