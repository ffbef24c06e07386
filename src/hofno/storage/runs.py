"""Which folders are runs, finished ones, and studies; and what to do with one that is something else."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hofno.errors import CheckpointError

RUNS_TOLD = 6
"""Runs of a study that are named where one of them is to be chosen, at most."""


def refuse_several(path: Path) -> None:
    """Refuse a study, and the folder of its runs, where one model is asked for."""
    if runs_of_study(path) or (path.name == "runs" and runs_of_study(path.parent)):
        raise CheckpointError(f"{path} is no single model: {instead_of_a_run(path)}")


def instead_of_a_run(path: Path) -> str:
    """What a folder without the spec of a run is, and what to do with it."""
    if not path.is_dir():
        return f"{'it is a file' if path.exists() else 'there is nothing there'}; give the folder of hofno train --out"
    if runs := runs_of_study(path):
        return _instead_of_a_study(runs)
    if path.name == "runs" and runs_of_study(path.parent):
        return f"it holds the runs of the study {path.parent}; give one of them"
    python = f"hofno.evaluate(hofno.load({str(path)!r}), data.test)"
    if (path / "settings.json").exists():
        return (
            "it is one of hofno.fit, whose data no spec tells; hofno predict and hofno check take it, hofno.fit(..., "
            f"out={str(path)!r}, resume=True) goes on with it, and {python} evaluates it"
        )
    if (path / "model.safetensors").exists():
        return (
            "it is a saved model, which knows no data; hofno predict and hofno check take it, and in Python "
            f"{python} evaluates it"
        )
    return "it has no spec.toml; give the folder of hofno train --out"


def _instead_of_a_study(runs: list[Path]) -> str:
    """Which runs of a study can be given in its place."""
    done = [run for run in runs if is_finished(run)]
    told = ", ".join(map(str, done[:RUNS_TOLD])) + (f" and {len(done) - RUNS_TOLD} more" * (len(done) > RUNS_TOLD))
    some = f", {len(runs) - len(done)} of them not finished" * (len(done) < len(runs))
    give = f"give one of them: {told}" if done else "give its hofno run again to finish them"
    return f"it is a study of {len(runs)} run{'s' * (len(runs) > 1)}{some}; {give}"


def runs_of_study(path: Path) -> list[Path]:
    """The run folders of a study's folder; none where it is another one."""
    return sorted(file.parent for file in path.glob("runs/*/spec.toml"))


def is_finished(path: Path) -> bool:
    return (path / "model.safetensors").exists() and (path / "manifest.json").exists()


def read_history(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's `metrics.jsonl`; an unfinished last line is passed over."""
    rows: list[dict[str, Any]] = []
    file = path / "metrics.jsonl"
    with suppress(json.JSONDecodeError):
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            rows.append(json.loads(line))
    return rows
