"""Attention of linear cost against its quadratic form, one pair of points at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.errors import SpecError
from hofno.layers.attention import GalerkinAttention, NormalisedAttention

MASK = torch.tensor([[True] * 5, [True, False, True, True, False]])


def galerkin() -> GalerkinAttention:
    torch.manual_seed(0)
    layer = GalerkinAttention(6, 2, 2).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def normalised(keep_query: bool) -> NormalisedAttention:
    torch.manual_seed(0)
    return NormalisedAttention(6, 2, keep_query).double()


def heads(u: Tensor) -> list[Tensor]:
    """The two heads of (N, 6)."""
    return list(u.chunk(2, -1))


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_galerkin_equals_its_quadratic_form(masked: bool) -> None:
    layer = galerkin()
    v, places = torch.randn(2, 5, 6, dtype=torch.float64), torch.rand(2, 5, 2, dtype=torch.float64)
    found = layer(v, places, MASK) if masked else layer(v, places)
    for sample in range(2):
        kept = [j for j in range(5) if MASK[sample, j] or not masked]
        q, k, u = (heads(part) for part in layer.maps(v[sample]).chunk(3, -1))
        rows = []
        for i in range(5):
            row = []
            for head in range(2):
                gathered = torch.zeros(5, dtype=torch.float64)
                for j in kept:
                    key, value = (
                        torch.cat((F.layer_norm(w[head][j], (3,)) * gain[head, 0] + shift[head, 0], places[sample, j]))
                        for w, gain, shift in zip((k, u), layer.gain, layer.shift, strict=True)
                    )
                    gathered += torch.cat((q[head][i], places[sample, i])) @ key * value / len(kept)
                row.append(gathered)
            rows.append(torch.cat(row))
        assert torch.allclose(found[sample], layer.out(torch.stack(rows)), atol=1e-11)


@pytest.mark.parametrize("keep_query", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_normalised_equals_its_quadratic_form(keep_query: bool, masked: bool) -> None:
    layer = normalised(keep_query)
    v, sources = torch.randn(2, 4, 6, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64)
    found = layer(v, sources, MASK) if masked else layer(v, sources)
    for sample in range(2):
        kept = [j for j in range(5) if MASK[sample, j] or not masked]
        k, u = (heads(part) for part in layer.maps(sources[sample]).chunk(2, -1))
        rows = []
        for i in range(4):
            row = []
            for head, query in enumerate(heads(layer.query(v[sample]))):
                q = query[i].softmax(0)
                weights = torch.stack([q @ k[head][j].softmax(0) for j in kept])
                weights = weights / weights.sum()
                z = sum((w * u[head][j] for w, j in zip(weights, kept, strict=True)), torch.zeros(3).double())
                row.append(z + q if keep_query else z)
            rows.append(torch.cat(row))
        assert torch.allclose(found[sample], layer.out(torch.stack(rows)), atol=1e-12)


@torch.no_grad()
def test_both_are_means_over_points() -> None:
    """Every point twice is the same domain, and one point twice is not."""
    v, places = torch.randn(2, 6, 6, dtype=torch.float64), torch.rand(2, 6, 2, dtype=torch.float64)
    mean = normalised(True)
    layers = (lambda v, x: galerkin()(v, x), lambda v, x: mean(v, v))
    for layer in layers:
        assert torch.allclose(layer(v.repeat(1, 2, 1), places.repeat(1, 2, 1))[:, :6], layer(v, places))
        more = torch.cat((v, v[:, :1]), 1), torch.cat((places, places[:, :1]), 1)
        assert not torch.allclose(layer(*more)[:, :6], layer(v, places), atol=1e-3)


@torch.no_grad()
def test_what_is_the_same_everywhere_is_heard_as_it_is() -> None:
    layer = normalised(False)
    layer.maps.weight[6:] = 0.0
    v = torch.randn(2, 6, 6, dtype=torch.float64)
    assert torch.allclose(layer(v, v), layer.out(layer.maps.bias[6:]).expand(2, 6, 6))


def test_galerkin_starts_small_and_next_to_the_identity() -> None:
    torch.manual_seed(0)
    layer = GalerkinAttention(64, 4, 2)
    for part in layer.maps.weight.view(3, 64, 64).detach():
        rest = part - 0.01 * torch.eye(64)
        assert 0.0 < float(rest.abs().max()) < 0.01 * (6 / 128) ** 0.5


def test_gradients() -> None:
    v = torch.randn(1, 3, 6, dtype=torch.float64, requires_grad=True)
    places = torch.rand(1, 3, 2, dtype=torch.float64, requires_grad=True)
    sources = torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(galerkin(), (v, places))
    assert torch.autograd.gradcheck(normalised(True), (v, sources))


def test_wrong_heads() -> None:
    with pytest.raises(SpecError, match="width must be a multiple of heads"):
        GalerkinAttention(6, 4, 2)
    with pytest.raises(SpecError, match="heads must be at least 1; got 0"):
        NormalisedAttention(6, 0, keep_query=True)
