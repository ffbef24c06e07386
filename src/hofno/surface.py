"""A triangulated surface in space: where fields at vertices live."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hofno.errors import ShapeError

FLAT = 1e-10
"""A triangle whose height is less than this part of its longest side has no area to speak of."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Surface:
    """Vertices (N, 3) and triangles (F, 3), the numbers of their corners from 0; fields on it are (b, c, N).

    One surface for all samples. It may be closed or have borders, on which functions then have no slope across
    (the natural condition of finite elements), and may consist of several pieces. Two surfaces are equal if their
    numbers are.
    """

    vertices: np.ndarray
    triangles: np.ndarray

    def __post_init__(self) -> None:
        places, corners = _plain(self.vertices, "vertices"), _plain(self.triangles, "triangles")
        if places.ndim != 2 or places.shape[1] != 3 or len(places) < 3 or places.dtype.kind not in "fiu":
            raise ShapeError(
                f"vertices of a surface are real numbers (N, 3), three vertices at least; got {_told(places)}; places "
                "given as (3, N) go through .T"
            )
        if corners.ndim != 2 or corners.shape[1] != 3 or len(corners) < 1 or corners.dtype.kind not in "iu":
            raise ShapeError(
                f"triangles of a surface are whole numbers (F, 3), the vertices at their corners; got {_told(corners)}"
            )
        object.__setattr__(self, "vertices", _fixed(places, np.float64))
        object.__setattr__(self, "triangles", _fixed(corners, np.int64))
        self._check()

    def _check(self) -> None:
        count = len(self.vertices)
        if (bad := np.flatnonzero(~np.isfinite(self.vertices).all(1))).size:
            raise ShapeError(f"every vertex needs finite coordinates; vertex {bad[0]} has not; leave it out or mend it")
        if (bad := np.flatnonzero(((self.triangles < 0) | (self.triangles >= count)).any(1))).size:
            raise ShapeError(
                f"triangles name vertices 0 to {count - 1}; triangle {bad[0]} has {self.triangles[bad[0]].tolist()}; "
                "numbers that start at 1 go through triangles - 1"
            )
        edges = np.roll(self.corners, -1, axis=1) - self.corners
        longest = np.square(edges).sum(-1).max(1)
        if (bad := np.flatnonzero(2 * self.areas <= FLAT * longest)).size:
            raise ShapeError(
                f"every triangle needs an area; triangle {bad[0]}, with vertices {self.triangles[bad[0]].tolist()}, "
                "has none; remove it or join its vertices"
            )
        if len(np.unique(np.sort(self.triangles, axis=1), axis=0)) < len(self.triangles):
            raise ShapeError("every triangle counts once; two of them have the same three vertices; remove one")
        if (bad := np.flatnonzero(np.bincount(self.triangles.ravel(), minlength=count) == 0)).size:
            raise ShapeError(
                f"every vertex belongs to a triangle; vertex {bad[0]} has none; leave such vertices out and number the "
                "others anew"
            )

    @property
    def shape(self) -> tuple[int]:
        return (len(self.vertices),)

    @cached_property
    def corners(self) -> np.ndarray:
        """Places of the corners of every triangle, (F, 3, 3)."""
        return self.vertices[self.triangles]

    @cached_property
    def areas(self) -> np.ndarray:
        """(F,)"""
        a, b, c = self.corners.swapaxes(0, 1)
        return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal digits that other vertices or triangles would not have."""
        shape = np.array([len(self.vertices), len(self.triangles)]).astype("<i8")
        parts = (shape, self.vertices.astype("<f8"), self.triangles.astype("<i8"))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Surface) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Surface({len(self.vertices)} vertices, {len(self.triangles)} triangles, {self.digest})"

    def plain(self) -> dict[str, str]:
        """Both arrays as text, exactly: little-endian bytes of float64 and int64 in base 64."""
        arrays = {"vertices": self.vertices.astype("<f8"), "triangles": self.triangles.astype("<i8")}
        return {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Surface:
        """The inverse of `plain`; a KeyError or TypeError says what is missing or wrong."""
        try:
            vertices = np.frombuffer(base64.b64decode(values["vertices"]), "<f8").reshape(-1, 3)
            triangles = np.frombuffer(base64.b64decode(values["triangles"]), "<i8").reshape(-1, 3)
        except ValueError as error:
            raise TypeError(f"the surface: {error}") from None
        return cls(vertices=vertices, triangles=triangles)


def _plain(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} of a surface must be one array; got rows of different lengths") from None


def _fixed(values: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy that nothing changes any more."""
    copy = np.array(values, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def _told(values: np.ndarray) -> str:
    return f"shape {values.shape} of {values.dtype}"
