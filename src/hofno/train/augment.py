"""Samples of a batch moved by the symmetries of their problem, drawn anew for each sample and step.

What a draw needs lies on the device, so that a captured step draws too. The random numbers are those of the device's
generator, which checkpoints keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hofno.data.dataset import Dataset
from hofno.data.normalise import Normaliser
from hofno.errors import SpecError
from hofno.geometry import Geometry, Grid
from hofno.problems.symmetry import Symmetry


class Augment:
    """Moves standardised fields (b, c, h, w); a change of sign turns values about what 0 is once standardised."""

    def __init__(self, symmetry: Symmetry, shape: tuple[int, int], device: torch.device) -> None:
        symmetry.check(shape)
        h, self.width = shape
        motions = symmetry.motions
        self.sizes = torch.tensor(shape, device=device)
        self.matrices = torch.tensor([m.matrix for m in motions], device=device)  # (motions, 2, 2)
        self.shifts = torch.tensor([m.points(shape) for m in motions], device=device)  # (motions, 2)
        self.signs = torch.tensor([float(m.sign) for m in motions], device=device)
        self.slide = torch.tensor(symmetry.slide or (0, 0), device=device)
        places = torch.arange(h * self.width, device=device)
        self.points = torch.stack((places // self.width, places % self.width))  # (2, h w)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Where each point of `count` moved samples comes from, (count, 1, h w), and their signs, (count, 1, 1)."""
        device = self.points.device
        which = torch.randint(len(self.signs), (count,), device=device)
        steps = torch.randint(2**20, (count, 1), device=device)
        shift = self.shifts.index_select(0, which) + steps * self.slide  # (count, 2)
        matrix = self.matrices.index_select(0, which)
        points = (matrix[..., None] * self.points).sum(2) + shift[..., None]  # (count, 2, h w)
        row, column = (points % self.sizes[:, None]).unbind(1)
        return (row * self.width + column)[:, None], self.signs.index_select(0, which)[:, None, None]

    @staticmethod
    def move(fields: Tensor, places: Tensor, signs: Tensor, zero: Tensor) -> Tensor:
        """Fields (b, c, h, w) moved as drawn; `zero` (c, 1)."""
        flat = fields.flatten(2)
        moved = flat.gather(2, places.expand(-1, flat.shape[1], -1))
        return torch.addcmul(zero, signs, moved - zero).view_as(fields)


Moved = Callable[..., tuple[Tensor, ...]]
"""Takes the fields of a batch, (b, c, h, w) each, and moves all that belong to one sample alike."""


def unmoved(*fields: Tensor) -> tuple[Tensor, ...]:
    """The fields as they are."""
    return fields


def augmentation(data: Dataset, normalisers: Sequence[Normaliser], device: torch.device) -> Moved:
    """What moves the fields of a dataset that these have standardised."""
    check_augment(data.symmetry, data.grid, "channel")
    assert data.symmetry is not None
    h, w = data.grid.shape  # pyright: ignore[reportAssignmentType]
    augment = Augment(data.symmetry, (h, w), device)
    zeros = [(-n.mean / n.std).to(device)[:, None] for n in normalisers]  # (c, 1)

    def moved(*fields: Tensor) -> tuple[Tensor, ...]:
        places, signs = augment.draw(len(fields[0]))
        return tuple(augment.move(part, places, signs, zero) for part, zero in zip(fields, zeros, strict=True))

    return moved


def check_augment(symmetry: Symmetry | None, grid: Geometry, normaliser: str) -> None:
    """Refuse to augment data without known symmetries, or that are not standardised alike everywhere."""
    if symmetry is None or not isinstance(grid, Grid) or len(grid.shape) != 2:
        raise SpecError(
            "train.augment needs data whose symmetries are known, and these have none; leave it out, or for your own "
            "arrays on a plane grid say which they have: from_arrays(..., symmetry=square())"
        )
    if normaliser != "channel":
        raise SpecError(f"train.augment needs train.normaliser='channel', alike at all points; got {normaliser!r}")
    symmetry.check((grid.shape[0], grid.shape[1]))
