"""Ball trees against a recursive one, and what makes them trees of ragged batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hofno.layers.balltree import ball_tree, even_chunks, kept, take, tree_order, turn


def halves(places: Tensor, numbers: list[int], splits: int) -> list[list[int]]:
    """Balls of the points of those numbers, by recursion."""
    if splits == 0:
        return [numbers]
    if not numbers:
        return [[] for _ in range(2**splits)]
    inside = places[numbers]
    axis = int((inside.amax(0) - inside.amin(0)).argmax())
    ordered = sorted(numbers, key=lambda number: float(places[number, axis]))
    middle = (len(numbers) + 1) // 2
    return halves(places, ordered[:middle], splits - 1) + halves(places, ordered[middle:], splits - 1)


def balls_of(source: Tensor, filled: Tensor | None, count: int) -> list[list[int]]:
    """The tokens of each of `count` balls of one cloud."""
    there = torch.ones_like(source, dtype=torch.bool) if filled is None else filled
    cut = zip(source.view(count, -1), there.view(count, -1), strict=True)
    return [tokens[holds].tolist() for tokens, holds in cut]


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(1, 40),
    ball=st.integers(1, 9),
    dims=st.integers(1, 3),
    least=st.integers(0, 2),
    seed=st.integers(0),
)
def test_balls_are_those_of_a_recursive_tree(number: int, ball: int, dims: int, least: int, seed: int) -> None:
    places = torch.rand(2, number, dims, generator=torch.Generator().manual_seed(seed))
    splits = max(0, math.ceil(math.log2(number / ball)))
    levels = max(splits, least)
    slots = ball_tree(places, ball, None, least)
    for sample in range(2):
        filled = None if slots.filled is None else slots.filled[sample]
        found = balls_of(slots.source[sample], filled, 2**levels)
        size = len(slots.source[sample]) >> levels
        spread = 0  # splits that a smaller tree would not have, as all points fit in one half
        while spread < levels and number <= size << (levels - spread - 1):
            spread += 1
        expected = halves(places[sample], list(range(number)), levels - spread)
        expected += [[] for _ in range(2**levels - len(expected))]
        assert [sorted(tokens) for tokens in found] == [sorted(tokens) for tokens in expected]
        assert max(len(tokens) for tokens in found) <= ball
        home = slots.home[sample]
        assert slots.source[sample][home].tolist() == list(range(number))
        assert filled is None or bool(filled[home].all())


def test_a_tree_wastes_no_slots_without_a_mask() -> None:
    assert ball_tree(torch.rand(1, 96, 2), 32).filled is None
    assert ball_tree(torch.rand(1, 16641, 2), 256).source.shape == (1, 131 * 128)


@pytest.mark.parametrize("ball", [1, 4, 5])
def test_a_cloud_in_a_ragged_batch_has_the_tree_it_has_alone(ball: int) -> None:
    torch.manual_seed(0)
    places, counts = torch.rand(5, 37, 2), (37, 20, 16, 3, 1)
    mask = torch.zeros(5, 37, dtype=torch.bool)
    for row, count in enumerate(counts):
        mask[row, torch.randperm(37)[:count]] = True
    slots = ball_tree(places.masked_fill(~mask.unsqueeze(-1), 0.0), ball, mask)
    assert slots.filled is not None
    for row, count in enumerate(counts):
        there = mask[row].nonzero().squeeze(-1)
        alone = ball_tree(places[row : row + 1, there], ball)
        splits = max(0, math.ceil(math.log2(count / ball)))
        expected = balls_of(there[alone.source[0]], None if alone.filled is None else alone.filled[0], 2**splits)
        found = balls_of(slots.source[row], slots.filled[row], slots.source.shape[1] // ball)
        assert [sorted(tokens) for tokens in found[: 2**splits]] == [sorted(tokens) for tokens in expected]
        assert not any(found[2**splits :])
        assert slots.source[row][slots.home[row, there]].equal(there)


def test_the_order_of_the_points_does_not_matter() -> None:
    torch.manual_seed(0)
    places, order = torch.rand(1, 50, 3), torch.randperm(50)
    before, after = ball_tree(places, 4), ball_tree(places[:, order], 4)
    assert before.filled is not None
    assert after.filled is not None
    assert before.filled.equal(after.filled)
    assert order[after.source[0]][after.filled[0]].equal(before.source[0][before.filled[0]])
    assert take(places, tree_order(places)).equal(take(places[:, order], tree_order(places[:, order])))


def test_points_that_stand_together_are_near_each_other() -> None:
    torch.manual_seed(0)
    places = torch.rand(1, 256, 2)
    apart = take(places, tree_order(places)).view(16, 16, 2)
    assert float((apart - apart.mean(1, keepdim=True)).norm(dim=-1).mean()) < 0.2


def test_points_that_are_not_there_come_last() -> None:
    torch.manual_seed(0)
    places, mask = torch.rand(2, 20, 2), torch.rand(2, 20) < 0.6
    order = tree_order(places, mask)
    assert order.sort(-1).values.equal(torch.arange(20).expand(2, -1))
    for row in range(2):
        count = int(mask[row].sum())
        assert bool(mask[row][order[row, :count]].all())


@settings(max_examples=60, deadline=None)
@given(number=st.integers(1, 30), chunks=st.integers(1, 12), masked=st.booleans())
def test_even_chunks(number: int, chunks: int, masked: bool) -> None:
    order = torch.randperm(number).unsqueeze(0)
    count = max(1, number // 2) if masked else number
    slots = even_chunks(order, chunks, torch.tensor([[count]]) if masked else None)
    found = balls_of(slots.source[0], None if slots.filled is None else slots.filled[0], chunks)
    assert [token for tokens in found for token in tokens] == order[0, :count].tolist()
    assert {len(tokens) for tokens in found} <= {count // chunks, -(-count // chunks)}
    assert found == [
        [int(order[0, rank]) for rank in range(count) if rank * chunks // count == chunk] for chunk in range(chunks)
    ]
    there = order[0, :count]
    assert slots.source[0][slots.home[0, there]].equal(there)


def test_turned_points() -> None:
    assert torch.allclose(turn(torch.tensor([1.0, 0.0]), 45.0), torch.tensor([0.5, 0.5]).sqrt())
    places = torch.randn(9, 3, dtype=torch.float64)
    turned = turn(places, 30.0)
    assert torch.allclose(torch.cdist(turned, turned), torch.cdist(places, places))
    assert float((turned - places).norm(dim=-1).min()) > 1e-3
    assert turn(places[:, :1], 30.0).equal(places[:, :1])


def test_one_row_may_stand_for_all() -> None:
    v, index = torch.randn(3, 5, 2), torch.tensor([[4, 0, 0]])
    assert take(v, index).equal(v[:, [4, 0, 0]])
    assert take(v[:1], index.expand(3, -1)).equal(v[:1, [4, 0, 0]].expand(3, -1, -1))


def test_what_is_kept_is_made_once() -> None:
    made: list[int] = []

    def make() -> tuple[Tensor]:
        made.append(1)
        return (torch.zeros(2),)

    first = kept(("a test of keeping",), make, torch.zeros(1))
    assert kept(("a test of keeping",), make, torch.zeros(1))[0] is first[0]
    kept(("a test of keeping",), make, torch.zeros(1, dtype=torch.float64))
    assert len(made) == 2


def test_what_is_kept_belongs_to_no_transform() -> None:
    """Made inside a second derivative, and used in a first one afterwards."""

    def cubes(x: Tensor) -> Tensor:
        (powers,) = kept(("a test of transforms",), lambda: (torch.arange(3.0) + 1,), x)
        return (powers * x**3).sum()

    x = torch.randn(3)
    torch.func.grad(lambda x: torch.func.grad(cubes)(x).sum())(x)
    torch.testing.assert_close(torch.func.grad(cubes)(x), 3 * torch.arange(1.0, 4.0) * x**2)
