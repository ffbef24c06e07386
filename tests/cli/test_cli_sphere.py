"""The shallow-water problem on the command line: shown, run, evaluated and reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import Result

from hofno.problems import problem
from hofno.study_report import as_drawn

Hofno = Callable[..., Result]
Refused = Callable[..., str]

SPHERE = """
title = "Weather"
label = "HO-SFNO"

[data]
problem = "shallow_water"
samples = 4
frames = 4
rows = 12
columns = 24
degrees = 8
spin_up = 1

[model]
name = "hosfno"
degrees = 8
width = 4
depth = 1

[train]
epochs = 2
batch_size = 3
batch_of = "windows"
"""


@pytest.fixture
def weather(folder: Path) -> Path:
    (folder / "weather.toml").write_text(SPHERE)
    return folder / "weather.toml"


def test_a_study(hofno: Hofno, weather: Path, folder: Path) -> None:
    result = hofno("run", weather, "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    (run,) = json.loads((folder / "study" / "results.json").read_text())["runs"]
    assert {f"rel_l2_field_{field}" for field in (1, 2, 3)} <= set(run["metrics"])
    assert list(run["rollout"]["spectra"]) == ["degrees"]
    assert "rmse_field_3: eastward" in hofno("evaluate", next((folder / "study" / "runs").iterdir())).stdout
    page = (folder / "study" / "report.md").read_text()
    for words in ("the first of its 3 fields", "| eastward wind (m/s) |", "degrees of spherical harmonics", "height"):
        assert words in page, words
    (found,) = (folder / "study" / "runs").iterdir()
    again = hofno("evaluate", found, "--set", "data.rows=10", "--set", "data.columns=20")
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("degrees", [86, 128])
def test_full_size_is_shown(hofno: Hofno, weather: Path, degrees: int) -> None:
    settings = ["data.rows=128", "data.columns=256", "data.degrees=86", f"model.degrees={degrees}"]
    result = hofno("show", weather, *(part for setting in settings for part in ("--set", setting)))
    assert result.exit_code == 0, result.output
    assert "128 x 256 points on a sphere" in result.stdout


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.degrees=13", "degrees=13 needs at least 13 rows and 25 columns"),
        ("model.nodes=gauss", "the rows of these data are 'equiangular' nodes of the sphere"),
        ("train.loss=rel_l2_gradient", "takes differences on a plane, and these data are on a sphere"),
        ("train.augment=true", "these have none"),
        ("model.name=geofno", "model 'geofno'"),
    ],
)
def test_what_does_not_fit_fails_early(refused: Refused, weather: Path, setting: str, words: str) -> None:
    assert words in refused("show", weather, "--set", setting)


def test_other_grids_are_asked_for_by_rows(hofno: Hofno, refused: Refused, weather: Path) -> None:
    assert hofno("train", weather, "--out", "run").exit_code == 0
    assert "--set data.rows=ROWS --set data.columns=COLUMNS" in refused("evaluate", "run", "--resolution", 16)


def test_north_is_up_and_east_to_the_right() -> None:
    made = problem("shallow_water", {})
    frames = torch.zeros(2, 12, 24)
    frames[:, 0, 3] = 1.0  # in the north, at column 3
    drawn = as_drawn(frames, made)
    assert drawn.shape == (2, 24, 12)
    assert bool((drawn[:, 3, 11] == 1).all())
    assert as_drawn(frames, problem("navier_stokes", {})) is frames
