"""Samples of Plasticity as arrays, and the original file of them.

A sample is the profile of a die and 20 frames of the block under it; a model may take it as one field with time as the
third axis, or frame by frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hofno.errors import DataError
from hofno.problems.base import Arrays
from hofno.problems.matfile import read_mat, shape_in_mat

FILE = "plas_N987_T20.mat"
FRAMES = 20
WIDTH, HEIGHT, COLUMNS, ROWS = 50.0, 15.0, 100, 30
ORIGIN = (-49.65, -0.1)
"""Where the lower left corner of the undeformed block is in the published coordinates."""

_PUBLISHED = {"train": slice(0, 900), "valid": slice(900, 907), "test": slice(907, 987)}
ROOM = {name: rows.stop - rows.start for name, rows in _PUBLISHED.items()}
"""Samples of the original file for each split."""


@dataclass(frozen=True)
class Pressed:
    """Samples, float32: die heights (n, I) at the top of the undeformed block, frames (n, 20, 4, I, J) in mm.

    The channels are x, y, u_x, u_y. Node i is the i-th from the right, node j the j-th from the top; die height k is
    the k-th from the left, as published, or from the right if the samples are aligned.
    """

    die: np.ndarray
    frames: np.ndarray

    def arrays(self, form: str) -> Arrays:
        """The samples as a problem of that form has them."""
        return self.grid() if form == "volume" else self.by_time()

    def grid(self) -> Arrays:
        """One sample for each block: die (n, 1, I, J, 20), the same along J and time, to y (n, 4, I, J, 20).

        The relative L2 error of such a sample, over all values, is the published metric.
        """
        _, times, _, _, rows = self.frames.shape
        y = np.ascontiguousarray(self.frames.transpose(0, 2, 3, 4, 1))
        return Arrays(inputs_of(self.die, "volume", rows, times), y)

    def by_time(self) -> Arrays:
        """One sample for each frame, as published models are called: die and time in [0, 1], x (n 20, 2, I, J), y."""
        _, times, channels, columns, rows = self.frames.shape
        return Arrays(inputs_of(self.die, "frames", rows, times), self.frames.reshape(-1, channels, columns, rows))


def inputs_of(die: np.ndarray, form: str, rows: int, times: int = FRAMES) -> np.ndarray:
    """Inputs of the samples under dies (n, I), float32: volumes (n, 1, I, J, 20), or frames (n 20, 2, I, J)."""
    n, columns = die.shape
    if form == "volume":
        x = np.broadcast_to(die[:, None, :, None, None], (n, 1, columns, rows, times))
        return np.ascontiguousarray(x, np.float32)
    x = np.empty((n, times, 2, columns, rows), np.float32)
    x[:, :, 0] = die[:, None, :, None]
    x[:, :, 1] = np.linspace(0, 1, times)[:, None, None]
    return x.reshape(-1, 2, columns, rows)


@dataclass(frozen=True)
class Account:
    """What the simulations of samples say about themselves, float64, (n,) each and as parts of the die's work."""

    imbalance: np.ndarray
    kinetic: np.ndarray
    hourglass: np.ndarray
    penetration: np.ndarray  # of nodes, mm, largest of all frames
    edges: np.ndarray  # of the top edge between nodes, mm, likewise
    halvings: np.ndarray  # how often the step was halved


def published_file(path: str | Path) -> Path:
    """The original file, of which the folder may be given."""
    path = Path(path)
    return path / FILE if path.is_dir() else path


def check_published(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in the original file, by its head; refused where they are others."""
    found = {name: shape_in_mat(path, name, axes) for name, axes in (("input", 2), ("output", 5))}
    n = _PUBLISHED["test"].stop
    expected = {"input": (n, COLUMNS + 1), "output": (n, COLUMNS + 1, ROWS + 1, FRAMES, 4)}
    if found != expected:
        raise DataError(
            f"{path}: expected 'input' {expected['input']} and 'output' {expected['output']}; got {found['input']} and "
            f"{found['output']}; it is not the published file: get it again"
        )
    return found


def read_published(path: str | Path) -> dict[str, Pressed]:
    """The original file, or the folder it is in, split as published: the first 900 train, the last 80 test.

    `plas_N987_T20.mat` holds `input` (987, 101) and `output` (987, 101, 31, 20, 4). The 7 samples in between, which the
    published protocol leaves out, are "valid".
    """
    path = published_file(path)
    check_published(path)
    die, frames = read_mat(path, "input", (0, 1)), read_mat(path, "output", (0, 3, 4, 1, 2))
    expected = reference_nodes()
    for sample in frames:
        if not np.allclose(sample[:, :2] - sample[:, 2:], expected, rtol=0, atol=1e-3):
            raise DataError(
                f"{path}: positions less displacements are not the undeformed nodes; it is not the published file: get "
                "it again"
            )
    return {split: Pressed(die[part], frames[part]) for split, part in _PUBLISHED.items()}


def reference_nodes() -> np.ndarray:
    """The published undeformed nodes, x = 0.35 - 0.5 i, y = 14.9 - 0.5 j. (2, 101, 31), float32"""
    x, y = np.arange(COLUMNS, -1, -1) * WIDTH / COLUMNS, np.arange(ROWS, -1, -1) * HEIGHT / ROWS
    return np.stack(np.meshgrid(x + ORIGIN[0], y + ORIGIN[1], indexing="ij")).astype(np.float32)


def published_normaliser(die: np.ndarray) -> tuple[float, float]:
    """Shift and scale of the die heights, from the training split: encoded = (die - shift) / scale.

    One mean and one standard deviation (+ 1e-8) of all values; the target is left as it is.
    """
    return float(die.mean(dtype=np.float64)), float(die.std(dtype=np.float64, ddof=1)) + 1e-8
