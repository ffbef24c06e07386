"""Models of tokens beyond what every model is held to: grids and points alike, positions, numbers of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import Case
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Points, grid_coordinates
from hofno.layers.fields import distances
from hofno.models import build
from hofno.models.registry import check_geometry
from reference import relative

NAMES = ("transolver", "transolver_plus", "galerkin", "gnot", "ono")


def make(name: str, **changed: Any) -> nn.Module:
    return Case(name, "grid", 2, "linear" if name == "transolver" else "modern").make(**changed).double()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coordinates", ["endpoint", "periodic"])
def test_a_grid_is_a_cloud_of_its_points(name: str, coordinates: Any) -> None:
    model = make(name, coordinates=coordinates)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    places = grid_coordinates((4, 5), coordinates).flatten(0, 1).T.expand(2, -1, -1)
    assert torch.allclose(model(x).flatten(2), model(x.flatten(2), places))


@pytest.mark.parametrize("name", NAMES)
def test_positions_alone_can_be_the_input(name: str) -> None:
    model = make(name, in_channels=0)
    places = torch.rand(2, 2, 30, dtype=torch.float64)
    nothing = torch.empty(2, 0, 30, dtype=torch.float64)
    assert relative(model(nothing, places.flip(1)), model(nothing, places)) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_every_point_hears_of_every_other(name: str) -> None:
    model = make(name).eval()
    x, places = torch.randn(1, 2, 12, dtype=torch.float64), torch.rand(1, 2, 12, dtype=torch.float64)
    changed = x.clone()
    changed[..., 0] += 0.5
    assert float((model(changed, places) - model(x, places)).detach().abs().min()) > 1e-10


@pytest.mark.parametrize("name", ["transolver", "transolver_plus", "ono"])
def test_positions_can_be_left_out(name: str) -> None:
    model = make(name, coordinates="none")
    x, places = torch.randn(1, 2, 9, dtype=torch.float64), torch.rand(1, 2, 9, dtype=torch.float64)
    assert model(x, places).equal(model(x, places.flip(2)))
    with pytest.raises(SpecError, match="in_channels=0 needs positions"):
        make(name, coordinates="none", in_channels=0)


@pytest.mark.parametrize("name", ["galerkin", "gnot"])
def test_models_built_on_positions_keep_them(name: str) -> None:
    with pytest.raises(SpecError, match="is built on positions; use coordinates='endpoint'"):
        make(name, coordinates="none")


def test_distances_to_landmarks() -> None:
    places = torch.rand(3, 5, 2, dtype=torch.float64)
    found = distances(places, 3)
    assert found.shape == (3, 5, 9)
    assert torch.allclose(found[..., 5], (places - torch.tensor([0.5, 1.0])).norm(dim=-1))
    at_landmarks = grid_coordinates((3,), "endpoint").requires_grad_()
    distances(at_landmarks, 3).sum().backward()
    assert at_landmarks.grad is not None
    assert bool(at_landmarks.grad.isfinite().all())
    with pytest.raises(SpecError, match="landmarks=3 needs positions"):
        make("transolver", landmarks=3, coordinates="none")


def test_convolutions_are_for_grids() -> None:
    model = make("transolver", projection="conv")
    with pytest.raises(ShapeError, match="use projection='linear'"):
        model(torch.randn(1, 2, 9).double(), torch.rand(1, 2, 9).double())
    for name in ("transolver", "lamo"):  # on one axis points and grids have the same number of axes
        form = "linear" if name == "transolver" else "hydra"
        model = Case(name, "grid", 1, form).make(projection="conv").double()
        assert model(torch.randn(1, 2, 9).double()).shape[2:] == (9,)
        with pytest.raises(ShapeError, match="these are points; use projection='linear'"):
            model(torch.randn(1, 2, 9).double(), torch.rand(1, 1, 9).double())


def test_points_without_their_places() -> None:
    with pytest.raises(ShapeError, match=r"fields at points with their places, model\(x, coords\)"):
        make("transolver")(torch.randn(1, 2, 9).double())


def test_a_mask_needs_points() -> None:
    with pytest.raises(ShapeError, match="expected coords beside a mask"):
        make("transolver")(torch.randn(1, 2, 4, 4).double(), None, torch.ones(1, 16, dtype=torch.bool))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 0}, "width must be at least 1|multiple of heads"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"in_channels": -1}, "in_channels must be at least 0"),
        ({"coordinates": "none", "in_channels": 0}, "positions"),
    ],
)
def test_wrong_arguments(name: str, change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(name, **change)


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        # Transolver as its authors run it: airfoil (mesh of given positions), Darcy, elasticity, Navier-Stokes, pipe
        ("transolver", {"in_channels": 2, "projection": "conv", "coordinates": "none"}, 2.81e6),
        ("transolver", {"in_channels": 1, "projection": "conv", "landmarks": 8}, 2.83e6),
        ("transolver", {"in_channels": 0}, 0.71e6),
        ("transolver", {"in_channels": 10, "projection": "conv", "landmarks": 8, "width": 256, "slices": 32}, 11.2e6),
        ("transolver", {"in_channels": 0, "projection": "conv", "expansion": 2}, 3.07e6),
        # Transolver++: aircraft, and at the size of Transolver
        ("transolver_plus", {"in_channels": 4, "out_channels": 4, "dims": 3}, 1.74e6),
        ("transolver_plus", {"in_channels": 0, "width": 128, "depth": 8, "slices": 64, "expansion": 1}, 0.59e6),
        # GNOT as benchmarks run it: airfoil, elasticity, Darcy (there with 64 landmarks in the gates too)
        ("gnot", {"in_channels": 0, "depth": 8, "expansion": 1}, 2.9e6),
        ("gnot", {"in_channels": 0, "depth": 8}, 4.9e6),
        ("gnot", {"in_channels": 1}, 1.9e6),
        # ONO: Navier-Stokes, Darcy, pipe
        ("ono", {"in_channels": 10, "functions": 16}, 1.1e6),
        ("ono", {"in_channels": 1, "functions": 32, "depth": 10, "expansion": 2}, 2.0e6),
        ("ono", {"in_channels": 0, "expansion": 2}, 1.6e6),
    ],
)
def test_numbers_of_parameters(name: str, arguments: dict[str, Any], count: float) -> None:
    with torch.device("meta"):
        model = build(name, {"out_channels": 1, **arguments})
    found = sum(p.numel() for p in model.parameters())
    assert found == pytest.approx(count, rel=0.025)


def test_where_they_live() -> None:
    for name in NAMES:
        check_geometry(name, Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0)))


def test_weights_start_with_the_spread_asked_for() -> None:
    with pytest.raises(SpecError, match="spread is a standard deviation above 0"):
        make("transolver", spread=0.0)
    torch.manual_seed(0)
    model = build("transolver", {"in_channels": 1, "out_channels": 1, "depth": 1})
    weight: Tensor = model.get_parameter("blocks.0.mlp.up.weight")
    assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert not bool(model.get_parameter("blocks.0.mlp.up.bias").any())
