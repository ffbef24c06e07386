"""Data of the user's own, in NumPy files that a spec names: on a grid, a mesh, a surface or at points; trajectories.

    [data]                                       [data]
    problem = "arrays"                           problem = "trajectories"
    x = "inputs.npy"      # (n, c, *grid)        frames = "frames.npy"   # (n, times, *grid)
    y = "targets.npy"     # (n, c', *grid)       fixed = "fixed.npy"     # (n, c, *grid), or left out
                                                 history = 1

Nothing is generated or copied: files are read where they lie, those that do not fit into memory by the batch. Training,
validation and test samples are drawn from them by the seed.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Geometry, Grid, Mesh, Points, Surface
from hofno.problems.axes import first_channels, on_one_grid, warn_of_channels_last
from hofno.problems.base import InTime, OneSet, Origin, Problem
from hofno.problems.npyfile import open_npy
from hofno.problems.trajectories import misfit_of_fixed

CARD = """Data of your own, read from NumPy files (`numpy.save`), in physical units.

What they are and how they were made is not known here; nothing of them is changed. A tenth of the samples is for
validation and a tenth for testing unless the spec says how many; which ones is drawn by data.seed, or, with
data.shuffle = false, training samples come first and test samples last. Errors are those of the test samples."""


class Own(Problem):
    """What all data of the user's own have: numbers of samples that follow from the files, and an order."""

    card: ClassVar[str] = CARD

    train: int = Field(0, ge=0, description="training samples; 0: all that are left")
    valid: int = Field(0, ge=0, description="validation samples; 0: a tenth")
    test: int = Field(0, ge=0, description="test samples, never used for choices; 0: a tenth")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of the shuffle before the samples are split")
    shuffle: bool = Field(True, description="false: samples are split in the order they have")
    periodic: bool = Field(False, description="a regular grid repeats itself, its samples at i/n")

    @property
    def origin(self) -> Origin:
        return "user"

    @property
    def one_set(self) -> OneSet:
        held = ("frames",) if "frames" in self.sources else ("x" if "x" in self.sources else "coords", "y")
        return OneSet(held, ("train", "valid", "test", "seed", "shuffle"))

    def _split(self, held: int, what: str) -> Any:
        """Set the numbers of samples that the files leave open."""
        tenth = max(1, round(held / 10))
        valid, test = self.valid or tenth, self.test or tenth
        train = self.train or held - valid - test
        if held < 3:
            raise ValueError(
                f"{what} holds {held} sample{'s' * (held != 1)}, and each of training, validation and test needs one; "
                "give at least 3, better hundreds"
            )
        if train < 1 or train + valid + test > held:
            raise ValueError(
                f"{what} holds {held} samples; train={max(train, 0)}, valid={valid} and test={test} must fit in them, "
                "with at least one each; lower one of them"
            )
        for name, count in (("train", train), ("valid", valid), ("test", test)):
            object.__setattr__(self, name, count)  # the model is frozen for others
        return self

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.train, self.valid, self.test


class OwnArrays(Own):
    """Inputs to targets, as `hofno.Dataset.from_arrays` takes them."""

    name: ClassVar[str] = "arrays"
    summary: ClassVar[str] = "Your own inputs and targets, from .npy files"

    x: str = Field("", description="file of the inputs, (n, channels, *grid); with coords it may be left out")
    y: str = Field(description="file of the targets, (n, channels, *grid)")
    coords: str = Field("", description="file of the places of a mesh or of points, (d, *grid) or (n, d, *grid)")
    mask: str = Field("", description="file of ones where there is a point and zeros elsewhere, (n, N)")
    triangles: str = Field(
        "", description="file of the triangles (F, 3) of a surface whose vertices are coords, (3, N)"
    )

    @model_validator(mode="after")
    def _possible(self) -> OwnArrays:
        if not self.x and not self.coords:
            raise ValueError("x is missing: give the file of the inputs, or of the coords where these are all")
        if not self.y:
            raise ValueError("y is empty: give the file of the targets")
        if self.coords and self.periodic:
            raise ValueError("periodic is for regular grids; with coords, leave it out")
        shapes = self.shapes
        if self.triangles and (not self.x or self.mask or shapes.get("coords") != (3, shapes["y"][-1])):
            raise ValueError(
                f"triangles need x, no mask, and as coords the vertices of the surface, (3, {shapes['y'][-1]}) as y "
                f"has them; got {shapes.get('coords', 'none')}"
            )
        for name, shape in shapes.items():
            if name in ("x", "y") and not 3 <= len(shape) <= 5:
                raise ValueError(
                    f"{name} must be (n, channels, *grid) with one to three grid axes; {getattr(self, name)} holds "
                    f"{shape}; a single channel needs its axis: {name}[:, None]"
                )
        if "x" in shapes and (shapes["x"][0], *shapes["x"][2:]) != (shapes["y"][0], *shapes["y"][2:]):
            remedy = ""
            if shapes["x"][0] == shapes["y"][0]:
                remedy = f"; {on_one_grid(shapes['x'], shapes['y'])}"
            raise ValueError(
                f"x and y must have as many samples on one grid; they hold {shapes['x']} and {shapes['y']}{remedy}"
            )
        if not self.coords and (remedy := first_channels("y", shapes["y"])):
            raise ValueError(f"each axis of the grid needs two points; {self.y} holds {shapes['y']}; {remedy}")
        if self.coords and not self._is_placed(shapes["coords"]):
            raise ValueError(
                f"coords must end in the grid of y, {self._grid}; {self.coords} holds {shapes['coords']}; the "
                f"coordinates of a point come before it: (d, *grid) or (n, d, *grid) with n = {shapes['y'][0]}"
            )
        if self.mask and not (self.coords and (shapes["y"][0], *self._grid) == shapes["mask"] and len(self._grid) == 1):
            held = f"y is {shapes['y']} and {self.mask} holds {shapes['mask']}"
            raise ValueError(f"a mask is for points with coords, (n, N) where y is (n, channels, N); {held}; change it")
        if not self._scattered and not self.triangles:
            warn_of_channels_last("y", shapes["y"])
        return self._split(shapes["y"][0], self.y)

    @property
    def sources(self) -> dict[str, str]:
        named = {name: getattr(self, name) for name in ("x", "y", "coords", "mask", "triangles")}
        return {name: file for name, file in named.items() if file}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays, from the heads of their files."""
        return {name: open_array(file).shape for name, file in self.sources.items()}

    @property
    def _grid(self) -> tuple[int, ...]:
        return self.shapes["y"][2:]

    @property
    def _places(self) -> int:
        """Coordinates of a point, 0 where the grid is regular."""
        return self.shapes["coords"][-1 - len(self._grid)] if self.coords and not self.triangles else 0

    def _is_placed(self, coords: tuple[int, ...]) -> bool:
        """Whether coords of this shape are (d, *grid) or (n, d, *grid)."""
        more = coords[: -len(self._grid)]
        return coords[len(more) :] == self._grid and more[:-1] in ((), self.shapes["y"][:1]) and len(more) > 0

    @property
    def mesh_coordinates(self) -> int:
        return 0 if self._scattered else self._places

    @property
    def _scattered(self) -> bool:
        return bool(self.coords) and len(self._grid) == 1 and (self._places > 1 or bool(self.mask))

    @property
    def grid_geometry(self) -> Geometry:
        if self.triangles:
            return self.surface
        if not self.coords:
            return Grid(shape=self._grid, periodic=self.periodic)
        if not self._scattered:
            return Mesh(shape=self._grid)
        # the box of the points themselves is known once they are read; models see any as the unit cube
        return Points(count=self._grid[0], low=(0.0,) * self._places, high=(1.0,) * self._places)

    @cached_property
    def surface(self) -> Surface:
        """The surface that the fields are on."""
        try:
            return Surface(vertices=open_array(self.coords).T, triangles=open_array(self.triangles))
        except ShapeError as error:
            raise SpecError(f"arrays.triangles: {error}") from None

    @property
    def channels(self) -> tuple[int, int]:
        given = self.shapes["x"][1] if self.x else 0
        return given + (0 if self._scattered else self._places), self.shapes["y"][1]

    def memory_bytes(self) -> int:
        fields = sum(self.channels) + (self._places if self._scattered else 0)
        return 4 * sum(self.counts) * fields * math.prod(self._grid)


class OwnTrajectories(Own, InTime):
    """Frames to the frames that follow, as `hofno.Dataset.from_trajectories` takes them."""

    name: ClassVar[str] = "trajectories"
    summary: ClassVar[str] = "Your own trajectories, frames to the next ones, from a .npy file"

    frames: str = Field(description="file of the frames, (n, times, *grid), evenly spaced in time")
    several: bool = Field(False, description="whether frames have several fields: (n, times, fields, *grid)")
    fixed: str = Field("", description="file of fields that do not change in time, (n, channels, *grid)")

    @model_validator(mode="after")
    def _possible(self) -> OwnTrajectories:
        if not self.frames:
            raise ValueError("frames is empty: give the file of the frames")
        if not 1 <= len(self.shape) - self._before <= 3:
            expected = "(n, times, fields, *grid)" if self.several else "(n, times, *grid)"
            raise ValueError(f"frames must be {expected} with one to three grid axes; {self.frames} holds {self.shape}")
        times, first = self.shape[1], self.start or self.history
        steps = self.horizon or times - first
        if not self.history <= first or steps < 1 or first + steps > times:
            raise ValueError(
                f"history <= start and start + horizon <= times are needed; {self.frames} holds {times} frames; got "
                f"history={self.history}, start={first}, horizon={steps}; lower one of them"
            )
        if self.fixed and (wrong := misfit_of_fixed(self.fixed_shape, self.shape[0], self.grid_geometry.shape)):
            raise ValueError(f"{self.fixed}: {wrong}")
        object.__setattr__(self, "start", first)
        object.__setattr__(self, "horizon", steps)
        return self._split(self.shape[0], self.frames)

    @property
    def sources(self) -> dict[str, str]:
        return {"frames": self.frames} | ({"fixed": self.fixed} if self.fixed else {})

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return open_array(self.frames).shape

    @cached_property
    def fixed_shape(self) -> tuple[int, ...]:
        return open_array(self.fixed).shape if self.fixed else ()

    @property
    def _before(self) -> int:
        """Axes that are not the grid's."""
        return 3 if self.several else 2

    @property
    def fields(self) -> int:
        return self.shape[2] if self.several else 1

    @property
    def fixed_fields(self) -> int:
        return self.fixed_shape[1] if self.fixed else 0

    @property
    def grid_geometry(self) -> Grid:
        return Grid(shape=self.shape[self._before :], periodic=self.periodic)

    def memory_bytes(self) -> int:
        return 4 * (math.prod(self.shape) + (math.prod(self.fixed_shape) if self.fixed else 0))


def open_array(file: str) -> np.ndarray:
    """An array of the user's own as it lies in its file."""
    return open_npy(Path(file), kinds="fiub", remedy="write it with numpy.save")
