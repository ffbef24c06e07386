"""Normalisers with statistics that change over the grid, as some published protocols have them.

    pixel    one mean and one standard deviation for each channel and point, over samples; 1e-5 is added to the latter
    column   one for each channel and each place on the last axis, over samples and all other axes; 1e-8 is added

Of a channel smaller than 1e-4, one in small units, what is added is counted in its size, so that units do not matter.

The first is that of the first Fourier neural operators. The second is what becomes of a normaliser over samples and
points when it is given grids instead of lists of points, as in the published runs on Darcy and Pipe. The one over
samples and points itself is `ChannelNormaliser`. All keep a model on the grid that it was trained on.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hofno.data.moments import moments
from hofno.data.ondisk import Values, pieces_of
from hofno.errors import DataError, ShapeError

Per = Literal["pixel", "column"]
_ADDED: dict[Per, float] = {"pixel": 1e-5, "column": 1e-8}
TINY = torch.finfo(torch.float32).tiny
SMALL = 1e-4
"""Root mean square of the values of a channel below which what is added would not be small beside them."""


class PointwiseNormaliser:
    """(u - mean) / std with statistics that are broadcast against a sample (c, *grid)."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std  # (c, *grid) or (c, 1, .., last)

    @classmethod
    def fit(cls, u: Values, per: Per) -> PointwiseNormaliser:
        """Statistics of (n, c, *grid), unbiased; in float64, kept in float32."""
        if per not in _ADDED:
            raise DataError(f"per must be 'pixel' or 'column'; got {per!r}")
        last = len(u.shape) - 1
        count, mean, square = moments(pieces_of(u), kept=range(1, last + 1) if per == "pixel" else (1, last))
        if count < 2:
            raise DataError(f"statistics of each {per} need at least 2 values; got {count}; give more samples")
        std = (square[0] / (count - 1)).sqrt()  # (c, *grid) or (c, 1, .., last)
        size = (mean[0].square() + std.square()).flatten(1).mean(1).sqrt().view(-1, *(1,) * (std.ndim - 1))
        unit = torch.where((size > 0) & (size < SMALL), size, 1.0)
        return cls(mean[0].float(), (std + _ADDED[per] * unit).float().clamp_min(TINY))  # what is added may vanish

    def to(self, device: torch.device) -> PointwiseNormaliser:
        return PointwiseNormaliser(self.mean.to(device), self.std.to(device))

    def encode(self, u: Tensor) -> Tensor:
        self._check(u)
        return (u - self.mean.to(u)) / self.std.to(u)

    def decode(self, u: Tensor) -> Tensor:
        self._check(u)
        return u * self.std.to(u) + self.mean.to(u)

    def shaped(self, dims: int) -> tuple[Tensor, Tensor]:
        """Mean and deviation as they are broadcast against a sample with `dims` grid axes."""
        assert dims == self.mean.ndim - 1
        return self.mean, self.std

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}.mean": self.mean.cpu(), f"{prefix}.std": self.std.cpu()}

    def _check(self, u: Tensor) -> None:
        fits = u.ndim == self.mean.ndim + 1 and all(
            own in (1, given) for own, given in zip(self.mean.shape[1:], u.shape[2:], strict=True)
        )
        if not fits or u.shape[1] != self.mean.shape[0]:
            raise ShapeError(
                f"these statistics belong to samples of shape {tuple(self.mean.shape)} (1 fits any length); got "
                f"{tuple(u.shape[1:])}; give fields on the grid of the training data"
            )
