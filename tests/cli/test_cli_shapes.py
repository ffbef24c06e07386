"""`hofno shapes`: foils and dies of one's own from a file to a table, arrays and a page, beside the solver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import Result

from hofno import load, storage
from hofno.problems import airfoil_flows
from hofno.problems.airfoil_mesh import airfoil
from hofno.problems.registry import problem
from hofno.problems.shape_files import read_foil
from hofno.problems.shapes import die_inputs, die_targets, foil_inputs, foil_targets

Hofno = Callable[..., Result]
LAW = {"coarsen": 10, "mach": 0.6, "mach_range": 0.1, "incidence_range": 2.0, "pressure": True}
FOILS = """
[data]
problem = "airfoil"
coarsen = 10
mach = 0.6
mach_range = 0.1
incidence_range = 2.0
pressure = true
train = 4
valid = 9
test = 2
"""
DIES = """
[data]
problem = "plasticity"
form = "frames"
coarsen = 10
refine = 1
train = 2
valid = 2
test = 1
"""
TRAINED = """
[model]
name = "hofno"
modes = [4, 3]
width = 4
depth = 1
order = 2

[train]
epochs = 1
batch_size = 4
"""
LIFT = "lift coefficient"


def cells(result: Result) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if "│" in line]


@pytest.fixture
def foils(hofno: Hofno, folder: Path) -> Path:
    """A run on foils, and files of two of them."""
    (folder / "foils.toml").write_text(FOILS + TRAINED)
    result = hofno("train", "foils.toml", "--out", "run")
    assert result.exit_code == 0, (result.output, result.exception)
    for number, design in enumerate(np.eye(8)[[3, 5]] * 0.03):
        points = airfoil(torch.from_numpy(design[None]), 60)[0].numpy().T
        np.savetxt(folder / f"foil{number}.dat", points, header=f"foil {number}", comments="", fmt="%.17g")
    return folder / "run"


def test_a_table_of_foils_in_streams(hofno: Hofno, foils: Path) -> None:
    result = hofno("shapes", foils, "foil0.dat", "foil1.dat", "--mach", "0.55", "--mach", "0.65", "--degrees", "1")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "solved" not in result.output
    table = cells(result)
    assert [row[:4] for row in table[:4]] == [
        ["0", "foil0", "0.55", "1"],
        ["1", "foil0", "0.65", "1"],
        ["2", "foil1", "0.55", "1"],
        ["3", "foil1", "0.65", "1"],
    ]
    assert table[4][1] == "±"
    points = np.loadtxt("foil1.dat", skiprows=1)
    operator, made = load(foils), problem("airfoil", LAW)
    x = foil_inputs(made, points, mach=0.55, degrees=1.0)
    y = operator.predict(x)
    lift = made.outcomes[LIFT].of(torch.from_numpy(x), torch.from_numpy(y))
    assert f"{float(lift):.4g}" in table[2]
    assert f"{float(operator.strangeness(x)[0]):.2f}" == table[2][-1]
    known = storage.read_json(foils / "evaluation.json")["outcomes"][LIFT]["bound"]
    assert f"{known:.2g}" in table[4]
    assert "relative L2 error expected" in result.output


def test_beside_the_solver_with_a_page(hofno: Hofno, foils: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = hofno("shapes", foils, "foil0.dat", "--degrees", "0", "--degrees", "2", "--solve", "--out", "found")
    assert result.exit_code == 0, (result.output, result.exception)
    first, below, second, _, bounds = cells(result)
    assert (first[1], below[1], second[3], bounds[1]) == ("foil0", "solved", "2", "±")
    points, out = np.loadtxt("foil0.dat", skiprows=1), foils.parent / "found"
    truth = foil_targets(problem("airfoil", LAW), [points] * 2, degrees=[0, 2], device="cpu")
    np.testing.assert_array_equal(np.load(out / "solved.npy"), truth)
    guess = np.load(out / "predicted.npy")
    np.testing.assert_allclose(guess, load(foils).predict(np.load(out / "inputs.npy")), atol=1e-6)
    record = storage.read_json(out / "shapes.json")
    assert record["problem"] == "airfoil"
    for number, row in enumerate(record["shapes"]):
        assert (row["shape"], row["Mach"], row["degrees"]) == ("foil0", 0.6, 2.0 * number)
        error = np.linalg.norm(guess[number] - truth[number]) / np.linalg.norm(truth[number])
        assert row["rel_l2"] == pytest.approx(error, rel=1e-5)
        assert set(row["solved"]) == set(row["predicted"]) == set(row["bounds"])
    assert f"{record['shapes'][0]['solved'][LIFT]:.4g}" in below
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "## foil0, Mach 0.6, degrees 2" in page
    assert (out / "index.html").exists()
    monkeypatch.setattr(airfoil_flows, "solve_steady", None)  # solved flows are in the store
    again = hofno("shapes", foils, "foil0.dat", "--degrees", "2", "--solve")
    assert again.exit_code == 0, (again.output, again.exception)
    assert cells(again)[1] == ["", *cells(result)[3][1:]]


def test_what_the_solver_does_not_find_is_no_number(hofno: Hofno, foils: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hofno.problems.shapes.foil_targets", lambda made, foils, *_, **__: np.full((len(foils), 2, 23, 6), np.nan)
    )
    result = hofno("shapes", foils, "foil0.dat", "--solve", "--out", "none")
    assert result.exit_code == 0, (result.output, result.exception)
    assert cells(result)[1][-3:] == ["-", "", ""]
    assert "not solved, or no number: # 0" in result.output
    page = (foils.parent / "none" / "report.md").read_text(encoding="utf-8")
    assert "not solved" in page
    (row,) = storage.read_json(foils.parent / "none" / "shapes.json")["shapes"]
    assert row["rel_l2"] is None
    assert set(row["solved"].values()) == {None}


def test_streams_that_training_had_none_of(hofno: Hofno, foils: Path, recwarn: pytest.WarningsRecorder) -> None:
    result = hofno("shapes", foils, "foil0.dat", "--mach", "0.8", "--mach", "0.6", "--solve", "--out", "far")
    assert result.exit_code == 0, (result.output, result.exception)
    assert [row[0] for row in cells(result)[::2]] == ["0*", "1", ""]
    assert "in streams that training had none of, so that no bound holds: # 0" in result.output
    assert "not of rows with *" in result.output
    record = storage.read_json(foils.parent / "far" / "shapes.json")
    first, second = (row["bounds"] for row in record["shapes"])
    assert set(first.values()) == {None}
    assert None not in second.values()
    assert "training had none of" in (foils.parent / "far" / "report.md").read_text(encoding="utf-8")
    assert not [warning for warning in recwarn if "seen the like" in str(warning.message)]


def test_foils_unlike_those_of_training_have_no_bounds(
    hofno: Hofno, foils: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = np.loadtxt("foil0.dat", skiprows=1)
    np.savetxt("curved.dat", points + 0.3 * points[:, :1] * (1 - points[:, :1]) * [0, 1])
    made, operator = problem("airfoil", LAW), load(foils)
    near, far = (
        operator.strangeness(foil_inputs(made, read_foil(Path(f"{name}.dat"))))[0] for name in ("foil0", "curved")
    )
    assert near < far
    for module in ("expect", "shape_answers"):  # of 4 foils little is known
        monkeypatch.setattr(f"hofno.cli.{module}.STRANGE", float(near + far) / 2)
    result = hofno("shapes", foils, "foil0.dat", "curved.dat", "--out", "odd")
    assert result.exit_code == 0, (result.output, result.exception)
    assert [row[0] for row in cells(result)] == ["0", "1*", ""]
    assert "unlike the inputs of training: 1 of 2, by number 1" in result.output
    bounds = [row["bounds"][LIFT] for row in storage.read_json(foils.parent / "odd" / "shapes.json")["shapes"]]
    assert bounds == [pytest.approx(storage.read_json(foils / "evaluation.json")["outcomes"][LIFT]["bound"]), None]


def test_more_shapes_than_are_drawn_and_names_that_repeat(hofno: Hofno, foils: Path) -> None:
    Path("other").mkdir()
    Path("other/foil0.dat").write_bytes(Path("foil0.dat").read_bytes())
    streams = [word for degrees in (-1, 0, 1, 2) for word in ("--degrees", degrees)]
    result = hofno("shapes", foils, "foil0.dat", "other/foil0.dat", *streams, "--solve", "--out", "many")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "2 foils, 8 flows" in result.output
    assert {row[1] for row in cells(result)} == {"foil0.dat", "other/foil0.dat", "solved", "±"}
    page = (foils.parent / "many" / "report.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == 1 + 6
    assert "The first 6 of 8 that were solved are drawn" in page
    record = storage.read_json(foils.parent / "many" / "shapes.json")
    assert record["run"] == str(foils)
    assert [row["file"] for row in record["shapes"]] == ["foil0.dat"] * 4 + ["other/foil0.dat"] * 4


def test_a_combined_operator_has_bounds_too(hofno: Hofno, foils: Path) -> None:
    assert hofno("train", "foils.toml", "--out", "second", "--set", "seed=1").exit_code == 0
    assert hofno("combine", foils, "second", "--out", "both").exit_code == 0
    result = hofno("shapes", "both", "foil0.dat")
    assert cells(result)[-1][1] == "±"
    bound = storage.read_json(Path("both/evaluation.json"))["outcomes"][LIFT]["bound"]
    assert f"{bound:.2g}" in cells(result)[-1]
    load("both").save("saved")
    assert "no bounds of these numbers are known" in hofno("shapes", "saved", "foil0.dat").output


def test_a_folder_goes_with_what_was_to_fill_it(hofno: Hofno, foils: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hofno.cli.shape_answers.show_sample", interrupted)
        assert hofno("shapes", foils, "foil0.dat", "--solve", "--out", "new").exit_code == 130
    assert not (foils.parent / "new").exists()
    (foils.parent / "new").mkdir()
    assert hofno("shapes", foils, "foil0.dat", "--solve", "--out", "new").exit_code == 0


def test_dies_by_rows(hofno: Hofno, folder: Path) -> None:
    (folder / "dies.toml").write_text(DIES + TRAINED)
    assert hofno("train", "dies.toml", "--out", "run").exit_code == 0
    (folder / "blunt.txt").write_text("places 0 10 20 30 40 50\n7.6 5 2 3 5 7.6\n7.6 6 4 3 5 7.6\n")
    result = hofno("shapes", "run", "blunt.txt", "--solve", "--out", "found")
    assert result.exit_code == 0, (result.output, result.exception)
    assert [row[1] for row in cells(result)] == ["blunt:1", "solved", "blunt:2", "solved"]
    assert "the last of 20 frames" in result.output
    made = problem("plasticity", {"form": "frames", "coarsen": 10, "refine": 1})
    dies = [[7.6, 5, 2, 3, 5, 7.6], [7.6, 6, 4, 3, 5, 7.6]], [0, 10, 20, 30, 40, 50]
    np.testing.assert_array_equal(np.load(folder / "found" / "inputs.npy"), die_inputs(made, *dies))
    truth = die_targets(made, *dies, device="cpu")
    np.testing.assert_array_equal(np.load(folder / "found" / "solved.npy"), truth)
    guess = np.load(folder / "found" / "predicted.npy")
    second = storage.read_json(folder / "found" / "shapes.json")["shapes"][1]
    assert second["rel_l2"] == pytest.approx(
        np.linalg.norm((guess - truth)[20:]) / np.linalg.norm(truth[20:]), rel=1e-5
    )
    width = made.outcomes["width"].of(*(torch.from_numpy(array[-1:]) for array in (truth, truth)))
    assert second["solved"]["width"] == pytest.approx(float(width))


def test_dies_of_several_files_are_solved_together(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the same places; the form is that of whole volumes."""
    (folder / "dies.toml").write_text((DIES + TRAINED).replace('"frames"', '"volume"').replace("[4, 3]", "[4, 2, 3]"))
    assert hofno("train", "dies.toml", "--out", "run").exit_code == 0
    dies = [7.6, 5, 2, 3, 5, 7.6], [7.6, 6, 4, 3, 7.6], [7.6, 4, 5, 3, 5, 7.6]
    for number, die in enumerate(dies):
        (folder / f"die{number}.txt").write_text(" ".join(map(str, die)))
    calls: list[list[str]] = []

    def counted(*given: object, names: list[str], **options: object) -> np.ndarray:
        calls.append(names)
        return die_targets(*given, names=names, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("hofno.problems.shapes.die_targets", counted)
    result = hofno("shapes", "run", "die0.txt", "die1.txt", "die2.txt", "--solve", "--out", "found")
    assert result.exit_code == 0, (result.output, result.exception)
    assert calls == [["die0", "die2"], ["die1"]]
    made = problem("plasticity", {"form": "volume", "coarsen": 10, "refine": 1})
    found = np.load(folder / "found" / "solved.npy")
    assert found.shape == (3, 4, 11, 4, 20)
    for die, block in zip(dies, found, strict=True):
        np.testing.assert_allclose(die_targets(made, die, device="cpu")[0], block, rtol=0, atol=1e-6)


def test_what_is_refused(hofno: Hofno, refused: Callable[..., str], foils: Path) -> None:
    (foils.parent / "short.dat").write_text("1 0\n0 0\n1 0\n")
    assert "short.dat holds 3 points" in refused("shapes", foils, "foil0.dat", "short.dat")
    np.savetxt("open.dat", np.loadtxt("foil0.dat", skiprows=1)[2:])
    assert "open.dat: the points of a foil must run" in refused("shapes", foils, "foil0.dat", "open.dat")
    assert "must be above 0" in refused("shapes", foils, "foil0.dat", "--mach", "0")
    assert "foil0.dat" in refused("shapes", foils, "foil0.dat", "--out", "foil0.dat/x")
    assert "none.dat cannot be read" in refused("shapes", foils, "none.dat")
    assert "exists already" in refused("shapes", foils, "foil0.dat", "--out", foils)
    assert hofno("train", "tiny.toml", "--out", "other").exit_code == 0
    assert "airfoil and plasticity, and other is of poisson" in refused("shapes", "other", "foil0.dat")
    still = (FOILS + TRAINED).replace("mach_range = 0.1\nincidence_range = 2.0\n", "")
    (foils.parent / "still.toml").write_text(still)
    assert hofno("run", "still.toml", "--out", "study").exit_code == 0
    assert "study is no single model" in refused("shapes", "study", "foil0.dat")
    assert "it holds the runs of the study" in refused("shapes", "study/runs", "foil0.dat")
    assert "it holds the runs of the study" in refused("predict", "study/runs", "x.npy", "y.npy")
    assert "it holds the runs of the study" in refused("export", "study/runs", "model.pt2")
    (one,) = Path("study/runs").iterdir()
    assert "degrees is no input of this problem" in refused("shapes", one, "foil0.dat", "--degrees", "1")
    (foils.parent / "dies.toml").write_text(DIES + TRAINED)
    assert hofno("train", "dies.toml", "--out", "press").exit_code == 0
    assert "are for foils, and press is of plasticity" in refused("shapes", "press", "foil0.dat", "--mach", "0.7")
