"""Original files of the benchmarks: `hofno.read(problem, path)` gives the dataset that the file holds.

Splits follow the published ones: the first samples train, the last ones test. A file holds no samples beyond these, so
validation samples are the last ones before the test samples and are not trained on; `valid=0` trains on all of them, as
published, and watches nothing.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hofno.data.dataset import Dataset, trajectory_dataset
from hofno.errors import SpecError
from hofno.geometry import Grid
from hofno.problems.base import Rollout
from hofno.problems.navier_stokes import CARD, read_published
from hofno.problems.trajectories import published_test, split_frames, usual_valid


def read(problem: str, path: str | Path, **options: Any) -> Dataset:
    """Read an original file, e.g. ``read("navier_stokes", "NavierStokes_V1e-5_N1200_T20.mat", history=10)``.

    Args:
        problem: name of the benchmark.
        path: the file as it was published.
        options: how it is cut; for navier_stokes: history, start, horizon, train, valid, test.
    """
    if problem not in READERS:
        raise SpecError(f"there is no reader of original files for {problem!r}; there are: {', '.join(READERS)}")
    known = [name for name in inspect.signature(READERS[problem]).parameters if name != "path"]
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(known)}"
            raise SpecError(f"reading {problem!r} has no option {name!r}; {hint}")
        if type(value) is not int or value < 0:
            raise SpecError(f"{name} is a whole number of at least 0; got {value!r}")
    return READERS[problem](Path(path), **options)


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
    start = start or history
    horizon = horizon or max(1, count - start)
    test = published_test(samples) if test is None else test
    valid = usual_valid(samples) if valid is None else valid
    train = train or samples - valid - test
    if min(train, test) < 1 or train + valid + test > samples:
        raise SpecError(
            f"{path} holds {samples} samples; train={train}, valid={valid} and test={test} must fit in them, with at "
            "least one to train and one to test; lower one of them"
        )
    if not 1 <= history <= start or start + horizon > count:
        raise SpecError(
            f"{path} holds {count} frames; got history={history}, start={start}, horizon={horizon}; 1 <= history <= "
            "start and start + horizon <= frames are needed: lower one of them"
        )
    rollout, last = Rollout(history, horizon), samples - test
    rows = slice(train), slice(last - valid, last), slice(last, samples)
    found = split_frames(frames, *rows, rollout, start)
    stamp = {"problem": "navier_stokes", "file": path.name, "samples": [train, valid, test], "start": start}
    grid = Grid(shape=tuple(frames.shape[2:]), periodic=True)
    return trajectory_dataset(found, grid, rollout, "original", stamp, CARD)


READERS: dict[str, Callable[..., Dataset]] = {"navier_stokes": _navier_stokes}
