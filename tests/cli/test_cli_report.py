"""`hofno report`: what files it takes, and that it never touches what it did not write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from hofno.errors import CheckpointError
from hofno.study_results import check_reportable

Hofno = Callable[..., Result]
Refused = Callable[..., str]
RESULTS = Path(__file__).parents[2] / "results"
MEASURED = RESULTS / "best" / "poisson_p2.json"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_the_user_is_refused_and_left_as_it_is(refused: Refused, folder: Path) -> None:
    project = folder / "project"
    (project / "figures").mkdir(parents=True)
    (project / "figures" / "mine.pdf").write_text("precious")
    (project / "index.html").write_text("a site")
    before = contents(project)
    assert "holds neither a study nor a report" in refused("report", MEASURED, "--out", "project")
    (project / "runs").mkdir()  # of another program
    assert "project/index.html is in the way of the report" in refused("report", MEASURED, "--out", "project")
    assert "project/index.html is in the way of the report" in refused("run", "tiny", "--out", "project")
    (project / "index.html").rename(project / "report.md")
    assert "project/report.md is in the way" in refused("report", MEASURED, "--out", "project")
    (project / "report.md").rename(project / "index.html")
    assert contents(project) == before


def test_a_report_that_is_written_again_replaces_its_own_files_alone(hofno: Hofno, folder: Path) -> None:
    assert hofno("report", MEASURED, "--out", "page").exit_code == 0
    figures = folder / "page" / "figures"
    first = {path.name for path in figures.iterdir()}
    (figures / "mine.pdf").write_text("precious")
    (figures / "figure-77.png").write_text("a picture that no report wrote")
    text = (folder / "page" / "report.md").read_text()
    (folder / "page" / "report.md").write_text(f"{text}\n![one more](figures/figure-50.png)\n")
    (figures / "figure-50.png").write_text("of an earlier report, which had more")
    result = hofno("report", MEASURED, "--out", "page")
    assert result.exit_code == 0, result.output
    assert {path.name for path in figures.iterdir()} == {*first, "mine.pdf", "figure-77.png"}
    assert (figures / "mine.pdf").read_text() == "precious"


def test_one_test_sample_and_one_run_of_each_model_are_told_as_such(hofno: Hofno, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write('[[compare]]\nlabel = "too fast"\nset = { "train.lr" = 1e30 }\n')
    assert hofno("run", "tiny.toml", "--set", "data.test=1", "--out", "out").exit_code == 2, "one run diverged"
    text = (folder / "out" / "report.md").read_text()
    assert "(1 diverged)" in text
    assert "Curves and samples below" not in text, "all runs that are done are shown"
    assert "The relative L2 error of the only test sample." in text
    assert "the 1 test samples" not in text


@pytest.mark.parametrize("gone", ["index.html", "report.md", "figures/figure-01.png"])
def test_a_report_with_a_file_gone_is_made_whole(hofno: Hofno, folder: Path, gone: str) -> None:
    assert hofno("report", MEASURED, "--out", "page").exit_code == 0
    (folder / "page" / gone).unlink()
    result = hofno("report", MEASURED, "--out", "page")
    assert result.exit_code == 0, result.output
    assert (folder / "page" / gone).exists()


def test_a_report_of_an_earlier_version_is_known(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert hofno("report", MEASURED, "--out", "page").exit_code == 0
    report, index = folder / "page" / "report.md", folder / "page" / "index.html"
    lines = report.read_text().splitlines(keepends=True)
    report.write_text("".join(lines[:-1]))
    assert hofno("report", MEASURED, "--out", "page").exit_code == 0
    index.write_text("mine now")
    assert "page/index.html is in the way" in refused("report", MEASURED, "--out", "page")
    assert index.read_text() == "mine now"


def test_a_picture_in_the_way_is_refused(refused: Refused, folder: Path) -> None:
    mine = folder / "out" / "figures" / "figure-01.png"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (folder / "out" / "results.json").write_text(MEASURED.read_text())
    assert "out/figures/figure-01.png is in the way" in refused("report", "out")
    assert mine.read_text() == "mine"
    assert not (folder / "out" / "index.html").exists()


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_measured_file_is_whole_or_refused_in_one_line(path: Path) -> None:
    fault = ""
    try:
        check_reportable(json.loads(path.read_text()), path.name)
    except CheckpointError as error:
        fault = str(error)
    assert "\n" not in fault
    if fault:
        assert path.parent.name not in ("paper", "best")
        assert fault.startswith(path.name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recipes/airfoil_small.json", "run 0 lacks 'metrics'"),
        ("recipes/steady.json", "it lacks"),
        ("checks/navier_stokes_precision.json", "it holds no list of runs"),
        ("bench/cpu_two_threads.json", "expected schema 1, found None"),
    ],
)
def test_other_files_are_refused_by_name(refused: Refused, folder: Path, name: str, text: str) -> None:
    line = refused("report", RESULTS / name, "--out", "page")
    assert text in line
    assert "give the results.json" in line
    assert not (folder / "page").exists()


def test_a_file_without_a_run(refused: Refused, folder: Path) -> None:
    whole = json.loads(MEASURED.read_text())
    (folder / "none.json").write_text(json.dumps({"schema": 1, "runs": []}))
    assert "it lacks 'name'" in refused("report", "none.json", "--out", "page")
    (folder / "none.json").write_text(json.dumps({**whole, "runs": []}))
    assert "it holds no run" in refused("report", "none.json", "--out", "page")


@given(st.data())
def test_whatever_is_missing_or_of_another_kind_is_told_in_one_line(data: st.DataObject) -> None:
    whole: dict[str, Any] = json.loads(MEASURED.read_text())
    check_reportable(whole, "file")
    place: Any = whole
    if data.draw(st.booleans(), "in a run"):
        place = data.draw(st.sampled_from(whole["runs"]))
        keys = ["label", "cell", "seed", "metrics", "parameters", "seconds", "spec_hash"]
    else:
        keys = ["schema", "runs", "name", "title", "problem", "origin", "device", "versions", "created", "seconds"]
        keys += ["spec", "spec_hash"]
    key = data.draw(st.sampled_from(keys))
    if data.draw(st.booleans(), "missing"):
        del place[key]
    else:
        place[key] = data.draw(st.sampled_from([None, [], "x" * 5 if not isinstance(place[key], str) else {}]))
    pattern = "holds no run" if whole.get("runs") == [] else "is not a results file of a study"
    with pytest.raises(CheckpointError, match=pattern) as caught:
        check_reportable(whole, "file")
    assert "\n" not in str(caught.value)


def test_flows_on_a_line_have_curves_and_no_film(hofno: Hofno, folder: Path) -> None:
    """Frames of one axis are no pictures."""
    moving = np.arange(16) / 16 - np.arange(6)[:, None] / 16 + np.arange(12)[:, None, None] / 12
    np.save(folder / "frames.npy", np.sin(2 * np.pi * moving).astype(np.float32))
    data = '[data]\nproblem = "trajectories"\nframes = "frames.npy"\nperiodic = true\n'
    model = '[model]\nname = "fno"\nmodes = [3]\nwidth = 4\ndepth = 1\n[train]\nepochs = 1\n'
    (folder / "line.toml").write_text(data + model)
    result = hofno("run", "line.toml", "--out", "line")
    assert result.exit_code == 0, (result.output, result.exception)
    text = (folder / "line" / "report.md").read_text()
    assert "1 run on data of your own" in text
    assert "mean square mean(u²)/2" in text
    assert "Film" not in text


def test_the_command_to_make_a_study_can_be_pasted(refused: Refused) -> None:
    assert refused("report", "no where").endswith("make one with: hofno run SPEC --out 'no where'")
