"""Local interpolation onto other grids, against loops and numpy, and what it leaves as it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hofno.transforms import resample


def field(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("n", "m"), [(9, 14), (14, 9), (2, 5), (7, 7), (5, 1), (1, 6)])
def test_linear_is_the_broken_line_through_the_values(n: int, m: int) -> None:
    u = field(1, n, 1)
    given, wanted = np.linspace(0, 1, n), np.linspace(0, 1, m)
    found = resample.linear(u, (m,), "endpoint")[0, :, 0].numpy()
    assert np.allclose(found, np.interp(wanted, given, u[0, :, 0].numpy()))
    found = resample.linear(u, (m,), "periodic")[0, :, 0].numpy()
    assert np.allclose(found, np.interp(np.arange(m) / m, np.arange(n) / n, u[0, :, 0].numpy(), period=1))


def keys(t: float) -> float:
    t = abs(t)
    if t < 1:
        return 1.5 * t**3 - 2.5 * t**2 + 1
    return -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2 if t < 2 else 0.0


@pytest.mark.parametrize(("n", "m"), [(8, 12), (12, 8), (11, 5), (3, 2)])
def test_cubic_is_the_weighted_mean_of_its_definition(n: int, m: int) -> None:
    u = field(1, n, 1)[0, :, 0].numpy()
    expected = []
    for i in range(m):
        near = range(-2 * n, 3 * n)  # a line that repeats itself
        weights = [keys((i / m - j / n) * min(n, m)) for j in near]
        expected.append(sum(w * u[j % n] for w, j in zip(weights, near, strict=True)) / sum(weights))
    found = resample.cubic(torch.from_numpy(u)[None, :, None], (m,))[0, :, 0].numpy()
    assert np.allclose(found, expected)


def test_axes_are_taken_one_after_the_other() -> None:
    u = field(2, 5, 6, 4, 3)
    for method in (resample.cubic, lambda v, points: resample.linear(v, points, "endpoint")):
        one = method(u.transpose(1, 3), (7, 6, 5)).transpose(1, 3)
        assert torch.allclose(method(u, (5, 6, 7)), one)
        assert one.shape == (2, 5, 6, 7, 3)


def test_constants_stay_and_the_same_grid_is_the_same_field() -> None:
    one = torch.ones(1, 9, 6, 1, dtype=torch.float64)
    assert torch.allclose(resample.cubic(one, (5, 11)), torch.ones(1, 5, 11, 1, dtype=torch.float64))
    u = field(2, 9, 6, 1)
    assert resample.cubic(u, (9, 6)).equal(u)


def test_cubic_is_of_third_order_on_smooth_functions() -> None:
    def error(n: int) -> float:
        x, y = torch.arange(n).double() / n, torch.arange(3 * n).double() / (3 * n)
        found = resample.cubic(torch.sin(2 * math.pi * x)[None, :, None], (3 * n,))[0, :, 0]
        return float((found - torch.sin(2 * math.pi * y)).abs().max())

    assert 2.7 < math.log2(error(16) / error(32)) < 4.3
