"""Data that a spec reads from files: published ones of a benchmark, or the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hofno.data.arrays import from_arrays
from hofno.data.dataset import Dataset
from hofno.data.heads import Shapes, shapes_in
from hofno.data.read import options_of, read, stamps_of_published
from hofno.data.series import from_trajectories
from hofno.data.stamps import stamp_of
from hofno.errors import DataError
from hofno.problems.base import Problem, Published
from hofno.problems.own import Own, OwnArrays, OwnTrajectories, open_array


def dataset_of_files(made: Problem) -> Dataset:
    """The dataset of a problem that has `sources`."""
    if isinstance(made, Published):
        return _published(made)
    found = {name: open_array(file) for name, file in made.sources.items()}
    if isinstance(made, OwnArrays):
        x, y, coords, mask = (found.get(name) for name in ("x", "y", "coords", "mask"))
        coords, surface = (None, made.surface) if made.triangles else (coords, None)
        seed, periodic = made.seed if made.shuffle else None, made.periodic
        data = from_arrays(x, y, coords, mask=mask, periodic=periodic, surface=surface, split=made.counts, seed=seed)
    elif isinstance(made, OwnTrajectories):
        data = from_trajectories(
            found["frames"],
            found.get("fixed"),
            fields=made.several,
            history=made.history,
            horizon=made.horizon,
            start=made.start,
            periodic=made.periodic,
            split=made.counts,
            seed=made.seed if made.shuffle else None,
        )
    else:
        raise NotImplementedError(made.name)
    stamp = {"problem": made.name, "files": stamps_of(made)}
    return replace(data, stamp={**data.stamp, **stamp}, card=made.card)


def _published(made: Published) -> Dataset:
    """The published files, cut as the problem says; they must be what it says they are."""
    data = read(made.name, made.files, **_asked(made))
    _refuse_others(made, data.grid.shape, (data.in_channels, data.out_channels))
    return data


def _asked(made: Published) -> dict[str, Any]:
    """What the problem says of how its files are cut."""
    return {name: getattr(made, name) for name in options_of(made.name) if name in made.model_fields_set}


def _refuse_others(made: Published, shape: tuple[int, ...], channels: tuple[int, int]) -> None:
    """Refuse files on another grid, or of other channels, than the problem describes."""
    if shape != (expected := made.grid_geometry.shape):
        raise DataError(
            f"the samples of {made.files} have {_by(shape)} points and the spec describes {_by(expected)}; give the "
            "parameters of the published set, or leave out those that change its grid"
        )
    if channels != made.channels:
        raise DataError(
            f"{made.files} gives {channels[0]} to {channels[1]} channels and the spec describes "
            f"{made.channels[0]} to {made.channels[1]}; leave out the parameters that change them"
        )


def look(made: Problem) -> Shapes:
    """The arrays in the files of a problem that has `sources`, by their heads; what cannot be its data is refused."""
    if not isinstance(made, Published):  # its own arrays were looked at when it was made
        return {Path(file): {"": open_array(file).shape} for file in made.sources.values()}
    asked = _asked(made)
    found = shapes_in(made.name, made.files, **asked)
    if made.rollout is not None:
        _refuse_others(made, found[Path(made.files)]["u"][1:3], made.channels)
    elif "resolution" not in options_of(made.name):  # where it is one, it was refused with the shapes
        plain = type(made)(files=made.files, **asked)
        _refuse_others(made, plain.grid_geometry.shape, plain.channels)
    return found


def stamps_of(made: Problem) -> dict[str, dict[str, object]]:
    """What tells the files of a problem from changed ones, as the stamps of its data do."""
    if isinstance(made, Published):
        return stamps_of_published(made.name, made.files)
    return {name: stamp_of(file) for name, file in made.sources.items()}


def cut_of(made: Problem) -> dict[str, Any]:
    """How a problem that has `sources` cuts its samples, as the stamps of its data tell it; None: the files tell."""
    if isinstance(made, Published):
        options = options_of(made.name) | _asked(made)
        return {"samples": [options["train"] or None, options["valid"], options["test"]]}
    assert isinstance(made, Own)
    return {"samples": list(made.counts), "shuffle_seed": made.seed if made.shuffle else None}


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
