"""Every file of a run folder or saved model, verified: `hofno check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hofno import stages, storage
from hofno.errors import CheckpointError, HofnoError
from hofno.surrogate import load
from hofno.train.state import checkpoint_folders, read_position

Finding = tuple[str, str | None]
"""What was looked at, and what is wrong with it."""


def verify_run(path: Path) -> list[Finding]:
    """Look at every part of a folder; each finding names a part, and its fault if it has one."""
    if not path.is_dir():
        return [("", "there is no such folder; check the path")]
    is_run = (path / "spec.toml").exists()
    if not is_run and not (path / "manifest.json").exists() and not (path / "model.safetensors").exists():
        return [("", "neither a run nor a saved model: there is no spec.toml and no manifest.json; check the path")]
    found: list[Finding] = []
    if is_run:
        found.append(_look("spec.toml", lambda: stages.read_spec(path)))
    for checkpoint in checkpoint_folders(path / "checkpoints"):
        found.append(_look(f"checkpoints/{checkpoint.name}", lambda folder=checkpoint: _checkpoint(folder)))
    if (path / "metrics.jsonl").exists():
        found.append(_look("metrics.jsonl", lambda: _metrics(path / "metrics.jsonl")))
    if not is_run or (path / "model.safetensors").exists():
        found.append(_look("model.safetensors", lambda: load(path)))
    if (path / "evaluation.json").exists():
        found.append(_look("evaluation.json", lambda: _evaluation(path)))
    return found


def _look(name: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except HofnoError as error:
        return name, str(error)
    return name, None


def _checkpoint(folder: Path) -> None:
    storage.verify_folder(folder)
    storage.read_tensors(folder / "state.safetensors")
    read_position(folder)


def _metrics(file: Path) -> None:
    """Every row is JSON and the epochs follow each other."""
    try:
        epochs = [json.loads(line)["epoch"] for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"a row cannot be read ({error}); resuming the run writes it again") from None
    if epochs != list(range(1, len(epochs) + 1)):
        raise CheckpointError("its epochs do not follow each other; resuming the run writes it again")


def _evaluation(path: Path) -> None:
    record = storage.read_json(path / "evaluation.json")
    if not isinstance(record, dict) or "metrics" not in record:
        raise CheckpointError("it holds no metrics; write it again with: hofno evaluate")
    if (path / "spec.toml").exists() and record.get("spec_hash") != stages.read_spec(path).run_hash:
        raise CheckpointError("it belongs to another spec; write it again with: hofno evaluate")
