"""Folders and names that are not what a command wants: what they are is said, and what to do with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import hofno as package
from hofno import stages
from hofno.storage.runs import instead_of_a_run

Hofno = Callable[..., Result]
Refused = Callable[..., str]

STUDY = '[[compare]]\nlabel = "FNO"\nset = {"model.name" = "fno"}\n'


@pytest.fixture
def study(hofno: Hofno, folder: Path) -> Path:
    with (folder / "tiny.toml").open("a") as file:
        file.write(STUDY)
    result = hofno("run", "tiny", "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    return folder / "study"


def test_a_study_in_place_of_a_run(study: Path, refused: Refused, hofno: Hofno) -> None:
    first, second = (path.relative_to(study.parent) for path in sorted((study / "runs").iterdir()))
    for arguments in (["evaluate", "study"], ["train", "--resume", "study"], ["predict", "study", "x.npy", "y.npy"]):
        assert refused(*arguments).endswith(f"it is a study of 2 runs; give one of them: {first}, {second}")
    assert f"the SPEC it was run with, or one of its runs: {first}" in refused("show", "study")
    assert hofno("evaluate", first).exit_code == 0
    told = refused("report", first)
    assert f"hofno evaluate {first}; to have a study, make one with: hofno run SPEC --out OTHER" in told


def test_many_runs_are_not_all_named(folder: Path) -> None:
    for number in range(9):
        (folder / "study" / "runs" / str(number)).mkdir(parents=True)
        for name in ("spec.toml", "model.safetensors", "manifest.json"):
            (folder / "study" / "runs" / str(number) / name).touch()
    assert instead_of_a_run(folder / "study").endswith("runs/5 and 3 more")


def test_runs_that_are_not_finished_are_not_offered(study: Path, refused: Refused) -> None:
    first, second = sorted((study / "runs").iterdir())
    assert refused("report", "study/runs").endswith("study/runs holds the runs of a study; give the study: study")
    assert "it holds the runs of the study study; give one of them" in refused("evaluate", "study/runs")
    (first / "model.safetensors").unlink()
    told = refused("evaluate", "study")
    assert told.endswith(f"of 2 runs, 1 of them not finished; give one of them: {second.relative_to(study.parent)}")
    (second / "model.safetensors").unlink()
    (study / "results.json").unlink()
    assert "2 of them not finished; give its hofno run again to finish them" in refused("evaluate", "study")
    assert "is a study of 2 runs without its results.json; give its hofno run again" in refused("report", "study")


def test_a_folder_of_fit_and_a_saved_model(refused: Refused, hofno: Hofno, folder: Path) -> None:
    data = package.generate("poisson", degree=1, resolution=16, k_min=2, k_max=4, waves=8, train=4, valid=1, test=1)
    model = package.HOFNO(1, 1, modes=(4, 4), width=4, depth=1)
    run = package.fit(model, data, epochs=1, out=folder / "fitted", progress=False)
    run.save(folder / "saved")
    for name, what in (("fitted", "it is one of hofno.fit"), ("saved", "it is a saved model")):
        for command in (["evaluate"], ["train", "--resume"]):
            told = refused(*command, name)
            assert what in told
            assert "hofno predict and hofno check take it" in told
            assert f"hofno.evaluate(hofno.load('{name}'), data.test)" in told
        assert hofno("check", name).exit_code == 0
        assert refused("report", name).endswith("make one with: hofno run SPEC --out OTHER")
        assert "is a folder without a spec.toml" in refused("show", name)
    assert "out='fitted', resume=True) goes on with it" in refused("evaluate", "fitted")


def test_the_folder_of_a_run_is_a_spec(hofno: Hofno) -> None:
    assert hofno("train", "tiny", "--out", "run", "--set", "train.epochs=1").exit_code == 0
    assert "1 epoch of 3 batches" in hofno("show", "run").stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("quick/poison", "there is no spec quick/poison; did you mean quick/poisson?"),
        ("poisson", "did you mean quick/poisson?"),
        ("Quick/Darcy", "did you mean quick/darcy?"),
        ("quick/darcy.toml", "did you mean quick/darcy?"),
        ("quick", "did you mean quick/darcy or quick/poisson?"),
        ("nofile.toml", "there is no file nofile.toml; check the path"),
        ("nothing/like/it", "there is no spec nothing/like/it; `hofno list specs` shows all"),
        ("specs", "specs is a folder without a spec.toml"),
    ],
)
def test_names_of_specs(refused: Refused, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    for known in ("darcy", "poisson"):
        (folder / "specs" / "quick").mkdir(parents=True, exist_ok=True)
        (folder / "specs" / "quick" / f"{known}.toml").touch()
    monkeypatch.setattr("hofno.cli.options.spec_folders", lambda: [Path("specs")])
    assert text in refused("show", name)


def test_a_run_that_diverged_at_once_gives_its_folder_back(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert "no checkpoint was saved" in refused("train", "tiny", "--out", "run", "--set", "train.lr=1e30")
    assert (folder / "run" / "spec.toml").exists()
    result = hofno("train", "tiny", "--out", "run")
    assert result.exit_code == 0, (result.output, result.exception)
    assert stages.read_spec(folder / "run").train.lr == 1e-3
    assert "holds a finished run" in refused("train", "tiny", "--out", "run")


def test_what_was_trained_or_written_by_hand_is_not_replaced(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert hofno("train", "tiny", "--out", "run").exit_code == 0
    for file in ("model.safetensors", "evaluation.json", "manifest.json"):
        (folder / "run" / file).unlink()
    told = refused("train", "tiny", "--out", "run")
    assert "continue it with: hofno train --resume run; with other settings, choose another --out" in told
    (folder / "mine").mkdir()
    (folder / "mine" / "spec.toml").write_text((folder / "tiny.toml").read_text())
    before = (folder / "mine" / "spec.toml").read_bytes()
    assert "holds an unfinished run" in refused("train", "tiny", "--out", "mine")
    assert (folder / "mine" / "spec.toml").read_bytes() == before
    refused("train", "tiny", "--out", "noted", "--set", "train.lr=1e30")
    (folder / "noted" / "thesis.txt").write_text("mine")
    assert "holds an unfinished run" in refused("train", "tiny", "--out", "noted")
