"""Attention in windows against loops over cells, on grids of whole windows and others."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.layers.cells import crop, extend, join_windows, split_windows
from hofno.layers.windows import WindowAttention

Cell = tuple[int, ...]


def make(window: int = 3, dims: int = 2, **changed: object) -> WindowAttention:
    torch.manual_seed(0)
    layer = WindowAttention(4, 2, window, dims, **changed).double()  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        layer.bias.normal_()
    return layer


def window_of(cell: Cell, points: Cell, layer: WindowAttention) -> tuple[int, ...]:
    """Which window a cell is in: windows begin at 0, or at half a window before 0."""
    found = []
    for place, n in zip(cell, points, strict=True):
        shift = 0 if n <= layer.window else layer.shift
        number = (place - shift) // layer.window
        if layer.wraps and n % layer.window == 0:
            number %= n // layer.window
        found.append(number)
    return tuple(found)


def by_loops(layer: WindowAttention, v: Tensor) -> Tensor:
    """(*n, width) -> (*n, width), one pair of cells at a time."""
    points, size = tuple(v.shape[:-1]), layer.width // layer.heads
    cells = list(itertools.product(*(range(n) for n in points)))
    q, k, u = (v @ w.T + b for w, b in zip(layer.maps.weight.chunk(3), layer.maps.bias.chunk(3), strict=True))
    heard = torch.zeros_like(v)
    for here, head in itertools.product(cells, range(layer.heads)):
        part = slice(head * size, (head + 1) * size)
        seen = [there for there in cells if window_of(there, points, layer) == window_of(here, points, layer)]
        scores = []
        for there in seen:
            number = 0
            for i, j, n in zip(here, there, points, strict=True):
                offset = i - j
                if abs(offset) >= layer.window:  # across the ends
                    offset -= n if offset > 0 else -n
                number = number * (2 * layer.window - 1) + offset + layer.window - 1
            product = q[here][part] @ k[there][part]
            product = product / (math.sqrt(size) if layer.weights == "softmax" else len(seen))
            scores.append(product + layer.bias[number, head])
        weights = torch.stack(scores)
        weights = weights.softmax(0) if layer.weights == "softmax" else weights
        heard[here][part] = sum(
            (weight * u[there][part] for weight, there in zip(weights, seen, strict=True)), v.new_zeros(size)
        )
    return heard @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("weights", ["softmax", "mean"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("points", [(6,), (7,), (2,), (6, 6), (7, 4), (4, 3, 5)])
@torch.no_grad()
def test_equals_loops(points: tuple[int, ...], wraps: bool, shifted: bool, weights: str) -> None:
    layer = make(dims=len(points), shifted=shifted, wraps=wraps, weights=weights)
    v = torch.randn(1, *points, 4, dtype=torch.float64)
    assert torch.allclose(layer(v)[0], by_loops(layer, v[0]), atol=1e-12)


@torch.no_grad()
def test_windows_shifted_on_a_torus_move_with_the_field() -> None:
    layer, v = make(4, shifted=True, wraps=True), torch.randn(2, 8, 12, 4, dtype=torch.float64)
    assert torch.allclose(layer(v.roll((4, -4), (1, 2))), layer(v).roll((4, -4), (1, 2)), atol=1e-12)
    assert not torch.allclose(layer(v.roll(1, 1)), layer(v).roll(1, 1), atol=1e-3)


@pytest.mark.parametrize("points", [(8,), (4, 6), (2, 4, 6)])
def test_windows_are_put_back_where_they_were(points: tuple[int, ...]) -> None:
    v = torch.randn(3, *points, 5)
    cells = split_windows(v, 2)
    assert cells.shape == (3, *(n // 2 for n in points), 2 ** len(points), 5)
    assert cells[(0,) * (len(points) + 1)].equal(v[(0, *(slice(2) for _ in points))].reshape(-1, 5))
    assert join_windows(cells, 2).equal(v)


def test_past_the_end_there_are_zeros() -> None:
    v = torch.randn(2, 3, 4, 5)
    longer = extend(v, (4, 4))
    assert longer.shape == (2, 4, 4, 5)
    assert not bool(longer[:, 3].any())
    assert crop(longer, (3, 4)).equal(v)


@pytest.mark.parametrize("weights", ["softmax", "mean"])
def test_gradients(weights: str) -> None:
    v = torch.randn(1, 4, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(make(shifted=True, weights=weights), (v,))


def test_wrong_arguments() -> None:
    with pytest.raises(SpecError, match="window must be at least 1"):
        make(0)
    with pytest.raises(SpecError, match="width must be a multiple of heads"):
        WindowAttention(4, 3, 2, 2)
    with pytest.raises(SpecError, match="weights must be one of softmax, mean"):
        make(weights="sum")
