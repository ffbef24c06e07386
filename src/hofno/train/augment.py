r"""Samples of a batch moved by the symmetries of their problem, drawn anew for each sample and step.

A motion takes physical values v to v'(i) = sigma v(p) + o with p = M i + s. Standardised, z = (v - mean) / std, it is

    z'(i) = onto(i) + scale(i) (z(p) - about(i)),      scale = sigma std(p) / std(i),

where `about` is a value r standardised at p, and `onto` its image sigma r + o standardised at i. With one mean and one
deviation for a channel r = 0: a change of sign turns values about physical zero. Where they differ from point to point
r = mean(p), so that small deviations from large means are kept.

What a draw needs lies on the device, so that a captured step draws too. The random numbers are those of the device's
generator, which checkpoints keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hofno.data.dataset import Dataset
from hofno.data.normalise import ChannelNormaliser, Normaliser
from hofno.data.views import Numbers, points_of
from hofno.errors import SpecError
from hofno.geometry import Geometry, Points
from hofno.problems.symmetry import Channels, Symmetry

LARGEST = 1e3
"""Of a change: a standardised number that it gives to the mean of a point, and a factor of deviations from it."""


class Draw(NamedTuple):
    """The motion of each moved sample, (b,), and where its points come from, (b, 1, points); None: all stay."""

    which: Tensor
    places: Tensor | None


class Augment:
    """Draws motions of a grid's points, (h, w) or of another number of axes."""

    def __init__(self, symmetry: Symmetry, shape: tuple[int, ...], device: torch.device) -> None:
        self.count, self.device = len(symmetry.motions), device
        self.points: Tensor | None = None
        if not symmetry.moves_points:
            return
        self.points = points_of(symmetry, shape).to(device)  # (motions, d, points)
        self.numbers = Numbers(shape, device)
        self.slide = torch.tensor(symmetry.slide or (0,) * len(shape), device=device)

    def draw(self, count: int) -> Draw:
        """Motions of `count` samples."""
        which = torch.randint(self.count, (count,), device=self.device)
        if self.points is None:
            return Draw(which, None)
        steps = torch.randint(2**20, (count, 1), device=self.device)
        points = self.points.index_select(0, which) + (steps * self.slide)[..., None]  # (count, d, points)
        return Draw(which, self.numbers(points)[:, None])

    def places(self) -> Tensor | None:
        """Where the points come from in each motion without a slide, (motions, points), on the CPU."""
        if self.points is None:
            return None
        return self.numbers(self.points).cpu()


class Change:
    """What becomes of the values of one field: `about`, `scale`, `onto`, (motions, c, 1) or (motions, c, points)."""

    def __init__(
        self, signs: list[tuple[int, Channels]], one: Normaliser, shape: tuple[int, ...], augment: Augment
    ) -> None:
        mean, std = (part.double().cpu() for part in one.shaped(len(shape)))
        alike, c = isinstance(one, ChannelNormaliser), len(mean)
        mean, std = (part.flatten(1) if alike else part.expand(c, *shape).flatten(1) for part in (mean, std))
        places = None if alike else augment.places()
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for k, (whole, channels) in enumerate(signs):
            sign, offset = (torch.tensor(part, dtype=torch.float64)[:, None] for part in channels.of(c))
            sign = whole * sign
            mean_p, std_p = (part if places is None else part[:, places[k]] for part in (mean, std))
            r = torch.zeros_like(mean_p) if alike else mean_p
            found.append(((r - mean_p) / std_p, sign * std_p / std, (sign * r + offset - mean) / std))
        if not alike and c and max(float(part.abs().max()) for _, *parts in found for part in parts) > LARGEST:
            raise SpecError(
                "train.augment takes points to points whose statistics are far from theirs, as where a value never "
                "varies and its image does; use train.normaliser='channel' or train.augment=false"
            )
        self.about, self.scale, self.onto = (
            torch.stack(part).float().to(augment.device) for part in zip(*found, strict=True)
        )

    def __call__(self, fields: Tensor, drawn: Draw) -> Tensor:
        """Fields (b, c, *grid) moved as drawn."""
        flat = fields.flatten(2)
        if drawn.places is not None:
            flat = flat.gather(2, drawn.places.expand(-1, flat.shape[1], -1))
        about, scale, onto = (part.index_select(0, drawn.which) for part in (self.about, self.scale, self.onto))
        if 1 < scale.shape[1] < flat.shape[1]:  # frames of several fields
            frames = flat.shape[1] // scale.shape[1]
            about, scale, onto = (part.repeat(1, frames, 1) for part in (about, scale, onto))
        return torch.addcmul(onto, scale, flat - about).view_as(fields)


Moved = Callable[..., tuple[Tensor, ...]]
"""Takes the fields of a batch, (b, c, *grid) each, and moves all that belong to one sample alike."""


def unmoved(*fields: Tensor) -> tuple[Tensor, ...]:
    """The fields as they are."""
    return fields


def augmentation(data: Dataset, inputs: Normaliser, targets: Normaliser, device: torch.device) -> Moved:
    """What moves the fields of a dataset that these have standardised: inputs, targets, and coordinates of points.

    Of a dataset with a rollout it moves frames, which are targets, and fixed fields, which are inputs.
    """
    alike = isinstance(inputs, ChannelNormaliser) and isinstance(targets, ChannelNormaliser)
    symmetry, grid = check_augment(data.symmetry, data.grid, "channel" if alike else "pixel"), data.grid
    augment = Augment(symmetry, grid.shape, device)
    kinds = {"inputs": inputs, "targets": targets}
    if data.rollout is not None:
        assert isinstance(inputs, ChannelNormaliser)
        fixed = inputs.first(data.rollout.fixed)
        kinds = {"targets": targets} | ({"inputs": fixed} if data.rollout.fixed else {})
    if isinstance(grid, Points):
        low, high = torch.tensor(grid.low), torch.tensor(grid.high)
        kinds["coords"] = ChannelNormaliser(low, high - low)  # as `to_unit` has them
    changes: list[Change] = []
    for name, one in kinds.items():
        signs = [(m.sign if name != "coords" else 1, getattr(m, name)) for m in symmetry.motions]
        changes.append(Change(signs, one, grid.shape, augment))

    def moved(*fields: Tensor) -> tuple[Tensor, ...]:
        drawn = augment.draw(len(fields[0]))
        return tuple(change(part, drawn) for change, part in zip(changes, fields, strict=True))

    return moved


def check_augment(symmetry: Symmetry | None, grid: Geometry, normaliser: str) -> Symmetry:
    """Refuse to augment data without known symmetries, or with motions that these places do not have."""
    if symmetry is None:
        raise SpecError(
            "train.augment needs data whose symmetries are known, and these have none; leave it out, or for your own "
            "arrays say which they have: from_arrays(..., symmetry=mirror(..)), see hofno.problems.symmetry"
        )
    symmetry.check_places(grid)
    if symmetry.slide is not None and normaliser != "channel":
        raise SpecError(
            "train.augment slides these samples along their grid, which needs train.normaliser='channel', alike at all "
            f"points; got {normaliser!r}"
        )
    symmetry.check(grid.shape)
    return symmetry
