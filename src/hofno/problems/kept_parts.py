"""Samples that are kept in parts as they are made: `part-<first>-<end>` in a folder, each committed whole.

One process makes parts of a folder at a time, and any number may read finished ones. Parts that are made again take the
place of the old ones one by one, so that at every instant all samples that were there are there.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import warnings
from contextlib import suppress
from pathlib import Path

from hofno import storage
from hofno.storage.files import is_stale_temporary, temporary_beside

_PART = re.compile(r"part-(\d{6,})-(\d{6,})")


def part_name(start: int, stop: int) -> str:
    return f"part-{start:06d}-{stop:06d}"


def parts_in(folder: Path | None) -> dict[int, tuple[int, Path]]:
    """The finished parts in a folder: first sample -> (end, path)."""
    if folder is None or not folder.is_dir():
        return {}
    found = ((match, place) for place in sorted(folder.iterdir()) if (match := _PART.fullmatch(place.name)))
    return {int(match[1]): (int(match[2]), place) for match, place in found if int(match[1]) < int(match[2])}


def one_after_the_other(parts: dict[int, tuple[int, Path]], samples: int) -> dict[int, tuple[int, Path]]:
    """Those of `parts` that hold some of the first samples, without any that begins within the one before."""
    chosen, end = dict[int, tuple[int, Path]](), 0
    for start in sorted(parts):
        if end <= start < samples:
            chosen[start], end = parts[start], parts[start][0]
    return chosen


def end_of(folder: Path, samples: int) -> int:
    """The end of the last part that holds some of the first `samples` samples, or `samples` if that is more."""
    return max([samples, *(stop for start, (stop, _) in parts_in(folder).items() if start < samples)])


def is_complete(folder: Path, samples: int) -> bool:
    """Whether parts that follow each other hold every sample."""
    parts, start = parts_in(folder), 0
    while start in parts and start < samples:
        start = parts[start][0]
    return start >= samples


def in_turn(folder: Path) -> storage.RunLock:
    """The lock of a folder, for which a process that makes parts there is waited for; a warning says so."""
    try:
        storage.RunLock(folder).refuse_living_owner()
    except storage.InUseError as error:
        warnings.warn(f"waiting until another process has made its data: {error}", stacklevel=1)
    return storage.RunLock(folder, patience=math.inf)


def drop(part: Path) -> None:
    """Remove a part: first out of sight in one step, so that a kill never leaves half of it under its name."""
    hidden = temporary_beside(part)
    with suppress(OSError):
        os.rename(part, hidden)
        shutil.rmtree(hidden)


def drop_temporaries(folder: Path) -> None:
    """Remove what killed processes left half-written or half-removed."""
    for place in folder.iterdir():
        if is_stale_temporary(place.name):
            shutil.rmtree(place, ignore_errors=True)


def drop_replaced(old: dict[int, tuple[int, Path]], made: set[Path], stop: int) -> None:
    """Remove the old parts whose samples, up to `stop`, are all in parts made anew."""
    for end, part in old.values():
        if end <= stop and part not in made:
            drop(part)
