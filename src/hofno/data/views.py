r"""A sample seen under each symmetry of its problem, and predictions taken back from there.

    f_mean(v) = 1/|G| sum_g g^-1 f(g v),        (g v)_c(i) = sigma_c v_c(p_g(i)) + o_c

over the motions g of `hofno.problems.symmetry`. For a group G f_mean has its symmetry exactly, and each of its terms
errs in a way of its own. Everything is in physical units: the images of a sample are samples like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

from hofno.problems.base import Rollout
from hofno.problems.symmetry import Channels, Symmetry


def points_of(symmetry: Symmetry, shape: Sequence[int]) -> Tensor:
    """Where the points of a grid come from in each motion without a slide, (motions, d, points); may be beyond ends."""
    here = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij")).flatten(1)  # (d, points)
    there = [torch.tensor(m.axes(shape)) @ here + torch.tensor(m.points(shape))[:, None] for m in symmetry.motions]
    return torch.stack(there)


Apply = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""Inputs (b, c, *grid), and of points their coordinates (b, d, N) and which are there (b, N), to predictions."""


class Numbers:
    """Numbers of points on a grid that goes on beyond its ends, (n, d, points) -> (n, points)."""

    def __init__(self, shape: Sequence[int], device: torch.device | None = None) -> None:
        self.sizes = torch.tensor(shape, device=device)[:, None]
        self.strides = torch.tensor([math.prod(shape[k + 1 :]) for k in range(len(shape))], device=device)[:, None]

    def __call__(self, points: Tensor) -> Tensor:
        return (points % self.sizes * self.strides).sum(1)


class Views:
    """The images of samples on one grid, (b, c, *grid), or at points.

    With a rollout their first channels are fixed fields, which move as inputs do, and the others frames, as targets do.
    """

    def __init__(
        self, symmetry: Symmetry, shape: Sequence[int], device: torch.device, rollout: Rollout | None = None
    ) -> None:
        self.motions, self.frames = symmetry.motions, 0 if rollout is None else rollout.taken
        self.places: Tensor | None = None
        if symmetry.moves_points:
            self.places = Numbers(shape)(points_of(symmetry, shape)).to(device)  # (motions, points)
            self.back = self.places.argsort(1)

    def mean(self, apply: Apply, x: Tensor, coords: Tensor | None, inside: Tensor | None) -> Tensor:
        """The mean over the views of a map from inputs to predictions."""
        found = (
            self.taken_back(k, apply(self._inputs(k, x), self._coords(k, coords), inside))
            for k in range(len(self.motions))
        )
        return reduce(torch.add, found) / len(self.motions)

    def _inputs(self, k: int, x: Tensor) -> Tensor:
        motion = self.motions[k]
        moved = x if self.places is None else x.flatten(2).index_select(2, self.places[k]).view_as(x)
        signs, offsets = _channels(x, (motion.inputs, x.shape[1] - self.frames), (motion.targets, self.frames))
        return motion.sign * signs * moved + offsets

    def _coords(self, k: int, coords: Tensor | None) -> Tensor | None:
        if coords is None:
            return None
        signs, offsets = _channels(coords, (self.motions[k].coords, coords.shape[1]))
        return signs * coords + offsets

    def taken_back(self, k: int, y: Tensor) -> Tensor:
        """The inverse of motion k: v_c(p(i)) = sigma_c (v'_c(i) - o_c)."""
        motion = self.motions[k]
        signs, offsets = _channels(y, (motion.targets, y.shape[1]))
        y = motion.sign * signs * (y - offsets)
        return y if self.places is None else y.flatten(2).index_select(2, self.back[k]).view_as(y)


def _channels(like: Tensor, *kinds: tuple[Channels, int]) -> tuple[Tensor, Tensor]:
    """Signs and offsets of the channels of a batch, so many of each kind, as they are broadcast against it.

    They are the same in every frame.
    """
    shape = (like.shape[1],) + (1,) * (like.ndim - 2)
    every = [[part * (count // max(1, len(part))) for part in channels.of(count)] for channels, count in kinds]
    signs, offsets = (sum(parts, ()) for parts in zip(*every, strict=True))
    return like.new_tensor(signs).view(shape), like.new_tensor(offsets).view(shape)
