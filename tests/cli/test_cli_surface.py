"""Fields on a surface on the command line: shown, run, evaluated, predicted and reported; one's own from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from hofno.problems import problem
from triangulated import torus

Hofno = Callable[..., Result]
Refused = Callable[..., str]

CURVED = """
title = "Curved"
label = "HO-NORM"

[data]
problem = "surface_poisson"
resolution = 8
k_max = 1.0
train = 12
valid = 3
test = 4

[model]
name = "honorm"
functions = 10
width = 4
depth = 1

[train]
epochs = 2
batch_size = 6
optimiser = "muon"
"""
OWN = """
label = "NORM"

[data]
problem = "arrays"
x = "x.npy"
y = "y.npy"
coords = "vertices.npy"
triangles = "triangles.npy"

[model]
name = "norm"
functions = 6
width = 4
depth = 1

[train]
epochs = 1
"""


@pytest.fixture
def curved(folder: Path) -> Path:
    (folder / "curved.toml").write_text(CURVED)
    return folder / "curved.toml"


@pytest.fixture
def own(folder: Path) -> Path:
    """Twenty samples at the vertices of a torus."""
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(20, 2, 30)))
    np.save(folder / "y.npy", np.random.default_rng(1).normal(size=(20, 1, 30)))
    np.save(folder / "vertices.npy", torus(6, 5).vertices.T)
    np.save(folder / "triangles.npy", torus(6, 5).triangles)
    (folder / "own.toml").write_text(OWN)
    return folder / "own.toml"


def test_a_study(hofno: Hofno, refused: Refused, curved: Path, folder: Path) -> None:
    result = hofno("run", curved, "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    (run,) = json.loads((folder / "study" / "results.json").read_text())["runs"]
    assert set(run["metrics"]) == {"rel_l2", "mse", "mse_standardised"}
    page = (folder / "study" / "report.md").read_text()
    assert "seen from two opposite sides" in page
    assert "solution u" in page
    (found,) = (folder / "study" / "runs").iterdir()
    assert hofno("evaluate", found).exit_code == 0
    words = "belongs to the triangulation it was trained on, Surface(128 vertices"
    assert words in refused("evaluate", found, "--resolution", 10)
    assert words in refused("evaluate", found, "--set", "data.size=1.5")
    np.save("in.npy", np.zeros((2, 2, 128)))
    assert hofno("predict", found, "in.npy", "out.npy").exit_code == 0
    assert np.load("out.npy").shape == (2, 1, 128)


def test_it_is_shown_and_listed(hofno: Hofno, curved: Path) -> None:
    shown = hofno("show", curved, "--set", "data.resolution=64", "--set", "model.functions=256")
    assert shown.exit_code == 0, shown.output
    assert "8192 vertices of a surface of 16384 triangles" in shown.stdout
    assert hofno("show", curved, "--time").exit_code == 0
    listed = hofno("list").stdout
    assert all(word in listed for word in ("surface_poisson", "honorm", "quick/surface"))
    assert "Known flaws" in hofno("show", "--problem", "surface_poisson").stdout
    assert "functions" in hofno("show", "--model", "norm").stdout


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.functions=129", "128 vertices has 1 to 128 basis functions"),
        ("model.name=fno", "these are on a surface; use: honorm, norm"),
        ("train.loss=rel_l2_gradient", "takes differences on a plane, and these data are on a surface"),
        ("train.augment=true", "these have none"),
        ("data.k_max=4", "at least two in a wave are needed"),
    ],
)
def test_what_does_not_fit_fails_early(refused: Refused, curved: Path, setting: str, words: str) -> None:
    assert words in refused("show", curved, "--set", setting)


def test_own_files(hofno: Hofno, own: Path) -> None:
    made = problem("arrays", {"x": "x.npy", "y": "y.npy", "coords": "vertices.npy", "triangles": "triangles.npy"})
    assert made.grid_geometry == torus(6, 5)
    assert made.channels == (2, 1)
    assert made.memory_bytes() == 4 * 20 * 3 * 30
    result = hofno("run", own, "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "seen from two opposite sides" in Path("study/report.md").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("data.coords=", ""), "as coords the vertices of the surface, (3, 30)"),
        (("data.x=", ""), "triangles need x"),
        (("data.triangles=", "broken.npy"), "triangles name vertices 0 to 29"),
        (("data.coords=", "flat.npy"), "(2, 30)"),
    ],
)
def test_own_files_that_are_no_surface(refused: Refused, own: Path, change: tuple[str, str], words: str) -> None:
    np.save("broken.npy", torus(6, 5).triangles + 1)
    np.save("flat.npy", torus(6, 5).vertices.T[:2])
    assert words in refused("show", own, "--set", "".join(change))
