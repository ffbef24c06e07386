"""Where functions live, and the one maker of coordinates and wavenumbers.

Two sets of Fourier modes are known, for ``modes=(m1, ..., md)``:

- ``"symmetric"``: |k| < m on every leading axis (2m - 1 wavenumbers 0..m-1, -(m-1)..-1); the last axis keeps
  0..m-1, its negative half being given by Hermitian symmetry;
- ``"reference"``: k = -m..m-1 on every leading axis (2m wavenumbers, stored 0..m-1, -m..-1), as in the
  authors' released code, so that its weights load exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.exact import is_whole
from hofno.surface import Surface

P = ParamSpec("P")
ModeSet = Literal["symmetric", "reference"]
MODE_SETS: tuple[ModeSet, ...] = ("symmetric", "reference")
PaddedBy = Literal["points", "length"]
PADDED_BY: tuple[PaddedBy, ...] = ("points", "length")
Coordinates = Literal["endpoint", "periodic", "none"]
COORDINATES: tuple[Coordinates, ...] = ("endpoint", "periodic", "none")
Nodes = Literal["gauss", "equiangular"]
NODES: tuple[Nodes, ...] = ("gauss", "equiangular")
SphereCoordinates = Literal["cartesian", "latitude", "none"]
SPHERE_COORDINATES: tuple[SphereCoordinates, ...] = ("cartesian", "latitude", "none")


def choose(value: str, options: tuple[str, ...], name: str) -> str:
    """Return `value` if it is one of `options`; otherwise say which there are."""
    if value not in options:
        raise SpecError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return value


def axis_wavenumbers(modes: int, mode_set: ModeSet, last: bool) -> tuple[int, ...]:
    """Wavenumbers kept along one axis, in storage order."""
    if last:
        return tuple(range(modes))
    if mode_set == "reference":
        return (*range(modes), *range(-modes, 0))
    return (*range(modes), *range(-modes + 1, 0))


def wavenumbers(modes: tuple[int, ...], mode_set: ModeSet = "symmetric") -> tuple[tuple[int, ...], ...]:
    """Wavenumbers kept along every axis, in storage order."""
    last = len(modes) - 1
    return tuple(axis_wavenumbers(m, mode_set, axis == last) for axis, m in enumerate(modes))


def modes_held(points: int, mode_set: ModeSet, last: bool) -> int:
    """The largest `modes` an axis of `points` samples can hold without two wavenumbers being the same."""
    if last:
        return points // 2 + 1
    return points // 2 if mode_set == "reference" else (points + 1) // 2


def check_modes(modes: tuple[int, ...], mode_set: ModeSet, points: tuple[int, ...]) -> None:
    """Refuse mode counts that the grid cannot tell apart."""
    if len(points) != len(modes):
        raise ShapeError(
            f"modes={modes} asks for {len(modes)} spatial axes; the field has {len(points)} with shape {points}; "
            "give one mode count for each axis"
        )
    for axis, (m, n) in enumerate(zip(modes, points, strict=True)):
        held = modes_held(n, mode_set, axis == len(modes) - 1)
        if m > held:
            raise ShapeError(
                f"modes[{axis}]={m} is more than an axis of {n} points holds (at most {held}); "
                "lower modes, or use a finer grid"
            )


def check_mode_counts(modes: tuple[int, ...]) -> tuple[int, ...]:
    """Validate the `modes` argument itself: one to three positive integers."""
    if not isinstance(modes, tuple | list) or not all(is_whole(m) for m in modes):
        raise SpecError(f"modes must be a tuple of whole numbers, one for each axis, such as (16, 16); got {modes!r}")
    modes = tuple(int(m) for m in modes)
    if not 1 <= len(modes) <= 3:
        raise SpecError(f"modes must have 1, 2 or 3 entries, one for each axis; got {modes}")
    if min(modes) < 1:
        raise SpecError(f"every entry of modes must be at least 1; got {modes}")
    return modes


def check_padding(domain_padding: float, of: str = "axis") -> None:
    """Refuse a padding that is no fraction of the axis, or of what else is padded."""
    if not 0.0 <= domain_padding <= 4.0:
        raise SpecError(f"domain_padding is a fraction of the {of} between 0 and 4; got {domain_padding}")


def padded_shape(points: tuple[int, ...], fraction: float, by: PaddedBy = "points") -> tuple[int, ...]:
    """Axis lengths after `fraction` of each axis has been appended.

    "points" has n + int(fraction n) of them, as published: the period in units of the domain, which is n - 1 intervals
    long where both ends are on the grid, differs a little between grids. "length" has (1 + fraction)(n - 1), so that
    the period is 1 + fraction on every grid that holds a whole number of intervals of it; one point at least.
    """
    if fraction == 0.0:
        return points
    if by == "length":
        return tuple(max(n + 1, round((1.0 + fraction) * (n - 1))) for n in points)
    return tuple(n + math.floor(fraction * n + 1e-9) for n in points)


def axis_coordinates(points: int, kind: Coordinates, *, device: torch.device | None = None) -> Tensor:
    """Positions of the samples of one axis in float64: i/n (periodic) or linspace(0, 1, n) (end points in)."""
    if kind == "periodic":
        return torch.arange(points, dtype=torch.float64, device=device) / points
    if kind == "endpoint":
        return torch.linspace(0.0, 1.0, points, dtype=torch.float64, device=device)
    raise SpecError(f"coordinates {kind!r} have no positions; use 'endpoint' or 'periodic'")


def grid_coordinates(points: tuple[int, ...], kind: Coordinates, *, device: torch.device | None = None) -> Tensor:
    """Positions of all grid points, channel-last: (*points, d) in float64."""
    axes = [axis_coordinates(n, kind, device=device) for n in points]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


_cache: dict[tuple[object, ...], Tensor] = {}


def cached_coordinates(points: tuple[int, ...], kind: Coordinates, like: Tensor) -> Tensor:
    """`grid_coordinates` on the device and in the precision of `like`, made once."""
    return cached(("coordinates", points, kind), lambda: grid_coordinates(points, kind), like)


def cached_waves(points: tuple[int, ...], waves: tuple[tuple[int, ...], ...], like: Tensor) -> Tensor:
    """`grid_waves` on the device and in the precision of `like`, made once."""
    return cached(("waves", points, waves), lambda: grid_waves(points, waves), like)


def cached_wavenumbers(ks: tuple[tuple[int, ...], ...], like: Tensor) -> Tensor:
    """Every combination of the axes' wavenumbers in storage order, (K, d), on the device of `like`, made once."""

    def make() -> Tensor:
        axes = [torch.tensor(axis, dtype=torch.float64) for axis in ks]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)

    return cached(("wavenumbers", ks), make, like)


def grid_waves(points: tuple[int, ...], waves: tuple[tuple[int, ...], ...]) -> Tensor:
    """cos 2 pi k.x and then sin 2 pi k.x of every wavevector k, x = i/n: (*points, 2 waves) in float64."""
    k = torch.tensor(waves, dtype=torch.float64)  # (waves, d)
    angle = 2 * math.pi * (grid_coordinates(points, "periodic") @ k.T)
    return torch.cat((torch.cos(angle), torch.sin(angle)), -1)


def constant(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Mark a function of plain values: `torch.compile` calls it and keeps its tensor, and does not trace its loops.

    This is `torch.compiler.assume_constant_result`, without the import of the compiler that comes with it. What is to
    stay outside `torch.export` too computes with NumPy.
    """
    make._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return make


def sphere_rows(rows: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Colatitudes of the rows, from north to south, and their weights in cos theta, of sum 2.

    Kind "gauss" has the Legendre-Gauss nodes, "equiangular" theta_j = (j + 1/2) pi / rows and Fejer's first rule.
    """
    choose(kind, NODES, "nodes")
    if rows < 1:
        raise ShapeError(f"a sphere needs at least 1 row of points; got {rows}")
    j = np.arange(rows, dtype=np.float64)
    if kind == "gauss":
        return _gauss(j)
    theta = (j + 0.5) * (math.pi / rows)
    k = np.arange(1, (rows - 1) // 2 + 1, dtype=np.float64)
    waves = np.cos(2 * np.outer(theta, k)) / (4 * k**2 - 1)
    return theta, (1 - 2 * waves.sum(1)) * (2 / rows)


def _gauss(j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zeros of the Legendre polynomial P_n in theta by Newton's method, and the weights 2 / (d P_n / d theta)^2."""
    rows = len(j)
    theta, slope = (4 * j + 3) * (math.pi / (4 * rows + 2)), np.ones_like(j)
    for _ in range(5):  # the first guess is good to three digits and each step doubles them
        x, before, value = np.cos(theta), np.zeros_like(theta), np.ones_like(theta)
        for n in range(1, rows + 1):
            before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
        slope = rows * (x * value - before) / np.sin(theta)
        theta = theta - value / slope
    return theta, 2 / slope**2


@constant
def sphere_coordinates(shape: tuple[int, int], nodes: Nodes, kind: SphereCoordinates) -> Tensor:
    """Positions on the unit sphere in float64: (rows, columns, 3) or, of kind "latitude", (rows, columns, 1).

    Cartesian positions are (cos theta, sin theta cos phi, sin theta sin phi), of which cos theta, the sine of the
    latitude, is the first; phi = 2 pi j / columns.
    """
    if kind == "none":
        raise SpecError(f"coordinates {kind!r} have no positions; use 'cartesian' or 'latitude'")
    rows, columns = shape
    theta = sphere_rows(rows, nodes)[0][:, None]
    phi = np.arange(columns, dtype=np.float64)[None] * (2 * math.pi / columns)
    axes = [np.cos(theta) + 0 * phi, np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi)]
    return torch.from_numpy(np.stack(axes if kind == "cartesian" else axes[:1], -1))


def cached_sphere_coordinates(shape: tuple[int, int], nodes: Nodes, kind: SphereCoordinates, like: Tensor) -> Tensor:
    """`sphere_coordinates` on the device and in the precision of `like`, made once."""
    key = ("sphere_coordinates", shape, nodes, kind)
    return cached(key, lambda: sphere_coordinates(shape, nodes, kind), like)


def cached(key: tuple[object, ...], make: Callable[[], Tensor], like: Tensor) -> Tensor:
    """What `make` gives, made once for each device and precision of `like`; float64 inside gives the best rounding."""
    key = key_for(like, key, _cache)
    found = _cache.get(key)
    if found is None:
        # what is first met under inference_mode must stay usable in training
        with torch.inference_mode(False), torch.no_grad(), untransformed():
            found = make().to(device=like.device, dtype=like.dtype).contiguous()
        if type(found) is Tensor:  # while a graph is exported the values are not there yet
            _cache[key] = found
    return found


def key_for(like: Tensor, key: tuple[object, ...], kept: Mapping[tuple[object, ...], object]) -> tuple[object, ...]:
    """The key of what is kept for the device and the precision of `like`.

    Under inference_mode compiled code makes tensors that training cannot use; it sees of that mode that gradients are
    off. So what it makes then is kept apart.
    """
    key = (*key, like.device, like.dtype)
    apart = torch.compiler.is_compiling() and not torch.is_grad_enabled() and key not in kept
    return (*key, "inference") if apart else key


def untransformed() -> AbstractContextManager[object]:
    """A context in which tensors belong to no transform of `torch.func`: those that are kept outlive it."""
    return nullcontext() if torch.compiler.is_compiling() else torch._C._DisableFuncTorch()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A regular grid on the unit cube.

    A periodic grid has its samples at i/n, the last one a step before the end; any other grid includes both ends.
    """

    shape: tuple[int, ...]
    periodic: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3 or min(self.shape) < 2:
            raise ShapeError(f"a grid has 1 to 3 axes of at least 2 points each; got shape {self.shape}")
        if not isinstance(self.periodic, int | np.bool_):
            raise ShapeError(
                f"periodic is true or false, for all axes of a grid; got {self.periodic!r}; give False where one is not"
            )
        object.__setattr__(self, "periodic", bool(self.periodic))  # those of NumPy cannot be saved

    @property
    def kind(self) -> Coordinates:
        return "periodic" if self.periodic else "endpoint"

    def coordinates(self) -> Tensor:
        """(*shape, d) positions in float64."""
        return grid_coordinates(self.shape, self.kind)


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A structured mesh: grid lines that are bent, so that the positions of its points are input channels."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3 or min(self.shape) < 2:
            raise ShapeError(f"a mesh has 1 to 3 axes of at least 2 points each; got shape {self.shape}")


@dataclass(frozen=True, kw_only=True)
class Points:
    """Scattered points in a box, other ones in each sample; models see the box as the unit cube.

    `count` is the largest number of points of a sample in the data. Models take any number.
    """

    count: int
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.low) <= 3 or len(self.low) != len(self.high):
            raise ShapeError(f"points have 1 to 3 coordinates with a low and a high end; got {self.low}, {self.high}")
        if self.count < 1 or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ShapeError(
                f"points need a box with low < high and at least one point; got {self.low}, {self.high} and "
                f"{self.count} points"
            )

    @property
    def dim(self) -> int:
        return len(self.low)

    @property
    def shape(self) -> tuple[int]:
        return (self.count,)

    def to_unit(self, coords: Tensor) -> Tensor:
        """Positions in units of the box, (b, d, N) -> (b, d, N): 0 is its low end, 1 its high end."""
        low, high = self._ends(coords)
        return (coords - low) / (high - low)

    def from_unit(self, coords: Tensor) -> Tensor:
        """The inverse of `to_unit`."""
        low, high = self._ends(coords)
        return low + (high - low) * coords

    def _ends(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return like.new_tensor(self.low).unsqueeze(-1), like.new_tensor(self.high).unsqueeze(-1)


@dataclass(frozen=True, kw_only=True)
class Sphere:
    """The unit sphere by latitude and longitude: rows from north to south, columns eastwards from longitude 0.

    `nodes` says where the rows are: at Legendre-Gauss nodes ("gauss") or at (j + 1/2) pi / rows ("equiangular").
    """

    shape: tuple[int, int]
    nodes: Nodes = "equiangular"

    def __post_init__(self) -> None:
        choose(self.nodes, NODES, "nodes")
        if len(self.shape) != 2 or min(self.shape) < 2:
            raise ShapeError(f"a sphere has at least 2 rows of at least 2 points each; got shape {self.shape}")

    def coordinates(self) -> Tensor:
        """(rows, columns, 3) Cartesian positions in float64."""
        return sphere_coordinates(self.shape, self.nodes, "cartesian")


Geometry = Grid | Mesh | Points | Sphere | Surface
KINDS: dict[str, type[Geometry]] = {
    "grid": Grid,
    "mesh": Mesh,
    "points": Points,
    "sphere": Sphere,
    "surface": Surface,
}


def kind_of(geometry: Geometry) -> str:
    """The name of a geometry's kind: grid, mesh, points, sphere or surface."""
    return next(name for name, kind in KINDS.items() if isinstance(geometry, kind))


def describe_geometry(geometry: Geometry) -> dict[str, Any]:
    """Plain values from which `read_geometry` makes the same geometry; a grid is told by having no kind."""
    kind = {} if isinstance(geometry, Grid) else {"kind": kind_of(geometry)}
    if isinstance(geometry, Surface):
        return kind | geometry.plain()
    return kind | {key: list(v) if isinstance(v, tuple) else v for key, v in vars(geometry).items()}


def read_geometry(values: dict[str, Any]) -> Geometry:
    """The geometry of plain values; a KeyError or TypeError says what is missing or wrong."""
    if values.get("kind") == "surface":
        return Surface.from_plain(values)
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items() if key != "kind"}
    return KINDS[values.get("kind", "grid")](**given)
