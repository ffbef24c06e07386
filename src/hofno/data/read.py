"""Original files of the benchmarks: `hofno.read(problem, path)` gives the dataset that the files hold.

Splits follow the published ones. A file of trajectories holds no samples beyond these, so validation samples are the
last ones before the test samples and are not trained on; `valid=0` trains on all of them, as published, and watches
nothing.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hofno.data.dataset import Dataset, Split, split_of, trajectory_dataset
from hofno.data.heads import check_airfoil, check_count, published_files
from hofno.data.stamps import stamp_of
from hofno.errors import SpecError
from hofno.geometry import Grid
from hofno.problems import airfoil, airfoil_files, darcy, elasticity, pipe, pressed
from hofno.problems.base import Arrays, Problem
from hofno.problems.navier_stokes import CARD
from hofno.problems.registry import problem as make_problem
from hofno.problems.symmetry import driven_flow, square
from hofno.problems.trajectories import cut_file, split_frames
from hofno.problems.vorticity_checks import read_published


def read(problem: str, path: str | Path, **options: Any) -> Dataset:
    """Read an original file, e.g. ``read("navier_stokes", "NavierStokes_V1e-5_N1200_T20.mat", history=10)``.

    Args:
        problem: name of the benchmark.
        path: the file as it was published, or the folder of the files where there are several.
        options: how it is cut; for navier_stokes: history, start, horizon, train, valid, test; for darcy: resolution,
            train, valid, test; for plasticity: form, aligned, train, valid, test; for the others: train, valid, test.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise SpecError(f"path is the name of a file or folder, a str or a Path; got {path!r}; give such a one")
    if problem not in READERS:
        raise SpecError(f"there is no reader of original files for {problem!r}; there are: {', '.join(READERS)}")
    known = options_of(problem)
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(known)}"
            raise SpecError(f"reading {problem!r} has no option {name!r}; {hint}")
        if isinstance(known[name], bool):
            if type(value) is not bool:
                raise SpecError(f"{name} is true or false; got {value!r}")
        elif not isinstance(known[name], str) and (type(value) is not int or value < 0):
            raise SpecError(f"{name} is a whole number of at least 0; got {value!r}")
    data = READERS[problem](Path(path), **options)
    return replace(data, stamp={**data.stamp, "files": stamps_of_published(problem, path)})


def stamps_of_published(problem: str, path: str | Path) -> dict[str, dict[str, object]]:
    """What tells the published files of a benchmark from changed ones, by their names."""
    return {file.name: stamp_of(file) for file in published_files(problem, path) if file.is_file()}


def options_of(problem: str) -> dict[str, Any]:
    """What can be asked of the files of a benchmark, and what is unless it is asked."""
    found = inspect.signature(READERS[problem]).parameters
    return {name: value.default for name, value in found.items() if name not in ("path", "folder")}


def _navier_stokes(
    path: Path,
    history: int = 10,
    start: int = 0,
    horizon: int = 0,
    train: int = 0,
    valid: int | None = None,
    test: int | None = None,
) -> Dataset:
    """Frames of one file; `start`, `horizon` and `train` are all there is where they are 0."""
    frames = read_published(path)  # (n, T, h, w)
    samples, count = frames.shape[:2]
    cut = cut_file(path, samples, count, history, start, horizon, train, valid, test)
    train, valid, test, start, last = cut.train, cut.valid, cut.test, cut.start, samples - cut.test
    rows = slice(train), slice(last - valid, last), slice(last, samples)
    found = split_frames(frames, *rows, cut.rollout, start)
    stamp = {"problem": "navier_stokes", "samples": [train, valid, test], "start": start}
    grid = Grid(shape=tuple(frames.shape[2:]), periodic=True)
    return trajectory_dataset(found, grid, cut.rollout, "original", stamp, CARD, driven_flow())


def _darcy(folder: Path, resolution: int = 85, train: int = 1000, valid: int = 100, test: int = 200) -> Dataset:
    """Coefficients and solutions of the two files."""
    arrays = darcy.read_published(folder, resolution, train, valid, test)
    splits = {name: split_of(split) for name, split in arrays.items()}
    stamp = {"problem": "darcy", "samples": [train, valid, test], "resolution": resolution}
    grid = Grid(shape=(resolution, resolution), periodic=False)
    parts = splits["train"], splits["valid"], splits["test"]
    return Dataset(*parts, grid, "original", stamp, darcy.CARD, symmetry=square())


def _original(splits: dict[str, Split], made: Problem, stamp: dict[str, Any]) -> Dataset:
    """The dataset of a problem's original files, on its grid and with its symmetry."""
    parts = splits["train"], splits["valid"], splits["test"]
    return Dataset(*parts, made.grid_geometry, "original", stamp, made.card, symmetry=made.symmetry)


def _elasticity(folder: Path, train: int = 1000, valid: int = 100, test: int = 200) -> Dataset:
    """Points and stresses of the files; validation samples are some that the published protocol leaves out."""
    asked = {"train": train, "valid": valid, "test": test}
    found = {name: split_of(arrays) for name, arrays in elasticity.read_published(folder).items()}
    for name, count in asked.items():
        check_count(name, count, len(found[name]))
    splits = {name: found[name][:count] for name, count in asked.items()}
    stamp = {"problem": "elasticity", "samples": [train, valid, test]}
    return _original(splits, elasticity.Elasticity(), stamp)  # pyright: ignore[reportCallIssue]


def _pipe(folder: Path, train: int = 1000, valid: int = 100, test: int = 200) -> Dataset:
    """Meshes and horizontal velocities of the files."""
    found = {name: split_of(part) for name, part in pipe.read_published(folder, train, valid, test).items()}
    stamp = {"problem": "pipe", "samples": [train, valid, test]}
    return _original(found, pipe.Pipe(), stamp)  # pyright: ignore[reportCallIssue]


def _airfoil(folder: Path, train: int = 1000, valid: int = 100, test: int = 200) -> Dataset:
    """Meshes and Mach numbers of the files; validation samples are those after the published ones."""
    whole = airfoil_files.read_published(folder)
    check_airfoil(folder, len(whole.x), train, valid, test)
    found: dict[str, Split] = {}
    learnt, tested = (airfoil_files.PUBLISHED_SPLITS[name] for name in ("train", "test"))
    for name, first, count in (
        ("train", learnt.start, train),
        ("test", tested.start, test),
        ("valid", tested.stop, valid),
    ):
        rows = slice(first, first + count)
        found[name] = split_of(Arrays(whole.x[rows], whole.y[rows]))
    stamp = {"problem": "airfoil", "samples": [train, valid, test]}
    return _original(found, airfoil.Airfoil(), stamp)  # pyright: ignore[reportCallIssue]


def _plasticity(
    folder: Path, form: str = "volume", aligned: bool = False, train: int = 900, valid: int = 7, test: int = 80
) -> Dataset:
    """Dies and frames of the file; validation samples are those that the published protocol leaves out."""
    made = make_problem("plasticity", {"form": form, "aligned": aligned})
    whole = pressed.read_published(folder)
    found: dict[str, Split] = {}
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        check_count(name, count, len(whole[name].die))
        die = whole[name].die[:count]
        chosen = pressed.Pressed(die[:, ::-1].copy() if aligned else die, whole[name].frames[:count])
        found[name] = split_of(chosen.arrays(form), made.together)
    stamp = {"problem": "plasticity", "samples": [train, valid, test], "form": form}
    stamp |= {"aligned": True} if aligned else {}
    return _original(found, made, stamp)


READERS: dict[str, Callable[..., Dataset]] = {
    "airfoil": _airfoil,
    "darcy": _darcy,
    "elasticity": _elasticity,
    "navier_stokes": _navier_stokes,
    "pipe": _pipe,
    "plasticity": _plasticity,
}
