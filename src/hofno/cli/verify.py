"""Every file of a run folder or saved model, verified: `hofno check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hofno import stages, storage
from hofno.errors import CheckpointError, HofnoError
from hofno.saved import load
from hofno.train.state import checkpoint_folders, read_position

Finding = tuple[str, str | None]
"""What was looked at, and what is wrong with it."""


def verify_run(path: Path) -> list[Finding]:
    """Look at every part of a folder; each finding names a part, and its fault if it has one."""
    if not path.is_dir():
        return [("", "there is no such folder; check the path")]
    has_spec, is_saved = ((path / name).exists() for name in ("spec.toml", "manifest.json"))
    is_run = has_spec or (path / "checkpoints").is_dir()  # hofno.fit writes no spec
    is_saved = is_saved or (path / "model.safetensors").exists()
    if not is_run and not is_saved:
        return [("", "neither a run nor a saved model: there is no spec.toml and no manifest.json; check the path")]
    found: list[Finding] = []
    if has_spec:
        found.append(_look("spec.toml", lambda: stages.read_spec(path)))
    for checkpoint in checkpoint_folders(path / "checkpoints"):
        found.append(_look(f"checkpoints/{checkpoint.name}", lambda folder=checkpoint: _checkpoint(folder)))
    if (path / "metrics.jsonl").exists():
        found.append(_look("metrics.jsonl", lambda: _metrics(path / "metrics.jsonl")))
    for name in ("data.json", "settings.json", "resolution.json"):
        if (path / name).exists():
            found.append(_look(name, lambda file=path / name: storage.read_json(file)))
    if is_saved:
        found += _saved_model(path)
    if (path / "evaluation.json").exists():
        found.append(_look("evaluation.json", lambda: _evaluation(path)))
    return found


def _saved_model(path: Path) -> list[Finding]:
    """The manifest and every file it lists; once all are sound, whether they make a model."""
    try:
        names = list(storage.read_manifest(path)["files"])
    except HofnoError as error:
        return [("manifest.json", str(error))]
    found: list[Finding] = [("manifest.json", None)]
    found += [_look(name, lambda name=name: storage.verify_file(path, name)) for name in names]
    if all(fault is None for _, fault in found) and (made := _look("", lambda: load(path)))[1] is not None:
        found.append(made)
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
