"""A problem in time from the command line: generate, train, evaluate, predict and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from hofno import storage

Hofno = Callable[..., Result]
Refused = Callable[..., str]

FLOW = """
title = "tiny flow"
label = "HO-FNO order 2"
published = "navier_stokes"

[data]
problem = "navier_stokes"
viscosity = 1e-3
train = 6
valid = 1
test = 2
resolution = 8
solver_resolution = 16
frames = 9
history = 1
start = 2
horizon = 4
step = 0.1

[model]
name = "hofno"
modes = [3, 3]
width = 6
depth = 1
order = 2

[train]
epochs = 2
batch_size = 4
batch_of = "windows"

[[compare]]
label = "FNO"
[compare.set]
"model.name" = "fno"
"""


@pytest.fixture
def flow(folder: Path) -> Path:
    path = folder / "flow.toml"
    path.write_text(FLOW)
    return path


def test_show_and_generate(hofno: Hofno, flow: Path) -> None:
    shown = hofno("show", flow).stdout
    assert "one frame to the next, 4 times; learnt from true frames in batches of windows" in shown
    assert "2 epochs of 8 batches: 16 steps" in shown  # 6 trajectories of 5 windows
    made = hofno("generate", flow)
    assert made.exit_code == 0, made.output
    assert "6 x 5 x 8 x 8" in made.stdout
    assert made.stdout.count("input frames") == made.stdout.count("target frames") == 3


def test_generate_says_what_it_did(hofno: Hofno, flow: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_DATA", str(folder / "own store"))
    more = ("--set", "data.train=8")
    for arguments, words in (((), "written to"), ((), "read from"), (more, "written to"), (more, "read from")):
        result = hofno("generate", flow, *arguments)
        assert result.exit_code == 0, (result.output, result.exception)
        (made,) = (folder / "own store").iterdir()
        assert f"{words} {made}" in result.stdout.replace("\n", ""), (arguments, words)
    assert "read from" in hofno("generate", flow).stdout
    assert "written to" in hofno("generate", flow, "--force").stdout


def test_a_whole_study(hofno: Hofno, flow: Path, folder: Path) -> None:
    done = hofno("run", flow, "--out", "out")
    assert done.exit_code == 0, (done.output, done.exception)
    results = storage.read_json(folder / "out" / "results.json")
    for run in results["runs"]:
        assert {"rel_l2", "rollout", "one_step_rel_l2", "one_step_mse", "rel_l2_low"} <= set(run["metrics"])
        assert len(run["rollout"]["rel_l2_per_step"]) == 4
        assert len(run["rollout"]["later_rel_l2"]) == 3
        assert run["rollout"]["past"]["steps"] == 8
    page = (folder / "out" / "index.html").read_text()
    assert 'class="film"' in page
    assert len(page) < 3_000_000
    text = (folder / "out" / "report.md").read_text()
    for words in ("Film 1", "Beside the published numbers", "HO-FNO order 2 (ours)", "0.0018", "Energy spectrum"):
        assert words in text, words
    member = next((folder / "out" / "runs").glob("ho-fno*"))
    shown = hofno("evaluate", member)
    assert shown.exit_code == 0, (shown.output, shown.exception)
    assert "one_step_rel_l2" in shown.stdout
    assert "other data" in hofno("evaluate", member, "--set", "data.horizon=6").stdout
    again = hofno("report", "out")
    assert again.exit_code == 0, (again.output, again.exception)


def test_two_workers_read_the_same_parts(hofno: Hofno, flow: Path, folder: Path) -> None:
    done = hofno("run", flow, "--out", "two", "--workers", 2)
    assert done.exit_code == 0, (done.output, done.exception)
    assert [run["label"] for run in storage.read_json(folder / "two" / "results.json")["runs"]] == [
        "HO-FNO order 2",
        "FNO",
    ]


def test_predict_any_number_of_steps(hofno: Hofno, refused: Refused, flow: Path, folder: Path) -> None:
    assert hofno("train", flow, "--out", "run").exit_code == 0
    np.save(folder / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    assert hofno("predict", "run", "x.npy", "y.npy").exit_code == 0
    assert np.load(folder / "y.npy").shape == (2, 4, 8, 8)
    assert hofno("predict", "run", "x.npy", "z.npy", "--steps", 9).exit_code == 0
    assert np.load(folder / "z.npy").shape == (2, 9, 8, 8)
    described = json.loads((folder / "run" / "model.json").read_text())
    assert described["rollout"] == {"history": 1, "horizon": 4, "fields": 1}
    assert "expected (n, 1, *grid)" in refused("predict", "run", "z.npy", "w.npy")
    assert "leave out the --set" in refused("evaluate", "run", "--set", "data.history=2")


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("train.forcing=free", "use train.batch_of='trajectories'"),
        ("train.normaliser=pixel", "frames of a trajectory have train.normaliser='channel'; got 'pixel'"),
        ("train.normalise_targets=false", "set train.normalise_inputs and train.normalise_targets alike"),
        ("data.horizon=40", "give more frames or less history"),
        ("data.samples=40", "give two of the three"),
        ("data.viscosity=0", "greater than 0"),
        ("data.frames=1", "navier_stokes"),
        ("data.solver_resolution=12", "multiple of resolution"),
        ("model.modes=[9, 9]", "modes[0]=9"),
    ],
)
def test_a_wrong_spec_fails_early(refused: Refused, flow: Path, setting: str, text: str) -> None:
    assert text in refused("show", flow, "--set", setting)


def test_pairs_are_not_forced(refused: Refused) -> None:
    assert "is for trajectories" in refused("show", "tiny.toml", "--set", "train.forcing=free")


def test_steps_are_for_models_in_time(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert hofno("train", "tiny.toml", "--out", "steady", "--set", "train.epochs=1").exit_code == 0
    np.save(folder / "x.npy", np.zeros((2, 2, 16, 16), np.float32))
    assert "not trained on trajectories" in refused("predict", "steady", "x.npy", "y.npy", "--steps", 3)
