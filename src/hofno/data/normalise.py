"""Normalisers: fitted on the training split, applied to physical fields, saved with the model."""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import CheckpointError

SMALL = 1e-8


class ChannelNormaliser:
    """(u - mean) / std with one mean and one standard deviation for each channel, over samples and points."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std  # (c,) each

    @classmethod
    def fit(cls, u: Tensor) -> ChannelNormaliser:
        """Statistics of (n, c, *grid), reduced over all axes but the channel; in float64, kept in float32."""
        axes = (0, *range(2, u.ndim))
        count = u.numel() // u.shape[1]
        mean = u.sum(axes, dtype=torch.float64) / count
        shape = (1, -1) + (1,) * (u.ndim - 2)
        square = sum(((part.double() - mean.view(shape)) ** 2).sum(axes) for part in u.split(64))
        assert isinstance(square, Tensor)
        std = (square / max(count - 1, 1)).sqrt()
        return cls(mean.float(), torch.where(std > SMALL, std, torch.ones_like(std)).float())

    @classmethod
    def fit_frames(cls, *frames: Tensor) -> ChannelNormaliser:
        """One mean and one deviation for a quantity, over the samples, times and points of all (n, t, *grid)."""
        parts = [part for whole in frames for part in whole.split(64)]
        count = sum(part.numel() for part in parts)
        mean = torch.stack([part.double().sum() for part in parts]).sum() / count
        square = torch.stack([(part.double() - mean).square().sum() for part in parts]).sum()
        std = (square / max(count - 1, 1)).sqrt()
        return cls(mean.float()[None], torch.where(std > SMALL, std, torch.ones_like(std)).float()[None])

    def repeated(self, channels: int) -> ChannelNormaliser:
        """The statistics of one channel for `channels` of them."""
        return ChannelNormaliser(self.mean.repeat(channels), self.std.repeat(channels))

    @classmethod
    def identity(cls, channels: int) -> ChannelNormaliser:
        return cls(torch.zeros(channels), torch.ones(channels))

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
