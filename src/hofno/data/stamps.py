"""What tells a file of data from a changed one of the same name, without reading gigabytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

END = 2**20
"""Bytes at each end of a file that its stamp knows."""
PLACE = "place"
"""What a stamp says of where a file lies; a copy lies elsewhere."""
BLOCK, BLOCKS = 2**16, 30
"""Bytes of the blocks between its ends that it knows too, and how many are spread evenly over the file."""


def stamp_of(file: str | Path) -> dict[str, object]:
    """Name, size and a hash of the ends of a file and of blocks between them; a copy has the same ones.

    A change that lies between these blocks alone, as of a few numbers in gigabytes, is not seen. The place, by which
    a file that has grown is known again, is a hash of its path.
    """
    with Path(file).open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        ends, between = hashlib.sha256(), hashlib.sha256()
        for start in (0, max(0, size - END)):
            opened.seek(start)
            ends.update(opened.read(END))
        for block in range(BLOCKS):
            opened.seek(size * (block + 1) // (BLOCKS + 1))
            between.update(opened.read(BLOCK))
    hashes = {"sha256_of_ends": ends.hexdigest(), "sha256_of_blocks": between.hexdigest()}
    place = hashlib.sha256(os.fsencode(Path(file).resolve())).hexdigest()[:16]
    return {"name": Path(file).name, "bytes": size, **hashes, PLACE: place}


def changed_sources(before: object, now: object) -> list[str]:
    """Names of the files that are not what they were, by two stamps of data, or the solver if its numbers are not."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return []
    were, are = before.get("files"), now.get("files")
    if not isinstance(were, dict) or not isinstance(are, dict):
        is_other = before.get("problem") == now.get("problem") and before.get("revision", 1) != now.get("revision", 1)
        return [f"the solver of {now['problem']}"] if is_other and were is are is None else []
    return [str(were[part].get("name", part)) for part in were if part in are and _differs(were[part], are[part])]


def _differs(before: dict[str, object], now: dict[str, object]) -> bool:
    """Whether two stamps of a file say other things; one of an earlier version may say less."""
    return any(before[key] != now[key] for key in before if key in now and key != PLACE)


def may_share(before: dict[str, object], now: dict[str, object]) -> bool:
    """Whether two stamps are of a file and a copy of it, of any name, or of one file that may have changed."""
    if PLACE in before and before[PLACE] == now.get(PLACE):
        return True
    return not _differs({key: value for key, value in before.items() if key != "name"}, now)
