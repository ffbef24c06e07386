"""A run that is interrupted, killed, or out of disk, memory or luck: what is left, what is said, and how it goes on."""

from __future__ import annotations

import errno
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_children import Child
from typer.testing import Result

import hofno as package
from hofno import fits, stages, storage, study, study_results
from hofno import spec as specs
from hofno.cli.failures import explain
from hofno.data.dataset import Dataset
from hofno.errors import HofnoError
from hofno.problems.base import Progress
from hofno.show import Silent
from hofno.spec import Spec
from hofno.train.loop import Interrupted

Hofno = Callable[..., Result]
Start = Callable[..., Child]
Refused = Callable[..., str]
LONG = ("--set", "train.epochs=25", "--set", "train.batch_size=4")
EVERYTHING = (
    *("--set", "train.ema=0.9", "--set", "train.optimiser=muon", "--set", "train.select=best"),
    *("--set", "model.drop_path=0.3", "--set", "model.depth=2", "--set", "train.schedule=onecycle"),
    *("--set", "train.checkpoint_every=3", "--set", "train.validate_every=2", "--set", "train.clip=0.5"),
)
KILLS = int(os.environ.get("HOFNO_KILLS", "3"))


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


def same_result(run: Path, unbroken: Path) -> None:
    """Weights byte for byte, and the story of the training but for its seconds."""
    for name in ("model.safetensors", "normalisers.safetensors"):
        assert (run / name).read_bytes() == (unbroken / name).read_bytes(), name
    assert rows(run) == rows(unbroken)
    errors = [json.loads((path / "evaluation.json").read_text())["per_sample"] for path in (run, unbroken)]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed(start: Start, folder: Path, number: int) -> None:
    assert start("train", "tiny", "--out", "unbroken", *LONG).wait() == 0
    child = start("train", "tiny", "--out", "run", *LONG)
    child.wait_for(folder / "run" / "checkpoints" / "step-000000020")
    child.send(number)
    assert child.wait() == 130, child.output
    (line,) = (line for line in child.output.splitlines() if line.startswith("hofno: "))
    assert "continue with: hofno train --resume run" in line
    assert "Traceback" not in child.output
    assert list((folder / "run" / "checkpoints").glob("step-*"))
    assert not (folder / "run" / "model.safetensors").exists()
    assert not (folder / "run" / "lock").exists()
    resumed = start("train", "--resume", "run")
    assert resumed.wait() == 0, resumed.output
    assert "resuming from step-" in resumed.output
    same_result(folder / "run", folder / "unbroken")


def test_the_real_program_is_interrupted_by_ctrl_c(program: Callable[..., subprocess.Popen[str]], folder: Path) -> None:
    child = program("train", "tiny", "--out", "run", "--set", "train.epochs=2000")
    limit = time.monotonic() + 60
    while not list((folder / "run").glob("checkpoints/step-*")):
        assert child.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert errors.startswith("hofno: stopped at step ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("attempt", range(KILLS))
def test_killed_at_random_moments(start: Start, folder: Path, attempt: int) -> None:
    """kill -9, again and again, then an unbroken finish: the same bytes as without."""
    settings = (*LONG, *(EVERYTHING if attempt % 2 else ()))
    assert start("--version").wait() == 0  # the first fork takes longer than all others
    begun = time.monotonic()
    assert start("train", "tiny", "--out", "unbroken", *settings).wait() == 0
    whole = time.monotonic() - begun
    moments = random.Random(attempt)
    run, killed = folder / "run", 0

    def go_on() -> Child:
        begun = (run / "spec.toml").exists()
        return start(*(("train", "--resume", "run") if begun else ("train", "tiny", "--out", "run", *settings)))

    for turn in range(5):
        child = go_on()
        if turn == 0:  # at its first checkpoint, however fast it is beside the unbroken one
            while child.process.is_alive() and not list(run.glob("checkpoints/step-*")):
                time.sleep(0.002)
        else:
            child.process.join(moments.uniform(0.1, 0.8) * whole)
        killed += child.process.is_alive()
        child.process.kill()
        child.wait()
        for path in run.glob("*.safetensors"):
            assert path.stat().st_size > 0
    assert killed > 0
    last = go_on()
    assert last.wait() == 0, last.output
    same_result(run, folder / "unbroken")


def test_a_study_that_was_interrupted_goes_on(start: Start, folder: Path) -> None:
    arguments = ("run", "tiny", "--out", "study", *LONG, "--set", "sweep.seed=[0, 1]")
    child = start(*arguments)
    limit = time.monotonic() + 30
    while not list((folder / "study").glob("runs/*/checkpoints/step-*")):
        assert time.monotonic() < limit
        time.sleep(0.005)
    child.send(signal.SIGINT)
    assert child.wait() == 130, child.output
    assert "give the same hofno run again" in child.output
    again = start(*arguments)
    assert again.wait() == 0, again.output
    assert "resuming from step-" in again.output
    assert len(json.loads((folder / "study" / "results.json").read_text())["runs"]) == 2


def study_in_training(program: Callable[..., subprocess.Popen[str]], folder: Path) -> subprocess.Popen[str]:
    settings = ("--set", "train.epochs=20000", "--set", "sweep.seed=[0, 1]")
    child = program("run", "tiny", "--out", "study", "--workers", "2", *settings)
    limit = time.monotonic() + 120
    while len({path.parents[1] for path in (folder / "study").glob("runs/*/checkpoints/step-*")}) < 2:
        assert child.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_that_are_interrupted_tell_how_to_go_on(
    program: Callable[..., subprocess.Popen[str]], folder: Path, number: signal.Signals
) -> None:
    child = study_in_training(program, folder)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    told = "interrupted; finished runs and checkpoints are kept: give the same hofno run again to go on with the study"
    assert errors == f"hofno: {told}\n"


def test_workers_stop_when_their_parent_was_killed(program: Callable[..., subprocess.Popen[str]], folder: Path) -> None:
    child = study_in_training(program, folder)
    child.kill()
    child.communicate(timeout=60)  # their pipes are closed: all of them have ended
    locks = list((folder / "study").glob("runs/*/lock"))
    assert not locks, "a worker that stops as it is asked to gives its lock back"


def test_a_truncated_checkpoint_is_passed_over(hofno: Hofno, start: Start, folder: Path) -> None:
    assert start("train", "tiny", "--out", "unbroken").wait() == 0
    run = folder / "run"
    shutil.copytree(folder / "unbroken", run)
    for name in ("model.safetensors", "manifest.json", "evaluation.json"):
        (run / name).unlink()
    newest = run / "checkpoints" / "step-000000006" / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    child = start("train", "--resume", "run")
    assert child.wait() == 0
    assert "checkpoint step-000000006 is refused, the one before it is tried" in child.output
    assert "resuming from step-000000003" in child.output
    same_result(run, folder / "unbroken")


def test_a_checkpoint_of_another_spec_is_refused(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert hofno("train", "tiny", "--out", "run").exit_code == 0
    run = folder / "run"
    (run / "model.safetensors").unlink()
    text = (run / "spec.toml").read_text()
    (run / "spec.toml").write_text(text.replace("seed = 0", "seed = 1", 1))
    assert "belongs to another spec" in refused("train", "--resume", run)
    (run / "spec.toml").write_text("[[[")
    assert "cannot be read" in refused("train", "--resume", run)


def test_a_run_in_use_is_refused(start: Start, refused: Refused, folder: Path) -> None:
    child = start("train", "tiny", "--out", "run", "--set", "train.epochs=2000")
    child.wait_for(folder / "run" / "checkpoints")
    assert f"is in use by process {child.process.pid}" in refused("train", "--resume", "run")
    child.send(signal.SIGTERM)
    assert child.wait() == 130


def test_a_new_run_where_one_is_in_training(start: Start, refused: Refused, folder: Path) -> None:
    child = start("train", "tiny", "--out", "run", "--set", "train.epochs=2000")
    child.wait_for(folder / "run" / "checkpoints")
    assert f"is in use by process {child.process.pid}" in refused("train", "tiny", "--out", "run")
    child.send(signal.SIGTERM)
    assert child.wait() == 130
    assert "holds an unfinished run" in refused("train", "tiny", "--out", "run")


def test_of_new_runs_that_start_at_once_one_is_trained(
    refused: Refused, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process is here while the first one makes its data: its run is whole, and it has the folder."""
    make, first = stages.make_data, specs.override(specs.load("tiny.toml"), {"train.epochs": 1})

    def make_slowly(spec: Spec, progress: Progress) -> Dataset:
        data = make(spec, progress)
        stages.train_run(first, data, folder / "run", resume=False, show=Silent())
        return data

    monkeypatch.setattr(stages, "make_data", make_slowly)
    assert "run holds a finished run" in refused("train", "tiny", "--out", "run")
    assert stages.read_spec(folder / "run").run_hash == first.run_hash
    assert not (folder / "run" / "evaluation.json").exists()


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME; x"])
def test_printed_commands_can_be_pasted(refused: Refused, folder: Path, name: str) -> None:
    stages.start_folder(specs.load("tiny.toml"), folder / name)
    (folder / name / "checkpoints" / "step-000000001").mkdir(parents=True)
    for line in (refused("train", "tiny", "--out", name), refused("evaluate", name)):
        command = line.partition("continue it with: ")[2].partition("; with other settings")[0]
        assert shlex.split(command) == ["hofno", "train", "--resume", name]


def test_divergence_keeps_the_last_good_checkpoint(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, calls = package.HOFNO.forward, []

    def poisoned(self: package.HOFNO, x: torch.Tensor) -> torch.Tensor:
        calls.append(self.training)
        return forward(self, x) * (float("nan") if sum(calls) > 5 else 1.0)

    monkeypatch.setattr(package.HOFNO, "forward", poisoned)
    result = hofno("train", "tiny", "--out", "run", "--set", "train.epochs=4")
    monkeypatch.undo()
    assert result.exit_code == 2
    assert "hofno: the loss turned nan in epoch 2 at step 6" in result.stderr
    assert "lower train.lr" in result.stderr
    (kept,) = (folder / "run" / "checkpoints").glob("step-*")
    assert kept.name == "step-000000003"
    storage.verify_folder(kept)
    weights = storage.read_tensors(kept / "state.safetensors")
    assert all(bool(value.isfinite().all()) for value in weights.values() if value.is_floating_point())
    assert not (folder / "run" / "model.safetensors").exists()


def test_a_huge_learning_rate_is_told_in_one_line(refused: Refused) -> None:
    line = refused("train", "tiny", "--out", "run", "--set", "train.lr=1e30")
    assert "no checkpoint was saved before; lower train.lr" in line


def test_a_study_with_a_run_that_diverges_is_reported_and_fails(hofno: Hofno, refused: Refused, folder: Path) -> None:
    sweep = ("--set", "train.epochs=1", "--set", "sweep.'train.lr'=[1e-3, 1e30]")
    line = refused("run", "tiny", "--out", "study", "--results", "all.json", *sweep)
    assert "1 of 2 runs diverged, the others are done: 'HO-FNO, lr 1e+30' (seed 0)" in line
    assert "give the same hofno run again" in line
    text = (folder / "study" / "report.md").read_text()
    assert "1 of the 2 runs of this study (1 diverged)" in text
    assert "- HO-FNO, lr 1e+30, seed 0: the loss turned" in text
    assert len(json.loads((folder / "all.json").read_text())["runs"]) == 1
    alone = ("--set", "train.epochs=1", "--set", "train.lr=1e30")
    assert "1 of 1 runs diverged" in refused("run", "tiny", "--out", "alone", *alone)
    assert "it holds no run" in refused("report", "alone")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"schema": 1, "runs": []}', "it lacks 'name'"),
        ('{"schema": 1, "runs": [], "name": "other", "problem": "poisson", "seconds": 1}', "has name 'other'"),
        ('{"schema": 1, "runs": [{}], "name": "tiny", "problem": "poisson", "seconds": 1}', "run 0 lacks 'spec_hash'"),
        ("[", "not valid JSON"),
    ],
)
def test_results_that_cannot_be_merged_are_refused_before_training(
    refused: Refused, folder: Path, content: str, text: str
) -> None:
    (folder / "all.json").write_text(content)
    line = refused("run", "tiny", "--out", "study", "--results", "all.json")
    assert text in line
    assert "all.json" in line
    assert not (folder / "study").exists()


@pytest.mark.parametrize("place", ["tiny.toml/all.json", "."])
def test_results_that_cannot_be_written_are_refused_before_training(refused: Refused, folder: Path, place: str) -> None:
    refused("run", "tiny", "--out", "study", "--results", place)
    assert not (folder / "study").exists()


def test_runs_that_came_into_the_results_meanwhile_are_kept(
    hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, evaluate = folder / "all.json", study.evaluate_run

    def evaluate_and_merge(*arguments: Any) -> Any:
        record = evaluate(*arguments)
        other = study.gather(specs.load("tiny.toml"), [{**record[0], "spec_hash": "elsewhere"}], 1.0)
        study_results.merge_into(file, other)
        return record

    monkeypatch.setattr(study, "evaluate_run", evaluate_and_merge)
    result = hofno("run", "tiny", "--out", "study", "--results", "all.json", "--set", "train.epochs=1")
    assert result.exit_code == 0, result.output
    runs = json.loads(file.read_text())["runs"]
    assert [run["spec_hash"] == "elsewhere" for run in runs] == [True, False]


FULL = """
import os, shutil, subprocess
import torch
from typer.testing import CliRunner
from hofno.cli import app

def hofno(*arguments):
    result = CliRunner().invoke(app, arguments)
    assert "Traceback" not in result.output
    return result

torch.set_num_threads(1)
os.mkdir("disk")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "disk"], check=True)
print("mounted")
full = hofno("train", "tiny", "--out", "disk/run", "--set", "train.epochs=6")
assert full.exit_code == 2, full.output
assert full.stderr.startswith("hofno: disk/run/") and full.stderr.count(chr(10)) == 1, full.stderr
assert "No space left on device" in full.stderr and "free some space" in full.stderr, full.stderr
assert any(name.startswith("step-") for name in os.listdir("disk/run/checkpoints"))
assert hofno("check", "disk/run").exit_code == 0
subprocess.run(["mount", "-o", "remount,size=64m", "disk"], check=True)
resumed = hofno("train", "--resume", "disk/run")
assert resumed.exit_code == 0 and "resuming from step-" in resumed.output, resumed.output
shutil.copytree("disk/run", "copy")
"""


def test_a_full_disk(hofno: Hofno, folder: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a small file system needs root and unshare")
    command = ["unshare", "-m", sys.executable, "-c", FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mounted" not in done.stdout:
        pytest.skip("tmpfs cannot be mounted here")
    assert done.returncode == 0, done.stderr
    assert hofno("train", "tiny", "--out", "unbroken", "--set", "train.epochs=6").exit_code == 0
    same_result(folder / "copy", folder / "unbroken")


class TestErrorsInOneLine:
    def test_what_is_told(self) -> None:
        assert explain(KeyboardInterrupt()) == ("interrupted", 130)
        assert explain(Interrupted("stopped at step 3")) == ("stopped at step 3", 130)
        assert explain(HofnoError("because")) == ("because", 2)
        for error in (
            MemoryError(),
            torch.OutOfMemoryError("CUDA out of memory"),
            RuntimeError("can't allocate memory"),
        ):
            told = explain(error)
            assert told is not None
            assert "smaller train.batch_size" in told[0]
            told = explain(error, "bench")
            assert told is not None
            assert told[0].endswith("; lower --batch or choose a smaller --shape")
        told = explain(OSError(errno.ENOSPC, "no", "file"))
        assert told == ("file: No space left on device; free some space and run again", 2)
        told = explain(RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nFor debugging ..."))
        assert told is not None
        assert told[0].startswith("the GPU cannot be used: another program holds it alone")
        assert told[1] == 2
        assert explain(ZeroDivisionError()) is None
        assert explain(RuntimeError("a fault of ours")) is None

    def failing(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(fits, "check", fail)

    def test_ctrl_c_outside_of_training(self, hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing(monkeypatch, KeyboardInterrupt())
        result = hofno("show", "tiny")
        assert (result.exit_code, result.stderr) == (130, "hofno: interrupted\n")

    @pytest.mark.parametrize(
        ("data", "kept"),
        [
            ({"problem": "airfoil", "coarsen": 10}, True),
            ({"problem": "navier_stokes", "samples": 12, "resolution": 16}, True),
            ({"problem": "poisson", "resolution": 40}, False),
        ],
    )
    def test_ctrl_c_while_data_are_made(
        self, hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, object], kept: bool
    ) -> None:
        """What is kept, and how to go on, where a generation goes on."""

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(stages, "make_data", stop)
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in data.items())
        model = '[model]\nname = "hofno"\nmodes = [4, 3]\nwidth = 4\ndepth = 1'
        (folder / "data.toml").write_text(f"[data]\n{lines}\n{model}\n")
        told = "; what is solved is kept in the store: give the same command again to go on" * kept
        for words in (("generate", "data.toml"), ("train", "data.toml", "--out", "new")):
            result = hofno(*words)
            assert (result.exit_code, result.stderr) == (130, f"hofno: interrupted{told}\n")
            assert not (folder / "new").exists(), "so that the same command is not refused"

    def test_several_lines_become_one(self, hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing(monkeypatch, HofnoError("one\ntwo"))
        assert hofno("show", "tiny").stderr == "hofno: one two\n"

    def test_a_fault_of_the_program_keeps_its_traceback(self, hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing(monkeypatch, ZeroDivisionError("ours"))
        assert isinstance(hofno("show", "tiny").exception, ZeroDivisionError)

    @pytest.mark.parametrize("way", ["flag", "environment"])
    def test_debug_shows_the_traceback(self, hofno: Hofno, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
        self.failing(monkeypatch, HofnoError("because"))
        if way == "environment":
            monkeypatch.setenv("HOFNO_DEBUG", "1")
        result = hofno(*(["--debug"] if way == "flag" else []), "show", "tiny")
        assert isinstance(result.exception, HofnoError)


def test_a_warning_is_one_line() -> None:
    code = (
        "import sys, warnings, hofno.cli; program = sys.modules['hofno.cli.app']; "
        "program.app = lambda: warnings.warn('two\\nlines'); program.main()"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stderr == "hofno: warning: two lines\n"
