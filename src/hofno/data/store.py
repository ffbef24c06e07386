"""Generated data on disk: one folder for each set of parameters, keyed by their hash, made once and verified when read.

Trajectories are kept in parts as they are made, keyed by what makes one sample: an interrupted generation goes on, more
samples extend what is there, and protocols that cut the same flow differently share it. So are solved samples of steady
problems that take minutes each, in a folder beside those of the data that are made of them.

The store is the folder named by the environment variable HOFNO_DATA, or .hofno/data below the working directory.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hofno import storage
from hofno.data.dataset import Dataset, Split, split_of, trajectory_dataset
from hofno.data.files import dataset_of_files
from hofno.data.npy import npy_bytes, npy_on_disk, read_npy
from hofno.data.ondisk import fits
from hofno.device import find_device
from hofno.errors import CheckpointError, DataError, SpecError
from hofno.geometry import Points
from hofno.problems.base import Arrays, Problem, Progress, ignore_progress, of_revision
from hofno.problems.kept_samples import KeepsSamples
from hofno.problems.registry import problem as make_problem
from hofno.show import telling
from hofno.solvers.memory import arrays_on_disk, free_bytes, gibibytes
from hofno.storage import fingerprint
from hofno.storage.files import is_stale_temporary, temporary_beside
from hofno.versions import versions

SPLITS = ("train", "valid", "test")


def store_folder() -> Path:
    return Path(os.environ.get("HOFNO_DATA", Path(".hofno") / "data"))


def data_folder(problem: str, parameters: dict[str, Any], store: Path) -> Path:
    """Where the data of these parameters are kept, or would be."""
    made = make_problem(problem, parameters)
    return store / f"{problem}-{fingerprint([problem, made.identity()])}"


def generate(
    problem: str,
    *,
    store: str | Path | None = None,
    progress: bool | Progress = False,
    device: str = "auto",
    **parameters: Any,
) -> Dataset:
    """Generate a benchmark from its PDE, e.g. ``generate("poisson", degree=2, train=1000, test=200, seed=0)``.

    With ``files=...`` its published files are read instead, and "arrays" and "trajectories" are files of your own.

    Args:
        problem: name of the benchmark, see ``hofno list``.
        store: folder to keep the data in and to read them from if they are there; None keeps them in memory only.
        progress: show a bar; or called as progress(stage, done, total), in samples, of problems in time in frames.
        device: where to solve: "auto", "cpu" or "cuda". Problems that take seconds on the CPU are made there.
        parameters: the parameters of the benchmark, see ``hofno show --problem``.
    """
    with telling(progress) as told:
        return _made(problem, parameters, None if store is None else Path(store), told, device, again=False)


def generate_again(
    problem: str, parameters: dict[str, Any], store: Path, progress: Progress = ignore_progress, device: str = "auto"
) -> Dataset:
    """As `generate`, for data that may be stored already: they are made, and then take the place of those there."""
    return _made(problem, parameters, store, progress, device, again=True)


def _made(
    problem: str, parameters: dict[str, Any], store: Path | None, progress: Progress, device: str, *, again: bool
) -> Dataset:
    made = make_problem(problem, parameters)
    if made.sources:
        return dataset_of_files(made)
    stamp = {"problem": problem, "parameters": made.parameters()} | of_revision(made.solver_revision)
    if made.rollout is not None:
        folder = None if store is None else data_folder(problem, parameters, store)
        simulated = made.simulate(progress, folder, str(find_device(device)), again)
        return trajectory_dataset(
            simulated, made.grid_geometry, made.rollout, "generated", stamp, made.card, made.symmetry
        )
    on_disk = _too_large(made, store, again)
    where = str(find_device(device))
    stamp |= {"versions": versions(), "threads": torch.get_num_threads()}
    if store is None:
        return _dataset(made, made.generate_on(where, progress), stamp)
    folder = data_folder(problem, parameters, store)
    if again:
        storage.remove_damaged(folder)
    elif made.is_kept(folder):
        try:
            return _stored(made, folder, storage.verify_folder(folder))
        except CheckpointError as error:
            raise DataError(f"the stored data cannot be used: {error}; delete {folder} to make them again") from None
    with _room_beside(folder) if on_disk else nullcontext() as room, arrays_on_disk(room):
        arrays = _generated(made, store, where, progress, again)
        parts = _parts(made)
        files = {f"{name}.{part}.npy": _npy(getattr(arrays[name], part)) for name in SPLITS for part in parts}
        storage.save_folder(folder, files, stamp)
    return _stored(made, folder, stamp) if on_disk else _dataset(made, arrays, stamp)


def _generated(made: Problem, store: Path, device: str, progress: Progress, again: bool) -> dict[str, Arrays]:
    """The splits; where a sample takes minutes, solved ones are kept, for all data that are made of them."""
    if not isinstance(made, KeepsSamples):
        return made.generate_on(device, progress)
    return made.generate_kept(device, progress, store / f"{made.name}-samples-{fingerprint(made.solution())}", again)


def _too_large(made: Problem, store: Path | None, again: bool) -> bool:
    """Whether the data do not fit into memory while they are made and stored; refused if not on the disk either."""
    size, free = made.memory_bytes(), free_bytes("cpu")
    if free is None or 3 * size <= free:
        return False
    if store is None:
        raise SpecError(
            f"these data need about {gibibytes(3 * size)} of memory and {gibibytes(free)} are free; ask for fewer "
            "samples or a lower resolution, or give a store to make them on disk"
        )
    is_there = not again and made.is_kept(data_folder(made.name, made.parameters(), store))
    if not is_there and not storage.disk_has_room(store, 2 * size):
        raise SpecError(
            f"these data need more memory than is free, or {gibibytes(2 * size)} on the disk of {store}; free some "
            "space, or ask for fewer samples or a lower resolution"
        )
    return True


@contextmanager
def _room_beside(folder: Path) -> Iterator[Path]:
    """A folder for arrays that are being made, gone afterwards; those that killed processes left behind go too."""
    room = temporary_beside(folder)
    room.mkdir(parents=True)
    for entry in folder.parent.iterdir():
        if is_stale_temporary(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _npy(array: np.ndarray) -> Any:
    """The bytes of the .npy file of an array: of one that lies in such a file, mapped."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return npy_bytes(array)
    array.flush()
    with open(array.filename, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _parts(made: Problem) -> tuple[str, ...]:
    """What is stored of a split."""
    return ("x", "y", "coords") if isinstance(made.grid_geometry, Points) else ("x", "y")


def _stored(made: Problem, folder: Path, stamp: dict[str, Any]) -> Dataset:
    """The data of a folder: read where they fit into memory, else left there."""
    files = {name: [folder / f"{name}.{part}.npy" for part in _parts(made)] for name in SPLITS}
    if fits(sum(file.stat().st_size for parts in files.values() for file in parts)):
        return _dataset(made, {name: Arrays(*map(read_npy, parts)) for name, parts in files.items()}, stamp)
    return _of_problem(made, {name: _left(files[name], made.together) for name in SPLITS}, stamp)


def _left(files: list[Path], together: int) -> Split:
    """A split whose numbers stay in their files."""
    x, y, *coords = map(npy_on_disk, files)
    return Split(x, y, coords[0] if coords else None, together=together)


def _dataset(made: Problem, arrays: dict[str, Arrays], stamp: dict[str, Any]) -> Dataset:
    return _of_problem(made, {name: split_of(arrays[name], made.together) for name in SPLITS}, stamp)


def _of_problem(made: Problem, splits: dict[str, Split], stamp: dict[str, Any]) -> Dataset:
    train, valid, test = (splits[name] for name in SPLITS)
    grid, symmetry = made.grid_geometry, made.symmetry
    return Dataset(train, valid, test, grid, "generated", stamp, made.card, symmetry=symmetry)
