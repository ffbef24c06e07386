"""Data that an operator is evaluated on: a split, or arrays of the user's own, which must be of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hofno.data.arrays import split_from
from hofno.data.dataset import Split
from hofno.data.values import as_float32
from hofno.errors import ShapeError
from hofno.geometry import Mesh, Points, kind_of
from hofno.surrogate import Surrogate


def split_for(surrogate: Surrogate, given: Split | Sequence[Any]) -> Split:
    """A split as it is; arrays (x, y), (x, y, coords) or (x, y, coords, mask) as one; in time, (x, y, fixed)."""
    if isinstance(given, Split):
        return given
    rollout = surrogate.rollout
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= 4:
        what = f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
        raise ShapeError(
            f"evaluate takes one split of a dataset, or arrays (x, y) or (x, y, coords); got {what}; give data.test, "
            "for example"
        )
    if rollout is not None and rollout.fixed and len(given) == 3:
        frames, y, fixed = given
        frames = _joined_fields(frames, "x", len(surrogate.grid.shape))
        given = surrogate.asked(frames, fixed=fixed).fields, y
    x, y, coords, mask = (*given, None, None)[:4]
    if coords is not None and not isinstance(surrogate.grid, Mesh | Points):
        raise ShapeError(f"the model was trained on a {kind_of(surrogate.grid)}; leave coords and mask out: (x, y)")
    if coords is None and isinstance(surrogate.grid, Points):
        raise ShapeError("the model was trained at points; give their coords: (x, y, coords)")
    if rollout is not None and rollout.fields > 1:
        x, y = (_joined_fields(part, name, len(surrogate.grid.shape)) for part, name in ((x, "x"), (y, "y")))
    split = split_from(x, y, coords, mask)
    together = 1 if surrogate.experience is None else surrogate.experience.blocks_of(len(split))
    return Split(*split.parts, together=together) if together > 1 else split


def _joined_fields(frames: Any, name: str, axes: int) -> Any:
    """Frames (n, t, fields, *grid) as (n, t fields, *grid); others as they are."""
    return as_float32(frames, name).flatten(1, 2) if np.ndim(frames) == axes + 3 else frames


def check_frames(surrogate: Surrogate, shape: tuple[int, ...]) -> None:
    """Refuse targets that are not whole frames of the fields that the model predicts."""
    fields = 1 if surrogate.rollout is None else surrogate.rollout.fields
    if shape[1] == 0:
        raise ShapeError(f"there is no frame to score: the targets have shape {shape}; give at least one")
    if shape[1] % fields:
        raise ShapeError(
            f"the model predicts frames of {fields} fields, and the targets have {shape[1]} channels in shape {shape}; "
            f"give {fields} of them for each frame"
        )


def check_data(surrogate: Surrogate, split: Split) -> None:
    """Refuse inputs and targets that are not of the kind that the model was trained on; another grid is no matter."""
    if not isinstance(split, Split):
        raise ShapeError(
            f"a split is scored, such as data.test; got {type(split).__name__}; make one: hofno.Split(x, y)"
        )
    if len(split) == 0 and split.whole:  # of a part of a block there is more to say
        raise ShapeError("there is no sample to score; give at least one")
    x, y, grid = tuple(split.parts.x.shape), tuple(split.parts.y.shape), surrogate.grid
    channels, inputs = surrogate.targets.mean.shape[0], surrogate.inputs.mean.shape[0]
    check_frames(surrogate, y)
    if surrogate.rollout is None and y[1] != channels:
        raise ShapeError(
            f"the model predicts {channels} channels and the targets have {y[1]} in shape {y}; evaluate on the kind of "
            "data it was trained for"
        )
    at_points = split.parts.coords is not None
    if isinstance(grid, Points) != at_points:
        kinds = ("a grid", "points") if at_points else ("points", "a grid")
        raise ShapeError(f"the model was trained on {kinds[0]} and these data are on {kinds[1]}; give data of its kind")
    places = split.parts.coords
    if isinstance(grid, Points) and places is not None and places.shape[1] != grid.dim:
        raise ShapeError(
            f"the model was trained at points of {grid.dim} coordinates, and these have {places.shape[1]}; give as many"
        )
    if x[1] != inputs:
        remedy = "places on a mesh are channels of x, the last ones: give (x, y, coords)"
        remedy = remedy if isinstance(grid, Mesh) else "evaluate on the kind of data it was trained for"
        if surrogate.rollout is not None and surrogate.rollout.fixed:
            remedy = f"{surrogate.rollout.fixed} fixed fields come before the frames: give (x, y, fixed)"
        raise ShapeError(f"the model takes {inputs} channels and the inputs have {x[1]} in shape {x}; {remedy}")
    if not at_points and len(x) - 2 != len(grid.shape):
        raise ShapeError(
            f"the model was trained on a {kind_of(grid)} with {len(grid.shape)} axes, and the inputs have "
            f"{len(x) - 2} in shape {x}; give fields (n, channels, *grid)"
        )
