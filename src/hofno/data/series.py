"""Trajectories of the user's own, learnt one frame at a time and rolled out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hofno.data.arrays import check_symmetry, sample_counts
from hofno.data.dataset import Dataset, Rollout, Split, refuse_not_finite, trajectory_dataset, values_of
from hofno.data.ondisk import FileArray, Values, fits, joined, taken
from hofno.data.rounding import warn_of_rounding
from hofno.data.values import as_float32, refuse_masked
from hofno.errors import DataError
from hofno.exact import is_whole
from hofno.geometry import Grid
from hofno.problems.symmetry import Symmetry
from hofno.problems.trajectories import misfit_of_fixed, split_frames
from hofno.spec import check_seed

FEW, SHORTER = 8, 3
"""A first grid axis of fewer points than the first, and so many times shorter than the others, may be one of fields."""


def from_trajectories(
    frames: object,
    fixed: object | None = None,
    *,
    fields: bool = False,
    history: int = 1,
    horizon: int | None = None,
    start: int | None = None,
    periodic: bool = False,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = 0,
    symmetry: Symmetry | None = None,
) -> Dataset:
    """A dataset from frames (n, times, *grid) of one quantity in physical units, evenly spaced in time.

    A model takes `history` frames to the next one: `HOFNO(in_channels=history, out_channels=1, ...)`. Trained on it,
    `predict(frames[:, :history], steps=...)` feeds its predictions back to it, as many steps as are asked for.

    With `fields`, frames are (n, times, c, *grid) of c quantities, and those of a frame are c channels one after the
    other: a model takes history x c channels to c. Errors are over all fields as they are, so that large numbers weigh
    most; each field has its statistics and, beside these, its own error.

    Fields that differ between samples and do not change in time, such as a coefficient or a mask of obstacles, are
    `fixed`: the model takes them in every step as further channels, the first ones, and does not predict them. How many
    channels it takes in all is `in_channels` of the dataset.

    Args:
        frames: arrays or tensors, or an array mapped from a file (of several fields, in C order: others are read into
            memory), which stays there where it takes more than half of the free memory, or with seed=None.
        fixed: fields (n, c, *grid) that do not change in time, likewise; None: there are none.
        fields: whether the third axis of frames holds several quantities.
        history: frames that the model takes.
        horizon: frames that are predicted where errors are measured; all after `start` unless given.
        start: first frame that is predicted where errors are measured; `history` unless given.
        periodic: whether the grid is periodic (samples at i/n) or includes both ends of each axis.
        split: training, validation and test trajectories, as fractions that sum to 1 or as numbers.
        seed: seed of the shuffle before the split; None keeps the given order.
        symmetry: motions of the grid that take trajectories to trajectories, see `from_arrays`; the quantities are
            their targets, and fixed fields their inputs.
    """
    whole = _array(frames, "frames")
    if not isinstance(fields, bool | np.bool_):
        raise DataError(
            f"fields says whether frames have several: true or false; got {fields!r}; how many there are is the length "
            "of the third axis of (n, times, fields, *grid)"
        )
    before = 3 if fields else 2  # axes that are not the grid's
    if not 1 <= whole.ndim - before <= 3:
        expected = "(n, times, fields, *grid)" if fields else "(n, times, *grid)"
        raise DataError(f"frames must be {expected} with one to three grid axes; got shape {whole.shape}")
    samples, times = whole.shape[:2]
    history = _frames("history", history)
    first = history if start is None else _frames("start", start)
    steps = times - first if horizon is None else _frames("horizon", horizon)
    seed = None if seed is None else check_seed(seed)
    if not 1 <= history <= first or steps < 1 or first + steps > times:
        raise DataError(
            f"there are {times} frames; got history={history}, start={first}, horizon={steps}; 1 <= history <= start "
            "and start + horizon <= times are needed"
        )
    grid, count = Grid(shape=whole.shape[before:], periodic=periodic), whole.shape[2] if fields else 1
    kept = None if fixed is None else _checked_fixed(fixed, samples, grid)
    found = check_symmetry(symmetry, grid, inputs=0 if kept is None else kept.shape[1], targets=count)
    if found is not None and kept is not None and any(m.sign < 0 and not m.inputs.signs for m in found.motions):
        raise DataError(
            "a motion with sign=-1 turns fixed fields too; say what becomes of each: inputs=Channels(signs=..), -1 for "
            "those that keep their sign"
        )
    refuse_not_finite(values_of(whole), "frames")
    train, valid, test = sample_counts(split, samples)
    if not fields and len(grid.shape) > 1 and grid.shape[0] < min(FEW, 1 + min(grid.shape[1:]) // SHORTER):
        warnings.warn(
            f"frames {whole.shape} are taken for one quantity on a grid of {' x '.join(map(str, grid.shape))} points; "
            f"if their third axis holds {grid.shape[0]} quantities, give fields=True",
            stacklevel=2,
        )
    warn_of_rounding(frames, "frames", 2 if fields else None)
    if fixed is not None:
        warn_of_rounding(fixed, "fixed")
    whole, kept, order = _in_order(whole, kept, seed)
    rollout, every = Rollout(history, steps, count, 0 if kept is None else kept.shape[1]), slice(None)
    flat = _array(whole.reshape(samples, times * count, *grid.shape), "frames")
    stamp = {"origin": "user", "samples": [train, valid, test], "shuffle_seed": seed, "start": first}
    cut = split_frames(flat, every, every, every, rollout, first)
    data = trajectory_dataset(cut, grid, rollout, "user", stamp, "", symmetry)
    still = None if kept is None else values_of(_array(kept, "fixed"))
    rows = slice(train), slice(train, train + valid), slice(train + valid, train + valid + test)
    chosen = [part if order is None else order[part] for part in rows]
    splits = zip((data.train, data.valid, data.test), chosen, strict=True)
    learnt, watched, tested = (_some_of(split, still, part) for split, part in splits)
    assert data.trajectories is not None
    assert data.later is not None
    frames_of_all, later = taken(data.trajectories, every if order is None else order), taken(data.later, chosen[2])
    return replace(data, train=learnt, valid=watched, test=tested, trajectories=frames_of_all, later=later)


def _frames(name: str, count: object) -> int:
    """A number of frames, of Python or NumPy, as one that can be saved."""
    if not is_whole(count):
        raise DataError(f"{name} counts frames; got {count!r}; give a whole number")
    return int(count)


def _in_order(
    frames: np.ndarray, fixed: np.ndarray | None, seed: int | None
) -> tuple[np.ndarray, np.ndarray | None, Tensor | None]:
    """Trajectories in the order of a seed; where there is no room for that, as they are, and that order."""
    if seed is None:
        return frames, fixed, None
    order = np.random.default_rng(seed).permutation(len(frames))
    if not fits(4 * (frames.size + (0 if fixed is None else fixed.size))):
        return frames, fixed, torch.from_numpy(order)
    return frames[order], None if fixed is None else fixed[order], None


def _array(values: object, name: str) -> np.ndarray:
    """Float32 numbers; those of a file that is mapped stay there, as they are."""
    refuse_masked(values, name)
    if isinstance(values, np.ndarray) and FileArray.of(values) is not None:
        return values
    return as_float32(values, name).numpy()


def _checked_fixed(fixed: object, samples: int, grid: Grid) -> np.ndarray:
    """Fields that do not change in time, one set for each trajectory, on its grid."""
    kept = _array(fixed, "fixed")
    if wrong := misfit_of_fixed(kept.shape, samples, grid.shape):
        raise DataError(wrong)
    refuse_not_finite(values_of(kept), "fixed")
    return kept


def _some_of(split: Split, fixed: Values | None, rows: slice | Tensor) -> Split:
    """Some samples of a split, with fixed fields as the first channels of the inputs."""
    x, y = taken(split.parts.x, rows), taken(split.parts.y, rows)
    return Split(x if fixed is None else joined(taken(fixed, rows), x), y)
