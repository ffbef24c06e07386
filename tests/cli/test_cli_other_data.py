"""`hofno evaluate --set data.KEY=VALUE` never counts samples of the training or validation as test samples."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_cli_flow import FLOW
from test_data_files import ON_GRIDS, SPEC
from typer.testing import Result

from hofno.problems import problem

Hofno = Callable[..., Result]
Refused = Callable[..., str]

ARRAYS = SPEC.format(data='problem = "arrays"\nx = "x.npy"\ny = "y.npy"', model=ON_GRIDS)
FRAMES = SPEC.format(data='problem = "trajectories"\nframes = "frames.npy"', model=ON_GRIDS)


def trained(hofno: Hofno, text: str) -> None:
    Path("own.toml").write_text(text)
    result = hofno("train", "own.toml", "--out", "run", "--set", "train.epochs=1")
    assert result.exit_code == 0, result.output


@pytest.fixture
def files(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, shape in {"x": (20, 2, 8, 8), "y": (20, 1, 8, 8), "frames": (20, 4, 8, 8)}.items():
        np.save(folder / f"{name}.npy", rng.normal(size=shape).astype(np.float32))
        np.save(folder / f"new_{name}.npy", rng.normal(size=shape).astype(np.float32))
    return folder


@pytest.mark.parametrize("key", ["seed=7", "test=12", "train=4", "valid=1", "shuffle=false"])
@pytest.mark.parametrize("text", [ARRAYS, FRAMES])
def test_the_split_of_own_files_stays(files: Path, hofno: Hofno, refused: Refused, text: str, key: str) -> None:
    trained(hofno, text)
    told = refused("evaluate", "run", "--set", f"data.{key}")
    assert f"data.{key.split('=')[0]} of the run is" in told
    assert "name files of other samples with data." in told


def test_values_of_the_run_are_no_change(files: Path, hofno: Hofno) -> None:
    trained(hofno, ARRAYS)
    result = hofno("evaluate", "run", "--set", "data.seed=0", "--set", "data.test=2")
    assert result.exit_code == 0, result.output


def test_other_files_may_be_split_otherwise(files: Path, hofno: Hofno, refused: Refused) -> None:
    trained(hofno, ARRAYS)
    for name in ("x", "y"):
        shutil.copy(f"{name}.npy", f"copy_{name}.npy")
    split = ("--set", "data.train=1", "--set", "data.valid=1", "--set", "data.test=18")
    result = hofno("evaluate", "run", "--set", "data.x=new_x.npy", "--set", "data.y=new_y.npy", *split)
    assert result.exit_code == 0, result.output
    assert "18 test samples" in result.stdout
    for x, y in (("copy_x", "copy_y"), ("new_x", "y"), ("copy_x", "new_y")):
        told = refused("evaluate", "run", "--set", f"data.x={x}.npy", "--set", f"data.y={y}.npy", *split)
        assert "data.train of the run is 16" in told
    Path("x.npy").unlink()
    assert hofno("evaluate", "run", "--set", "data.x=copy_x.npy").exit_code != 0


def test_data_of_other_axes_are_told_as_such(files: Path, hofno: Hofno, refused: Refused) -> None:
    trained(hofno, ARRAYS)
    for name, channels in (("x", 2), ("y", 1)):
        np.save(f"line_{name}.npy", np.ones((20, channels, 8), np.float32))
    told = refused("evaluate", "run", "--set", "data.x=line_x.npy", "--set", "data.y=line_y.npy")
    assert "asks for 2 spatial axes; the data have 1; a trained run takes data like its own: leave out what" in told
    told = refused("show", "own.toml", "--set", "data.x=line_x.npy", "--set", "data.y=line_y.npy")
    assert "asks for 2 spatial axes; the data have 1; give 1 number" in told
    told = refused("show", "own.toml", "--set", "model.modes=[4]")
    assert "asks for 1 spatial axis; the data have 2; give 2 numbers" in told


def test_an_empty_name_of_a_file(files: Path, hofno: Hofno, refused: Refused) -> None:
    trained(hofno, FRAMES)
    assert "frames is empty: give the file of the frames" in refused("evaluate", "run", "--set", "data.frames=")


def test_flows_have_other_samples_with_another_seed(folder: Path, hofno: Hofno, refused: Refused) -> None:
    trained(hofno, FLOW)
    for key in ("data.test=6", "data.train=2", "data.valid=3"):
        told = refused("evaluate", "run", "--set", key)
        assert "have others with another seed, such as --set data.seed=1" in told
    result = hofno("evaluate", "run", "--set", "data.seed=7", "--set", "data.test=3")
    assert result.exit_code == 0, result.output
    assert "3 test samples" in result.stdout


def test_resolutions_too(folder: Path, hofno: Hofno, refused: Refused) -> None:
    trained(hofno, FLOW)
    told = refused("evaluate", "run", "--resolution", 16, "--set", "data.test=6")
    assert "data.test of the run is 2; with 6" in told


def test_which_problems_split_one_set(tmp_path: Path) -> None:
    for name in ("airfoil", "darcy", "elasticity", "pipe", "plasticity", "poisson", "surface_poisson"):
        assert problem(name, {}).one_set is None
    for name in ("navier_stokes", "shallow_water"):
        found = problem(name, {}).one_set
        assert found is not None
        assert found.held_by == ("seed",)
    for name, more in (("darcy", {}), ("navier_stokes", {"samples": 1200})):
        found = problem(name, {"files": str(tmp_path), **more}).one_set
        assert found is not None
        assert found.held_by == ("files",)
