r"""What a trained operator knows of its own errors: those of validation samples, and what inputs it has seen.

The bound is conformal: of n validation errors the k-th smallest, k = ceil((n + 1) p), is not exceeded by the error of
another sample that is drawn as they were with probability p at least, whatever the network and the data. It says
nothing about other samples; whether an input is like those of training is another question, and `strangeness` answers
it by a few numbers of each input channel: mean, deviation, extremes, and on a grid, of means over its cells, which
hardly depend on the resolution, how much neighbours differ and how much is left in larger blocks.

Most of a mesh around a body is alike for all bodies, which these numbers hardly tell apart. So of training inputs on
meshes the principal ways are known in which they differ from their mean, over cells (`Family`): another input is as
strange as it is far along them, or off them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional

from hofno.data.ondisk import ranges
from hofno.errors import CheckpointError, ShapeError, SpecError
from hofno.geometry import Geometry, Points, Surface

CELLS = 32
"""Along an axis at most; a grid of fewer points has that many."""

BLOCKS = (2, 4, 8)
"""Along each axis, larger than cells."""

LEAST_DEVIATION = 0.01
"""Of fields in units of their deviation over all samples; smaller ones count as no deviation."""

ALIKE, TOLERATED = 1e-6, 0.1
"""Numbers of a channel that is the same in all samples, such as coordinates, vary less than the first; they may change
by the second, since grids differ."""

LEAST_UNIT = 0.5
"""Of strangeness, in deviations: validation inputs may be all alike."""

SHRUNK = 0.05
"""Part of the unit matrix in the correlation of numbers: with few samples it is not well known."""

WAYS, FAMILY_CELLS = 16, 16
"""In which meshes differ, at most, and cells along each axis over which they are looked at."""

LEAST_WAY = 0.01
"""Of the largest way: what is smaller is not told apart from rounding."""

LEAST_REST = 0.05
"""Of the usual difference of an input from the mean one: what lies off all ways may be as much."""


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class Family:
    """How the training inputs on a mesh differ from each other. All are float64 tensors."""

    usual: Tensor  # (d,): the mean of them, over cells, all channels one after the other
    units: Tensor  # (c,): usual difference from it
    ways: Tensor  # (d, k): orthonormal, the principal ones
    sizes: Tensor  # (k,): usual difference along them

    @classmethod
    def of(cls, seen: Tensor, channels: int) -> Family:
        """Of the fields of training inputs (n, d) over cells."""
        usual = seen.mean(0)
        units = (seen - usual).unflatten(1, (channels, -1)).square().mean((0, 2)).sqrt()
        units = torch.where(units > ALIKE, units, 1.0)
        unit = cls._in_units(seen - usual, units)
        _, sizes, ways = torch.linalg.svd(unit, full_matrices=False)
        most = min(WAYS, len(seen) // 10)
        least = (LEAST_WAY * sizes[:1]).clamp_min(ALIKE * math.sqrt(len(seen)))
        count = int((sizes[:most] > least).sum())
        return cls(usual, units, ways[:count].T.contiguous(), sizes[:count] / math.sqrt(len(seen)))

    def distances(self, seen: Tensor) -> Tensor:
        """How far inputs (n, d) are along the ways, and how far off them, in usual differences. (n, 2)"""
        unit = self._in_units(seen - self.usual, self.units)
        along = unit @ self.ways
        rest = (unit - along @ self.ways.T).square().mean(1).sqrt()
        return torch.stack(((along / self.sizes).square().sum(1).div(max(1, len(self.sizes))).sqrt(), rest), 1)

    @staticmethod
    def _in_units(difference: Tensor, units: Tensor) -> Tensor:
        return (difference.unflatten(1, (len(units), -1)) / units[:, None]).flatten(1)


@dataclass(frozen=True)
class Experience:
    """Validation errors, and numbers of the training inputs. All are float64 tensors."""

    errors: Tensor  # (n,) ascending: relative L2 of validation samples, infinite where it has no bound
    scores: Tensor  # (v,) ascending: how far their inputs were from those of training
    mean: Tensor  # (c,) of each input channel in training
    deviation: Tensor  # (c,)
    centre: Tensor  # (k,): mean numbers of a training input
    whitening: Tensor  # (k, k)
    cells: Tensor  # (axes,): cells of the grid; none at points and vertices
    together: Tensor  # (): how many samples an error is of
    selected: Tensor  # (): 1 where the weights were chosen by their validation error, else 0
    symmetric: Tensor  # (): 1 where the errors are of means over symmetries, else 0
    ratios: Tensor = field(default_factory=_none)
    """(n,) ascending: errors over the relative spreads of their predictions; none where these have no spread"""
    usual: Tensor = field(default_factory=_none)
    """(d,): this and the next three are the `Family` of inputs on meshes; none elsewhere"""
    units: Tensor = field(default_factory=_none)
    ways: Tensor = field(default_factory=_none)
    sizes: Tensor = field(default_factory=_none)
    farthest: Tensor = field(default_factory=_none)
    """(2,): how far validation inputs were along the ways and off them, at most"""
    shape: Tensor = field(default_factory=_none)
    """(axes,): points of these meshes; others are not looked at in this way, since their nodes lie elsewhere"""

    def blocks_of(self, samples: int) -> int:
        """How many samples an error is of; so many must be whole blocks of them."""
        together = int(self.together)
        if samples % together:
            raise ShapeError(
                f"errors are those of blocks of {together} samples, as in training; got {samples}; give whole blocks, "
                "in their order"
            )
        return together

    def error_bound(self, coverage: float) -> float:
        """What the relative L2 error of a sample is at most, with this probability; see the module's text."""
        return exceeded_by_few(self.errors, coverage)

    def spread_bound(self, coverage: float) -> float:
        """What that error is at most in units of the prediction's relative spread."""
        if len(self.ratios) == 0:
            raise SpecError(
                "the operator was trained by a version that kept no spreads; train it again, or with the data at hand: "
                "from hofno.train.experience import gain_experience; operator.experience = gain_experience(operator, "
                "data, selected=False)"
            )
        return exceeded_by_few(self.ratios, coverage)

    def is_of(self, symmetry: object | None) -> bool:
        """Whether the errors are those of predictions by this symmetry, or by none."""
        return bool(self.symmetric) == (symmetry is not None)

    def strangeness(self, x: Tensor, coords: Tensor | None = None, inside: Tensor | None = None) -> Tensor:
        """How far inputs are from those of training, (n,), in units of the farthest validation input."""
        found = []
        for rows in ranges(x.shape if coords is None else (len(x), x[0].numel() + coords[0].numel())):
            places, there = (None if part is None else part[rows] for part in (coords, inside))
            numbers = numbers_of(x[rows], places, there, self.mean, self.deviation, self.cells)
            ratio = distance(numbers, self.centre, self.whitening) / self.scores[-1].clamp_min(LEAST_UNIT)
            found.append(torch.maximum(ratio, self._off_the_family(x[rows])))
        return torch.cat(found)

    def _off_the_family(self, x: Tensor) -> Tensor:
        """How strange inputs on a mesh are by how those of training differ, (n,); 0 where that is not known."""
        if self.shape.tolist() != list(x.shape[2:]):
            return torch.zeros(len(x), dtype=torch.float64)
        seen = over_cells(x, self.mean, self.deviation, self.cells)
        family = Family(self.usual, self.units, self.ways, self.sizes)
        least = torch.tensor([LEAST_UNIT, LEAST_REST], dtype=torch.float64)
        return (family.distances(seen) / torch.maximum(self.farthest, least)).amax(1)

    def tensors(self) -> dict[str, Tensor]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


def exceeded_by_few(ascending: Tensor, coverage: float) -> float:
    """What a number drawn as these were exceeds with probability 1 - coverage at most."""
    count = len(ascending)
    if not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise SpecError(f"coverage is the part of all samples that keep the bound, in (0, 1); got {coverage}")
    rank = math.ceil((count + 1) * coverage - 1e-9)
    if rank > count:
        raise SpecError(
            f"{count} validation samples bound the error of {count / (count + 1):.3g} of all samples at most; got "
            f"coverage {coverage}; ask for less, or train with more validation samples"
        )
    return float(ascending[rank - 1])


def saved_experience(tensors: dict[str, Tensor], where: object) -> Experience:
    """From the tensors of a file."""
    try:
        return Experience(**tensors)
    except TypeError as error:
        raise CheckpointError(f"{where} is not of this version: {error}") from None


def channels_of(x: Tensor, coords: Tensor | None) -> Tensor:
    """Fields (n, c, *grid) in float64; at points, their places are channels too."""
    return (x if coords is None else torch.cat((x, coords), 1)).double()


def cells_of(geometry: Geometry) -> Tensor:
    """How many cells a grid is looked at in, along each axis; none where the order of values says nothing."""
    shape = () if isinstance(geometry, Points | Surface) else geometry.shape
    return torch.tensor([min(CELLS, points) for points in shape], dtype=torch.float64)


def numbers_of(
    x: Tensor, coords: Tensor | None, inside: Tensor | None, mean: Tensor, deviation: Tensor, cells: Tensor
) -> Tensor:
    """A few numbers for each channel of each input, (n, k); NaN where a grid is too coarse to have one."""
    values = channels_of(x, coords)
    flat = _standardised(values, mean, deviation).flatten(2)  # (n, c, N)
    there = torch.ones_like(flat[:, :1], dtype=torch.bool) if inside is None else inside[:, None]
    share = there.double() / there.sum(2, keepdim=True)
    middle = (flat * share).sum(2)
    spread = ((flat - middle[..., None]).square() * share).sum(2).sqrt()
    low = flat.masked_fill(~there, math.inf).amin(2)
    high = flat.masked_fill(~there, -math.inf).amax(2)
    numbers = [middle, _log(spread), high - low, high + low]
    if len(cells) > 0:
        counts = [int(count) for count in cells]
        coarse = _means(flat.unflatten(2, values.shape[2:]), counts)
        for axis, count in enumerate(counts, 2):
            if coarse.shape[axis] < count:
                numbers.append(torch.full_like(middle, math.nan))
            elif count > 1:
                numbers.append(_log(coarse.diff(dim=axis).square().flatten(2).mean(2).sqrt()))
        for blocks in BLOCKS:
            numbers.append(_log(_means(coarse, [blocks] * len(cells)).flatten(2).std(2, correction=0)))
    return torch.cat(numbers, 1)


def over_cells(x: Tensor, mean: Tensor, deviation: Tensor, cells: Tensor) -> Tensor:
    """Standardised inputs (n, c, *grid) over cells of the mesh, (n, d)."""
    counts = [min(FAMILY_CELLS, int(count)) for count in cells]
    return _means(_standardised(x.double(), mean, deviation), counts).flatten(1)


def _standardised(values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Fields (n, c, *grid) in units of their deviation."""
    of_channels = (-1, *[1] * (values.dim() - 2))
    return ((values - mean.view(of_channels)) / deviation.view(of_channels)).clamp(-1e6, 1e6)


def _log(deviation: Tensor) -> Tensor:
    return (deviation + LEAST_DEVIATION).log()


def _means(grid: Tensor, counts: list[int]) -> Tensor:
    """Means of fields (n, c, *grid) over so many parts of each axis, or over none where it has no more points."""
    for axis, count in enumerate(counts, 2):
        if grid.shape[axis] > count:
            rows = grid.movedim(axis, -1)
            parts = functional.adaptive_avg_pool1d(rows.flatten(0, -2)[None], count)[0]
            grid = parts.unflatten(0, rows.shape[:-1]).movedim(-1, axis)
    return grid


def distance(numbers: Tensor, centre: Tensor, whitening: Tensor) -> Tensor:
    """Root mean square of the whitened numbers, (n,); those that are not known count as usual ones."""
    return ((numbers - centre).nan_to_num(0.0) @ whitening).square().mean(1).sqrt()


def whitened(numbers: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Mean (k,) of numbers (n, k) of so many channels, and the matrix (k, k) that makes them uncorrelated, of size 1.

    A channel whose numbers are all the same in all samples is taken for one that is the same itself.
    """
    centre, deviation = numbers.mean(0), numbers.std(0, correction=0)
    alike = (deviation.view(-1, channels) < ALIKE).all(0).repeat(len(centre) // channels)
    deviation = deviation.clamp_min(LEAST_DEVIATION).masked_fill(alike, TOLERATED)
    unit = (numbers - centre) / deviation
    correlation = (1 - SHRUNK) * unit.T @ unit / len(unit)
    correlation.diagonal().fill_(1.0)  # of those that vary less than is told apart, too
    powers, vectors = torch.linalg.eigh(correlation)
    return centre, vectors / deviation[:, None] / powers.sqrt()
