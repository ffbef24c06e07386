"""From one array of trajectories to the splits of a problem in time, without a copy.

    samples  0 ............ train .......... train + test ......... train + test + valid
             training        test                     validation

    frames   0 ... history ............................. start + horizon ..... last
    training x |   y: every frame that may be trained on        |
    scoring            x: the last `history` before start | y: horizon frames | later

Published sets are split so that the test samples are their last ones. Validation samples are more trajectories of the
same stream, so that training has all samples that the published protocol trains on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hofno.errors import SpecError
from hofno.problems.base import Arrays, Rollout, Trajectories

MOST_TEST, MOST_VALID = 200, 100


def published_test(samples: int) -> int:
    """Test samples of a set of `samples`: the last 200, and no more than a sixth."""
    return min(MOST_TEST, max(1, samples // 6))


def usual_valid(samples: int) -> int:
    """Validation samples that are added to a set of `samples`: 100, and no more than a twelfth."""
    return min(MOST_VALID, max(1, samples // 12))


def misfit_of_fixed(found: tuple[int, ...], samples: int, grid: tuple[int, ...]) -> str:
    """What is wrong with the shape of fields that do not change in time, (n, c, *grid); empty if nothing is."""
    if len(found) >= 3 and (found[0], *found[2:]) == (samples, *grid) and found[1] > 0:
        return ""
    expected, single = ", ".join(map(str, (samples, "channels", *grid))), found == (samples, *grid)
    remedy = "a single one needs its axis: fixed[:, None]" if single else "give such fields for every trajectory"
    return f"fixed must be ({expected}), on the grid of frames; got shape {found}; {remedy}"


@dataclass(frozen=True)
class Cut:
    """Samples of each split of a file of trajectories, and the frames that are taken and predicted."""

    train: int
    valid: int
    test: int
    start: int
    rollout: Rollout


def cut_file(
    path: Path,
    samples: int,
    count: int,
    history: int = 10,
    start: int = 0,
    horizon: int = 0,
    train: int = 0,
    valid: int | None = None,
    test: int | None = None,
) -> Cut:
    """How a file of `samples` with `count` frames is cut; `start`, `horizon`, `train` are all there is where 0."""
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
    return Cut(train, valid, test, start, Rollout(history, horizon))


def split_frames(
    frames: np.ndarray, train: slice, valid: slice, test: slice, rollout: Rollout, start: int
) -> Trajectories:
    """Views of `frames` (n, T, *grid); `start` is the first frame that is predicted where errors are measured.

    Frames of several fields have that many channels each, (n, T fields, *grid).
    """
    history, start, end = (rollout.fields * count for count in (rollout.history, start, start + rollout.horizon))
    scored = {
        name: Arrays(frames[rows, start - history : start], frames[rows, start:end])
        for name, rows in (("valid", valid), ("test", test))
    }
    trained = Arrays(frames[train, :history], frames[train, history:end])
    return Trajectories({"train": trained, **scored}, frames, frames[test, end:])
