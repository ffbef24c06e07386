"""Erwin beyond what every model is held to: both kinds of ladder, how far a point is heard, parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import grid_coordinates
from hofno.layers import balltree
from hofno.models import Erwin, erwin
from reference import relative


def make(**changed: Any) -> Erwin:
    torch.manual_seed(0)
    plain: dict[str, Any] = {
        "in_channels": 2,
        "out_channels": 1,
        "width": 8,
        "heads": 2,
        "depth": 2,
        "ball": 8,
        "neighbours": 3,
    }
    return Erwin(**plain | changed).double()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("coordinates", ["endpoint", "periodic"])
@torch.no_grad()
def test_a_grid_is_a_cloud_of_its_points(coordinates: Any, stride: int) -> None:
    model, x = make(stride=stride, coordinates=coordinates), torch.randn(2, 2, 5, 7).double()
    places = grid_coordinates((5, 7), coordinates).flatten(0, 1).T.expand(2, -1, -1)
    assert torch.allclose(model(x).flatten(2), model(x.flatten(2), places))


@pytest.mark.parametrize(("stride", "levels"), [(1, 1), (2, 2), (4, 1)])
@torch.no_grad()
def test_ragged_clouds_and_any_order(stride: int, levels: int) -> None:
    model, x, places = make(stride=stride, levels=levels), torch.randn(4, 2, 41).double(), torch.rand(4, 2, 41).double()
    mask = torch.zeros(4, 41, dtype=torch.bool)
    for row, count in enumerate((41, 17, 3, 1)):
        mask[row, torch.randperm(41)[:count]] = True
    found = model(x, places, mask)
    for row in range(4):
        there = mask[row].nonzero().squeeze(-1)
        there = there[torch.randperm(len(there))]
        alone = model(x[row : row + 1][..., there], places[row : row + 1][..., there])
        assert torch.allclose(found[row, :, there], alone[0], atol=1e-10)
    assert not bool(found.masked_fill(mask.unsqueeze(1), 0.0).any())


@torch.no_grad()
def heard(model: Erwin) -> int:
    """Of 64 points, how many a change at one of them changes."""
    torch.manual_seed(1)
    x, places = torch.randn(1, 2, 64).double(), torch.rand(1, 2, 64).double()
    changed = x.clone()
    changed[..., 0] += 1.0
    return int(((model(changed, places) - model(x, places)).abs().amax((0, 1)) > 1e-12).sum())


def test_how_far_a_point_is_heard() -> None:
    alone = {"neighbours": 0, "levels": 0, "angle": 0.0}
    assert heard(make(**alone)) == 8  # its own ball
    assert 8 < heard(make(**alone | {"angle": 45.0})) <= 64  # every ball of the turned tree that meets it
    assert 8 < heard(make(**alone | {"neighbours": 8})) <= 64
    assert heard(make(**alone | {"levels": 1, "stride": 2})) == 16  # and of twice as large a ball
    assert heard(make(**alone | {"levels": 3, "stride": 2})) == 64
    assert heard(make(**alone | {"levels": 1, "stride": 1})) == 8


def test_where_a_point_is_matters_to_the_others() -> None:
    model, x = make(), torch.randn(1, 2, 30).double()
    places = torch.rand(1, 2, 30).double().requires_grad_()
    (slope,) = torch.autograd.grad(model(x, places).square().sum(), [places])
    assert bool(slope.isfinite().all())
    assert float(slope.abs().min()) > 0
    nothing = make(in_channels=0)
    empty = torch.empty(1, 0, 30).double()
    assert relative(nothing(empty, places.flip(1)), nothing(empty, places)) > 1e-3


def test_points_at_one_place() -> None:
    model, x = make(), torch.randn(1, 2, 20).double()
    places = torch.full((1, 2, 20), 0.5).double().requires_grad_()
    out: Tensor = model(x, places)
    (slope,) = torch.autograd.grad(out.sum(), [places])
    assert bool(out.isfinite().all())
    assert bool(slope.isfinite().all())


@pytest.mark.filterwarnings("ignore")
def test_coarser_clouds_can_be_exported() -> None:
    model = make(stride=2, depth=1, ball=2, neighbours=1).eval()
    given = (
        torch.randn(2, 2, 5).double(),
        torch.rand(2, 2, 5).double(),
        torch.tensor([[True] * 5, [True] * 3 + [False] * 2]),
    )
    assert torch.allclose(torch.export.export(model, given).module()(*given), model(*given))


def test_lines_have_one_tree() -> None:
    model = make(dims=1, angle=0.0, stride=2)
    assert model(torch.randn(2, 2, 19).double()).shape == (2, 1, 19)


def test_number_of_parameters() -> None:
    """As published for all problems, with the lift and the projection."""
    with torch.device("meta"):
        model = Erwin(0, 1)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(1.26e6, rel=0.01)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"stride": 3}, "must be powers of 2; got 3 and 8"),
        ({"stride": 2, "ball": 12}, "must be powers of 2; got 2 and 12"),
        ({"dims": 1}, "angle=45.0 turns points about each other.*set angle=0"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"levels": -1}, "levels must be at least 0"),
        ({"ball": 0}, "ball must be at least 1"),
        ({"coordinates": "none"}, "built on positions"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)


def test_a_grid_has_one_layout_in_every_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of a grid's points are equally far, and rounding must not choose between them: devices round differently."""
    model, x = make(in_channels=1, neighbours=6).double(), torch.randn(1, 1, 15, 11).double()
    exact = model(x)
    assert relative(model.float()(x.float()), exact) < 1e-5
    monkeypatch.setattr(balltree, "_kept", {})
    through = grid_coordinates((15, 11), "endpoint") * (1 + 1e-15)
    monkeypatch.setattr(erwin, "cached_coordinates", lambda points, kind, like: through.to(like.dtype))
    assert relative(model.double()(x), exact) < 1e-10
