"""The density of a cloud and its slope, against the plain sums and against clouds whose density is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hofno.transforms import density
from hofno.transforms.density import density_features


def by_hand(x: Tensor, s: float) -> Tensor:
    """One sample (N, d), point by point."""
    rows = []
    for here in x:
        near = torch.exp(-(x - here).square().sum(-1) / (2 * s**2))
        height = near.mean() / (2 * math.pi * s**2) ** (x.shape[1] / 2)
        rows.append(torch.cat((height.log()[None], (near[:, None] * (x - here)).sum(0) / (s * near.sum()))))
    return torch.stack(rows)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_against_the_plain_sums(dims: int) -> None:
    x = torch.rand(2, 30, dims, dtype=torch.float64)
    found = density_features(x, (0.1, 0.4))
    expected = torch.stack([torch.cat((by_hand(cloud, 0.1), by_hand(cloud, 0.4)), -1) for cloud in x])
    assert torch.allclose(found, expected, atol=1e-12)


def test_the_slope_is_that_of_the_logarithm() -> None:
    x = torch.rand(1, 20, 2, dtype=torch.float64)
    probe = x[:, :1].clone().requires_grad_()
    s = 0.2
    total = torch.exp(-(x - probe).square().sum(-1) / (2 * s**2)).sum()
    (slope,) = torch.autograd.grad(total.log(), probe)
    assert torch.allclose(density_features(x, (s,))[:, :1, 1:], s * slope, atol=1e-12)


def test_a_uniform_cloud_has_density_one_inside_and_slopes_away_from_its_edge() -> None:
    axis = (torch.arange(40) + 0.5) / 40
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(1, -1, 2)
    log, *slope = density_features(grid, (0.05,))[0].unbind(-1)
    middle, edge = 20 * 40 + 20, 20  # the second at x = 1/80
    assert abs(float(log[middle])) < 1e-2
    assert abs(float(log[edge]) - math.log(0.5)) < 0.25
    assert float(slope[0][edge]) > 0.5 > 1e-3 > abs(float(slope[1][middle]))


def test_points_that_are_not_there_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(2, 30, 2)
    mask = torch.arange(30) < torch.tensor([[30], [12]])
    found = density_features(x, (0.1,), mask)
    assert torch.allclose(found[:1], density_features(x[:1], (0.1,)), atol=1e-6)
    assert torch.allclose(found[1:, :12], density_features(x[1:, :12], (0.1,)), atol=1e-6)
    assert bool(found.isfinite().all())
    monkeypatch.setattr(density, "CPU_TILE", 200)  # three points at a time
    assert torch.allclose(density_features(x, (0.1,), mask), found, atol=1e-6)


def test_gradients_reach_the_points() -> None:
    x = torch.rand(1, 6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: density_features(x, (0.3,)), (x,))
