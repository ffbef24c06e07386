"""Data that stay on disk, from the command line: the same runs, evaluations and reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli_flow import FLOW
from typer.testing import Result

from hofno import storage
from hofno.data import ondisk
from hofno.problems import flows

Hofno = Callable[..., Result]


def succeed(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def rows(table: str) -> list[str]:
    found = [line for line in table.splitlines() if line.startswith("│")]
    assert len(found) == 9  # two inputs and a target of three splits
    return found


def same_runs(one: Path, two: Path) -> None:
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    first, second = (storage.read_json(run / "evaluation.json") for run in (one, two))
    assert first["metrics"] == second["metrics"]
    assert first["per_sample"] == second["per_sample"]


def test_pairs(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = succeed(hofno("generate", "tiny.toml"))
    assert "training set" not in succeed(hofno("train", "tiny.toml", "--out", "here"))
    monkeypatch.setattr(ondisk, "SHARE", 0.0)
    assert rows(succeed(hofno("generate", "tiny.toml"))) == rows(table)
    assert "read from disk" in succeed(hofno("train", "tiny.toml", "--out", "there"))
    same_runs(folder / "here", folder / "there")
    succeed(hofno("run", "tiny.toml", "--out", "study"))
    assert (folder / "study" / "index.html").exists()


def test_trajectories(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "flow.toml").write_text(FLOW)
    succeed(hofno("train", "flow.toml", "--out", "here"))
    monkeypatch.setattr(ondisk, "SHARE", 0.0)
    monkeypatch.setattr(flows, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(flows.Flow, "_group", lambda self, solver: 16)
    assert "read from disk" in succeed(hofno("train", "flow.toml", "--out", "there"))
    same_runs(folder / "here", folder / "there")
    succeed(hofno("run", "flow.toml", "--out", "study"))
    assert (folder / "study" / "index.html").exists()
