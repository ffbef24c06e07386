"""A problem at scattered points from spec to report, and predictions from the places of the points alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import Result

import hofno as package

SPEC = """
title = "points"
label = "Geo-FNO"

[data]
problem = "elasticity"
train = 3
valid = 1
test = 2

[model]
name = "geofno"
modes = [3, 3]
width = 4
depth = 1
deformation = 4

[train]
epochs = 1
batch_size = 2
"""


@pytest.fixture
def points(folder: Path) -> Path:
    path = folder / "points.toml"
    path.write_text(SPEC)
    return path


def test_from_spec_to_report_and_predictions(hofno: Callable[..., Result], points: Path, folder: Path) -> None:
    shown = hofno("show", str(points))
    assert "972 scattered points in 2 dimensions; 0 input and 1 target channels" in shown.output
    done = hofno("run", str(points), "--out", "study")
    assert done.exit_code == 0, done.output
    assert (folder / "study" / "index.html").exists()
    (run,) = (folder / "study" / "runs").iterdir()
    assert hofno("evaluate", str(run)).exit_code == 0
    places = np.random.default_rng(0).random((2, 2, 50), dtype=np.float32)
    np.save("places.npy", places)
    done = hofno("predict", str(run), "places.npy", "stress.npy")
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(np.load("stress.npy"), package.load(run).predict(None, places))
    assert "NaN" not in done.output
    np.save("far.npy", 1e36 * places)
    done = hofno("predict", str(run), "far.npy", "lost.npy")
    assert not np.isfinite(np.load("lost.npy")).all()
    assert "NaN or infinite: 2 of 2 predictions, by number 0, 1" in done.output
    in_time = hofno("predict", str(run), "places.npy", "frames.npy", "--steps", "4")
    assert in_time.exit_code == 2
    assert "not trained on trajectories" in in_time.output
    assert not (folder / "frames.npy").exists()
    np.save("fields.npy", places[:, :1])
    refused = hofno("predict", str(run), "fields.npy", "more.npy", "--coords", "places.npy")
    assert refused.exit_code != 0
    assert "expected x (n, 0, N), coords (n, 2, N)" in refused.output
    done = hofno("export", str(run), "stress.pt2", "--shape", "50", "--mask")
    assert done.exit_code == 0, done.output
    mask = np.arange(50) < np.array([[50], [20]])
    with torch.no_grad():
        found = torch.export.load("stress.pt2").module()(coords=torch.from_numpy(places), mask=torch.from_numpy(mask))
    expected = package.load(run).predict(None, places, mask=mask)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-2)


def test_a_model_on_grids_is_refused_early(hofno: Callable[..., Result], points: Path) -> None:
    refused = hofno("show", str(points), "--set", "model.name=fno")
    assert refused.exit_code != 0
    refused = hofno("show", str(points), "--set", "train.normaliser=pixel")
    assert "is for grids, and these data are at points" in refused.output
