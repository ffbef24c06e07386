"""Names and units of channels: of every problem as many as it has, and those of a spec before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hofno import spec as specs
from hofno.data.names import check_names, quantities_of
from hofno.errors import SpecError
from hofno.problems.own import Own
from hofno.problems.quantities import Quantity, called
from hofno.problems.registry import PROBLEMS, problem
from hofno.report.scenes import scene_of

BASE: dict[str, Any] = {"model": {"name": "hofno", "modes": [4, 4]}}


@pytest.mark.parametrize(
    ("text", "name", "unit"),
    [
        ("u_x (mm)", "u_x", "mm"),
        ("Mach number", "Mach number", ""),
        ("f(x) (1/s)", "f(x)", "1/s"),
        ("f(x)", "f(x)", ""),
    ],
)
def test_a_quantity_is_what_it_is_called(text: str, name: str, unit: str) -> None:
    assert Quantity.of(text) == Quantity(name, unit)
    assert str(Quantity(name, unit)) == text


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {}) for name, kind in PROBLEMS.items() if not issubclass(kind, Own)),
        ("airfoil", {"pressure": True}),
        ("plasticity", {"form": "frames"}),
        ("poisson", {"degree": 5}),
    ],
)
def test_every_problem_names_all_of_its_channels(name: str, parameters: dict[str, Any]) -> None:
    made = problem(name, parameters)
    inputs, targets = made.channels
    assert len(made.quantities.targets) == targets
    assert len(made.quantities.inputs) == (0 if made.rollout is not None else inputs)


def test_the_scene_has_them() -> None:
    scene = scene_of(problem("airfoil", {"pressure": True}))
    assert (scene.inputs, scene.targets) == (("x (chords)", "y (chords)"), ("Mach number", "pressure (p∞)"))
    assert scene.coefficients[1].of(np.array([1.0, 1.448]), np.zeros((2, 1, 1))) == pytest.approx([0.0, 1.0])
    streams = scene_of(problem("airfoil", {"mach_range": 0.1, "incidence_range": 2.0, "pressure": True}))
    assert streams.inputs == ("Mach number far away", "angle of attack (°)", "x (chords)", "y (chords)")
    assert streams.nodes == (2, 3)
    speeds = np.full((4, 3, 2), 0.5)  # each sample has a dynamic pressure of its own
    assert streams.coefficients[1].of(np.array([1.0, 1.175]), speeds) == pytest.approx([0.0, 1.0])


def test_a_spec_names_channels_of_its_own_and_is_the_same_run() -> None:
    plain = specs.parse({**BASE, "data": {"problem": "darcy"}})
    told = specs.parse({**BASE, "data": {"problem": "darcy"}, "targets": ["head (m)"]})
    assert quantities_of(plain).targets == called("solution u")
    assert quantities_of(told).targets == (Quantity("head", "m"),)
    assert quantities_of(told).inputs == called("coefficient a")
    assert (told.run_hash, told.study_hash) == (plain.run_hash, plain.study_hash)
    gone = specs.parse(
        {**BASE, "data": {"problem": "arrays", "x": "gone.npy", "y": "gone.npy"}, "inputs": ["force (N)"]}
    )
    assert quantities_of(gone).inputs == (Quantity("force", "N"),)
    assert quantities_of(gone).targets == ()


def test_more_names_than_channels_are_refused() -> None:
    told = specs.parse({**BASE, "data": {"problem": "darcy"}, "targets": ["head (m)", "flux (m/s)"]})
    with pytest.raises(SpecError, match="targets of the spec names 2 channels, and the data have 1 target channels"):
        check_names(told, problem("darcy", {}))


def test_inputs_in_time_are_the_fixed_fields() -> None:
    """Two frames that are taken are no two input channels to be named: they are called as the target is."""
    data = {"problem": "navier_stokes", "history": 2}
    told = specs.parse({**BASE, "data": data, "inputs": ["vorticity before", "vorticity now"]})
    made = problem("navier_stokes", {"history": 2})
    assert made.channels == (2, 1)
    with pytest.raises(SpecError, match="inputs of the spec names 2 channels, and the data have 0 fixed fields; leave"):
        check_names(told, made)
