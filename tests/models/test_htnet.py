"""HT-Net beyond what every model is held to: its ladder one cell at a time, stochastic depth, parameters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from hofno.errors import SpecError
from hofno.models import HTNet
from hofno.models.htnet import Decompose, Reduce


def make(**changed: Any) -> HTNet:
    torch.manual_seed(0)
    plain = {"in_channels": 1, "out_channels": 1, "modes": (3, 3), "width": 4, "depth": 2, "drop_path": 0.0}
    return HTNet(**plain | changed)


@pytest.mark.parametrize("points", [(6,), (4, 5), (2, 3, 4)])
@torch.no_grad()
def test_children_and_their_parents(points: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    dims, v = len(points), torch.randn(1, *points, 3)
    reduce, decompose = Reduce(dims, 3), Decompose(dims, 3)
    coarse = reduce(v)
    assert coarse.shape == (1, *(-(-n // 2) for n in points), 6)
    fine = decompose(coarse, v)
    for parent in itertools.product(*(range(-(-n // 2)) for n in points)):
        children = [tuple(2 * i + j for i, j in zip(parent, step, strict=True)) for step in _corners(dims)]
        there = [all(i < n for i, n in zip(child, points, strict=True)) for child in children]
        beside = [v[(0, *child)] if is_in else torch.zeros(3) for child, is_in in zip(children, there, strict=True)]
        assert torch.allclose(coarse[(0, *parent)], reduce.map(reduce.norm(torch.cat(beside))), atol=1e-5)
        handed = decompose.map(coarse[(0, *parent)]).view(-1, 3)
        for number, (child, is_in) in enumerate(zip(children, there, strict=True)):
            if is_in:
                assert torch.allclose(fine[(0, *child)], v[(0, *child)] + handed[number], atol=1e-5)


def _corners(dims: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=dims))


@torch.no_grad()
def test_coarser_grids_let_far_cells_hear_each_other() -> None:
    """Without the Fourier layers, which let all of them."""

    def reached(levels: int) -> int:
        model = make(levels=levels, patch=1).double()
        v = torch.randn(1, 32, 32, 4).double()
        moved = v.clone()
        moved[0, 0, 0] += 1.0
        changed = (model.ladder(model.finest(moved)) - model.ladder(model.finest(v))).abs().amax((0, 3)) > 1e-12
        assert bool(changed[: 4 * 2**levels, : 4 * 2**levels].all())
        return int(changed.sum())

    assert reached(1) == 8**2
    assert reached(2) == 16**2


@torch.no_grad()
def test_stochastic_depth_is_for_training() -> None:
    model, x = make(drop_path=0.9), torch.randn(1, 1, 8, 8)
    plain = make()(x)
    assert torch.allclose(model.eval()(x), plain)
    model.train()
    assert len({float(model(x).sum()) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("arguments", "count"),
    [({"in_channels": 10}, 1.06e6), ({"in_channels": 1, "width": 64}, 13.4e6)],  # Navier-Stokes, Darcy
)
def test_numbers_of_parameters(arguments: dict[str, Any], count: float) -> None:
    with torch.device("meta"):
        model = HTNet(out_channels=1, modes=(12, 12), mode_set="reference", **arguments)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"patch": 2}, "patch must be odd"),
        ({"levels": 0}, "levels must be at least 1"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"window": 0}, "window must be at least 1"),
        ({"modes": ()}, "modes"),
        ({"drop_path": -0.1, "levels": 2}, "below 1; got -0.1"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)
