"""Published files in specs: looked at before they are read, stamped, without validation samples, never mixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from typer.testing import Result

import hofno as library
from hofno.data.files import look
from hofno.data.heads import published_files, shapes_in
from hofno.data.read import READERS, options_of
from hofno.data.stamps import BLOCKS, END, changed_sources, stamp_of
from hofno.errors import DataError, HofnoError, SpecError
from hofno.problems import airfoil_files, elasticity, pipe, pressed, problem
from hofno.problems.base import Published
from hofno.problems.darcy import FILES
from hofno.problems.registry import problem_class

Hofno = Callable[..., Result]
Refused = Callable[..., str]

FLOW = """
label = "HO-FNO"

[data]
problem = "navier_stokes"
samples = 24
frames = 6
resolution = 8
history = 2
files = "flow.mat"
step = 0.01

[model]
name = "hofno"
modes = [3, 3]
width = 8
depth = 1
order = 2

[train]
epochs = 2
batch_size = 8

[[compare]]
label = "FNO"
set = { "model.name" = "fno" }
"""


def frames() -> np.ndarray:
    u = np.random.default_rng(0).normal(size=(24, 8, 8, 6))
    return u - u.mean((1, 2), keepdims=True)


@pytest.fixture
def flow(folder: Path) -> Path:
    """A small file of flows and a study of it."""
    scipy.io.savemat(folder / "flow.mat", {"u": frames()})
    (folder / "flow.toml").write_text(FLOW)
    return folder


def sparse(path: Path, shape: tuple[int, ...]) -> None:
    """A .npy file of zeros that takes no room on the disk."""
    np.lib.format.open_memmap(path, "w+", np.float32, shape).flush()


def test_stamps_know_changes_anywhere_in_a_small_file(tmp_path: Path) -> None:
    file = tmp_path / "some.npy"
    whole = np.random.default_rng(0).bytes(3 * END)
    file.write_bytes(whole)
    before = {"files": {"x": stamp_of(file)}}
    for place in (0, END + END // BLOCKS * 3, 2 * END - 1, 3 * END - 1):
        changed = bytearray(whole)
        changed[place : place + 2**17] = bytes(len(changed[place : place + 2**17]))
        file.write_bytes(changed)
        assert changed_sources(before, {"files": {"x": stamp_of(file)}}) == ["some.npy"], place
    file.write_bytes(whole)
    assert changed_sources(before, {"files": {"x": stamp_of(file)}}) == []
    earlier = {key: value for key, value in stamp_of(file).items() if key != "sha256_of_blocks"}
    assert changed_sources({"files": {"x": earlier}}, before) == []


def test_a_study_refuses_files_that_changed(flow: Path, hofno: Hofno, refused: Refused) -> None:
    assert hofno("run", "flow.toml", "--out", "study", "--only", "FNO").exit_code == 0
    (run,) = (flow / "study" / "runs").iterdir()
    assert list(library.load(run).stamp["data"]["files"]) == ["flow.mat"]
    kept = (flow / "flow.mat").read_bytes()
    scipy.io.savemat(flow / "flow.mat", {"u": 2 * frames()})
    told = refused("run", "flow.toml", "--out", "study")
    assert f"flow.mat changed since {run.relative_to(flow)} was trained, and runs on other data make no study" in told
    measured = (run / "evaluation.json").read_bytes()
    with pytest.warns(UserWarning, match=r"flow\.mat changed since the run was trained"):
        assert hofno("evaluate", run).exit_code == 0
    assert (run / "evaluation.json").read_bytes() == measured, "the study would take these numbers for its own"
    with pytest.warns(UserWarning, match="the sample in the report is of the changed file"):
        assert hofno("report", "study").exit_code == 0
    (flow / "flow.mat").write_bytes(kept)
    assert hofno("run", "flow.toml", "--out", "study").exit_code == 0
    assert len(json.loads((flow / "study" / "results.json").read_text())["runs"]) == 2


def test_errors_on_other_grids_of_changed_files_are_not_kept(folder: Path, hofno: Hofno) -> None:
    rng = np.random.default_rng(0)
    for name in FILES:
        scipy.io.savemat(folder / name, {"coeff": 1 + rng.random((6, 9, 9)), "sol": rng.random((6, 9, 9))})
    sizes = "resolution = 5\nsolver_resolution = 9\ntrain = 6\nvalid = 0\ntest = 3"
    model = 'name = "hofno"\nmodes = [2, 2]\nwidth = 4\ndepth = 1'
    train = "epochs = 1\nbatch_size = 3"
    text = f'[data]\nproblem = "darcy"\nfiles = "."\n{sizes}\n[model]\n{model}\n[train]\n{train}\n'
    (folder / "darcy.toml").write_text(text)
    assert hofno("train", "darcy.toml", "--out", "run").exit_code == 0
    assert hofno("evaluate", "run", "--resolution", 9).exit_code == 0
    kept = (folder / "run" / "resolution.json").read_bytes()
    scipy.io.savemat(folder / FILES[1], {"coeff": 1 + rng.random((6, 9, 9)), "sol": rng.random((6, 9, 9))})
    with pytest.warns(UserWarning, match=f"{FILES[1]} changed since the run was trained"):
        result = hofno("evaluate", "run", "--resolution", 9)
    assert "nothing is written" in result.stdout
    assert (folder / "run" / "resolution.json").read_bytes() == kept


def test_a_run_does_not_go_on_with_another_published_file(flow: Path, hofno: Hofno, refused: Refused) -> None:
    assert hofno("train", "flow.toml", "--out", "run").exit_code == 0
    for name in ("model.safetensors", "manifest.json", "evaluation.json"):
        (flow / "run" / name).unlink()
    scipy.io.savemat(flow / "flow.mat", {"u": 2 * frames()})
    assert "the run in run was started with other data" in refused("train", "--resume", "run")


def test_an_operator_that_may_know_test_samples_of_a_file(flow: Path, hofno: Hofno, refused: Refused) -> None:
    one = ("--set", "compare=[]", "--set", "train.epochs=1")
    assert hofno("train", "flow.toml", "--out", "first", *one).exit_code == 0
    start = (*one, "--set", "train.start=first")
    (flow / "flow.mat").rename(flow / "moved.mat")
    moved = (*start, "--set", "data.files=moved.mat")
    assert hofno("train", "flow.toml", "--out", "second", *moved).exit_code == 0
    for command in (("show", "flow.toml"), ("train", "flow.toml", "--out", "third")):
        told = refused(*command, *moved, "--set", "data.test=1")
        assert "data.test=1, test samples could be among those it knows" in told
        assert "name files of other samples" in told
    assert not Path("third").exists()
    scipy.io.savemat(flow / "other.mat", {"u": frames()[::-1] + 1e-3 * frames()})
    other = (*start, "--set", "data.files=other.mat", "--set", "data.test=1")
    assert hofno("show", "flow.toml", *other).exit_code == 0


def test_without_validation_samples(flow: Path, hofno: Hofno, refused: Refused) -> None:
    none = ("--set", "data.valid=0")
    assert "20 training, no validation, 4 test" in hofno("show", "flow.toml", *none).stdout
    assert "select='best' needs validation samples" in refused("show", "flow.toml", *none, "--set", "train.select=best")
    assert "valid" not in hofno("generate", "flow.toml", *none).stdout
    result = hofno("run", "flow.toml", *none, "--out", "study")
    assert result.exit_code == 0, result.output
    page = (flow / "study" / "report.md").read_text()
    assert "There are no validation samples" in page
    assert "Training loss by epoch." in page
    run = sorted((flow / "study" / "runs").iterdir())[0]
    assert "no bound of the error is known" in hofno("evaluate", run).stdout
    np.save(flow / "x.npy", frames()[:2, ..., :2].transpose(0, 3, 1, 2))
    assert "trained without validation samples" in hofno("predict", run, "x.npy", "y.npy").stdout
    with pytest.raises(SpecError, match="trained without validation samples"):
        library.load(run).error_bound()


@pytest.mark.parametrize("name", ["navier_stokes", "darcy", "plasticity"])
def test_generated_data_have_validation_samples(name: str) -> None:
    with pytest.raises(SpecError, match="valid=0 is for published files"):
        problem(name, {"valid": 0})


def test_counts_of_a_file_of_trajectories() -> None:
    assert problem("navier_stokes", {"files": "u.mat"}).parameters()["train"] == 900
    assert problem("navier_stokes", {"files": "u.mat", "valid": 0}).parameters()["train"] == 1000
    some = problem("navier_stokes", {"files": "u.mat", "train": 10, "valid": 2, "test": 4})
    assert some.parameters()["samples"] == 16
    assert problem("plasticity", {"files": "f"}).valid == 7
    assert problem("plasticity", {"files": "f", "valid": 0}).valid == 0


@pytest.mark.parametrize("name", list(READERS))
def test_a_seed_of_files_is_refused(name: str) -> None:
    assert problem(name, {"files": "there", "seed": 0}).origin == "original"
    with pytest.raises(SpecError, match=r"files hold the samples they hold; got seed=7 and files='there'"):
        problem(name, {"files": "there", "seed": 7})


@pytest.mark.parametrize("name", list(READERS))
def test_every_parameter_says_something_of_files_or_of_the_solver(name: str) -> None:
    """Those that say neither how files are cut nor how data are generated describe what files hold."""
    kind = problem_class(name)
    assert issubclass(kind, Published)
    others = {*kind.model_fields} - {*options_of(name)} - {*kind.of_solver} - {"files"}
    described = {
        "airfoil": {"coarsen", "pressure"},
        "darcy": {"solver_resolution"},
        "navier_stokes": {"samples", "frames", "resolution", "viscosity"},
        "pipe": {"resolution"},
        "plasticity": {"coarsen"},
    }
    assert others == described.get(name, set())


def test_show_looks_at_the_files(flow: Path, hofno: Hofno, refused: Refused) -> None:
    shown = " ".join(hofno("show", "flow.toml").stdout.split())
    assert "files flow.mat holds u 24 x 8 x 8 x 6" in shown
    assert "not used data.step: of data that are generated, of no effect on files" in shown
    assert "nothing.mat could not be read" in refused("show", "flow.toml", "--set", "data.files=nothing.mat")
    assert "have 8 x 8 points and the spec describes 16 x 16" in refused(
        "show", "flow.toml", "--set", "data.resolution=16"
    )
    assert "holds 24 samples" in refused("show", "flow.toml", "--set", "data.samples=40")
    scipy.io.savemat(flow / "flow.mat", {"v": frames()})
    assert "expected a variable 'u'" in refused("show", "flow.toml")
    scipy.io.savemat(flow / "flow.mat", {"u": frames()[:, :6]})
    assert "where x and y differ" in refused("show", "flow.toml")
    (flow / "flow.mat").write_bytes(b"nothing")
    assert "no MATLAB file" in refused("show", "flow.toml")


def test_heads_of_steady_problems(tmp_path: Path) -> None:
    for file in FILES:
        scipy.io.savemat(tmp_path / file, {"coeff": np.ones((206, 7, 7)), "sol": np.ones((206, 7, 7))})
    given: dict[str, Any] = {"resolution": 4, "solver_resolution": 7, "train": 6, "test": 3, "files": str(tmp_path)}
    found = look(problem("darcy", {**given, "valid": 2}))
    assert found == {tmp_path / file: dict.fromkeys(("coeff", "sol"), (206, 7, 7)) for file in FILES}
    assert look(problem("darcy", {**given, "valid": 0, "test": 206})) == found
    with pytest.raises(DataError, match="holds 206 samples, 210 are asked for"):
        look(problem("darcy", {**given, "valid": 10}))
    assert len(library.read("darcy", tmp_path, resolution=4, train=6, valid=0, test=3).valid) == 0
    shapes = {
        "pipe": [(2310, 129, 129), (2310, 129, 129), (2310, 3, 129, 129)],
        "airfoil": [(2490, 221, 51), (2490, 221, 51), (2490, 5, 221, 51)],
        "elasticity": [(972, 2, 2000), (972, 2000)],
    }
    names = {"pipe": pipe.FILES, "airfoil": airfoil_files.FILES}
    names["elasticity"] = tuple(path.name for path in elasticity.published_files(tmp_path).values())
    for name, files in names.items():
        for file, shape in zip(files, shapes[name], strict=True):
            sparse(tmp_path / file, shape)
        found = look(problem(name, {"files": str(tmp_path), "valid": 0}))
        assert [array[""] for array in found.values()] == shapes[name]
        assert list(found) == published_files(name, tmp_path)
        with pytest.raises(HofnoError, match="for train; got train=1001"):
            look(problem(name, {"files": str(tmp_path), "train": 1001}))
        with pytest.raises(DataError, match=f"{files[0]} is a file, and {files[0]} is looked for in it; give"):
            look(problem(name, {"files": str(tmp_path / files[0])}))
        (tmp_path / files[1]).unlink()
        with pytest.raises(DataError, match="is missing; check the path"):
            look(problem(name, {"files": str(tmp_path)}))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("pipe", {"resolution": 65}, "have 129 x 129 points and the spec describes 65 x 65"),
        ("airfoil", {"coarsen": 5}, "have 221 x 51 points and the spec describes 45 x 11"),
        ("airfoil", {"pressure": True}, "gives 2 to 1 channels and the spec describes 2 to 2"),
    ],
)
def test_files_of_another_grid_than_the_spec_describes(
    tmp_path: Path, name: str, given: dict[str, Any], message: str
) -> None:
    kind, shape, count = (pipe, (129, 129), 3) if name == "pipe" else (airfoil_files, (221, 51), 5)
    for file, parts in zip(kind.FILES, ((), (), (count,)), strict=True):
        sparse(tmp_path / file, (2310, *parts, *shape))
    with pytest.raises(DataError, match=message):
        look(problem(name, {"files": str(tmp_path), **given}))


def test_the_head_of_plasticity(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")

    def write(samples: int) -> None:
        with h5py.File(tmp_path / pressed.FILE, "w", userblock_size=512) as made:
            made.create_dataset("input", (101, samples), "f4", data=np.zeros((101, samples)))
            shape = (4, 20, 31, 101, samples)
            made.create_dataset("output", shape, "f4", chunks=shape, compression=1, data=np.zeros(shape, "f4"))

    write(3)
    with pytest.raises(DataError, match=r"expected 'input' \(987, 101\) .* got \(3, 101\)"):
        shapes_in("plasticity", tmp_path)
