"""Slice attention against loops over points and slices, and what makes it an average over the domain."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.layers.slices import EPSILON, AdaptiveSliceAttention, SliceAttention, gumbel_like


def make(**changed: object) -> SliceAttention:
    torch.manual_seed(1)
    layer = SliceAttention(**{"width": 6, "heads": 2, "slices": 3, **changed}).double()  # pyright: ignore
    with torch.no_grad():
        layer.temperature.copy_(torch.tensor([0.05, 0.7]).view(2, 1, 1))  # the first is clamped to 0.1
    return layer


def make_adaptive(noise: float = 1.0) -> AdaptiveSliceAttention:
    torch.manual_seed(1)
    layer = AdaptiveSliceAttention(6, 2, 3, noise).double()
    with torch.no_grad():
        layer.temperature.copy_(torch.tensor([0.2, -1.0]).view(2, 1, 1))  # the second is clamped to 0.01
        layer.assign.weight.mul_(0.1)
    return layer


def by_loops(
    layer: SliceAttention | AdaptiveSliceAttention, a: Tensor, z: Tensor, temperatures: Tensor, kept: list[int]
) -> Tensor:
    """a, z (N, width) and temperatures (N, h) of one sample -> (N, width), one point and one slice at a time."""
    number, width = a.shape
    size = width // layer.heads
    heard = torch.zeros(number, width, dtype=a.dtype)
    for head in range(layer.heads):
        part = slice(head * size, (head + 1) * size)
        shares = torch.zeros(number, layer.slices, dtype=a.dtype)
        for i in range(number):
            logits = (layer.assign.weight @ a[i, part] + layer.assign.bias) / temperatures[i, head]
            shares[i] = logits.exp() / logits.exp().sum()
        means = []
        for j in range(layer.slices):
            weighted = sum((shares[i, j] * z[i, part] for i in kept), torch.zeros(size, dtype=a.dtype))
            means.append(weighted / (sum(float(shares[i, j]) for i in kept) + EPSILON))
        for i, j in itertools.product(range(number), range(layer.slices)):
            scores = [
                (layer.query.weight @ means[j]) @ (layer.key.weight @ means[k]) / math.sqrt(size)
                for k in range(layer.slices)
            ]
            attention = torch.stack(scores).softmax(0)
            new = sum(
                (attention[k] * (layer.value.weight @ means[k]) for k in range(layer.slices)),
                torch.zeros(size, dtype=a.dtype),
            )
            heard[i, part] += shares[i, j] * new
    return heard @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_equals_loops(masked: bool) -> None:
    layer, v = make(), torch.randn(2, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    found = layer(v, mask) if masked else layer(v)
    for sample in range(2):
        kept = [i for i in range(5) if mask[sample, i] or not masked]
        a, z = F.linear(v[sample], layer.maps.weight, layer.maps.bias).chunk(2, -1)  # pyright: ignore
        exact = by_loops(layer, a, z, torch.tensor([[0.1, 0.7]]).double().expand(5, 2), kept)
        assert torch.allclose(found[sample, kept], exact[kept], atol=1e-12)


@torch.no_grad()
def test_convolutions_see_the_neighbours_of_a_point() -> None:
    layer, v = make(projection="conv", dims=2), torch.randn(1, 3, 2, 6, dtype=torch.float64)
    weight, bias = layer.maps.weight, layer.maps.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    images = bias.expand(3, 2, 12).clone()
    for i, j, di, dj in itertools.product(range(3), range(2), (-1, 0, 1), (-1, 0, 1)):
        if 0 <= i + di < 3 and 0 <= j + dj < 2:
            images[i, j] += weight[:, :, 1 + di, 1 + dj] @ v[0, i + di, j + dj]
    a, z = images.reshape(6, 12).chunk(2, -1)
    exact = by_loops(layer, a, z, torch.tensor([[0.1, 0.7]]).double().expand(6, 2), list(range(6)))
    assert torch.allclose(layer(v)[0].reshape(6, 6), exact, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_adaptive_equals_loops(masked: bool) -> None:
    layer, v = make_adaptive().eval(), torch.randn(1, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False]])
    found = layer(v, mask) if masked else layer(v)
    z = layer.maps(v[0])
    inner = F.gelu(z.view(5, 2, 3) @ layer.warm.weight.T + layer.warm.bias) @ layer.warmer.weight.T + layer.warmer.bias
    temperatures = (layer.temperature.view(2) + F.gelu(inner).squeeze(-1)).clamp_min(0.01)
    assert float(temperatures[:, 1].max()) == 0.01
    kept = [i for i in range(5) if mask[0, i] or not masked]
    assert torch.allclose(found[0, kept], by_loops(layer, z, z, temperatures, kept)[kept], atol=1e-10)


@torch.no_grad()
def test_noise_is_for_training_and_follows_the_seed() -> None:
    v = torch.randn(1, 7, 6, dtype=torch.float64)

    def outcome(layer: AdaptiveSliceAttention, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return layer(v)

    layer = make_adaptive()
    assert outcome(layer, 1).equal(outcome(layer, 1))
    assert not outcome(layer, 1).allclose(outcome(layer, 2))
    assert outcome(layer.eval(), 1).equal(outcome(layer, 2))
    assert outcome(layer, 1).allclose(outcome(make_adaptive(0.0), 1))


def test_gumbel_numbers() -> None:
    torch.manual_seed(0)
    drawn = gumbel_like(torch.empty(200_000))
    assert bool(drawn.isfinite().all())
    assert float(drawn.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(drawn.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)
    assert float((drawn < 0).float().mean()) == pytest.approx(math.exp(-1), abs=0.01)


@pytest.mark.parametrize("make_layer", [SliceAttention, AdaptiveSliceAttention])
@torch.no_grad()
def test_the_number_of_points_does_not_matter(make_layer: type[SliceAttention | AdaptiveSliceAttention]) -> None:
    """Every point twice is the same domain, but for the small number that keeps empty slices from dividing by 0."""
    torch.manual_seed(0)
    layer = make_layer(6, 2, 3).double().eval()
    v = torch.randn(2, 9, 6, dtype=torch.float64)
    assert torch.allclose(layer(v.repeat(1, 2, 1))[:, :9], layer(v), atol=1e-4)
    assert not torch.allclose(layer(torch.cat((v, v[:, :3]), 1))[:, :9], layer(v), atol=1e-3)


@pytest.mark.parametrize("layer", [make(), make(projection="conv", dims=1), make_adaptive(0.0)])
def test_gradients(layer: torch.nn.Module) -> None:
    v = torch.randn(1, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (v,))


def test_wrong_arguments() -> None:
    with pytest.raises(SpecError, match="width must be a multiple of heads"):
        SliceAttention(6, 4, 3)
    with pytest.raises(SpecError, match="slices must be at least 1"):
        SliceAttention(6, 2, 0)
    with pytest.raises(SpecError, match="projection must be one of linear, conv"):
        SliceAttention(6, 2, 3, "convolution")
    with pytest.raises(SpecError, match="noise is a size"):
        AdaptiveSliceAttention(6, 2, 3, -1.0)
    with pytest.raises(ShapeError, match=r"needs a grid of 2 axes.*use projection='linear'"):
        make(projection="conv")(torch.randn(1, 5, 6).double())
