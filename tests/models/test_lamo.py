"""LaMO beyond what every model is held to: what blocks share, patches, sizes, numbers of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import Case

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Points, grid_coordinates
from hofno.models import build
from hofno.models.lamo import LaMO
from hofno.models.lamo_patches import PatchLaMO, from_patches, to_patches
from hofno.models.registry import check_geometry
from reference import relative


def make(**changed: Any) -> LaMO:
    model = Case("lamo", "grid", 2, "hydra").make(**changed).double()
    assert isinstance(model, LaMO)
    return model


def patches(**changed: Any) -> PatchLaMO:
    model = Case("lamo_patches", "grid", 2, "modern").make(**changed).double()
    assert isinstance(model, PatchLaMO)
    return model


@pytest.mark.parametrize("scan", ["hydra", "mamba"])
def test_a_grid_is_a_cloud_of_its_points(scan: str) -> None:
    model = make(scan=scan)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    places = grid_coordinates((4, 5), "endpoint").flatten(0, 1).T.expand(2, -1, -1)
    assert torch.allclose(model(x).flatten(2), model(x.flatten(2), places))


def test_slices_may_be_the_same_in_all_blocks() -> None:
    shared, own = make(), make(share=False)
    assert not any("slicing" in name for name in shared.state_dict())
    assert not any("shared" in name for name in own.state_dict())
    for block in range(2):
        for name, value in shared.state_dict().items():
            if name.startswith("shared."):
                own.get_parameter(name.replace("shared.", f"blocks.{block}.slicing.")).data.copy_(value)
    own.load_state_dict({name: value for name, value in shared.state_dict().items() if "shared" not in name}, False)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    assert torch.allclose(own(x), shared(x), atol=1e-12)


def test_positions_alone_can_be_the_input() -> None:
    model = make(in_channels=0)
    places, nothing = torch.rand(2, 2, 30, dtype=torch.float64), torch.empty(2, 0, 30, dtype=torch.float64)
    assert relative(model(nothing, places.flip(1)), model(nothing, places)) > 1e-3


@pytest.mark.parametrize("points", [(7,), (4, 5), (3, 4, 6)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_patches_hold_their_points(points: tuple[int, ...], size: int) -> None:
    v = torch.randn(2, *points, 3)
    cut = to_patches(v, size)
    assert cut.shape == (2, *(-(-n // size) for n in points), size ** len(points) * 3)
    assert from_patches(cut, size, points).equal(v)
    last = cut[(0, *(m - 1 for m in cut.shape[1:-1]))].reshape(*(size,) * len(points), 3)
    for place in torch.cartesian_prod(*(torch.arange(size) for _ in points)).reshape(-1, len(points)).tolist():
        there = tuple((m - 1) * size + i for m, i in zip(cut.shape[1:-1], place, strict=True))
        inside = all(t < n for t, n in zip(there, points, strict=True))
        assert last[tuple(place)].equal(v[(0, *there)] if inside else torch.zeros(3))


def test_every_patch_hears_of_every_other() -> None:
    model = patches()
    x = torch.randn(1, 2, 8, 6, dtype=torch.float64)
    changed = x.clone()
    changed[..., 0, 0] += 0.5
    assert float((model(changed) - model(x)).detach().abs().min()) > 1e-10


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        # as its authors run it: airfoil (mesh of given positions), elasticity, pipe, plasticity
        (
            "lamo",
            {
                "in_channels": 2,
                "projection": "conv",
                "coordinates": "none",
                "states": 1,
                "growth": 1,
                "groups": 1,
            },
            1.14e6,
        ),
        ("lamo", {"in_channels": 0}, 1.95e6),
        (
            "lamo",
            {"in_channels": 0, "projection": "conv", "scan": "mamba", "groups": 1, "share": False, "expansion": 2},
            4.0e6,
        ),
        (
            "lamo",
            {"in_channels": 1, "out_channels": 4, "projection": "conv", "scan": "mamba", "groups": 1, "share": False},
            3.8e6,
        ),
        # Darcy and Navier-Stokes, less a learned vector for each patch
        ("lamo_patches", {"in_channels": 1}, 1.15e6 - 44 * 44 * 64),
        ("lamo_patches", {"in_channels": 10, "width": 256}, 10.1e6 - 32 * 32 * 256),
    ],
)
def test_numbers_of_parameters(name: str, arguments: dict[str, Any], count: float) -> None:
    with torch.device("meta"):
        model = build(name, {"out_channels": 1, **arguments})
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(count, rel=0.015)


def test_where_they_live() -> None:
    points = Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0))
    check_geometry("lamo", points)
    with pytest.raises(SpecError, match="'lamo_patches' takes fields on a grid or on a mesh"):
        check_geometry("lamo_patches", points)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"scan": "attention"}, "scan must be one of hydra, mamba; got 'attention'"),
        ({"groups": 3}, "groups must divide the 16 channels"),
        ({"projection": "spline"}, "projection must be one of linear, conv"),
        ({"coordinates": "none", "in_channels": 0}, "in_channels=0 needs positions"),
        ({"spread": 0.0}, "spread is a standard deviation above 0"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"patch": 0}, "patch must be at least 1"),
        ({"states": 0}, "states must be at least 1"),
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"landmarks": 3, "coordinates": "none"}, "landmarks=3 needs positions"),
    ],
)
def test_wrong_patches(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        patches(**change)


def test_convolutions_are_for_grids() -> None:
    with pytest.raises(ShapeError, match="use projection='linear'"):
        make(projection="conv")(torch.randn(1, 2, 9).double(), torch.rand(1, 2, 9).double())
