"""Where functions live, and the one maker of coordinates and wavenumbers.

Two sets of Fourier modes are known, for ``modes=(m1, ..., md)``:

- ``"symmetric"``: |k| < m on every leading axis (2m - 1 wavenumbers 0..m-1, -(m-1)..-1); the last axis keeps
  0..m-1, its negative half being given by Hermitian symmetry;
- ``"reference"``: k = -m..m-1 on every leading axis (2m wavenumbers, stored 0..m-1, -m..-1), as in the
  authors' released code, so that its weights load exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError

ModeSet = Literal["symmetric", "reference"]
MODE_SETS: tuple[ModeSet, ...] = ("symmetric", "reference")
Coordinates = Literal["endpoint", "periodic", "none"]
COORDINATES: tuple[Coordinates, ...] = ("endpoint", "periodic", "none")


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
    if not isinstance(modes, tuple | list) or not all(isinstance(m, int) for m in modes):
        raise SpecError(f"modes must be a tuple of whole numbers, one for each axis, such as (16, 16); got {modes!r}")
    modes = tuple(modes)
    if not 1 <= len(modes) <= 3:
        raise SpecError(f"modes must have 1, 2 or 3 entries, one for each axis; got {modes}")
    if min(modes) < 1:
        raise SpecError(f"every entry of modes must be at least 1; got {modes}")
    return modes


def padded_shape(points: tuple[int, ...], fraction: float) -> tuple[int, ...]:
    """Axis lengths after `fraction` of each axis has been appended: n + int(fraction * n)."""
    if fraction == 0.0:
        return points
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


_coordinates: dict[tuple[object, ...], Tensor] = {}


def cached_coordinates(points: tuple[int, ...], kind: Coordinates, like: Tensor) -> Tensor:
    """`grid_coordinates` on the device and in the precision of `like`, made once."""
    key = (points, kind, like.device, like.dtype)
    found = _coordinates.get(key)
    if found is None:
        with torch.inference_mode(False), torch.no_grad():
            found = grid_coordinates(points, kind).to(device=like.device, dtype=like.dtype)
        if type(found) is Tensor:  # while a graph is exported the values are not there yet
            _coordinates[key] = found
    return found


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

    @property
    def kind(self) -> Coordinates:
        return "periodic" if self.periodic else "endpoint"

    def coordinates(self) -> Tensor:
        """(*shape, d) positions in float64."""
        return grid_coordinates(self.shape, self.kind)
