"""DeepONet beyond what every model is held to: its published size, its sum, its sensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Grid, Points
from hofno.models.deeponet import DeepONet, PointDeepONet, TwoNetworks
from hofno.models.registry import check_geometry
from reference import as_array, relative

Array = np.ndarray


def through(first: nn.Module, others: nn.Module, v: Array, last: bool) -> Array:
    """One vector through linear maps with a relu between them, and after the last one if asked."""
    linears = [first, *(part for part in others.modules() if isinstance(part, nn.Linear))]
    for index, part in enumerate(linears):
        v = as_array(part.get_parameter("weight")) @ v + as_array(part.get_parameter("bias"))
        v = np.maximum(v, 0) if last or index < len(linears) - 1 else v
    return v


def answer(model: TwoNetworks, seen: Array, place: Array) -> Array:
    coefficients = through(model.sense, model.branch, seen, last=False).reshape(model.out_channels, -1)
    functions = through(model.lift, model.trunk, place, last=True)
    sums = [sum(b * t for b, t in zip(row, functions, strict=True)) for row in coefficients]
    return np.array(sums) + as_array(model.project.bias)[:, 0]


def test_as_large_as_published() -> None:
    with torch.device("meta"):
        model = PointDeepONet(0, 1, points=972)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(1.03, rel=0.01)


@pytest.mark.parametrize("coordinates", ["endpoint", "periodic"])
def test_on_a_grid_it_is_its_formula(coordinates: str) -> None:
    torch.manual_seed(0)
    model = DeepONet(2, 3, (4,), width=5, depth=2, coordinates=coordinates).double()  # pyright: ignore[reportArgumentType]
    x = torch.randn(2, 2, 7, dtype=torch.float64)
    ends = coordinates == "endpoint"
    given, wanted = (np.linspace(0, 1, 7), np.linspace(0, 1, 4)) if ends else (np.arange(7) / 7, np.arange(4) / 4)
    found = model(x)
    for b in range(2):
        rows = [np.interp(wanted, given, row, period=None if ends else 1) for row in x[b].numpy()]
        seen = np.stack(rows, 1).flatten()
        expected = np.stack([answer(model, seen, np.array([place])) for place in given], 1)
        assert relative(found[b], expected) < 1e-12


def test_at_points_it_is_its_formula() -> None:
    torch.manual_seed(0)
    model = PointDeepONet(1, 2, points=6, width=5, depth=1).double()
    x, coords = torch.randn(2, 1, 6, dtype=torch.float64), torch.rand(2, 2, 6, dtype=torch.float64)
    found = model(x, coords)
    for b in range(2):
        seen = np.concatenate((x[b].numpy().flatten(), coords[b].numpy().flatten()))
        expected = np.stack([answer(model, seen, place) for place in coords[b].numpy().T], 1)
        assert relative(found[b], expected) < 1e-12


def test_the_same_function_at_two_resolutions() -> None:
    """A field that is linear between its points is the same field on a finer grid, to the sensors as well."""
    torch.manual_seed(0)
    model = DeepONet(1, 1, (6, 5), width=8).double()
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    fine = nn.functional.interpolate(x, size=(10, 7), mode="bilinear", align_corners=True)
    assert relative(model(fine)[..., ::3, ::2], model(x)) < 1e-12


def test_positions_alone_can_be_the_input() -> None:
    torch.manual_seed(0)
    model, places = PointDeepONet(0, 1, points=30, width=8), torch.rand(2, 2, 30)
    out = model(torch.empty(2, 0, 30), places)
    assert out.shape == (2, 1, 30)
    assert relative(model(torch.empty(2, 0, 30), places.flip(1)), out) > 1e-3


def test_what_stands_at_masked_points_changes_nothing() -> None:
    torch.manual_seed(0)
    model, mask = PointDeepONet(1, 1, points=8, width=8), torch.arange(8)[None] < 5
    x, places = torch.randn(1, 1, 8), torch.rand(1, 2, 8)
    found = model(x, places, mask)
    hidden = x.masked_fill(~mask[:, None], torch.nan), places.masked_fill(~mask[:, None], torch.inf)
    assert torch.equal(model(*hidden, mask), found)
    assert not bool(found[..., 5:].any())


def test_each_is_for_its_own_geometry() -> None:
    points = Points(count=6, low=(0.0, 0.0), high=(1.0, 1.0))
    check_geometry("deeponet_points", points)
    check_geometry("deeponet", Grid(shape=(8, 8)))
    with pytest.raises(SpecError, match=r"use: .*deeponet_points"):
        check_geometry("deeponet", points)


def test_arguments_that_mean_nothing_are_refused() -> None:
    for sensors in ((), (4, 4, 4, 4), (4, 0)):
        with pytest.raises(SpecError, match="sensors must have 1, 2 or 3 entries of at least 1"):
            DeepONet(1, 1, sensors)
    with pytest.raises(SpecError, match="coordinates must be one of endpoint, periodic"):
        DeepONet(1, 1, (4,), coordinates="none")
    with pytest.raises(SpecError, match="points must be at least 1; got 0"):
        PointDeepONet(1, 1, points=0)
    with pytest.raises(ShapeError, match="expected 6 points in a fixed order, the sensors of the branch; got 5"):
        PointDeepONet(1, 1, points=6)(torch.randn(1, 1, 5), torch.rand(1, 2, 5))
