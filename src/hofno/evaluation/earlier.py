"""What an earlier evaluation of a run knows beside a new one, for which training and validation samples were not made.

Test samples may be made alone where the rest is gone. Then the mean of the training targets and bounds by validation
samples are not found again; they are what they were, since the operator and its data are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hofno import storage
from hofno.errors import CheckpointError


def with_earlier(record: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """A record of an evaluation, with what one of the same run in a file has of other splits, if it is there."""
    found, earlier = dict(record), _read(file)
    if earlier.get("spec_hash") != record["spec_hash"]:
        return found
    if "mean_target" in earlier:
        found.setdefault("mean_target", earlier["mean_target"])
    if "outcomes" in found:
        known = earlier.get("outcomes", {})
        found["outcomes"] = {name: _bounded(one, known.get(name, {})) for name, one in found["outcomes"].items()}
    return found


def _bounded(outcome: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: earlier[key] for key in ("bound", "kept") if key in earlier}, **outcome}


def _read(file: Path) -> dict[str, Any]:
    """The record in a file; one that cannot be read is written anew."""
    try:
        return storage.read_json(file) if file.exists() else {}
    except CheckpointError:
        return {}
