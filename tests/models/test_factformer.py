"""FactFormer beyond what every model is held to: size, positions, resolution, arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import Mesh, Points, grid_coordinates
from hofno.models.factformer import FactFormer
from hofno.models.registry import check_geometry
from reference import relative


def make(**changed: Any) -> FactFormer:
    torch.manual_seed(0)
    given = {"width": 8, "depth": 2, "heads": 2, "head_width": 4, "rank": 4, **changed}
    return FactFormer(1, 1, **given).double()


def test_number_of_parameters_of_a_block() -> None:
    with torch.device("meta"):
        model = FactFormer(1, 1)
    assert sum(p.numel() for p in model.blocks[0].parameters()) == pytest.approx(1.15e6, rel=0.005)


@torch.no_grad()
def test_a_finer_grid_of_the_same_function_gives_the_same_function() -> None:
    model = make(coordinates="periodic")

    def answer(n: int) -> Tensor:
        angle = 2 * math.pi * grid_coordinates((n, n), "periodic")
        return model((torch.sin(angle[..., 0]) + torch.cos(angle.sum(-1)))[None, None])

    finest = answer(256)
    errors = [relative(answer(n), finest[..., :: 256 // n, :: 256 // n]) for n in (32, 64, 128)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.1


@torch.no_grad()
def test_every_point_hears_of_every_other() -> None:
    model, x = make(), torch.randn(1, 1, 5, 6, dtype=torch.float64)
    changed = x.clone()
    changed[0, 0, 2, 3] += 0.5
    assert float((model(changed) - model(x)).abs().min()) > 1e-10


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rank": 3}, "rank must be even"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"head_width": 0}, "head_width must be at least 1"),
        ({"width": 1}, "width must be at least 2"),
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"coordinates": "none"}, "coordinates must be one of endpoint, periodic"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)


def test_it_lives_on_grids() -> None:
    check_geometry("factformer", Mesh(shape=(4, 4)))
    with pytest.raises(SpecError, match="these are at points"):
        check_geometry("factformer", Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0)))


def test_positions_keep_their_angles_in_reduced_precision() -> None:
    model, x = FactFormer(1, 1, width=16, depth=1, heads=2, head_width=4, rank=4), torch.randn(1, 1, 64, 64)
    with torch.no_grad():
        for block in model.blocks:
            block.frequencies.mul_(40.0)  # so that angles of bfloat16 positions would be any angles
        exact = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert relative(model(x), exact) < 0.03
