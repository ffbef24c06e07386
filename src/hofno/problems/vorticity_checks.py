r"""What frames of vorticity on the torus show if all is well: of the solver's grid, and of a published file, read here.

    resolved        sum_{max|k| > 0.9 K} |w^|^2 <= 2e-3 sum |w^|^2,  K the largest wavenumber that is kept
    on a torus      |mean of a frame| <= 0.05 of its deviation, on a square grid
    in time         a frame is like the one that follows it, more than like another sample's

At nu = 1e-5 and t = 20 the share is 1e-2 on 64 points (frames wrong by 5 to 20 %), 4e-4 on 128 (1 to 6 %) and 1e-5 on
256, the published grid. At 1e-4 and 1e-3 it is below 1e-11 there. Means are at most 1e-3. Frames at t = 1 and 2 have a
correlation of 0.92, those of two samples one of -0.1 at t = 1 and of 0.5 later on, by their forcing.

Shapes: b samples, M modes; n samples of T frames on h x w points.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from torch import Tensor

from hofno.errors import DataError
from hofno.problems.matfile import read_mat, shape_in_mat
from hofno.solvers.vorticity import VorticitySolver

MOST_TAIL = 2e-3
LEAST_CUTOFF = 10  # fewer wavenumbers have no last tenth
MOST_MEAN = 0.05
MOST_LIKENESS = 0.3  # by which samples may be more alike than frames
LOOKED_AT = 8  # samples of a file
REORDER = "its axes are in another order: rearrange them, or get it again"


class ResolutionWatch:
    """Warns once where the solver's grid does not resolve the flow."""

    def __init__(self, solver: VorticitySolver) -> None:
        last = solver.wavenumbers.abs().amax(-1) > 0.9 * solver.cutoff  # (M,)
        self._tail = last.nonzero().flatten().to(solver.device)
        self._told = solver.cutoff < LEAST_CUTOFF

    def look(self, modes: Tensor, frame: int) -> None:
        """Look at the modes (b, M) of a frame, counted from 1."""
        if self._told:
            return
        share = tail_share(modes, self._tail)
        if share > MOST_TAIL:
            self._told = True
            warnings.warn(
                f"the solver's grid does not resolve this flow: {share:.2g} of the enstrophy of frame {frame} is in "
                f"the last tenth of the wavenumbers, expected at most {MOST_TAIL:g}; raise solver_resolution or "
                "viscosity",
                stacklevel=2,
            )


def tail_share(modes: Tensor, tail: Tensor) -> float:
    """Part of the enstrophy of all fields that is in the modes `tail`. (b, M), (m,)"""
    whole = float(modes.abs().square().sum())
    return float(modes[:, tail].abs().square().sum()) / whole if whole > 0 else 0.0


def check_published(path: Path) -> tuple[int, ...]:
    """The shape of `u` in an original file, (samples, x, y, frames), by its head; refused where x and y differ."""
    shape = shape_in_mat(path, "u", axes=4)
    if shape[1] != shape[2]:
        raise DataError(f"{_came(path, shape)}, where x and y differ; {REORDER}")
    return shape


def _came(path: Path, shape: tuple[int, ...]) -> str:
    return f"{path}: expected 'u' with axes (samples, x, y, frames); got shape {shape}"


def check_axes(path: Path, frames: np.ndarray) -> np.ndarray:
    """The frames (n, T, h, w) of a file, refused where its axes cannot be what they are taken for."""
    n, t, h, w = frames.shape
    came, remedy = _came(path, (n, h, w, t)), REORDER
    some = frames[:LOOKED_AT].astype(np.float64)
    mean, deviation = np.abs(some.mean((-2, -1))), some.std((-2, -1))
    if (mean > MOST_MEAN * deviation).any():
        raise DataError(f"{came}, where means over x and y are up to {mean.max():.2g}, not 0 as on a torus; {remedy}")
    if n > 1 and t > 1:
        in_time, in_samples = likeness(some[:-1, 0], some[:-1, 1]), likeness(some[:-1, 0], some[1:, 0])
        if in_samples > in_time + MOST_LIKENESS:
            raise DataError(
                f"{came}, where samples follow each other in time (correlation {in_samples:.2f}) and frames do not "
                f"({in_time:.2f}), as with axes (frames, y, x, samples); {remedy}"
            )
    return frames


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    """Mean correlation of pairs of fields. (n, h, w), (n, h, w)"""
    one, other = (field - field.mean((-2, -1), keepdims=True) for field in (one, other))
    product = (one * other).sum((-2, -1))
    size = np.sqrt((one**2).sum((-2, -1)) * (other**2).sum((-2, -1)))
    return float(np.divide(product, size, out=np.zeros_like(product), where=size > 0).mean())


def read_published(path: str | Path) -> np.ndarray:
    """Trajectories of an original file, v5 or v7.3: its variable `u` as (n, frames, h, w), float32.

    Axis h is x and axis w is y; frame 0 is t = 1.
    """
    check_published(Path(path))
    return check_axes(Path(path), read_mat(Path(path), "u", order=(0, 3, 1, 2)))
