"""What commands say while data are made or read, and which data `hofno evaluate` makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from hofno import spec as specs
from hofno import stages

Hofno = Callable[..., Result]

FLOW = """
[data]
problem = "navier_stokes"
viscosity = 1e-3
resolution = 8
solver_resolution = 16
frames = 4
history = 2
step = 0.1
train = 3
valid = 1
test = 2

[model]
name = "hofno"
modes = [2, 2]
width = 4
depth = 1
"""
DARCY = """
[data]
problem = "darcy"
resolution = 11
solver_resolution = 21
train = 6
valid = 3
test = 4

[model]
name = "hofno"
modes = [3, 3]
width = 4
depth = 1

[train]
epochs = 1
"""


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of this test's own, so that data are made."""
    monkeypatch.setenv("HOFNO_DATA", str(folder / "store"))
    return folder / "store"


def test_words_and_units(hofno: Hofno, folder: Path, store: Path) -> None:
    (folder / "flow.toml").write_text(FLOW)
    assert "generate frames: 24/24" in hofno("generate", "flow").stdout
    again = hofno("generate", "flow").stdout
    assert "read frames: 24/24" in again
    assert "generate" not in again.partition("navier_stokes")[0]
    assert "generate frames: 24/24" in hofno("generate", "flow", "--force").stdout
    assert "generate samples: 30/30" in hofno("generate", "tiny").stdout
    assert "30/30" not in hofno("generate", "tiny").stdout, "what is stored is read at once"


def test_evaluate_makes_test_samples_alone(
    hofno: Hofno, folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "darcy.toml").write_text(DARCY)
    assert hofno("train", "darcy.toml", "--out", "run").exit_code == 0
    asked: list[dict[str, object]] = []
    make = stages.generate

    def generate(name: str, **given: object) -> object:
        asked.append(given)
        return make(name, **given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(stages, "generate", generate)
    result = hofno("evaluate", "run", "--set", "data.upper=11")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "4 test samples" in result.stdout
    assert "generate test samples: 4/4" in result.stdout
    assert [(given["train"], given["valid"], given["test"]) for given in asked] == [(1, 1, 4)]
    asked.clear()
    assert hofno("evaluate", "run").exit_code == 0
    assert [given["train"] for given in asked] == [6], "data that are stored whole are read"


@pytest.mark.parametrize("text", [DARCY, FLOW])
def test_test_samples_are_the_same_without_the_others(folder: Path, store: Path, text: str) -> None:
    (folder / "some.toml").write_text(text)
    spec = specs.load(folder / "some.toml")
    alone = stages.make_test_data(spec).test
    whole = stages.make_data(spec).test
    np.testing.assert_array_equal(alone.x, whole.x)
    np.testing.assert_array_equal(alone.y, whole.y)


def test_a_resolution_counts_what_is_made_for_it(hofno: Hofno, store: Path) -> None:
    assert hofno("train", "tiny", "--out", "run", "--set", "data.resolution=18").exit_code == 0
    result = hofno("evaluate", "run", "--resolution", 20)
    assert "generate test samples: 6/6" in result.stdout
    assert "/8" not in result.stdout
