"""MSPT beyond what every model is held to: its attention one token at a time, patches, parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import grid_coordinates
from hofno.models import MSPT
from hofno.models.mspt import PatchAttention
from reference import relative


def make(**changed: Any) -> MSPT:
    torch.manual_seed(0)
    plain = {"in_channels": 2, "out_channels": 1, "width": 8, "heads": 2, "depth": 2, "patches": 4, "spread": 0.3}
    return MSPT(**plain | changed).double()


FILLED = torch.tensor([[True] * 12, [True, True, True, True, False, True, False, False, False, True, False, False]])


@pytest.mark.parametrize("filled", [None, FILLED])
@torch.no_grad()
def test_attention_equals_loops(filled: Tensor | None) -> None:
    """Three patches of four tokens, each with a supernode for each of its halves."""
    torch.manual_seed(0)
    layer, v = PatchAttention(4, 2, 3, 2).double(), torch.randn(2, 12, 4).double()
    found = layer(v, filled)
    for b in range(2):
        there = [i for i in range(12) if filled is None or filled[b, i]]
        halves = [[i for i in there if i // 2 == part] for part in range(6)]
        supernodes = [torch.stack([v[b, i] for i in half]).mean(0) for half in halves if half]
        for i in there:
            heard = []
            tokens = [v[b, j] for j in there if j // 4 == i // 4] + supernodes
            images = torch.stack([layer.maps(token).view(3, 2, 2) for token in tokens])
            query = layer.maps(v[b, i]).view(3, 2, 2)[0]
            for head in range(2):
                scores = images[:, 1, head] @ query[head] / math.sqrt(2)
                heard.append(scores.softmax(0) @ images[:, 2, head])
            assert torch.allclose(found[b, i], layer.out(torch.cat(heard)), atol=1e-12)


def test_patches_of_a_grid_are_runs_of_points() -> None:
    model = make(patches=3, supernodes=2)
    v = torch.randn(1, 20, 8).double()
    slots = model.slots(v, None, None)
    assert slots.filled is not None
    patches = zip(slots.source.view(3, -1), slots.filled.view(3, -1), strict=True)
    assert [source[filled].tolist() for source, filled in patches] == [
        list(range(7)),
        list(range(7, 14)),
        list(range(14, 20)),
    ]
    whole = model.slots(v[:, :18], None, None)  # and need not be moved where all are of one size
    assert whole.filled is None
    assert whole.source.equal(whole.home)
    assert whole.source[0].tolist() == list(range(18))


@torch.no_grad()
def test_patches_of_points_are_balls() -> None:
    """Runs of a grid's points are not, so the two differ."""
    x, model = torch.randn(2, 2, 8, 8).double(), make()
    places = grid_coordinates((8, 8), "endpoint").flatten(0, 1).T.expand(2, -1, -1)
    assert relative(model(x.flatten(2), places), model(x).flatten(2)) > 1e-3
    whole = make(patches=1)  # one patch is one patch
    assert torch.allclose(whole(x.flatten(2), places), whole(x).flatten(2))
    slots = model.slots(x.flatten(2).mT, places, None)
    corners = places[0].T[slots.source[0]].view(4, 16, 2)
    assert bool(((corners < 0.5) == (corners[:, :1] < 0.5)).all())


@torch.no_grad()
def test_every_point_hears_of_every_other() -> None:
    model, x, places = make(depth=1), torch.randn(1, 2, 30).double(), torch.rand(1, 2, 30).double()
    changed = x.clone()
    changed[..., 0] += 0.5
    assert float((model(changed, places) - model(x, places)).abs().min()) > 1e-10


@torch.no_grad()
def test_more_patches_than_points() -> None:
    model, x = make(patches=7), torch.randn(1, 2, 5).double()
    places, mask = torch.rand(1, 2, 5).double(), torch.tensor([[True, False, True, True, False]])
    assert torch.allclose(model(x, places, mask)[..., mask[0]], model(x[..., mask[0]], places[..., mask[0]]))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        # airfoil, elasticity and pipe; Navier-Stokes; Darcy
        ({"in_channels": 0}, 2.15e6),
        ({"in_channels": 10, "width": 256, "landmarks": 8}, 8.6e6),
        ({"in_channels": 1, "width": 256, "landmarks": 8, "patches": 600}, 8.6e6),
    ],
)
def test_numbers_of_parameters(arguments: dict[str, Any], count: float) -> None:
    """Those of the published code, whose attention has an MLP and a norm inside."""
    with torch.device("meta"):
        model = MSPT(out_channels=1, **arguments)
    width = arguments.get("width", 128)
    inside = 8 * (8 * width**2 + 7 * width)
    assert sum(p.numel() for p in model.parameters()) + inside == pytest.approx(count, rel=0.01)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"patches": 0}, "patches must be at least 1"),
        ({"supernodes": 0}, "supernodes must be at least 1"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"expansion": 0}, "expansion must be at least 1"),
        ({"coordinates": "none", "landmarks": 2}, "needs positions"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)
