"""The original files of Airfoil, and what the published protocol takes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hofno.errors import DataError
from hofno.problems.airfoil_mesh import FOIL_CELLS, NORMAL_CELLS, WAKE_CELLS
from hofno.problems.base import Arrays
from hofno.problems.npyfile import open_npy
from hofno.solvers.memory import free_bytes, gibibytes

FILES = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
"""The original files."""

PUBLISHED_SPLITS: dict[str, slice] = {"train": slice(0, 1000), "test": slice(1000, 1200)}
"""Samples of the original files that the published protocol trains and tests on; the other 1290 are not used."""


def open_published(folder: str | Path) -> list[np.ndarray]:
    """The arrays of the original files as they lie there, of their shapes."""
    place, mesh = Path(folder), (2 * WAKE_CELLS + FOIL_CELLS + 1, NORMAL_CELLS + 1)
    x, y, q = found = [open_npy(place / name, axes) for name, axes in zip(FILES, (3, 3, 4), strict=True)]
    n = len(x)
    if n == 0 or x.shape != (n, *mesh) or y.shape != (n, *mesh) or q.shape != (n, 5, *mesh):
        raise DataError(
            f"{place}: expected X and Y of shape (n, {mesh[0]}, {mesh[1]}), Q of shape (n, 5, {mesh[0]}, {mesh[1]}); "
            f"got {x.shape}, {y.shape}, {q.shape}; get the files again"
        )
    return found


def read_published(folder: str | Path) -> Arrays:
    """All samples of the original files in a folder: x = nodes (n, 2, 221, 51), y = Mach (n, 1, 221, 51), float32.

    NACA_Cylinder_X.npy and NACA_Cylinder_Y.npy are (n, 221, 51), NACA_Cylinder_Q.npy is (n, 5, 221, 51) with rho, u, v,
    p and Mach, n = 2490. The published protocol is PUBLISHED_SPLITS, with nothing normalised and relative L2 as loss.
    """
    place = Path(folder)
    x, y, q = open_published(place)
    n, *mesh = x.shape
    needed, free = 4 * 3 * x.size, free_bytes("cpu")
    if free is not None and needed > free:
        raise DataError(f"{place} needs {gibibytes(needed)} of memory and {gibibytes(free)} are free; free some memory")
    found = Arrays(np.empty((n, 2, *mesh), np.float32), np.empty((n, 1, *mesh), np.float32))
    for sample in range(n):
        found.x[sample, 0], found.x[sample, 1], found.y[sample, 0] = x[sample], y[sample], q[sample, 4]
        if not (np.isfinite(found.x[sample]).all() and np.isfinite(found.y[sample]).all()):
            raise DataError(f"{place}: sample {sample} holds values that are not finite; get the files again")
    if (found.x[:, 0, 0, 0] < np.abs(found.x[:, 1, 0, 0])).any():
        raise DataError(
            f"{place}: the wake must leave in the direction of x; got it along y, as if {FILES[0]} and {FILES[1]} had "
            "changed places; put them back"
        )
    sides = found.x[:, :, : WAKE_CELLS + 1, 0], found.x[:, :, : -WAKE_CELLS - 2 : -1, 0]
    if not np.allclose(*sides, rtol=0, atol=1e-5):
        raise DataError(f"{place}: the two sides of the wake cut do not meet: this is not the published C-grid")
    return found


def published_splits(whole: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Training and test part of the original files, as published."""
    needed = PUBLISHED_SPLITS["test"].stop
    if len(whole.x) < needed:
        raise DataError(f"the published splits need {needed} samples; got {len(whole.x)}; read the original files")
    for name, part in PUBLISHED_SPLITS.items():
        yield name, Arrays(whole.x[part], whole.y[part])
