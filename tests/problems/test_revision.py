"""Numbers of every solver as they were recorded: a change of them beyond rounding is one that is meant."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hofno.data.store import data_folder, generate
from hofno.problems import PROBLEMS, problem
from hofno.problems.flows import Simulated
from hofno.problems.kept_samples import KeepsSamples

SMALL: dict[str, dict[str, Any]] = {
    "airfoil": {"coarsen": 5},
    "darcy": {"resolution": 21, "solver_resolution": 41},
    "elasticity": {},
    "navier_stokes": {"samples": 3, "frames": 4, "history": 1, "resolution": 16, "solver_resolution": 64},
    "pipe": {"resolution": 33, "cells": 32, "modes": 12},
    "plasticity": {"coarsen": 10, "refine": 1},
    "poisson": {"degree": 3, "resolution": 24, "k_max": 10.0},
    "shallow_water": {"samples": 4, "frames": 3, "rows": 16, "columns": 32, "degrees": 10, "spin_up": 4},
    "surface_poisson": {"resolution": 16, "k_max": 2.0, "waves": 4},
}
RECORDED: dict[str, tuple[int, list[float]]] = {
    "airfoil": (1, [10.8941, 0.03171577, 0.8015514, 0.001784068]),
    "darcy": (1, [8.470838, -0.005880367, 0.007328437, -3.026688e-06]),
    "elasticity": (1, [0.5936758, -0.0003654279, 227.0888, 2.377883]),
    "navier_stokes": (1, [0.2371665, 0.001750211, 0.3242552, 0.0003478461]),
    "pipe": (1, [4.140529, 0.001305905, 0.1836091, 1.904753e-05]),
    "plasticity": (1, [19.15681, 0.0008211437, 15.05902, -0.001709153]),
    "poisson": (1, [0.9991307, -0.00562119, 0.002300851, -1.685935e-05]),
    "shallow_water": (1, [208.6338, -0.05982223, 208.5015, 0.1118187]),
    "surface_poisson": (1, [1.394701, -0.003139461, 1.157721, -0.0001705743]),
}
"""Revisions and `told` of two training samples of each problem."""


def told(values: np.ndarray) -> list[float]:
    """Root mean square of all numbers, and their mean with weights that tell their order."""
    values = values.astype(np.float64).ravel()
    return [float(np.sqrt(np.mean(values**2))), float(np.mean(values * np.cos(np.arange(values.size))))]


@pytest.mark.parametrize("name", SMALL)
def test_numbers_change_with_the_revision_alone(name: str) -> None:
    data = generate(name, device="cpu", **SMALL[name], train=2, valid=1, test=1)
    parts = data.train.coords if data.train.coords is not None else data.train.x, data.train.y
    found = [number for part in parts for number in told(part[:].numpy())]
    made = problem(name, SMALL[name])
    revision = made.flow.revision if isinstance(made, Simulated) else made.revision
    recorded, numbers = RECORDED[name]
    assert revision == recorded, f"revision {revision} of {name} gives {found}; record them here"
    sizes = np.repeat(numbers[::2], 2)
    assert (np.abs(np.subtract(found, numbers)) < 2e-5 * sizes).all(), (
        f"{name} gives {found}; it gave {numbers}. If that is meant, raise its `revision` and record them here"
    )


def test_every_solver_is_recorded() -> None:
    assert {name for name in PROBLEMS if problem_is_generated(name)} == {*SMALL} == {*RECORDED}


def problem_is_generated(name: str) -> bool:
    return name not in ("arrays", "trajectories")


@pytest.mark.parametrize("name", SMALL)
def test_data_of_another_revision_are_other_data(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, made = data_folder(name, SMALL[name], tmp_path), problem(name, SMALL[name])
    samples = made.solution() if isinstance(made, KeepsSamples) else None
    monkeypatch.setattr(type(made.flow) if isinstance(made, Simulated) else type(made), "revision", 99)
    assert data_folder(name, SMALL[name], tmp_path) != before
    if isinstance(made, KeepsSamples):
        assert made.solution() != samples
