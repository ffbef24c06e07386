"""`hofno evaluate --resolution`: a run and a study on grids they were not trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from hofno import storage

Hofno = Callable[..., Result]
Refused = Callable[..., str]

DARCY = """
label = "HO-FNO order 2"

[data]
problem = "darcy"
resolution = 9
solver_resolution = 17
train = 6
valid = 2
test = 3

[model]
name = "hofno"
modes = [3, 3]
width = 4
depth = 1
order = 2
domain_padding = 0.5
padded_by = "length"

[train]
epochs = 1
batch_size = 3

[[compare]]
label = "FNO"
[compare.set]
"model.name" = "fno"

[sweep]
seed = [0, 1]
"""


@pytest.fixture
def darcy(folder: Path) -> Path:
    (folder / "darcy.toml").write_text(DARCY)
    return folder / "darcy.toml"


def test_a_run(hofno: Hofno, darcy: Path, folder: Path) -> None:
    assert hofno("train", darcy, "--out", "run").exit_code == 0
    own = storage.read_json(folder / "run" / "evaluation.json")
    result = hofno("evaluate", "run", "--resolution", 17, "--resolution", 5)
    assert result.exit_code == 0, (result.output, result.exception)
    found = storage.read_json(folder / "run" / "resolution.json")
    assert found["trained_at"] == 9
    assert sorted(map(int, found["resolutions"])) == [5, 9, 17]
    at = found["resolutions"]
    assert at["9"]["metrics"].items() <= own["metrics"].items()  # the very same test samples
    assert at["9"]["per_sample"]["rel_l2"] == own["per_sample"]["rel_l2"]
    assert at["17"]["metrics"]["rel_l2"] != at["9"]["metrics"]["rel_l2"]
    assert "9 (trained)" in result.stdout
    for n in ("5", "9", "17"):
        assert f"{at[n]['metrics']['rel_l2']:.4g}" in result.stdout
    assert b"<svg" in (folder / "run" / "resolution.svg").read_bytes()
    assert hofno("check", "run").exit_code == 0
    other = hofno("evaluate", "run", "--set", "data.resolution=17")
    assert f"{at['17']['metrics']['rel_l2']:.6g}" in other.stdout  # as data that the problem makes there


def test_padding_that_changes_with_the_grid_is_told(hofno: Hofno, darcy: Path, folder: Path) -> None:
    """9 points and 4 are 13 intervals on 8; 17 and 8 are 25 on 16."""
    assert hofno("train", darcy, "--out", "run", "--set", "model.padded_by=points").exit_code == 0
    with pytest.warns(UserWarning, match=r"-3.8 % at 17, which costs accuracy .* model.padded_by='length'"):
        assert hofno("evaluate", "run", "--resolution", 17).exit_code == 0
    with pytest.warns(UserWarning, match=r"-3.8 % at 17, which costs accuracy"):
        assert hofno("evaluate", "run", "--set", "data.resolution=17").exit_code == 0
    assert hofno("evaluate", "run").exit_code == 0, "no warning"
    assert hofno("train", darcy, "--out", "other").exit_code == 0
    assert hofno("evaluate", "other", "--resolution", 17, "--resolution", 5).exit_code == 0, "no warning"


@pytest.mark.parametrize(
    "settings",
    [("model.domain_padding=0", "model.padded_by=points"), ("model={name='ffno', modes=[3, 3], width=4, depth=1}",)],
)
def test_networks_without_such_padding_are_not_told(settings: tuple[str, ...], hofno: Hofno, darcy: Path) -> None:
    chosen = [part for setting in ("compare=[]", *settings) for part in ("--set", setting)]
    assert hofno("train", darcy, "--out", "run", "--set", "sweep={}", *chosen).exit_code == 0
    assert hofno("evaluate", "run", "--resolution", 17).exit_code == 0, "no warning"


def test_a_study_is_one_figure(hofno: Hofno, darcy: Path, folder: Path) -> None:
    assert hofno("run", darcy, "--out", "study").exit_code == 0
    result = hofno("evaluate", "study", "--resolution", 17)
    assert result.exit_code == 0, (result.output, result.exception)
    runs = sorted((folder / "study" / "runs").iterdir())
    assert len(runs) == 4
    assert all((run / "resolution.json").exists() for run in runs)
    assert (folder / "study" / "resolution.svg").exists()
    assert result.stdout.count("(trained)") == 4
    titles = [line for line in result.stdout.splitlines() if "rel_l2 of 3 test samples" in line]
    assert ["ho-fno" in title for title in titles] == [True, True, False, False], "in the order of the study"
    page = (folder / "study" / "report.md").read_text()
    assert "Curves and samples below are of one run of each model, with seed 0." in page
    noted = {run["spec_hash"]: run["resolutions"] for run in storage.read_json(folder / "study/results.json")["runs"]}
    for run in runs:
        found = storage.read_json(run / "resolution.json")
        means = {n: part["metrics"]["rel_l2"] for n, part in found["resolutions"].items()}
        assert noted[found["spec_hash"]] == {"trained_at": 9, "rel_l2": means}
    assert hofno("run", darcy, "--out", "study").exit_code == 0  # all is done already, and the results stay as they are
    again = storage.read_json(folder / "study/results.json")["runs"]
    assert {run["spec_hash"]: run["resolutions"] for run in again} == noted


def test_a_figure_has_the_order_and_the_colours_of_the_report(hofno: Hofno, darcy: Path, folder: Path) -> None:
    text = DARCY.replace('label = "HO-FNO order 2"', 'label = "Z"').replace('label = "FNO"', 'label = "A"')
    darcy.write_text(text.replace("seed = [0, 1]", '"train.lr" = [1e-3, 2e-3]'))
    assert hofno("run", darcy, "--out", "study").exit_code == 0
    result = hofno("evaluate", "study", "--resolution", 17)
    assert result.exit_code == 0, (result.output, result.exception)
    drawn = (folder / "study" / "resolution.svg").read_text()
    labels = ["Z, lr 0.001", "Z, lr 0.002", "A, lr 0.001", "A, lr 0.002"]
    assert [run["label"] for run in storage.read_json(folder / "study" / "results.json")["runs"]] == labels
    places = [drawn.index(f"<!-- {label} -->") for label in labels]
    assert places == sorted(places)
    assert "hofno report study" in result.stdout
    assert hofno("report", "study").exit_code == 0
    page = (folder / "study" / "report.md").read_text()
    assert "## On other grids" in page
    (part,) = [part for part in page.split("## ") if part.startswith("On other grids")]
    header = next(line for line in part.splitlines() if line.startswith("| "))
    assert header == f"| points along each axis | {' | '.join(labels)} |"
    for run in sorted((folder / "study" / "runs").iterdir()):
        found = storage.read_json(run / "resolution.json")["resolutions"]["17"]["metrics"]["rel_l2"]
        assert f"| {found:.3g}".rstrip("0") in part


def test_other_data_write_nothing(hofno: Hofno, darcy: Path, folder: Path) -> None:
    assert hofno("train", darcy, "--out", "run").exit_code == 0
    result = hofno("evaluate", "run", "--resolution", 17, "--set", "data.test=2")
    assert "rel_l2 of 2 test samples" in result.stdout
    assert "nothing is written" in result.stdout
    assert not (folder / "run" / "resolution.json").exists()


def test_a_problem_that_solves_on_its_own_grid(hofno: Hofno, folder: Path) -> None:
    """Products alias on 16 points: the targets on 20 and 24 are other functions, which is told in one line."""
    assert hofno("train", "tiny.toml", "--out", "run").exit_code == 0
    with pytest.warns(UserWarning, match="errors at resolution 20, 24 are against other functions: prod") as caught:
        result = hofno("evaluate", "run", "--resolution", 20, "--resolution", 24)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert result.exit_code == 0, (result.output, result.exception)
    own = storage.read_json(folder / "run" / "evaluation.json")
    found = storage.read_json(folder / "run" / "resolution.json")["resolutions"]
    assert found["16"]["metrics"].items() <= own["metrics"].items()


def test_the_same_functions_are_not_warned_of(hofno: Hofno, folder: Path) -> None:
    assert hofno("train", "tiny.toml", "--out", "run", "--set", "data.resolution=18").exit_code == 0
    assert hofno("evaluate", "run", "--resolution", 20).exit_code == 0  # warnings are errors here


@pytest.mark.parametrize("normaliser", ["pixel", "column"])
def test_statistics_of_places_are_refused(hofno: Hofno, refused: Refused, darcy: Path, normaliser: str) -> None:
    out = f"run-{normaliser}"
    assert hofno("train", darcy, "--out", out, "--set", f"train.normaliser={normaliser}").exit_code == 0
    for asked in (("--resolution", 17), ("--set", "data.resolution=17")):
        text = refused("evaluate", out, *asked)
        assert "its grid (9, 9); got a grid (17, 17)" in text
        assert "train.normaliser='channel'" in text
    assert hofno("evaluate", out, "--resolution", 9).exit_code == 0


def test_what_cannot_be_asked_for(hofno: Hofno, refused: Refused, darcy: Path, folder: Path) -> None:
    assert hofno("train", darcy, "--out", "run").exit_code == 0
    assert "one of 17, 9, 5, 3, 2; got 7" in refused("evaluate", "run", "--resolution", 7)
    assert "modes[0]=3" in refused("evaluate", "run", "--resolution", 2)
    assert "contradict" in refused("evaluate", "run", "--resolution", 17, "--set", "data.resolution=5")
    (folder / "empty" / "runs").mkdir(parents=True)
    assert "no finished run" in refused("evaluate", "empty", "--resolution", 17)


def test_points_have_no_resolution(hofno: Hofno, refused: Refused, folder: Path) -> None:
    (folder / "cloud.toml").write_text(
        '[data]\nproblem = "elasticity"\ntrain = 2\nvalid = 1\ntest = 1\n'
        '[model]\nname = "geofno"\nmodes = [3, 3]\nwidth = 4\ndepth = 1\n[train]\nepochs = 1\n'
    )
    done = hofno("train", "cloud.toml", "--out", "cloud")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "the grid of problem 'elasticity' is fixed" in refused("evaluate", "cloud", "--resolution", 17)
