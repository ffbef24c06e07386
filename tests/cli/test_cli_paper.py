"""`hofno paper`: the list, one table with its measured numbers, figures, and what is said where something lacks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from hofno.cli import options
from hofno.report.paper import entries

ROOT = Path(__file__).resolve().parents[2]
Hofno = Callable[..., Result]
Refused = Callable[..., str]


@pytest.fixture
def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where the package is installed without a checkout."""
    monkeypatch.setattr(options, "__file__", str(folder / "site" / "lib" / "hofno" / "cli" / "options.py"))


def test_list(hofno: Hofno) -> None:
    told = hofno("paper").stdout
    for entry in entries().values():
        assert entry.name in told
        assert entry.shows in told
        assert all(f"    {command}\n" in told for command in entry.commands)
    assert "not found here" not in told


def test_without_specs_and_results(alone: None, hofno: Hofno) -> None:
    assert "not found here: paper/darcy, best/darcy, paper/baselines_darcy; specs are in" in hofno("paper").stdout
    told = hofno("paper", "main_darcy").stdout
    assert "LaMO" in told, "published numbers are there"
    assert "not measured here: paper/darcy, best/darcy" in told


def test_one_with_its_results(hofno: Hofno) -> None:
    """Those of the checkout, found from another folder."""
    told = hofno("paper", "table_1").stdout
    assert "published, viscosity 1e-4" in told
    assert "measured: Navier-Stokes, viscosity 1e-4, one frame to the next" in told
    assert "ns_table1_1e-4.json: " in told
    assert "runs, data generated, NVIDIA H200" in told


def test_results_of_runs_made_by_the_commands(hofno: Hofno, folder: Path) -> None:
    """`hofno run paper/darcy --out runs/paper/darcy` is found by --results runs; what lacks is told."""
    results = json.loads((ROOT / "results" / "paper" / "darcy.json").read_text(encoding="utf-8"))
    (folder / "runs" / "paper" / "darcy").mkdir(parents=True)
    (folder / "runs" / "paper" / "darcy" / "results.json").write_text(
        json.dumps(results | {"runs": results["runs"][:1]})
    )
    told = hofno("paper", "main_darcy", "--results", "runs").stdout
    assert "runs/paper/darcy/results.json: 1 of 4 runs" in told
    assert "not measured in runs: best/darcy" in told


def test_costs_are_found(hofno: Hofno, folder: Path) -> None:
    assert "not measured in .: bench/efficiency" in hofno("paper", "efficiency", "--results", ".").stdout
    member = {"label": "FNO", "epoch_seconds": 9.87, "predict_seconds": 0.5, "peak_bytes": None}
    record = {
        "what": "study",
        "device_name": "a CPU",
        "results": [{"title": "Airfoil", "problem": "airfoil", "members": [member]}],
    }
    (folder / "bench").mkdir()
    (folder / "bench" / "efficiency.json").write_text(json.dumps(record))
    told = hofno("paper", "efficiency", "--results", ".").stdout
    assert "measured: Airfoil, on a CPU" in told
    assert "9.87" in told
    assert "not measured" not in told


def test_results_of_another_study_are_refused(refused: Callable[..., str], folder: Path) -> None:
    (folder / "paper").mkdir()
    shutil.copy(ROOT / "results" / "paper" / "pipe.json", folder / "paper" / "darcy.json")
    assert "holds results of 'pipe', not of paper/darcy" in refused("paper", "main_darcy", "--results", ".")


def test_results_by_a_changed_spec_say_so(hofno: Hofno, folder: Path) -> None:
    record = json.loads((ROOT / "results" / "paper" / "darcy.json").read_text())
    (folder / "paper").mkdir()
    for width, told in ((128, False), (8, True)):
        record["spec"]["model"]["width"] = width
        (folder / "paper" / "darcy.json").write_text(json.dumps(record))
        out = " ".join(hofno("paper", "main_darcy", "--results", ".").stdout.split())
        assert ("NOT by the spec as it stands here: model.width=8." in out) is told


@pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_mode_mixing_is_drawn(alone: None, hofno: Hofno, folder: Path, name: str, begin: bytes) -> None:
    result = hofno("paper", "mode_mixing", "--out", f"new/{name}")
    assert result.stdout == f"figure: new/{name}\n"
    assert (folder / "new" / name).read_bytes().startswith(begin)


def test_a_figure_from_results(hofno: Hofno, folder: Path) -> None:
    told = hofno("paper", "resolution", "--results", ROOT / "results", "--out", "a.svg").stdout
    assert f"from {ROOT / 'results' / 'paper' / 'darcy_resolution.json'}" in told
    assert (folder / "a.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing"], "`hofno paper` lists all"),
        (["--out", "a.svg"], "give its NAME"),
        (["mode_mixing", "--out", "a.gif"], "ending in one of .svg, .png, .pdf"),
        (["main_darcy", "--out", "a.svg"], "--out does not draw main_darcy"),
        (["main_darcy", "--results", "nowhere"], "there is no folder nowhere"),
        (["resolution", "--results", ".", "--out", "a.svg"], "got none that hold it"),
    ],
)
def test_what_is_refused(refused: Refused, folder: Path, arguments: list[str], text: str) -> None:
    assert text in refused("paper", *arguments)
    assert not (folder / "a.svg").exists()


def test_a_file_of_another_form_is_refused(refused: Refused, folder: Path) -> None:
    (folder / "paper").mkdir()
    (folder / "paper" / "darcy.json").write_text("{}")
    assert "paper/darcy.json is not a results file of a study" in refused("paper", "main_darcy", "--results", ".")
