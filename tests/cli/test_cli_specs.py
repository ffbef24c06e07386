"""Specs that come with the package: found by name from any folder, those of the user first."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hofno import stages
from hofno.cli import app, options, prose

Hofno = Callable[..., Result]
Refused = Callable[..., str]
ROOT = Path(__file__).parents[2]


def test_specs_are_data_of_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["hofno"]
    package = ROOT / "src" / "hofno"
    shipped = {path.resolve() for pattern in patterns if "specs" in pattern for path in package.glob(pattern)}
    assert shipped == {path for kind in ("quick", "paper", "best") for path in (ROOT / "specs" / kind).glob("*.toml")}
    assert not list(ROOT.glob("src/hofno/specs/*.toml")), "the link leads to specs/, where all are in folders"


def test_specs_of_an_installed_package(hofno: Hofno, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("site-packages/hofno")
    (place / "specs" / "quick").mkdir(parents=True)
    (place / "specs" / "quick" / "mine.toml").write_text('title = "came with it"\n' + Path("tiny.toml").read_text())
    monkeypatch.setattr(options, "__file__", str((place / "cli" / "options.py").absolute()))
    assert "quick/mine" in hofno("list", "specs").stdout
    assert options.find_spec("quick/mine").is_relative_to(place.absolute())
    told = refused("show", "specs/quick/mine.toml")
    assert "there is no file specs/quick/mine.toml; one came with hofno: quick/mine" in told
    Path("specs/quick").mkdir(parents=True)
    Path("specs/quick/mine.toml").write_text(Path("tiny.toml").read_text())
    assert options.find_spec("quick/mine") == Path("specs/quick/mine.toml")


def test_a_key_that_a_sweep_gives_to_its_runs_is_not_set(hofno: Hofno, refused: Refused) -> None:
    Path("study.toml").write_text(Path("tiny.toml").read_text() + "\n[sweep]\nseed = [0, 1]\n'model.depth' = [1, 2]\n")
    told = refused("show", "study.toml", "--set", "seed=3")
    assert "--set seed has no effect: [sweep] gives the runs seed = [0, 1]; set those instead" in told
    assert "sweep.'model.depth'=[1]" in refused("run", "study.toml", "--out", "o", "--set", "model.depth=3")
    assert hofno("show", "study.toml", "--set", "sweep.seed=[3]").exit_code == 0


def test_lines_in_a_terminal_have_its_width(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ("--set", "model.drop_path=0.6666666666666666", "--set", "title=" + "a long title " * 12)
    whole = hofno("show", "tiny", *long).stdout
    assert max(map(len, whole.splitlines())) > 150
    assert "drop_path=0.6667" in whole
    monkeypatch.setattr(prose, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    wrapped = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["show", "tiny", *long]).stdout
    assert max(map(len, wrapped.splitlines())) <= 80
    assert wrapped.split() == whole.split()


def test_a_store_that_cannot_be_written_is_found_before_data_are_made(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object, **__: object) -> None:
        pytest.fail("data are made")

    Path("file").touch()
    monkeypatch.setenv("HOFNO_DATA", "file/store")
    monkeypatch.setattr(stages, "make_data", make)
    for command in (("generate", "tiny"), ("train", "tiny", "--out", "run"), ("run", "tiny", "--out", "study")):
        assert "file" in refused(*command)


def test_trials_that_labels_tell_apart_are_no_study(refused: Refused) -> None:
    told = refused("report", ROOT / "results" / "recipes" / "poisson_p3.json", "--out", "page")
    assert "are trials that labels alone tell apart, and no study; read them in the file itself" in told


def test_the_help_of_evaluate_offers_what_it_takes(hofno: Hofno) -> None:
    told = " ".join(hofno("evaluate", "--help").stdout.split())
    assert "train.epochs" not in told
    assert "data.seed=7" in told
