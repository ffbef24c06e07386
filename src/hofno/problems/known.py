"""Which samples of one problem are samples of another, so that nothing is tested on what it was trained on."""

from __future__ import annotations

import filecmp
from pathlib import Path

from hofno.problems.base import OneSet, Problem


def moved_cuts(own: Problem, other: Problem) -> dict[str, tuple[object, object]] | None:
    """What cuts the set of samples that two problems share into other splits, by name: as `own` has it, and `other`.

    None where no sample is shared: splits that have random streams of their own never share any. Without a cut that
    moved, training, validation and test samples of one are those of the other.
    """
    known, asked = own.one_set, other.one_set
    if known is None or asked is None or not _shared(own, other, known, asked):
        return None
    pairs = {key: (getattr(own, key, None), getattr(other, key, None)) for key in known.cut_by}
    return {key: (before, now) for key, (before, now) in pairs.items() if before != now}


def other_samples(own: Problem) -> str:
    """What to set for samples that a problem with one set of them does not have."""
    assert own.one_set is not None
    if own.one_set.held_by == ("seed",):
        return f"have others with another seed, such as --set data.seed={own.seed + 1}"
    named = " and ".join(f"data.{name}" for name in own.one_set.held_by)
    return f"name files of other samples with {named}"


def _shared(own: Problem, other: Problem, known: OneSet, asked: OneSet) -> bool:
    """Whether two sets hold the same samples, or may."""
    for name in known.held_by:
        if name in asked.held_by and (own.name == other.name or name in own.sources):
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
