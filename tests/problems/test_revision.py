"""Numbers of every solver as they were recorded: a change of them beyond rounding is one that is meant."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hofno.data.stamps import changed_sources
from hofno.data.store import data_folder, generate
from hofno.problems import PROBLEMS, problem
from hofno.problems.flows import Simulated
from hofno.problems.kept_samples import KeepsSamples
from hofno.train.same_data import are_same

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
    revision, (recorded, numbers) = made.solver_revision, RECORDED[name]
    assert revision == recorded, f"revision {revision} of {name} gives {found}; record them here"
    sizes = np.repeat(numbers[::2], 2)
    assert (np.abs(np.subtract(found, numbers)) < 2e-5 * sizes).all(), (
        f"{name} gives {found}; it gave {numbers}. If that is meant, raise the `revision` of the problem, or of its "
        "flow, and record them here"
    )


def test_every_solver_is_recorded() -> None:
    assert {name for name in PROBLEMS if problem_is_generated(name)} == {*SMALL} == {*RECORDED}


def problem_is_generated(name: str) -> bool:
    return name not in ("arrays", "trajectories")


@pytest.mark.parametrize("name", SMALL)
def test_data_of_another_revision_are_other_data(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the store, among kept samples and parts of trajectories, and by their stamps; a first one adds nothing."""
    made = problem(name, SMALL[name])

    def known_by() -> list[Any]:
        found = [data_folder(name, SMALL[name], tmp_path).name, made.identity()]
        found += [made.solution()] if isinstance(made, KeepsSamples) else []
        found += [made.flow.identity()] if isinstance(made, Simulated) else []
        if name in ("poisson", "navier_stokes"):
            found.append(generate(name, device="cpu", **SMALL[name], train=2, valid=1, test=1).stamp)
        return found

    before = known_by()
    assert "revision" not in str(before)
    monkeypatch.setattr(type(made.flow) if isinstance(made, Simulated) else type(made), "revision", 99)
    assert not any(one == other for one, other in zip(before, known_by(), strict=True))


def test_problems_in_time_have_the_revision_of_their_flow() -> None:
    """One of their own would change nothing."""
    simulated = [made for name in SMALL if isinstance(made := problem(name, SMALL[name]), Simulated)]
    assert len(simulated) == 2
    assert {type(made).revision for made in simulated} == {1}, "raise the revision of the flow instead"


def test_an_operator_knows_of_another_revision() -> None:
    old: dict[str, Any] = {"problem": "darcy", "parameters": {"seed": 0}}
    assert changed_sources(old, old) == changed_sources(old | {"revision": 2}, old | {"revision": 2}) == []
    assert changed_sources(old, old | {"revision": 2}) == ["the solver of darcy"]
    assert changed_sources(old, {"problem": "pipe", "revision": 2}) == []
    assert not are_same({"data": old}, {"data": old | {"revision": 2}})
