"""`hofno evaluate RUN --set data.KEY=VALUE`: which other data a run may be tested on."""

from __future__ import annotations

import filecmp
from pathlib import Path

from hofno.errors import SpecError
from hofno.problems.base import OneSet, Problem
from hofno.problems.registry import problem
from hofno.spec import Spec


def refuse_known_samples(spec: Spec, changed: Spec) -> bool:
    """Refuse changes by which samples that the run was trained or validated on would be test samples.

    Splits that have random streams of their own never share samples. Of those that are cut out of one set, the cut must
    be that of the run, unless the set is another one. Returns whether it is that of the run.
    """
    own, other = (problem(each.data.problem, each.data.parameters) for each in (spec, changed))
    known, asked = own.one_set, other.one_set
    if known is None or asked is None or not _shared(own, other, known, asked):
        return False
    before, now = ({key: getattr(made, key, None) for key in known.cut_by} for made in (own, other))
    moved = [key for key in known.cut_by if before[key] != now[key]]
    given = [key for key in moved if spec.data.parameters.get(key) != changed.data.parameters.get(key)]
    for key in given or moved:
        raise SpecError(
            f"data.{key} of the run is {before[key]}; with {now[key]}, samples it was trained or validated on could be "
            f"test samples: leave data.{key} out, or {_other_samples(own, known)}"
        )
    return True


def refuse_unseen_motions(run: Path, changed: Spec) -> None:
    """Refuse predictions from moved samples by a run that has seen none; only training could mend that."""
    if changed.train.symmetric and not changed.train.augment:
        raise SpecError(
            f"train.symmetric=true predicts from moved samples too, and {run} was trained without them; leave it out, "
            "or train another run with train.augment=true"
        )


def _shared(own: Problem, other: Problem, known: OneSet, asked: OneSet) -> bool:
    """Whether two sets hold the same samples, or may."""
    for name in known.held_by:
        if name in asked.held_by:
            before, now = getattr(own, name), getattr(other, name)
            if before == now or (name in own.sources and _is_copy(Path(before), Path(now))):
                return True
    return False


def _is_copy(before: Path, now: Path) -> bool:
    """Whether a file of `now`, itself or in its folder, is one of `before`; so it is taken to be if those are gone."""
    known = _files(before)
    return not known or any(filecmp.cmp(a, b, shallow=False) for a in known for b in _files(now))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.glob("**/*") if file.suffix in (".npy", ".mat"))


def _other_samples(own: Problem, known: OneSet) -> str:
    """What to set for other samples."""
    if known.held_by == ("seed",):
        return f"have others with another seed, such as --set data.seed={own.seed + 1}"
    named = " and ".join(f"data.{name}" for name in known.held_by)
    return f"name files of other samples with {named}"
