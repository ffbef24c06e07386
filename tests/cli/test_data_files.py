"""Specs whose data are files: arrays and trajectories of the user's own, and the published files of benchmarks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from typer.testing import Result

import hofno as library
from hofno import study_report
from hofno.data.store import generate
from hofno.errors import DataError, SpecError
from hofno.geometry import Grid, Mesh, Points
from hofno.problems import problem
from hofno.problems.darcy import FILES

Hofno = Callable[..., Result]
Refused = Callable[..., str]

SPEC = """
label = "HO-FNO"

[data]
{data}

[model]
{model}

[train]
epochs = 2
batch_size = 8
"""
ON_GRIDS = 'name = "hofno"\nmodes = [3, 3]\nwidth = 8\ndepth = 1\norder = 2'
AT_POINTS = 'name = "pointho"\nwidth = 8\ndepth = 1\norder = 2\nheads = 2\ntokens = 4'


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


@pytest.fixture
def arrays(folder: Path) -> Path:
    """Files on a grid of 8 x 10 and at 12 points, and frames."""
    for name, shape in {"x": (30, 2, 8, 10), "y": (30, 1, 8, 10), "mesh": (2, 8, 10), "frames": (20, 7, 8, 8)}.items():
        np.save(folder / f"{name}.npy", drawn(*shape).astype(np.float32))
    np.save(folder / "places.npy", np.random.default_rng(0).random((30, 2, 12)))
    np.save(folder / "stress.npy", drawn(30, 1, 12))
    np.save(folder / "known.npy", (np.arange(12) < np.arange(30)[:, None] % 9 + 3).astype(np.int8))
    return folder


@pytest.mark.parametrize(
    ("data", "model", "kind", "channels"),
    [
        ('x = "x.npy"\ny = "y.npy"', ON_GRIDS, Grid, (2, 1)),
        ('x = "x.npy"\ny = "y.npy"\nperiodic = true', ON_GRIDS, Grid, (2, 1)),
        ('x = "x.npy"\ny = "y.npy"\ncoords = "mesh.npy"', ON_GRIDS, Mesh, (4, 1)),
        ('y = "stress.npy"\ncoords = "places.npy"', AT_POINTS, Points, (0, 1)),
        ('y = "stress.npy"\ncoords = "places.npy"\nmask = "known.npy"', AT_POINTS, Points, (0, 1)),
    ],
)
def test_a_study_of_own_arrays(
    arrays: Path, hofno: Hofno, data: str, model: str, kind: type, channels: tuple[int, int]
) -> None:
    (arrays / "own.toml").write_text(SPEC.format(data=f'problem = "arrays"\n{data}', model=model))
    shown = hofno("show", "own.toml")
    assert shown.exit_code == 0, shown.output
    assert "24 training, 3 validation, 3 test" in shown.stdout
    result = hofno("run", "own.toml", "--out", "study")
    assert result.exit_code == 0, result.output
    results = json.loads((arrays / "study" / "results.json").read_text())
    assert (results["origin"], results["problem"]) == ("user", "arrays")
    parameters = results["spec"]["data"]
    made = problem("arrays", {key: value for key, value in parameters.items() if key != "problem"})
    assert isinstance(made.grid_geometry, kind)
    assert made.channels == channels
    (run,) = (arrays / "study" / "runs").iterdir()
    assert hofno("evaluate", run).exit_code == 0
    stored = hofno("generate", "own.toml").stdout
    assert stored.splitlines()[-1].startswith("read from ")
    assert "y.npy" in stored or "stress.npy" in stored


def test_the_dataset_is_that_of_from_arrays(arrays: Path) -> None:
    x, y = np.load(arrays / "x.npy"), np.load(arrays / "y.npy")
    found = generate("arrays", x="x.npy", y="y.npy", train=20, valid=5, test=5, seed=3)
    expected = library.from_arrays(x, y, split=(20, 5, 5), seed=3)
    for name in ("train", "valid", "test"):
        assert getattr(found, name).x.equal(getattr(expected, name).x)
        assert getattr(found, name).y.equal(getattr(expected, name).y)
    in_order = generate("arrays", x="x.npy", y="y.npy", shuffle=False)
    np.testing.assert_array_equal(in_order.test.x, x[27:])
    files = in_order.stamp["files"]
    assert files["x"]["bytes"] == (arrays / "x.npy").stat().st_size
    assert found.origin == "user"


def test_files_that_changed_are_told_of(arrays: Path, hofno: Hofno) -> None:
    data = 'problem = "arrays"\nx = "x.npy"\ny = "y.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    (arrays / "x.npy").write_bytes((arrays / "x.npy").read_bytes())  # a copy is the same
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hofno("evaluate", "run").exit_code == 0
    y = np.load(arrays / "y.npy")
    y[-1, 0, -1, -1] += 1.0
    np.save(arrays / "y.npy", y)
    kept = (arrays / "run" / "evaluation.json").read_bytes()
    with pytest.warns(UserWarning, match="y.npy changed since the run was trained"):
        result = hofno("evaluate", "run")
    assert "other files than the run was trained on: nothing is written" in result.stdout
    assert (arrays / "run" / "evaluation.json").read_bytes() == kept


def test_a_run_does_not_go_on_with_other_numbers(arrays: Path, hofno: Hofno) -> None:
    data = 'problem = "arrays"\nx = "x.npy"\ny = "y.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    for name in ("model.safetensors", "manifest.json", "evaluation.json"):
        (arrays / "run" / name).unlink()
    kept = (arrays / "y.npy").read_bytes()
    np.save(arrays / "y.npy", np.load(arrays / "y.npy") + 5)
    refused = hofno("train", "--resume", "run")
    assert refused.exit_code != 0
    assert "was started with other data: train.y was" in refused.stderr
    (arrays / "y.npy").write_bytes(kept)
    assert hofno("train", "--resume", "run").exit_code == 0


def test_more_samples_of_other_files_can_be_scored(arrays: Path, hofno: Hofno) -> None:
    data = 'problem = "arrays"\nx = "x.npy"\ny = "y.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    for name, channels in (("x", 2), ("y", 1)):
        np.save(arrays / f"{name}2.npy", drawn(20, channels, 8, 10) + 1)
    others = ("--set", "data.x=x2.npy", "--set", "data.y=y2.npy")
    told = hofno("evaluate", "run", *others).stdout
    more = "--set data.train=1 --set data.valid=1 --set data.test=18"
    assert f"these are 2 of 20 samples, more are scored with {more}" in told
    whole = hofno("evaluate", "run", *others, *more.split())
    assert "18 test samples" in whole.stdout, whole.output
    assert "more are scored" not in whole.stdout


def test_samples_that_the_run_knows_are_not_offered(arrays: Path, hofno: Hofno) -> None:
    np.save(arrays / "many.npy", drawn(60, 8, 8, 10))
    data = 'problem = "trajectories"\nframes = "many.npy"\nhistory = 2\nvalid = 12'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    told = hofno("evaluate", "run", "--set", "data.horizon=3").stdout
    assert "other data than the run's own: nothing is written" in told
    assert "more are scored" not in told, "the others were trained or validated on"
    assert "it is one of 6 frames together, and these are 3" in " ".join(told.split())


def test_other_data_are_measured_as_those_of_the_run(arrays: Path, hofno: Hofno) -> None:
    """Of other frames, errors of single steps and by scale were not told."""
    for data, key in (
        ('problem = "trajectories"\nframes = "frames.npy"\nhistory = 2', "data.start=2"),
        ('problem = "arrays"\nx = "x.npy"\ny = "y.npy"', "data.test=3"),
    ):
        (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
        run = f"run {key}"
        assert hofno("train", "own.toml", "--out", run).exit_code == 0
        own, other = (hofno("evaluate", run, *more).stdout for more in ((), ("--set", key)))  # what it is by itself
        rows = [[line for line in told.splitlines() if "│" in line] for told in (own, other)]
        assert rows[0] == rows[1]
        assert any("one_step_rel_l2" in line for line in rows[0]) == ("frames" in data)
        assert any("rel_l2_low" in line for line in rows[0])
        assert "other data than the run's own: nothing is written" in other


def test_paths_are_taken_from_where_hofno_runs(arrays: Path, refused: Refused) -> None:
    (arrays / "apart").mkdir()
    (arrays / "x.npy").rename(arrays / "apart" / "x.npy")
    data = 'problem = "arrays"\nx = "x.npy"\ny = "y.npy"'
    (arrays / "apart" / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    told = refused("show", "apart/own.toml")
    assert "x.npy is missing; check the path, which is taken from the folder hofno runs in: " in told


def test_a_batch_of_more_samples_than_there_are(arrays: Path, hofno: Hofno) -> None:
    data = 'problem = "arrays"\nx = "x.npy"\ny = "y.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    shown = hofno("show", "own.toml", "--set", "train.batch_size=500").stdout
    assert "2 epochs of 1 batch: 2 steps; batch_size=500 is more than the 24 there are" in shown
    assert "more than" not in hofno("show", "own.toml").stdout


def test_own_trajectories(arrays: Path, hofno: Hofno) -> None:
    data = 'problem = "trajectories"\nframes = "frames.npy"\nhistory = 2\nhorizon = 3'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    result = hofno("run", "own.toml", "--out", "study")
    assert result.exit_code == 0, result.output
    (run,) = json.loads((arrays / "study" / "results.json").read_text())["runs"]
    assert len(run["rollout"]["rel_l2_per_step"]) == 3
    found = generate("trajectories", frames="frames.npy", history=2, horizon=3)
    expected = library.from_trajectories(np.load("frames.npy"), history=2, horizon=3, split=(16, 2, 2))
    assert found.test.y.equal(expected.test.y)
    assert found.rollout == expected.rollout


def test_own_trajectories_of_several_fields(arrays: Path, hofno: Hofno) -> None:
    frames = np.load(arrays / "frames.npy")
    np.save(arrays / "several.npy", np.stack((frames, 100 + frames**2), 2))
    data = 'problem = "trajectories"\nframes = "several.npy"\nseveral = true\nhistory = 2\nhorizon = 3'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    result = hofno("run", "own.toml", "--out", "study")
    assert result.exit_code == 0, result.output
    (run,) = json.loads((arrays / "study" / "results.json").read_text())["runs"]
    assert len(run["rollout"]["rel_l2_per_step"]) == 3
    assert "the first of its 2 fields" in (arrays / "study" / "report.md").read_text()
    told = hofno("generate", "own.toml")
    assert "target field 2" in told.stdout, told.output
    (arrays / "named.toml").write_text('targets = ["head (m)", "flux (m/s)"]\n' + (arrays / "own.toml").read_text())
    told = hofno("generate", "named.toml")
    assert "target field 2: flux (m/s)" in told.stdout, told.output
    told = hofno("train", "named.toml", "--out", "alone")
    assert "test rel_l2_field_2 of flux: " in told.stdout, told.output
    assert "head (m), flux (m/s)" in hofno("show", "named.toml").stdout
    assert hofno("run", "named.toml", "--out", "study").exit_code == 0, "names change no run"
    page = (arrays / "study" / "report.md").read_text()
    assert "| rel. L2 of one field | head | flux |" in page
    assert "| root mean square error | head (m) | flux (m/s) |" in page
    assert "| mean of the training targets |" in page
    (run,) = (arrays / "study" / "runs").iterdir()
    told = hofno("evaluate", run, "--set", 'targets=["level (m)", "flow"]').stdout
    assert "rel_l2_field_1: level" in told, told
    assert "written to" in told, "the run's own errors"
    found = generate("trajectories", frames="several.npy", several=True, history=2, horizon=3)
    assert (found.in_channels, found.out_channels) == (4, 2)
    assert torch.allclose(found.test.y[:, 1::2], 100 + found.test.y[:, ::2].square(), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": "x.npy"}, "arrays.y: Field required"),
        ({"y": "y.npy"}, "x is missing: give the file of the inputs"),
        ({"x": "x.npy", "y": ""}, "y is empty: give the file of the targets"),
        ({"x": "x.npy", "y": "none.npy"}, "none.npy is missing; check the path"),
        ({"x": "x.npy", "y": "tiny.toml"}, "tiny.toml could not be read .* write it with numpy.save"),
        ({"x": "x.npy", "y": "words.npy"}, "words.npy must hold real numbers"),
        ({"x": "x.npy", "y": "stress.npy"}, "as many samples on one grid"),
        ({"x": "x.npy", "y": "known.npy"}, r"a single channel needs its axis: y\[:, None\]"),
        ({"x": "x.npy", "y": "y.npy", "coords": "places.npy"}, r"coords must end in the grid of y, \(8, 10\)"),
        ({"x": "x.npy", "y": "y.npy", "coords": "fewer.npy"}, r"or \(n, d, \*grid\) with n = 30"),
        ({"x": "x.npy", "y": "y.npy", "coords": "bare.npy"}, "come before it"),
        ({"x": "x.npy", "y": "y.npy", "mask": "known.npy"}, r"for points with coords.* y is \(30, 1, 8, 10\)"),
        ({"x": "x.npy", "y": "y.npy", "coords": "mesh.npy", "mask": "bare.npy"}, "a mask is for points"),
        ({"y": "stress.npy", "coords": "places.npy", "mask": "bare.npy"}, r"and bare.npy holds \(8, 10\); change it"),
        ({"x": "x.npy", "y": "y.npy", "coords": "mesh.npy", "periodic": True}, "with coords, leave it out"),
        ({"x": "x.npy", "y": "y.npy", "train": 29}, "holds 30 samples; train=29, valid=3 and test=3 must fit"),
        ({"x": "x.npy", "y": "y.npy", "resolution": 8}, "has no parameter 'resolution'"),
    ],
)
def test_arrays_that_cannot_be(arrays: Path, given: dict[str, Any], message: str) -> None:
    np.save(arrays / "words.npy", np.array(["a", "b"]))
    np.save(arrays / "fewer.npy", np.ones((29, 2, 8, 10)))
    np.save(arrays / "bare.npy", np.ones((8, 10)))
    with pytest.raises(SpecError, match=message):
        problem("arrays", given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frames": "known.npy"}, r"must be \(n, times, \*grid\)"),
        ({"frames": "frames.npy", "history": 7}, "holds 7 frames; got history=7, start=7, horizon=0"),
        ({"frames": "frames.npy", "start": 5, "horizon": 3}, "holds 7 frames; got history=1, start=5, horizon=3"),
    ],
)
def test_trajectories_that_cannot_be(arrays: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        problem("trajectories", given)


def test_published_trajectories_in_a_spec(folder: Path, hofno: Hofno, refused: Refused) -> None:
    u = drawn(24, 8, 8, 6)
    scipy.io.savemat(folder / "flow.mat", {"u": u - u.mean((1, 2), keepdims=True)})
    data = 'problem = "navier_stokes"\nsamples = 24\nframes = 6\nresolution = 8\nhistory = 2\nfiles = "flow.mat"'
    (folder / "flow.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    result = hofno("run", "flow.toml", "--out", "study")
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "study" / "results.json").read_text())["origin"] == "original"
    found = generate("navier_stokes", samples=24, frames=6, resolution=8, history=2, files="flow.mat")
    expected = library.read("navier_stokes", "flow.mat", history=2)
    assert [len(part) for part in (found.train, found.valid, found.test)] == [18, 2, 4]
    assert found.test.y.equal(expected.test.y)
    assert found.train.x.equal(expected.train.x)
    assert "train + valid + test samples, here 20 + 2 + 4" in refused("show", "flow.toml", "--set", "data.train=20")
    told = refused("generate", "flow.toml", "--set", "data.resolution=16")
    assert "have 8 x 8 points and the spec describes 16 x 16" in told


def test_published_files_of_a_steady_problem(folder: Path) -> None:
    for file in FILES:
        coefficient = np.where(drawn(206, 7, 7) > 0, 12.0, 3.0)
        scipy.io.savemat(folder / file, {"coeff": coefficient, "sol": drawn(206, 7, 7)})
    given: dict[str, Any] = {"resolution": 4, "solver_resolution": 7, "train": 6, "valid": 2, "test": 3}
    found = generate("darcy", files=str(folder), store=folder / "store", **given)
    expected = library.read("darcy", folder, resolution=4, train=6, valid=2, test=3)
    assert found.origin == "original"
    assert found.train.x.equal(expected.train.x)
    assert torch.equal(found.test.y, expected.test.y)
    assert not (folder / "store").exists()
    with pytest.raises(DataError, match="1 to 1 channels and the spec describes 1 to 2"):
        _with_other_channels(given, folder)


def _with_other_channels(given: dict[str, Any], folder: Path) -> None:
    from hofno.data.files import dataset_of_files
    from hofno.problems.darcy import Darcy

    class Two(Darcy):
        @property
        def channels(self) -> tuple[int, int]:
            return 1, 2

    dataset_of_files(Two(files=str(folder), **given))


def test_generated_data_are_found_as_before() -> None:
    """`files` is no part of what tells stored data apart unless it is given."""
    assert "files" not in problem("darcy", {}).parameters()
    assert "files" not in problem("navier_stokes", {}).identity()


def test_points_that_a_mask_fills_up_are_predicted(arrays: Path, hofno: Hofno, refused: Refused) -> None:
    data = 'problem = "arrays"\ny = "stress.npy"\ncoords = "places.npy"\nmask = "known.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=AT_POINTS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    result = hofno("predict", "run", "places.npy", "out.npy", "--mask", "known.npy")
    assert result.exit_code == 0, result.output
    places, known, found = (np.load(arrays / f"{name}.npy") for name in ("places", "known", "out"))
    np.testing.assert_array_equal(found, library.load("run").predict(None, places, mask=known))
    assert (found[:, 0][known == 0] == 0).all()
    np.save(arrays / "short.npy", known[:, :5])
    assert "mask" in refused("predict", "run", "places.npy", "more.npy", "--mask", "short.npy")


def test_a_report_shows_the_points_that_are_there(arrays: Path, hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    plain = study_report.show_sample

    def noting(page: Any, sample: Any, predictions: Any, *rest: Any) -> None:
        shown.append((sample, predictions))
        plain(page, sample, predictions, *rest)

    monkeypatch.setattr(study_report, "show_sample", noting)
    monkeypatch.setattr(study_report, "middle", lambda errors: 0)
    data = 'problem = "arrays"\ny = "stress.npy"\ncoords = "places.npy"\nmask = "known.npy"\nshuffle = false'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=AT_POINTS))
    assert hofno("run", "own.toml", "--out", "study").exit_code == 0
    (sample, predictions), run = shown[0], next((arrays / "study" / "runs").iterdir())
    places, known = (np.load(arrays / f"{name}.npy")[27:28] for name in ("places", "known"))
    there = known[0] == 1
    assert 0 < there.sum() < 12
    expected = library.load(run).predict(None, places, mask=known)[..., there]
    np.testing.assert_array_equal(predictions["HO-FNO"], expected)
    np.testing.assert_array_equal(sample.coords, places.astype(np.float32)[..., there])
    assert sample.y.shape == expected.shape


FIXED = 'problem = "trajectories"\nframes = "frames.npy"\nfixed = "fixed.npy"\nhistory = 2\nhorizon = 3'


def test_own_trajectories_with_fixed_fields(arrays: Path, hofno: Hofno) -> None:
    frames, fixed = np.load(arrays / "frames.npy"), drawn(20, 2, 8, 8)
    np.save(arrays / "fixed.npy", fixed)
    (arrays / "own.toml").write_text(SPEC.format(data=FIXED, model=ON_GRIDS))
    shown = hofno("show", "own.toml")
    assert "4 input and 1 target channels" in shown.stdout, shown.output
    assert "2 frames with 2 fixed fields to the next, 3 times" in shown.stdout
    assert "fixed field 2" in hofno("generate", "own.toml").stdout
    names = 'inputs = ["medium (m)", "depth"]\ntargets = ["head (m)"]\n'
    (arrays / "named.toml").write_text(names + (arrays / "own.toml").read_text())
    told = hofno("generate", "named.toml").stdout
    for name in (
        "fixed field 1: medium (m)",
        "fixed field 2: depth",
        "input frames: head (m)",
        "target frames: head (m)",
    ):
        assert name in told
    result = hofno("run", "own.toml", "--out", "study")
    assert result.exit_code == 0, result.output
    (run,) = json.loads((arrays / "study" / "results.json").read_text())["runs"]
    assert len(run["rollout"]["rel_l2_per_step"]) == 3
    found = generate("trajectories", frames="frames.npy", fixed="fixed.npy", history=2, horizon=3)
    expected = library.from_trajectories(frames, fixed, history=2, horizon=3, split=(16, 2, 2))
    assert found.test.x.equal(expected.test.x)
    assert found.rollout == expected.rollout == library.Rollout(2, 3, 1, 2)
    (folder,) = (arrays / "study" / "runs").iterdir()
    np.save(arrays / "given.npy", frames[:3, :2])
    np.save(arrays / "kept.npy", fixed[:3])
    told = hofno("predict", folder, "given.npy", "out.npy", "--fixed", "kept.npy", "--steps", 4)
    assert told.exit_code == 0, told.output
    assert "3 x 2 x 8 x 8 -> 3 x 4 x 8 x 8" in told.stdout
    operator = library.load(folder)
    np.testing.assert_array_equal(np.load("out.npy"), operator.predict(frames[:3, :2], fixed=fixed[:3], steps=4))
    without = hofno("predict", folder, "given.npy", "other.npy")
    assert without.exit_code != 0
    assert "the first 2 are fixed fields" in without.stderr
    again = hofno("evaluate", folder)
    assert again.exit_code == 0, again.output
    np.save(arrays / "one.npy", fixed[:, :1])
    other = hofno("evaluate", folder, "--set", "data.history=3", "--set", "data.fixed=one.npy")
    assert "takes 4 input channels, 2 of them fixed, and predicts 1; these data have 4, 1 and 1" in other.stderr


def test_predictions_that_are_no_numbers_are_named(arrays: Path, hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    data = 'problem = "trajectories"\nframes = "frames.npy"'
    (arrays / "own.toml").write_text(SPEC.format(data=data, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    np.save(arrays / "given.npy", np.load(arrays / "frames.npy")[:9, :1])
    assert "NaN" not in hofno("predict", "run", "given.npy", "out.npy").stdout
    predict = library.Surrogate.predict_tensor

    def unbounded(self: library.Surrogate, x: torch.Tensor, *others: Any, **more: Any) -> torch.Tensor:
        found = predict(self, x, *others, **more)
        return torch.where(torch.arange(len(x))[:, None, None, None] % 8 > 0, torch.nan, found)

    monkeypatch.setattr(library.Surrogate, "predict_tensor", unbounded)
    line = "NaN or infinite: 7 of 9 predictions, by number 1, 2, 3, 4, 5 and 2 more; do not rely on them"
    done = hofno("predict", "run", "given.npy", "lost.npy")
    assert (done.output.count("NaN"), line in done.stdout) == (1, True)
    with pytest.warns(UserWarning, match=f"^{line}$") as warned:
        library.load("run").predict(np.load("given.npy"))
    assert (len(warned), warned[0].filename) == (1, __file__)


def test_a_run_goes_on_with_its_fixed_fields_alone(arrays: Path, hofno: Hofno) -> None:
    np.save(arrays / "fixed.npy", drawn(20, 1, 8, 8))
    (arrays / "own.toml").write_text(SPEC.format(data=FIXED, model=ON_GRIDS))
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    np.save(arrays / "fixed.npy", drawn(20, 1, 8, 8) + 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        hofno("evaluate", "run")
    assert any("fixed.npy changed since the run was trained" in str(one.message) for one in told)
    for name in ("model.safetensors", "manifest.json"):
        (arrays / "run" / name).unlink()
    refused = hofno("train", "--resume", "run")
    assert refused.exit_code != 0
    assert "was started with other data: train.x was" in refused.stderr


def test_fixed_fields_that_do_not_fit(arrays: Path, hofno: Hofno) -> None:
    np.save(arrays / "fixed.npy", drawn(20, 8, 8))
    (arrays / "own.toml").write_text(SPEC.format(data=FIXED, model=ON_GRIDS))
    told = hofno("show", "own.toml").stderr
    assert "fixed.npy: fixed must be (20, channels, 8, 8)" in told
    assert "a single one needs its axis: fixed[:, None]" in told
    np.save(arrays / "fixed.npy", drawn(20, 1, 8, 8))
