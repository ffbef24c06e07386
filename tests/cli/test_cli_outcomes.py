"""Quantities of interest from a spec to `hofno evaluate` and the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import Result

from hofno import Surrogate, generate, load, storage
from hofno.cli.expect import predicted_outcomes_table
from hofno.data.normalise import ChannelNormaliser
from hofno.evaluation import score
from hofno.geometry import Grid
from hofno.stages import make_data, read_spec

Hofno = Callable[..., Result]

DARCY = """
[data]
problem = "darcy"
resolution = 9
solver_resolution = 17
train = 6
valid = 9
test = 3

[model]
name = "hofno"
modes = [3, 3]
width = 4
depth = 1
order = 2

[train]
epochs = 1
batch_size = 3
"""
NAME = "mean of the solution"


@pytest.fixture
def study(hofno: Hofno, folder: Path) -> Path:
    (folder / "darcy.toml").write_text(DARCY)
    result = hofno("run", "darcy.toml", "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    return folder / "study"


def test_what_is_written_shown_and_drawn(hofno: Hofno, study: Path) -> None:
    (folder,) = (study / "runs").iterdir()
    record = storage.read_json(folder / "evaluation.json")
    values, told = record["per_sample"]["outcomes"][NAME], record["outcomes"][NAME]
    test = generate("darcy", **read_spec(folder).data.parameters).test
    np.testing.assert_allclose(values["truth"], test.y.double().mean((1, 2, 3)), rtol=1e-6)
    errors = np.abs(np.subtract(values["prediction"], values["truth"]))
    assert told["mean_error"] == pytest.approx(errors.mean())
    assert told["kept"] == pytest.approx((errors <= told["bound"]).mean())
    (run,) = storage.read_json(study / "results.json")["runs"]
    assert run["outcomes"] == record["outcomes"]
    assert "Quantities of interest" in (study / "report.md").read_text(encoding="utf-8")
    result = hofno("evaluate", folder)
    assert "quantities of interest" in result.output
    row = next(line for line in result.output.splitlines() if NAME in line)
    keys = "mean_error", "largest_error", "deviation_of_truth", "bound"
    assert [cell.strip() for cell in row.split("│")][2:-1] == [
        *(f"{told[key]:.4g}" for key in keys),
        f"{told['kept']:.0%}",
    ]


def test_of_other_samples_there_is_no_bound(hofno: Hofno, study: Path) -> None:
    """Whose validation samples are not made."""
    (folder,) = (study / "runs").iterdir()
    result = hofno("evaluate", folder, "--set", "data.seed=7")
    assert result.exit_code == 0, (result.output, result.exception)
    row = next(line for line in result.output.splitlines() if NAME in line)
    assert [cell.strip() for cell in row.split("│")][-3:-1] == ["-", "-"]
    assert "bounds of these take 9 validation samples, and 1 were at hand" in result.stdout
    assert "bounds of these" not in hofno("evaluate", folder).stdout
    assert f"outcomes         {NAME}" in hofno("show", "darcy.toml").stdout


def test_of_frames_it_is_the_last_one_of_each_block(folder: Path) -> None:
    """Of four blocks, and of frames that make no whole block."""
    same, grid = ChannelNormaliser.identity(2), Grid(shape=(11, 4), periodic=False)
    stamp = {"data": {"problem": "plasticity", "parameters": {"coarsen": 10, "form": "frames"}}}
    operator = Surrogate(nn.Conv2d(2, 4, 1), same, ChannelNormaliser.identity(4), grid, stamp)
    y = torch.zeros(80, 4, 11, 4)
    y[:, 2] = torch.arange(80.0)[:, None, None]
    x = torch.zeros(80, 2, 11, 4)
    found = predicted_outcomes_table(folder, operator, operator.asked(x), y)
    assert found is not None
    title, header, rows = found
    assert title == "quantities of interest, the last of each 20 frames"
    assert header == ["input", "shift sideways (mm)", "width (mm)"]
    assert [row[:2] for row in rows] == [["19", "19"], ["39", "39"], ["59", "59"], ["79", "79"]]
    some = predicted_outcomes_table(folder, operator, operator.asked(x[:7]), y[:7])
    assert some is not None
    assert [row[0] for row in some[2]] == list("0123456")


def test_predictions_have_them_too(hofno: Hofno, study: Path) -> None:
    """The first ten, with their bounds unless they are unlike those of training; none on other grids."""
    (folder,) = (study / "runs").iterdir()
    x = generate("darcy", **{**read_spec(folder).data.parameters, "test": 12}).test.x.numpy()
    x[3] *= 50
    np.save(study / "x.npy", x)
    result = hofno("predict", folder, study / "x.npy", study / "y.npy")
    assert result.exit_code == 0, (result.output, result.exception)
    means = np.load(study / "y.npy").astype(float).mean((1, 2, 3))
    bound = storage.read_json(folder / "evaluation.json")["outcomes"][NAME]["bound"]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if "│" in line]
    assert rows == [[str(k), f"{means[k]:.4g}" + f" ± {bound:.2g}" * (k != 3)] for k in range(10)]
    assert "the first 10 of 12; ±: the error that 90% stay below" in " ".join(result.output.split())
    load(folder).save(study / "saved")
    np.save(study / "fine.npy", np.repeat(x, 2, 2)[..., :9])
    told = hofno("predict", study / "saved", study / "x.npy", study / "y.npy", "--force").output
    assert f" {means[0]:.4g} │" in told, "a model without a run has numbers"
    assert "±" not in told, "and no bounds of them"
    result = hofno("predict", folder, study / "fine.npy", study / "y.npy", "--force")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "quantities" not in result.output


def test_without_the_training_samples_what_was_known_of_them_stays(
    hofno: Hofno, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is gone, and test samples are made alone."""
    (folder,) = (study / "runs").iterdir()
    before = storage.read_json(folder / "evaluation.json")
    assert "mean_target" in before
    assert "bound" in before["outcomes"][NAME]
    monkeypatch.setenv("HOFNO_DATA", "other")
    result = hofno("evaluate", folder)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "predicting the mean of the training targets" in result.output
    after = storage.read_json(folder / "evaluation.json")
    assert after.keys() == before.keys()
    assert after["mean_target"] == before["mean_target"]
    assert after["outcomes"] == before["outcomes"]
    storage.write_json(folder / "evaluation.json", {**before, "spec_hash": "of another run"})
    hofno("evaluate", folder)
    assert "mean_target" not in storage.read_json(folder / "evaluation.json")
    (folder / "evaluation.json").write_text("{")
    assert hofno("evaluate", folder).exit_code == 0


OWN = """
targets = ["head (m)", "flux"]

[data]
problem = "arrays"
x = "x.npy"
y = "y.npy"

[model]
name = "hofno"
modes = [3, 3]
width = 4
depth = 1

[train]
epochs = 1
"""


def test_errors_of_fields_have_their_names_and_those_in_units_their_units(hofno: Hofno, folder: Path) -> None:
    generator = np.random.default_rng(0)
    for name, channels in (("x", 1), ("y", 2)):
        np.save(f"{name}.npy", generator.normal(size=(30, channels, 8, 8)))
    (folder / "own.toml").write_text(OWN)
    assert hofno("train", "own.toml", "--out", "run").exit_code == 0
    found = score(load("run"), make_data(read_spec(Path("run"))).test).field_mse[:, 0].sqrt()
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in hofno("evaluate", "run").output.splitlines()
    ]
    told = {row[0]: row[1:] for row in rows if len(row) == 4}
    assert {"rel_l2_field_1: head", "rmse_field_1: head (m)", "rmse_field_2: flux"} < told.keys()
    expected = [float(value) for value in (found.square().mean().sqrt(), found.median(), found.max())]
    assert [float(cell) for cell in told["rmse_field_1: head (m)"]] == pytest.approx(expected, rel=1e-5)
