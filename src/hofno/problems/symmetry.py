r"""Symmetries of a problem on a plane grid: motions that take every sample to another sample of the same distribution.

    w'(i) = sigma w(M i + s),       M a signed permutation of the two axes, sigma = 1 or -1, s a shift in grid points

A problem lists its motions, the identity among them. Where the equation is also unchanged by a shift along one
direction, `slide`, every motion may be followed by any number of steps along it, on a periodic grid. Training with
`augment` moves each sample of a batch by a motion drawn for it, inputs and targets alike: more samples of the same
distribution, without solving for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hofno.errors import SpecError

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


@dataclass(frozen=True, kw_only=True)
class Motion:
    """w'(i) = sign * w(M i + s): `matrix` M row by row, `shift` s in parts of the grid's size plus `steps` points."""

    matrix: tuple[tuple[int, int], tuple[int, int]]
    shift: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    steps: tuple[int, int] = (0, 0)
    sign: int = 1

    def points(self, shape: tuple[int, int]) -> tuple[int, int]:
        """The shift in grid points."""
        i, j = (int(part * n) + steps for part, n, steps in zip(self.shift, shape, self.steps, strict=True))
        return i, j


@dataclass(frozen=True, kw_only=True)
class Symmetry:
    """The motions of a problem, and the direction along which its grid may slide."""

    motions: tuple[Motion, ...]
    slide: tuple[int, int] | None = None

    def check(self, shape: tuple[int, int]) -> None:
        """Refuse a grid on which a motion does not take points to points."""
        whole = all((part * n).denominator == 1 for m in self.motions for part, n in zip(m.shift, shape, strict=True))
        swaps = any(m.matrix[0][0] == 0 for m in self.motions)
        if not whole or (swaps and shape[0] != shape[1]):
            parts = max(part.denominator for m in self.motions for part in m.shift)
            raise SpecError(
                f"train.augment moves points to points of a square grid{f' of a multiple of {parts}' * (parts > 1)}; "
                f"got {shape[0]} x {shape[1]} points; set train.augment=false or choose another resolution"
            )


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
