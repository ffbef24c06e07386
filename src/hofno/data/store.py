"""Generated data on disk: one folder for each set of parameters, keyed by their hash, made once and verified when read.

Trajectories are kept in parts as they are made, keyed by what makes one sample: an interrupted generation goes on, more
samples extend what is there, and protocols that cut the same flow differently share it.

The store is the folder named by the environment variable HOFNO_DATA, or .hofno/data below the working directory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from hofno import storage
from hofno.data.dataset import Dataset, split_of, trajectory_dataset
from hofno.data.device import find_device
from hofno.data.npy import npy_bytes, read_npy
from hofno.errors import CheckpointError, DataError, SpecError
from hofno.geometry import Points
from hofno.problems.base import Arrays, Problem, Progress, ignore_progress
from hofno.problems.registry import problem as make_problem
from hofno.spec import fingerprint
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
    progress: Progress = ignore_progress,
    device: str = "auto",
    **parameters: Any,
) -> Dataset:
    """Generate a benchmark from its PDE, e.g. ``generate("poisson", degree=2, train=1000, test=200, seed=0)``.

    Args:
        problem: name of the benchmark, see ``hofno list``.
        store: folder to keep the data in and to read them from if they are there; None keeps them in memory only.
        progress: called as progress(stage, done, total).
        device: where to solve: "auto", "cpu" or "cuda". Problems that take seconds on the CPU are made there.
        parameters: the parameters of the benchmark, see ``hofno show --problem``.
    """
    made = make_problem(problem, parameters)
    if made.rollout is not None:
        folder = None if store is None else data_folder(problem, parameters, Path(store))
        simulated = made.simulate(progress, folder, str(find_device(device)))
        stamp = {"problem": problem, "parameters": made.parameters()}
        return trajectory_dataset(simulated, made.grid_geometry, made.rollout, "generated", stamp, made.card)
    _refuse_too_large(made)
    where = str(find_device(device))
    stamp = {
        "problem": problem,
        "parameters": made.parameters(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    if store is None:
        return _dataset(made, made.generate_on(where, progress), stamp)
    folder = data_folder(problem, parameters, Path(store))
    if folder.exists():
        try:
            stamp = storage.verify_folder(folder)
            return _dataset(made, {name: _read(made, folder, name) for name in SPLITS}, stamp)
        except CheckpointError as error:
            raise DataError(f"the stored data cannot be used: {error}; delete {folder} to make them again") from None
    arrays = made.generate_on(where, progress)
    parts = _parts(made)
    files = {f"{name}.{part}.npy": npy_bytes(getattr(arrays[name], part)) for name in SPLITS for part in parts}
    storage.save_folder(folder, files, stamp)
    return _dataset(made, arrays, stamp)


def _refuse_too_large(made: Problem) -> None:
    needed = 3 * made.memory_bytes()
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if needed > free:
        raise SpecError(
            f"these data need about {needed / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are free; "
            "ask for fewer samples or a lower resolution"
        )


def _parts(made: Problem) -> tuple[str, ...]:
    """What is stored of a split."""
    return ("x", "y", "coords") if isinstance(made.grid_geometry, Points) else ("x", "y")


def _read(made: Problem, folder: Path, name: str) -> Arrays:
    return Arrays(*(read_npy(folder / f"{name}.{part}.npy") for part in _parts(made)))


def _dataset(made: Problem, arrays: dict[str, Arrays], stamp: dict[str, Any]) -> Dataset:
    train, valid, test = (split_of(arrays[name]) for name in SPLITS)
    return Dataset(train, valid, test, made.grid_geometry, "generated", stamp, made.card)


def forget(problem: str, parameters: dict[str, Any], store: Path) -> bool:
    """Delete the stored data of these parameters; say whether there were any."""
    folder = data_folder(problem, parameters, store)
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True
