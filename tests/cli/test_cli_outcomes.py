"""Quantities of interest from a spec to `hofno evaluate` and the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from hofno import generate, load, storage
from hofno.evaluation import score
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
