r"""Normalisers: fitted on the training split, applied to physical fields, saved with the model.

    z = (u - mean) / std,      std = unit where a channel is constant, by no more than rounding (`hofno.data.rounding`)

What is constant does not depend on units: fields of 1e-12 are standardised as those of 1 are. The unit is 1, or where
all other channels are much smaller or larger than 1, the deviation of the largest of these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.data.moments import moments, moments_of_frames
from hofno.data.ondisk import Values, pieces_of, ranges
from hofno.data.pointwise import PointwiseNormaliser
from hofno.data.rounding import CONSTANT
from hofno.errors import CheckpointError

ORDINARY = 1e-4, 1e4
"""Sizes beside which a unit of 1 is neither large nor small."""
TINY = torch.finfo(torch.float32).tiny


class ChannelNormaliser:
    """(u - mean) / std with one mean and one standard deviation for each channel, over samples and points."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std  # (c,) each

    @classmethod
    def fit(cls, u: Values, mask: Tensor | None = None) -> ChannelNormaliser:
        """Statistics of (n, c, *grid), reduced over all axes but the channel; in float64, kept in float32.

        At points, those that a mask (n, N) leaves out do not count.
        """
        if mask is None:
            return cls._from(*moments(pieces_of(u), kept=[1]))
        there = (u[rows].movedim(1, -1)[mask[rows]] for rows in ranges(u.shape))  # (points, c)
        return cls._from(*moments(there, kept=[1]))

    @classmethod
    def fit_frames(cls, *frames: Values, fields: int = 1) -> ChannelNormaliser:
        """One mean and one deviation for each field, over the samples, times and points of all (n, t fields, *grid)."""
        return cls._from(*moments_of_frames((piece for whole in frames for piece in pieces_of(whole)), fields))

    @classmethod
    def _from(cls, count: int, mean: Tensor, square: Tensor) -> ChannelNormaliser:
        std, mean = (square / max(count - 1, 1)).sqrt().flatten(), mean.flatten()
        varies = (square / max(count, 1)).sqrt().flatten() > (CONSTANT * mean.abs()).clamp_min(TINY)
        largest = float((std[varies] if bool(varies.any()) else mean.abs()).max())
        unit = largest if largest > TINY and not ORDINARY[0] <= largest <= ORDINARY[1] else 1.0
        return cls(mean.float(), torch.where(varies, std, unit).float())

    def repeated(self, times: int) -> ChannelNormaliser:
        """The statistics of these channels again and again, for as many frames."""
        return ChannelNormaliser(self.mean.repeat(times), self.std.repeat(times))

    def joined(self, other: ChannelNormaliser) -> ChannelNormaliser:
        """The statistics of these channels, then those of the others."""
        return ChannelNormaliser(torch.cat((self.mean, other.mean)), torch.cat((self.std, other.std)))

    def first(self, count: int) -> ChannelNormaliser:
        """The statistics of the first channels."""
        return ChannelNormaliser(self.mean[:count], self.std[:count])

    def encode_frames(self, u: Tensor) -> Tensor:
        """Frames (b, t c, *grid) of these c channels each."""
        return self.encode(u.unflatten(1, (-1, len(self.mean))).flatten(0, 1)).view_as(u)

    @classmethod
    def identity(cls, channels: int) -> ChannelNormaliser:
        return cls(torch.zeros(channels, dtype=torch.float32), torch.ones(channels, dtype=torch.float32))

    def to(self, device: torch.device) -> ChannelNormaliser:
        return ChannelNormaliser(self.mean.to(device), self.std.to(device))

    def encode(self, u: Tensor) -> Tensor:
        return (u - self._shaped(self.mean, u)) / self._shaped(self.std, u)

    def decode(self, u: Tensor) -> Tensor:
        return u * self._shaped(self.std, u) + self._shaped(self.mean, u)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}.mean": self.mean.cpu(), f"{prefix}.std": self.std.cpu()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str) -> ChannelNormaliser:
        try:
            return cls(tensors[f"{prefix}.mean"], tensors[f"{prefix}.std"])
        except KeyError as missing:
            raise CheckpointError(
                f"the saved normalisers lack {missing}; the folder was not written by hofno, or is of another version"
            ) from None

    def shaped(self, dims: int) -> tuple[Tensor, Tensor]:
        """Mean and deviation as they are broadcast against a sample with `dims` grid axes."""
        shape = (-1,) + (1,) * dims
        return self.mean.view(shape), self.std.view(shape)

    @staticmethod
    def _shaped(values: Tensor, u: Tensor) -> Tensor:
        return values.to(device=u.device, dtype=u.dtype).view(-1, *(1,) * (u.ndim - 2))


Normaliser = ChannelNormaliser | PointwiseNormaliser


def saved_normaliser(tensors: dict[str, Tensor], prefix: str) -> Normaliser:
    """The normaliser that was saved: statistics of channels, or of channels and places on the grid."""
    found = ChannelNormaliser.from_tensors(tensors, prefix)
    return found if found.mean.ndim == 1 else PointwiseNormaliser(found.mean, found.std)
