r"""Symmetries of a problem: motions that take every sample to another solution of the same equations.

    v'_c(i) = sigma_c v_c(M i + s) + o_c,       M a signed permutation of a grid's axes, s a shift in grid points

with a sign sigma_c and an offset o_c for each channel c: under y -> -y, the y coordinates of a mesh change their sign.
Scattered points keep their order, and what moves them is the sign and the offset of their coordinates.

A problem lists its motions, the identity among them. Where the equation is also unchanged by a shift along one
direction, `slide`, every motion may be followed by any number of steps along it, on a periodic grid. Training with
`augment` moves each sample of a batch by a motion drawn for it, inputs and targets alike: more samples, without solving
for them. Where the law of the samples has the symmetry too, they are of the same distribution. With `symmetric` too, a
prediction is the mean over the motions (`hofno.data.views`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, TypeVar

from hofno.errors import SpecError
from hofno.geometry import Geometry, Grid, Mesh, Points, Surface

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
_FINEST = 10**6
"""Largest denominator of a part of a grid that is given as a decimal number."""
_Number = TypeVar("_Number")


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError(value)
    return number


def _part(value: Any) -> Fraction:
    if isinstance(value, Fraction):
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(float(value)).limit_denominator(_FINEST)


def _numbers(values: Any, kind: Callable[[Any], _Number], name: str, example: str) -> tuple[_Number, ...]:
    """Plain numbers of a sequence or array; those of NumPy cannot be saved."""
    try:
        return tuple(kind(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(f"{name} is a sequence of numbers such as {example}; got {values!r}; give such ones") from None


@dataclass(frozen=True, kw_only=True)
class Channels:
    """v'_c = signs_c v_c + offsets_c, in physical units; those that are left out are 1 and 0 for all channels."""

    signs: tuple[int, ...] = ()
    offsets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "signs", _numbers(self.signs, _whole, "signs", "(1, -1)"))
        object.__setattr__(self, "offsets", _numbers(self.offsets, float, "offsets", "(1.0, 0.0)"))
        if any(sign not in (1, -1) for sign in self.signs):
            raise SpecError(f"signs are 1 or -1, one for each channel; got {self.signs}")
        if not all(map(math.isfinite, self.offsets)):
            raise SpecError(f"offsets are numbers, one for each channel; got {self.offsets}")

    def of(self, count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Signs and offsets of `count` channels."""
        return self.signs or (1,) * count, self.offsets or (0.0,) * count


SAME = Channels()


@dataclass(frozen=True, kw_only=True)
class Motion:
    """v'_c(i) = sign sigma_c v_c(M i + s) + o_c: `shift` s in parts of the grid's size plus `steps` points.

    Attributes:
        matrix: M row by row; () leaves all points of a grid where they are, as those of a cloud always are.
        sign: of all channels of inputs and targets.
        inputs: what becomes of each input channel; on a mesh its coordinates are the last ones. Of trajectories, fixed
            fields are inputs and frames are targets.
        targets: what becomes of each target channel.
        coords: at scattered points, what becomes of their coordinates.
    """

    matrix: tuple[tuple[int, ...], ...] = ()
    shift: tuple[Fraction, ...] = ()
    steps: tuple[int, ...] = ()
    sign: int = 1
    inputs: Channels = SAME
    targets: Channels = SAME
    coords: Channels = SAME

    def __post_init__(self) -> None:
        rows = _numbers(self.matrix, lambda row: tuple(map(_whole, row)), "matrix", "((0, 1), (1, 0))")
        object.__setattr__(self, "matrix", rows)
        object.__setattr__(self, "shift", _numbers(self.shift, _part, "shift", "(Fraction(1, 2), 0)"))
        object.__setattr__(self, "steps", _numbers(self.steps, _whole, "steps", "(-1, 0)"))
        for name in ("inputs", "targets", "coords"):
            if not isinstance(getattr(self, name), Channels):
                raise SpecError(
                    f"{name} is Channels(signs=.., offsets=..); got {getattr(self, name)!r}; give such ones"
                )
        unsigned = (tuple(map(abs, row)) for row in self.matrix)
        if tuple(sorted(unsigned, reverse=True)) != _identity(len(self.matrix)):
            raise SpecError(f"matrix must have one 1 or -1 in each row and column and 0 elsewhere; got {self.matrix}")
        if self.sign not in (1, -1):
            raise SpecError(f"sign is 1 or -1; got {self.sign}")
        object.__setattr__(self, "sign", int(self.sign))

    @property
    def moves_points(self) -> bool:
        """Whether values go from one point of a grid to another, rather than change where they are."""
        return any(self.shift) or any(self.steps) or self.matrix not in ((), _identity(len(self.matrix)))

    def axes(self, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """M for a grid of this shape."""
        return self.matrix or _identity(len(shape))

    def stays_inside(self, shape: Sequence[int]) -> bool:
        """Whether every point of the grid comes from a point of it, and none from beyond an end."""
        return all(
            0 <= sum(m * i for m, i in zip(row, corner, strict=True)) + s < n
            for corner in itertools.product(*((0, n - 1) for n in shape))
            for row, s, n in zip(self.axes(shape), self.points(shape), shape, strict=True)
        )

    def points(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shift in grid points."""
        parts, steps = self.shift or (Fraction(0),) * len(shape), self.steps or (0,) * len(shape)
        return tuple(int(part * n) + step for part, n, step in zip(parts, shape, steps, strict=True))


@dataclass(frozen=True, kw_only=True)
class Symmetry:
    """The motions of a problem, and the direction along which its grid may slide."""

    motions: tuple[Motion, ...]
    slide: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        motions = self.motions if isinstance(self.motions, list | tuple) else ()
        if not motions or not all(isinstance(motion, Motion) for motion in motions):
            raise SpecError(f"a symmetry has motions, the identity Motion() among them; got {self.motions!r}")
        object.__setattr__(self, "motions", tuple(motions))
        if self.slide is not None:
            object.__setattr__(self, "slide", _numbers(self.slide, _whole, "slide", "(1, -1)"))

    @property
    def moves_points(self) -> bool:
        """Whether a motion does."""
        return self.slide is not None or any(m.moves_points for m in self.motions)

    def check_places(self, grid: Geometry) -> None:
        """Refuse a kind of places that these motions say nothing about."""
        if isinstance(grid, Surface):
            raise SpecError("motions of the vertices of a surface are not known here; leave the symmetry out")
        if isinstance(grid, Points) and self.moves_points:
            raise SpecError(
                "scattered points keep their order: a symmetry says what becomes of their coordinates; use "
                "mirror(coords=Channels(signs=..))"
            )
        if self.slide is not None and not isinstance(grid, Grid):
            raise SpecError(f"a slide is for regular grids; got {grid}; leave it out")
        if isinstance(grid, Mesh) and any(m.moves_points and not m.inputs.signs for m in self.motions):
            raise SpecError(
                "coordinates of a mesh are input channels: say what becomes of them where its points move; use "
                "mirror(axis, inputs=Channels(signs=..))"
            )
        given = [self.slide or (), *(part for m in self.motions for part in (m.matrix, m.shift, m.steps))]
        axes = {len(part) for part in given if part} - {len(grid.shape)}
        if axes:
            raise SpecError(
                f"this symmetry is of grids of {max(axes)} axes; got {len(grid.shape)}; use another, such as "
                f"mirror(axis, axes={len(grid.shape)})"
            )
        if self.moves_points:
            self.check(grid.shape)
        if isinstance(grid, Grid) and grid.periodic:
            return
        if self.slide is not None or not all(m.stays_inside(grid.shape) for m in self.motions if m.moves_points):
            raise SpecError(
                "this symmetry takes points beyond the ends of a grid that is not periodic, one of "
                f"{' x '.join(map(str, grid.shape))} points; use another, such as mirror(axis), whose shift follows "
                "the resolution"
            )

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a grid on which a motion does not take points to points."""
        whole = all((part * n).denominator == 1 for m in self.motions for part, n in zip(m.shift, shape, strict=False))
        if not whole or any(
            n != shape[axis]
            for m in self.motions
            for n, row in zip(shape, m.axes(shape), strict=True)
            for axis, entry in enumerate(row)
            if entry
        ):
            parts = max(part.denominator for m in self.motions for part in (*m.shift, Fraction(0)))
            raise SpecError(
                f"this symmetry takes points to points of a square grid{f' of a multiple of {parts}' * (parts > 1)}; "
                f"got {' x '.join(map(str, shape))} points; choose another resolution, or for training set "
                "train.augment=false"
            )

    def box(self, grid: Points) -> Points:
        """The smallest box around one of points and all its images."""
        low, high = list(grid.low), list(grid.high)
        for motion in self.motions:
            for axis, (sign, offset) in enumerate(zip(*motion.coords.of(grid.dim), strict=True)):
                ends = sign * grid.low[axis] + offset, sign * grid.high[axis] + offset
                low[axis], high[axis] = min(low[axis], *ends), max(high[axis], *ends)
        return Points(count=grid.count, low=tuple(low), high=tuple(high))

    def check_channels(self, inputs: int, targets: int, coords: int) -> None:
        """Refuse signs or offsets of another number of channels, or of coordinates, than there are."""
        for name, count in (("inputs", inputs), ("targets", targets), ("coords", coords)):
            for motion in self.motions:
                one: Channels = getattr(motion, name)
                for kind, values in (("signs", one.signs), ("offsets", one.offsets)):
                    if values and len(values) != count:
                        raise SpecError(
                            f"a motion has {len(values)} {kind} of {name} and the data have {count} of these; give one "
                            "for each, coordinates of a mesh after the other inputs"
                        )


def describe_symmetry(symmetry: Symmetry) -> dict[str, Any]:
    """As plain values, for `read_symmetry`."""
    motions = [
        {**asdict(motion), "shift": [[part.numerator, part.denominator] for part in motion.shift]}
        for motion in symmetry.motions
    ]
    return {"motions": motions, "slide": symmetry.slide}


def read_symmetry(values: dict[str, Any]) -> Symmetry:
    """What `describe_symmetry` described; a part that is missing or unknown raises KeyError or TypeError."""
    motions = [_read_motion(**motion) for motion in values["motions"]]
    slide = values["slide"]
    return Symmetry(motions=tuple(motions), slide=None if slide is None else tuple(slide))


def _read_motion(
    *,
    matrix: list[list[int]],
    shift: list[list[int]],
    steps: list[int],
    sign: int,
    inputs: dict[str, list[Any]],
    targets: dict[str, list[Any]],
    coords: dict[str, list[Any]],
) -> Motion:
    inputs_, targets_, coords_ = (
        Channels(signs=tuple(one["signs"]), offsets=tuple(one["offsets"])) for one in (inputs, targets, coords)
    )
    return Motion(
        matrix=tuple(map(tuple, matrix)),
        shift=tuple(Fraction(*part) for part in shift),
        steps=tuple(steps),
        sign=sign,
        inputs=inputs_,
        targets=targets_,
        coords=coords_,
    )


def _identity(axes: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(i == j) for j in range(axes)) for i in range(axes))


def square() -> Symmetry:
    """The eight symmetries of a square whose grid is symmetric about its centre; fields keep their sign."""
    motions = []
    for a in (1, -1):
        for b in (1, -1):
            flip = Fraction(a < 0), Fraction(b < 0)  # i -> n - 1 - i
            back = -int(a < 0), -int(b < 0)
            motions.append(Motion(matrix=((a, 0), (0, b)), shift=flip, steps=back))
            motions.append(Motion(matrix=((0, a), (b, 0)), shift=flip, steps=back))
    return Symmetry(motions=tuple(motions))


def mirror(
    axis: int | None = None,
    *,
    axes: int = 2,
    inputs: Channels = SAME,
    targets: Channels = SAME,
    coords: Channels = SAME,
) -> Symmetry:
    """A mirror image, beside samples as they are.

    Args:
        axis: the axis of a grid or mesh that runs backwards, i -> n - 1 - i; None for points, which keep their order.
        axes: axes of that grid.
        inputs: what becomes of the input channels; on a mesh its coordinates are the last ones.
        targets: what becomes of the target channels.
        coords: what becomes of the coordinates of scattered points: x -> 1 - x and y -> y in the plane is
            Channels(signs=(-1, 1), offsets=(1, 0)).
    """
    if axis is None:
        if inputs == targets == coords == SAME:
            raise SpecError("a mirror image changes something: give the axis that runs backwards, or at points coords=")
        return Symmetry(motions=(Motion(), Motion(inputs=inputs, targets=targets, coords=coords)))
    axis, axes = _numbers((axis, axes), _whole, "axis with axes", "0 with 2")
    if not 0 <= axis < axes:
        raise SpecError(
            f"a grid of {axes} axes has axes 0 to {axes - 1}; got axis={axis}; give one of these, and how many there "
            f"are: mirror(axis, axes={max(3, axes)})"
        )
    image = Motion(
        matrix=tuple(tuple((-1 if i == axis else 1) * (i == j) for j in range(axes)) for i in range(axes)),
        shift=tuple(Fraction(i == axis) for i in range(axes)),
        steps=tuple(-int(i == axis) for i in range(axes)),
        inputs=inputs,
        targets=targets,
        coords=coords,
    )
    return Symmetry(motions=(Motion(), image))


def driven_flow() -> Symmetry:
    """Vorticity on the torus under a forcing f(x + y) = A sin(2 pi (x + y) + pi/4).

    A rotation or reflection M of the plane takes vorticity w to det(M) w(M x + s). With s = (s1, s2) the forcing stays
    what it is if det(M) f(M x + s) = f(x): for M = 1 if s1 + s2 = 0, for M = -1 if it is 1/4, for the exchange of the
    axes if it is 1/2, for minus that if it is 3/4. So the flow may also slide along (1, -1).
    """
    zero = Fraction(0)
    return Symmetry(
        motions=(
            Motion(matrix=((1, 0), (0, 1))),
            Motion(matrix=((-1, 0), (0, -1)), shift=(QUARTER, zero)),
            Motion(matrix=((0, 1), (1, 0)), shift=(HALF, zero), sign=-1),
            Motion(matrix=((0, -1), (-1, 0)), shift=(3 * QUARTER, zero), sign=-1),
        ),
        slide=(1, -1),
    )
