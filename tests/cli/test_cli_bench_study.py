"""`hofno bench study`: a real study measured on the CPU, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hofno.bench import study
from hofno.cli import app
from hofno.storage import read_json

Hofno = Callable[..., Result]
Refused = Callable[..., str]

SMALLER = ("data.train=10", "data.test=40", "data.resolution=16", "data.k_max=4", "model.modes=[3,3]", "model.width=4")
COMPARED = """compare=[{label="FNO", set={"model.name"="fno"}}, {label="long", set={"train.epochs"=200}}]"""


def test_a_study_is_measured(hofno: Hofno, folder: Path, data_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "ROUND_SECONDS", 0.01)
    changes = [word for setting in (*SMALLER, COMPARED) for word in ("--set", setting)]
    kept = set(data_store.iterdir())
    done = hofno("bench", "study", "quick/poisson", *changes, "--json", "costs.json", "--plot", "costs.png")
    assert done.exit_code == 0, (done.output, done.exception)
    assert set(data_store.iterdir()) == kept, "no data are made"
    (result,) = read_json(folder / "costs.json")["results"]
    ours, fno = result["members"]
    assert (ours["label"], fno["label"], result["reference"]) == ("HO-FNO order 3, depth 1", "FNO", "FNO")
    assert ours["also"] == ["long"]
    for member in (ours, fno):
        assert member["batches"] == 2
        assert set(member["predict_rounds"]) == {"32", "8"}
        assert 0 < member["epoch_seconds"] < 60
        assert 0 < member["predict_seconds"] < 60
        assert 0 <= member["peak_bytes"] < 2**30
        for key in ("epoch_seconds", "predict_seconds"):
            assert member["relative"][key] == member[key] / fno[key]
    assert "network 2/2" in done.stdout
    assert "stands for long too" in done.stdout
    assert "training, s an epoch" in done.stdout
    assert done.stdout.endswith("plot: costs.png\n")
    assert (folder / "costs.png").stat().st_size > 10_000


def test_labels_do_not_tell_of_a_length_that_is_not_measured(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"epoch_seconds": 1.0, "predict_seconds": 1.0, "peak_bytes": None, "step_rounds": [1.0, 1.0]}
    monkeypatch.setattr(study, "alone", lambda *_: {**costs, "predict_rounds": {}})
    done = hofno("bench", "study", "tiny", "tiny", "--set", "sweep={'train.epochs'=[5, 10]}", "--json", "c.json")
    assert done.exit_code == 0, (done.output, done.exception)
    assert [[m["label"] for m in result["members"]] for result in read_json(Path("c.json"))["results"]] == [
        ["HO-FNO"]
    ] * 2
    assert "epochs" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study"], "needs a SPEC, such as paper/efficiency_airfoil"),
        (["study", "nowhere"], "there is no spec nowhere"),
        (["study", "tiny", "--reference", "FNO"], "--reference 'FNO' names no network of tiny; it has: HO-FNO"),
        (["study", "tiny", "--shape", "ns"], "--shape and --batch are not for `hofno bench study`"),
        (["study", "tiny", "--batch", "2"], "--shape and --batch are not for `hofno bench study`"),
        (["study", "tiny", "--plot", "costs.txt"], "expected a plot ending in one of"),
        (["study", "tiny", "--json", "."], ". cannot be written: Is a directory; give the path of another file"),
        (
            ["study", "tiny", "--json", "tiny.toml/costs.json"],
            "costs.json cannot be written: Not a directory",
        ),
        (["study", "tiny", "--plot", "tiny.toml/costs.svg"], "tiny.toml/costs.svg cannot be written: Not a directory"),
        (["model", "--shape", "small", "--json", "tiny.toml/a/b.json"], "cannot be written: Not a directory"),
        (["study", "tiny", "--set", "published='efficiency'"], "expected a problem whose cost is published"),
        (["study", "tiny", "--set", "model.modes=[99, 99]"], "modes"),
        (["model", "tiny"], "a SPEC, --set and --reference are for `hofno bench study`; got 'model'"),
        (["engine", "--reference", "FNO"], "a SPEC, --set and --reference are for `hofno bench study`; got 'engine'"),
        (["transform", "--set", "seed=1"], "a SPEC, --set and --reference are for `hofno bench study`"),
        (["tiny"], "what must be one of model, engine, peers, transform, study; got 'tiny'"),
    ],
)
def test_what_is_refused(refused: Refused, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.setattr(study, "alone", lambda *_: pytest.fail("measured something"))
    assert message in refused("bench", *words)


def test_help_tells_of_studies() -> None:
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["bench", "--help"]).stdout
    for text in (
        "[SPEC]...",
        "one or more specs",
        "--reference",
        "--set",
        "study: what every network of a SPEC costs",
        "[default: (all)]",
    ):
        assert text in shown
