"""Data that a spec reads from files: published ones of a benchmark, or the user's own."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from hofno.data.arrays import from_arrays
from hofno.data.dataset import Dataset
from hofno.data.read import options_of, read
from hofno.data.series import from_trajectories
from hofno.errors import DataError
from hofno.problems.base import Problem, Published
from hofno.problems.own import OwnArrays, OwnTrajectories, open_array

END = 2**20  # bytes at each end of a file that its stamp knows


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
    stamp = {"problem": made.name, "files": {name: _stamp(file) for name, file in made.sources.items()}}
    return replace(data, stamp={**data.stamp, **stamp}, card=made.card)


def _published(made: Published) -> Dataset:
    """The published files, cut as the problem says; they must be what it says they are."""
    asked = {name: getattr(made, name) for name in options_of(made.name) if name in made.model_fields_set}
    data = read(made.name, made.files, **asked)
    shape, expected = data.grid.shape, made.grid_geometry.shape
    if shape != expected:
        raise DataError(
            f"the samples of {made.files} have {_by(shape)} points and the spec describes {_by(expected)}; give the "
            "parameters of the published set, or leave out those that change its grid"
        )
    if (data.in_channels, data.out_channels) != made.channels:
        raise DataError(
            f"{made.files} gives {data.in_channels} to {data.out_channels} channels and the spec describes "
            f"{made.channels[0]} to {made.channels[1]}; leave out the parameters that change them"
        )
    return data


def _stamp(file: str) -> dict[str, object]:
    """What tells a file from a changed one of the same name, a copy of it not: its size, and a hash of its two ends."""
    with Path(file).open("rb") as opened:
        head = opened.read(END)
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - END))
        ends = hashlib.sha256(head + opened.read(END)).hexdigest()
    return {"name": Path(file).name, "bytes": size, "sha256_of_ends": ends}


def changed_files(before: object, now: object) -> list[str]:
    """Names of the user's own files that are not what they were, by two stamps of data."""
    were, are = (stamp.get("files") if isinstance(stamp, dict) else None for stamp in (before, now))
    if not isinstance(were, dict) or not isinstance(are, dict):
        return []
    return [str(were[part].get("name", part)) for part in were if part in are and were[part] != are[part]]


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
