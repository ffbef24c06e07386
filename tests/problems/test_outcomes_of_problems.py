"""Outcomes of the problems: one number for each sample, those that the solvers know among them."""

from __future__ import annotations

import pytest
import torch

from hofno.problems.airfoil import Airfoil
from hofno.problems.base import Problem
from hofno.problems.plasticity import Plasticity
from hofno.problems.registry import PROBLEMS, problem

WITH = [
    made
    for made in (
        *(problem(name, {}) for name in PROBLEMS if name not in ("arrays", "trajectories")),
        problem("airfoil", {"pressure": True}),
        problem("plasticity", {"form": "frames"}),
    )
    if made.outcomes
]


@pytest.mark.parametrize("made", WITH, ids=lambda made: made.name)
def test_every_outcome_is_a_number_of_each_sample_alone(made: Problem) -> None:
    """Of random fields; a change of one sample changes its number and no other."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, channels, *made.grid_geometry.shape, generator=generator) for channels in made.channels)
    for outcome in made.outcomes.values():
        numbers = outcome.of(x, y)
        assert numbers.shape == (3,)
        changed = y.clone()
        changed[1] += 1 + torch.arange(y[1].numel()).view(y[1].shape) / y[1].numel()
        assert (outcome.of(x, changed) != numbers).tolist() == [False, True, False]


def test_some_problems_have_outcomes() -> None:
    assert {made.name for made in WITH} == {"airfoil", "darcy", "elasticity", "pipe", "plasticity"}


def test_lift_and_drag_are_those_of_the_solver() -> None:
    made = Airfoil(coarsen=10, pressure=True)
    flows = made.flows("train", 2, "cpu")
    x, y = torch.from_numpy(flows.nodes), torch.from_numpy(flows.fields[:, [4, 3]])
    found = torch.stack([made.outcomes[f"{name} coefficient"].of(x, y) for name in ("drag", "lift")], 1)
    torch.testing.assert_close(found, torch.from_numpy(flows.coefficients), rtol=1e-5, atol=1e-6)
    assert torch.equal(made.outcomes["largest Mach number"].of(x, y), y[:, 0].amax((1, 2)))
    assert list(Airfoil(coarsen=10).outcomes) == ["largest Mach number"]


@pytest.mark.parametrize("form", ["frames", "volume"])
def test_shift_and_width_of_a_block_that_is_stretched_and_moved(form: str) -> None:
    made = Plasticity(coarsen=10, form=form)  # pyright: ignore[reportArgumentType]
    places = torch.linspace(-49.65, 0.35, 11)[:, None].expand(11, 4)
    frames = torch.stack((1.1 * places + 3, places, 0.1 * places + 3, 0 * places))[None]  # (1, 4, 11, 4)
    y = frames if form == "frames" else torch.stack((torch.zeros_like(frames), frames), -1)
    shift, width = made.outcomes["shift sideways"], made.outcomes["width"]
    assert float(shift.of(y, y)) == pytest.approx(0.1 * -24.65 + 3, abs=1e-5)
    assert float(width.of(y, y)) == pytest.approx(55, abs=1e-4)
    assert (shift.unit, width.unit) == ("mm", "mm")
