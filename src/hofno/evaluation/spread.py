"""How far the predictions of every sample lie apart whose mean is scored, and the bounds that follow from it."""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.data.spread import relative_spread
from hofno.surrogate import Moments, Surrogate


class Spreads:
    """Relative spreads of samples, or of those that belong together, one batch after the other."""

    def __init__(self) -> None:
        self._found: list[Tensor] = []

    def add(self, moments: Moments, together: int) -> None:
        """Those of a batch, from mean and deviation of its predictions."""
        self._found.append(relative_spread(*moments, together))

    def all(self) -> Tensor:
        """Of all samples so far, (n,) in float64."""
        return torch.cat(self._found)


def has_spread(surrogate: Surrogate) -> bool:
    """Whether its predictions are means of several."""
    return len(surrogate.variants()) > 1


def spreads_of(surrogate: Surrogate) -> Spreads | None:
    """Where spreads are gathered, if the operator knows errors in units of them."""
    known = surrogate.experience
    if known is None or len(known.ratios) == 0 or not known.is_of(surrogate.symmetry) or not has_spread(surrogate):
        return None
    return Spreads()
