"""Swin beyond what every model is held to: how far a cell hears, and its number of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.models import Swin


def make(**changed: Any) -> Swin:
    torch.manual_seed(0)
    plain: dict[str, Any] = {"in_channels": 1, "out_channels": 1, "width": 8, "heads": 2, "depth": 1}
    return Swin(**plain | changed).double()


@torch.no_grad()
def reached(model: Swin, points: tuple[int, int], cell: tuple[int, int]) -> list[tuple[int, int]]:
    """Cells that a change in one cell changes."""
    x = torch.randn(1, 1, *points, dtype=torch.float64)
    moved = x.clone()
    moved[(0, 0, *cell)] += 1.0
    changed: Tensor = (model(moved) - model(x))[0, 0].abs() > 1e-12
    return [(i, j) for i, j in changed.nonzero().tolist()]


def cells(first: tuple[int, int], last: tuple[int, int]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(first[0], last[0] + 1) for j in range(first[1], last[1] + 1)]


def test_how_far_a_cell_is_heard() -> None:
    assert reached(make(), (8, 12), (5, 1)) == cells((4, 0), (7, 3))
    # the second block has windows that begin at 2
    assert reached(make(depth=2), (8, 12), (5, 1)) == cells((2, 0), (7, 5))
    assert reached(make(depth=2), (8, 12), (0, 0)) == cells((0, 0), (5, 5))


def test_a_torus_has_no_ends() -> None:
    found = reached(make(depth=2, coordinates="periodic"), (8, 12), (0, 0))
    assert (7, 11) in found
    assert found == sorted((i % 8, j % 12) for i in range(-2, 6) for j in range(-2, 6))
    # and where windows do not fit, it has
    assert (8, 10) not in reached(make(depth=2, coordinates="periodic"), (9, 11), (0, 0))


def test_number_of_parameters() -> None:
    """Those of the network that benchmarks quote, but for the third map of its MLPs."""
    with torch.device("meta"):
        model = Swin(1, 1)
    found = sum(p.numel() for p in model.parameters())
    assert found == pytest.approx(3.25e6, rel=0.01)
    assert found + 16 * (512 + 1) * 512 == pytest.approx(7.45e6, rel=0.01)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"window": 1}, "window must be at least 2"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"coordinates": "unit"}, "coordinates must be one of"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)
