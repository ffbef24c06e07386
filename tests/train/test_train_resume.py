"""A run that stops and goes on ends with the same bits, with every part of the state in play."""

from __future__ import annotations

import json
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hofno import Dataset, Run, load, storage
from hofno.cli.verify import verify_run
from hofno.errors import CheckpointError, DivergedError, SpecError
from hofno.train.loop import Interrupted
from hofno.train.step import Step

Trained = Callable[..., Run]
PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ema": {"ema": 0.9},
    "muon": {"optimiser": "muon"},
    "soap": {"optimiser": "soap"},
    "drop_path": {"model": {"drop_path": 0.5, "depth": 2}},
    "best": {"select": "best", "lr": 0.1},
    "noise": {"noise": 0.1},
    "finish": {"precision": "bf16", "finish": 0.3},
    "coarse_first": {"coarse_first": 0.7},
    "all": {"ema": 0.9, "optimiser": "muon", "select": "best", "clip": 0.1, "model": {"drop_path": 0.5, "depth": 2}},
}


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int, number: int = signal.SIGINT) -> None:
    """Let the process be asked to stop while it makes the given step."""
    run, count = Step._run, [0]

    def counted(self: Step, indices: torch.Tensor) -> None:
        run(self, indices)
        count[0] += 1
        if count[0] == steps:
            signal.raise_signal(number)

    monkeypatch.setattr(Step, "_run", counted)


@pytest.mark.parametrize("steps", [1, 3, 5, 9])
@pytest.mark.parametrize("part", PARTS)
def test_resume_is_exact(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, steps: int
) -> None:
    """Stopped at the first step, at the end of an epoch, in the middle of one, and at the very last step."""
    settings = {"epochs": 3, **PARTS[part]}
    unbroken = trained(**settings)
    stop_after(monkeypatch, steps)
    with pytest.raises(Interrupted, match=f"stopped at step {steps} of 9; continue with: .*resume=True"):
        trained(out=tmp_path, **settings)
    monkeypatch.undo()
    resumed = trained(out=tmp_path, resume=True, **settings)
    assert resumed.surrogate.files()["model.safetensors"] == unbroken.surrogate.files()["model.safetensors"]
    plain = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.history] for run in (resumed, unbroken)]
    assert plain[0] == plain[1]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == resumed.history


def test_a_second_ctrl_c_interrupts_at_once(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Step._run

    def impatient(self: Step, indices: torch.Tensor) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # asked twice politely: still no more than a request
        run(self, indices)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Step, "_run", impatient)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        trained()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_script_that_catches_errors_is_stopped_too(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 2") as told:
        trained()
    assert not isinstance(told.value, Exception), "except Exception would go on"


@pytest.mark.parametrize("part", PARTS)
def test_what_was_trained_so_far_is_at_hand(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Without a folder all would be lost; with one, that the run is looked at changes nothing about what is saved."""
    stop_after(monkeypatch, 6)  # two epochs of three
    with pytest.raises(Interrupted, match=r"nothing is saved: .* run = sys\.last_value\.run") as told:
        trained(epochs=3, **PARTS[part])
    run = told.value.run
    assert run is not None
    assert run is told.value.run
    assert [row["epoch"] for row in run.history] == [1]  # the second was not validated any more
    assert run.surrogate.experience is not None
    assert len(run.surrogate.experience.errors) > 0
    assert run.seconds > 0
    told_elsewhere = pickle.loads(pickle.dumps(told.value))
    assert str(told_elsewhere) == str(told.value)
    assert told_elsewhere.run is None
    run.save(tmp_path / "so_far")
    found = load(tmp_path / "so_far").files()
    assert found["model.safetensors"] == run.surrogate.files()["model.safetensors"]
    stop_after(monkeypatch, 6)
    with pytest.raises(Interrupted) as told:
        trained(out=tmp_path / "run", epochs=3, **PARTS[part])
    assert told.value.run is not None
    assert told.value.run.surrogate.files()["model.safetensors"] == found["model.safetensors"]
    monkeypatch.undo()
    unbroken = trained(epochs=3, **PARTS[part])
    resumed = trained(out=tmp_path / "run", resume=True, epochs=3, **PARTS[part])
    assert resumed.surrogate.files()["model.safetensors"] == unbroken.surrogate.files()["model.safetensors"]


def test_a_checkpoint_of_other_settings_is_refused(trained: Trained, tmp_path: Path) -> None:
    trained(out=tmp_path, model={"width": 12}, lr=0.01)
    same: dict[str, Any] = {"out": tmp_path, "resume": True, "model": {"width": 12}, "lr": 0.01}
    for changes, told in (
        ({"epochs": 3}, "epochs was 2 and is 3"),
        ({"clip": 0.5}, r"clip was 0\.0 and is 0\.5"),
        ({"lr": 1e-3}, r"lr was 0\.01 and is 0\.001"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"model": {}}, r"model\.width was 12 and is 8"),
    ):
        with pytest.raises(CheckpointError, match=f"started with other settings: {told}; resume it with those"):
            trained(**{**same, **changes})
    trained(**same)
    (tmp_path / "settings.json").unlink()  # of a run from before settings were noted
    with pytest.raises(CheckpointError, match="belongs to another spec"):
        trained(**same, epochs=3)
    trained(**same)


def test_an_unfinished_run_is_not_a_model(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 1)
    with pytest.raises(Interrupted):
        trained(out=tmp_path)
    with pytest.raises(
        CheckpointError, match=r"has not finished, or trained a model class of your own, .* resume=True goes on"
    ):
        load(tmp_path)
    assert all(fault is None for _, fault in verify_run(tmp_path))
    monkeypatch.undo()
    trained(out=tmp_path, resume=True)
    load(tmp_path)


def test_an_earlier_run_is_not_overwritten(trained: Trained, tmp_path: Path) -> None:
    trained(out=tmp_path)
    storage.save_folder(tmp_path / "data", {"x": b""}, {})
    for out in (tmp_path, tmp_path / "data"):
        with pytest.raises(SpecError, match="holds an earlier run or saved files"):
            trained(out=out)
    storage.verify_folder(tmp_path / "data")


def test_resume_without_a_checkpoint_starts_anew(trained: Trained, tmp_path: Path) -> None:
    run = trained(out=tmp_path, resume=True)
    assert run.surrogate.files()["model.safetensors"] == trained().surrogate.files()["model.safetensors"]


def test_a_changed_environment_is_mentioned(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(out=tmp_path)
    monkeypatch.setattr("hofno.train.state.device_name", lambda device: "another CPU")
    trained(out=tmp_path, resume=True, progress=True)
    assert "note: device changed since the checkpoint" in capsys.readouterr().out


def test_a_position_of_another_version_is_refused(trained: Trained, tmp_path: Path) -> None:
    trained(out=tmp_path)
    newest = tmp_path / "checkpoints" / "step-000000006"
    files = {"state.safetensors": (newest / "state.safetensors").read_bytes(), "position.json": b'{"era": 3}'}
    meta = storage.verify_folder(newest)
    storage.save_folder(newest, files, meta)
    with pytest.raises(CheckpointError, match="another version"):
        trained(out=tmp_path, resume=True)


def test_only_the_newest_checkpoints_are_kept(trained: Trained, tmp_path: Path, data: Dataset) -> None:
    trained(out=tmp_path, epochs=5)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000000012", "step-000000015"]


def test_predictions_without_bound_stop_the_run(trained: Trained, tmp_path: Path) -> None:
    """One step that leaves huge, finite weights: the loss before it was fine, and the next forward pass is not."""
    with pytest.raises(DivergedError, match="in epoch 1 at step 1; no checkpoint was saved before; lower") as caught:
        trained(out=tmp_path, epochs=1, batch_size=100, lr=1e18)
    assert "\n" not in str(caught.value)
