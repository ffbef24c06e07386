"""Rotary Galerkin attention against its quadratic form, one pair of points at a time, and what it sees of positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.layers.rotary import EPSILON, RotaryAttention, angles_at, over_points, turned

MASK = torch.tensor([[True] * 5, [True, False, True, True, False]])


def make(width: int = 6, dims: int = 2, reach: float = 7.0) -> RotaryAttention:
    torch.manual_seed(0)
    layer = RotaryAttention(width, 2, dims, reach, 1.0).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def turn(u: Tensor, x: Tensor, reach: float) -> Tensor:
    """Channels (c) of one point at x (d), turned pair by pair."""
    out, dims = u.clone(), len(x)
    pairs = len(u) // 2
    count = pairs // dims
    for axis in range(dims):
        for j in range(count):
            one, other = axis * count + j, pairs + axis * count + j
            angle = reach * x[axis] * 1e4 ** (-j / count)
            out[one] = u[one] * angle.cos() - u[other] * angle.sin()
            out[other] = u[one] * angle.sin() + u[other] * angle.cos()
    return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("width", "dims"), [(6, 2), (8, 2), (7, 3), (4, 1)])
@torch.no_grad()
def test_equals_its_quadratic_form(masked: bool, width: int, dims: int) -> None:
    layer = make(width, dims)
    v, sources = torch.randn(2, 2, 5, width, dtype=torch.float64)
    places = torch.rand(2, 5, dims, dtype=torch.float64)
    found = layer(v, sources, places, MASK) if masked else layer(v, sources, places)
    for sample in range(2):
        kept = [j for j in range(5) if MASK[sample, j] or not masked]
        q = (v[sample] @ layer.query.weight.T).split(width, -1)
        k, u = ((sources[sample] @ part.T).split(width, -1) for part in layer.maps.weight.chunk(2))
        for i in kept:
            row = []
            for head in range(2):
                k_mean, u_mean = k[head][kept].mean(0), u[head][kept].mean(0)
                k_size = (k[head][kept].var(0, correction=0) + EPSILON).sqrt()
                u_size = (u[head][kept].var(0, correction=0) + EPSILON).sqrt()
                gathered = torch.zeros(width, dtype=torch.float64)
                for j in kept:
                    key = turn((k[head][j] - k_mean) / k_size, places[sample, j], 7.0)
                    value = (u[head][j] - u_mean) / u_size
                    gathered += turn(q[head][i], places[sample, i], 7.0) @ key * value / len(kept)
                row.append(gathered)
            assert torch.allclose(found[sample, i], layer.out(torch.cat(row)), atol=1e-11)


@torch.no_grad()
def test_only_distances_are_seen() -> None:
    layer = make()
    v, places = torch.randn(1, 5, 6, dtype=torch.float64), torch.rand(1, 5, 2, dtype=torch.float64)
    there = places + torch.tensor([0.3, -0.8])
    assert torch.allclose(layer(v, v, there), layer(v, v, places), atol=1e-11)
    assert not torch.allclose(layer(v, v, 2.0 * places), layer(v, v, places), atol=1e-2)
    blind = make(reach=0.0)
    assert torch.allclose(blind(v, v, 2.0 * places), blind(v, v, places), atol=1e-12)


@torch.no_grad()
def test_turning_keeps_lengths_and_leaves_odd_channels() -> None:
    u, places = torch.randn(1, 5, 2, 9, dtype=torch.float64), torch.rand(1, 5, 3, dtype=torch.float64)
    angles = angles_at(places, 4, 5.0).unsqueeze(2)
    found = turned(u, angles.cos(), angles.sin())
    stay = [3, 7, 8]  # the fourth pair, where each coordinate has one, and the odd channel
    assert torch.allclose(found.norm(dim=-1), u.norm(dim=-1))
    assert found[..., stay].equal(u[..., stay])
    assert not torch.isclose(found[..., [0, 1, 2, 4, 5, 6]], u[..., [0, 1, 2, 4, 5, 6]]).any()


@torch.no_grad()
def test_means_over_points() -> None:
    """Every point twice is the same domain; and masked points are neither seen nor kept."""
    layer = make()
    v, places = torch.randn(1, 5, 6, dtype=torch.float64), torch.rand(1, 5, 2, dtype=torch.float64)
    twice = layer(v.repeat(1, 2, 1), v.repeat(1, 2, 1), places.repeat(1, 2, 1))
    assert torch.allclose(twice[:, :5], layer(v, v, places), atol=1e-12)
    u = torch.randn(2, 5, 4, dtype=torch.float64)
    found = over_points(u, MASK)
    assert torch.allclose(found[1][MASK[1]], over_points(u[1:, MASK[1]], None)[0])
    assert not bool(found[1][~MASK[1]].any())


def test_gradients() -> None:
    v = torch.randn(1, 3, 6, dtype=torch.float64, requires_grad=True)
    places = torch.rand(1, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, x: make()(v, v.flip(-1), x), (v, places))


def test_it_starts_next_to_a_multiple_of_the_identity() -> None:
    torch.manual_seed(0)
    layer = RotaryAttention(16, 3, 2, 1.0, 4.0)
    for part in (*layer.query.weight.detach().chunk(3), *layer.maps.weight.detach().chunk(6)):
        rest = 4.0 * part - torch.eye(16)
        assert torch.allclose(rest @ rest.T, torch.eye(16), atol=1e-5)


def test_wrong_arguments() -> None:
    with pytest.raises(SpecError, match=r"turned in pairs, at least one for each of 3 axes; got 4"):
        RotaryAttention(4, 2, 3, 1.0, 1.0)
    with pytest.raises(SpecError, match="heads must be at least 1"):
        RotaryAttention(4, 0, 1, 1.0, 1.0)
