"""Factorised attention against sums over all pairs of points."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.geometry import axis_coordinates, grid_coordinates
from hofno.layers.factorised import REACH, AxisKernel, FactorisedAttention
from hofno.layers.rotary import angles_at, turned
from reference import relative

SIZES = {1: (5,), 2: (3, 4), 3: (2, 3, 2)}


def make(dims: int, **changed: int) -> FactorisedAttention:
    torch.manual_seed(0)
    return FactorisedAttention(**{"width": 4, "dims": dims, "heads": 2, "head_width": 3, "rank": 4, **changed}).double()


@pytest.mark.parametrize("dims", [1, 2, 3])
@torch.no_grad()
def test_equals_sums_over_all_pairs(dims: int) -> None:
    layer, points = make(dims), SIZES[dims]
    v = torch.randn(1, *points, 4, dtype=torch.float64)
    kernels = []
    for axis, part in enumerate(layer.kernels):
        assert isinstance(part, AxisKernel)
        n = points[axis]
        means = torch.stack([v[0].movedim(axis, 0)[s].reshape(-1, 4).mean(0) for s in range(n)])
        a, b = part.up(part.norm(part.reduce(means))).chunk(2, -1)
        q, k = part.maps(part.down(a * F.gelu(b))).chunk(2, -1)  # (n, h rank)
        x = axis_coordinates(n, "endpoint")
        kernel = torch.zeros(2, n, n, dtype=torch.float64)
        for head, s, t, pair in itertools.product(range(2), range(n), range(n), range(2)):
            at = [4 * head + pair, 4 * head + pair + 2]
            angle = 64 * (x[s] - x[t]) * 1e4 ** (-pair / 2)
            turn = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]]).double()
            kernel[head, s, t] += (turn @ q[s, at]) @ k[t, at] / n
        kernels.append(kernel)
    values = layer.value(v[0]).unflatten(-1, (2, 3))
    z = torch.zeros(*points, 2, 3, dtype=torch.float64)
    for here, there in itertools.product(itertools.product(*map(range, points)), repeat=2):
        for head in range(2):
            weight = math.prod(float(kernels[axis][head, here[axis], there[axis]]) for axis in range(dims))
            z[(*here, head)] += weight * values[(*there, head)]
    for head in range(2):
        own = z[..., head, :]
        z[..., head, :] = (own - own.mean()) / own.std(correction=0)
    assert torch.allclose(layer(v, "endpoint")[0], layer.out(z.flatten(-2)), atol=1e-8)


def test_turning_keeps_lengths_and_knows_distances_alone() -> None:
    q, k = torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)

    def product(s: float, t: float) -> Tensor:
        places = torch.tensor([[s], [t]], dtype=torch.float64)
        angles = angles_at(places, 3, REACH)
        a, b = turned(torch.stack((q, k)), angles.cos(), angles.sin())
        assert torch.allclose(a.norm(), q.norm())
        return a @ b

    assert torch.allclose(product(0.1, 0.3), product(0.6, 0.8))
    assert not torch.allclose(product(0.1, 0.3), product(0.6, 0.9), atol=1e-3)


@torch.no_grad()
def test_a_finer_grid_of_the_same_function_gives_the_same_function() -> None:
    layer = make(2)
    mix = torch.randn(2, 4, dtype=torch.float64)

    def answer(n: int) -> Tensor:
        angle = 2 * math.pi * grid_coordinates((n, n), "periodic")
        return layer(torch.sin(angle @ mix.sign()).unsqueeze(0) + angle.cos().sum(-1)[None, ..., None], "periodic")

    finest = answer(256)
    errors = [relative(answer(n), finest[:, :: 256 // n, :: 256 // n]) for n in (32, 64, 128)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.1


@pytest.mark.parametrize("dims", [1, 2])
def test_gradients(dims: int) -> None:
    layer = make(dims)
    v = torch.randn(1, *SIZES[dims], 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: layer(v, "endpoint"), (v,))
