"""What data a run was started with, so that it never goes on with others.

Shapes, types and the SHA-256 of the numbers of the training and validation splits, with the geometry they lie on. The
test split is never trained on and may change. Of an array larger than `BUDGET`, samples spread evenly over it stand for
all: what differs between them is not seen.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import torch

from hofno import storage
from hofno.data.dataset import Dataset
from hofno.data.ondisk import Values
from hofno.data.stamps import changed_sources
from hofno.errors import DataError
from hofno.geometry import Surface, describe_geometry

FILE = "data.json"
ASIDE = ("versions", "threads", "file", "files")
"""What a stamp of data says beside what they are; files are compared on their own."""

BUDGET = 2**26
"""Bytes that are read of one array."""


def remember_data(found: dict[str, str], folder: Path) -> None:
    """Note the data of a run, as `describe_data` has them, in its folder; refuse to continue a run on others.

    A run from before such notes were taken gets its note now.
    """
    file = folder / FILE
    if not (file.exists() and (folder / "checkpoints").exists()):
        storage.write_json(file, found)
        return
    noted = {"symmetry": found["symmetry"]} if "symmetry" in found else {}  # not noted at first
    noted |= storage.read_json(file)
    for part in dict.fromkeys((*noted, *found)):
        was, now = noted.get(part, "nothing"), found.get(part, "nothing")
        if was != now:
            raise DataError(
                f"the run in {folder} was started with other data: {part} was {was} and is {now}; resume it with "
                "those data, or start a new run with another out"
            )


def stamp_of_data(data: Dataset, contents: dict[str, str] | None = None) -> dict[str, Any]:
    """What a trained operator remembers of its data; of those that were not generated, their `contents` too.

    These are what `describe_data` has told, if it was asked already: it takes seconds.
    """
    return {"data": data.stamp} | ({"contents": contents or describe_data(data)} if data.origin != "generated" else {})


def are_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two stamps of operators are of the same data, as far as they tell.

    Earlier versions told less, and an operator of a user's own loop tells nothing.
    """
    if "data" not in one or "data" not in other:
        return True
    a, b = one["data"], other["data"]
    if changed_sources(a, b) or ("contents" in one and "contents" in other and one["contents"] != other["contents"]):
        return False
    return all(a.get(key) == b.get(key) for key in {*a, *b} - {*ASIDE})


def describe_data(data: Dataset) -> dict[str, str]:
    """Every part of the data that training depends on, in a few words."""
    grid = data.grid
    found = {"geometry": str(grid if isinstance(grid, Surface) else describe_geometry(grid))}
    if data.symmetry is not None:
        found["symmetry"] = hashlib.sha256(repr(data.symmetry).encode()).hexdigest()[:16]
    if data.rollout is not None:
        found["rollout"] = str(data.rollout)
    for name, split in (("train", data.train), ("valid", data.valid)):
        for part, values in split.parts._asdict().items():
            if values is not None:
                found[f"{name}.{part}"] = describe_values(values)
    return found


def describe_values(values: Values) -> str:
    """Type, shape and the first 16 hexadecimal digits of the SHA-256 of the numbers, or of samples spread over them."""
    samples, each = values.shape[0], 4 * math.prod(values.shape[1:])
    kept = min(samples, max(2, BUDGET // max(1, each)))
    some = values[torch.arange(kept) * (samples - 1) // max(1, kept - 1)].cpu()
    digits = hashlib.sha256(some.numpy().tobytes()).hexdigest()[:16]
    return f"{str(some.dtype).removeprefix('torch.')} {tuple(values.shape)} {digits}"
