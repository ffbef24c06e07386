"""Nearest points and their messages, one pair of points at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.layers import neighbours
from hofno.layers.neighbours import Messages, nearest


@pytest.mark.parametrize("tile", [2**24, 30, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_nearest_points(masked: bool, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "TILE", tile)
    torch.manual_seed(0)
    places, mask = torch.rand(2, 11, 3), torch.rand(2, 11) < 0.7
    mask[1] = torch.arange(11) < 3
    found, there = nearest(places, 4, mask if masked else None)
    assert found.shape == (2, 11, 4)
    assert (there is not None) == masked
    for sample in range(2):
        for i in range(11):
            others = [j for j in range(11) if j != i and (not masked or (mask[sample, i] and mask[sample, j]))]
            others.sort(key=lambda j: float((places[sample, j] - places[sample, i]).norm()))
            kept = found[sample, i] if there is None else found[sample, i][there[sample, i]]
            assert kept.tolist() == others[:4]


@settings(max_examples=40, deadline=None)
@given(
    number=st.integers(2, 90),
    dims=st.integers(1, 3),
    count=st.integers(1, 9),
    kind=st.sampled_from(["drawn", "grid", "same", "uneven"]),
    share=st.none() | st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
def test_boxes_find_the_same_as_all_pairs(
    number: int, dims: int, count: int, kind: str, share: float | None, seed: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    places = torch.rand(2, number, dims, generator=draws)
    if kind == "grid":
        places = (4 * places).round()
    elif kind == "same":
        places[:, : number // 2] = 0.5
    elif kind == "uneven":
        places = places**8
    mask = None if share is None else torch.rand(2, number, generator=draws) < share
    expected, known = nearest(places, count, mask)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MANY": 1, "LEAF": 2, "TILE": 200}.items():
            patch.setattr(neighbours, name, value)
        found, there = nearest(places, count, mask)
    if known is None or there is None:
        assert known is there is None
        assert found.equal(expected)
    else:
        assert there.equal(known)
        assert found[there].equal(expected[known])


def test_points_equally_far_are_chosen_alike_whatever_the_rounding() -> None:
    grid = torch.cartesian_prod(torch.linspace(0, 1, 13), torch.linspace(0, 1, 7)).unsqueeze(0)
    whole = torch.cartesian_prod(torch.arange(13), 2 * torch.arange(7)).unsqueeze(0)
    rounded = torch.nextafter(grid, torch.rand_like(grid).round())
    found = nearest(grid, 8)[0]
    assert nearest(whole.double() / 12, 8)[0].equal(found)
    assert nearest(rounded, 8)[0].equal(found)
    assert nearest(3.0 * grid.double() - 7.0, 8)[0].equal(found)


def test_few_points_have_few_neighbours() -> None:
    assert nearest(torch.rand(2, 3, 2), 8)[0].shape == (2, 3, 2)
    assert nearest(torch.rand(2, 1, 2), 8)[0].shape == (2, 1, 0)
    none, there = nearest(torch.rand(2, 5, 2), 0, torch.ones(2, 5, dtype=torch.bool))
    assert none.shape == (2, 5, 0)
    assert there is not None
    assert there.shape == (2, 5, 0)
    layer, h = Messages(4, 2), torch.randn(2, 1, 4)
    assert bool(layer(h, torch.empty(2, 1, 0, dtype=torch.long), torch.empty(2, 1, 0, 2)).isfinite().all())


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_messages_equal_loops(masked: bool) -> None:
    torch.manual_seed(0)
    layer, h, places = Messages(4, 2).double(), torch.randn(2, 6, 4).double(), torch.rand(2, 6, 2).double()
    with torch.no_grad():
        layer.norm1.weight.normal_()
        layer.norm2.bias.normal_()
    mask = torch.tensor([[True] * 6, [True, False, True, False, False, True]])
    index, known = nearest(places, 3, mask if masked else None)
    steps = torch.stack([places[b][index[b]] - places[b].unsqueeze(1) for b in range(2)])
    found = layer(h, index, steps, known)
    for b in range(2):
        for i in range(6):
            messages = []
            for slot, j in enumerate(index[b, i].tolist()):
                if known is None or known[b, i, slot]:
                    sent = layer.here(h[b, i]) + layer.there(h[b, j]) + layer.apart(places[b, j] - places[b, i])
                    messages.append(layer.norm1(F.gelu(sent)))
            mean = sum(messages, torch.zeros(4).double()) / max(1, len(messages))
            expected = h[b, i] + layer.norm2(layer.update(torch.cat((h[b, i], mean))))
            assert torch.allclose(found[b, i], expected, atol=1e-12)
