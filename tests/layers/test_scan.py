"""Selective state spaces against the plain recurrence, one token at a time, and the layers made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import SpecError
from hofno.layers.scan import SHORT, chunked, decays, dense, scan
from hofno.layers.statespace import FASTEST, SLOWEST, GridScan, Hydra, Rates, TwoWayScan

Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def draw(length: int, heads: int = 4, groups: int = 2, states: int = 3, channels: int = 2) -> Parts:
    """u, a, B, C for two samples."""
    u = torch.randn(2, heads, length, channels, dtype=torch.float64)
    b, c = torch.randn(2, 2, groups, length, states, dtype=torch.float64)
    return u, -2.0 * torch.rand(2, heads, length, dtype=torch.float64), b, c


def recurrence(u: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor | None = None) -> Tensor:
    """The definition, one sample, head and token after the other."""
    y, share = torch.zeros_like(u), u.shape[1] // b.shape[1]
    for sample in range(u.shape[0]):
        for head in range(u.shape[1]):
            state = torch.zeros(b.shape[-1], u.shape[-1], dtype=u.dtype) if start is None else start[head]
            for t in range(u.shape[2]):
                into, out_of = b[sample, head // share, t], c[sample, head // share, t]
                state = math.exp(a[sample, head, t]) * state + torch.outer(into, u[sample, head, t])
                y[sample, head, t] = state.T @ out_of
    return y


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 23), st.integers(1, 9), st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]), st.booleans())
def test_both_ways_equal_the_recurrence(length: int, size: int, heads: tuple[int, int], started: bool) -> None:
    torch.manual_seed(length)
    parts = draw(length, *heads)
    start = torch.randn(heads[0], 3, 2, dtype=torch.float64) if started else None
    exact = recurrence(*parts, start)
    assert torch.allclose(dense(*parts, start), exact, atol=1e-12)
    assert torch.allclose(chunked(*parts, start, size), exact, atol=1e-12)


def test_a_long_list_goes_in_chunks() -> None:
    parts = draw(SHORT + 9, 1, 1)
    assert scan(*parts).equal(chunked(*parts))
    assert torch.allclose(scan(*parts), dense(*parts), atol=1e-12)
    short = draw(SHORT, 1, 1)
    assert scan(*short).equal(dense(*short))


@pytest.mark.parametrize("started", [False, True])
def test_so_many_chunks_that_these_go_in_chunks(started: bool) -> None:
    parts = draw(2 * SHORT + 25, 2, 1)
    start = torch.randn(2, 3, 2, dtype=torch.float64) if started else None
    slow = parts[0], 0.01 * parts[1], *parts[2:]  # states of the first chunks are remembered by the last
    assert torch.allclose(chunked(*slow, start, 2), recurrence(*slow, start), atol=1e-10)


def test_fast_decays_over_long_lists_are_exact_and_have_gradients() -> None:
    """exp of a sum that is out of range of float32 must not be met on the way, nor its inverse."""
    torch.manual_seed(0)
    for length in (SHORT, 5 * SHORT):
        parts = [part.float() for part in draw(length, 1, 1)]
        parts[1] = 40.0 * parts[1]
        for part in parts:
            part.requires_grad_()
        y = scan(*parts)  # pyright: ignore[reportArgumentType, reportCallIssue]
        exact = scan(*(part.double() for part in parts))  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert torch.allclose(y, exact.float(), atol=1e-3)
        y.square().sum().backward()
        assert all(part.grad is not None and bool(part.grad.isfinite().all()) for part in parts)


@pytest.mark.parametrize("way", [dense, lambda *parts: chunked(*parts, size=2)])
def test_gradients(way: Callable[..., Tensor]) -> None:
    parts = [part[:1].detach().requires_grad_() for part in draw(5, 2, 1)]
    start = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(way, (*parts, start))


def test_decays() -> None:
    a = -torch.rand(5, dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            assert float(decays(a)[i, j]) == pytest.approx(math.exp(a[j + 1 : i + 1].sum()) if j <= i else 0.0)


def shaken(layer: Any) -> Any:
    """With no parameter at a special value."""
    torch.manual_seed(5)
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def local(x: Tensor, weight: Tensor, bias: Tensor, before: int) -> Tensor:
    """silu of a convolution of each channel of (L, c) that begins `before` tokens ahead, by loops."""
    out = bias.expand_as(x).clone()
    for t in range(len(x)):
        for k in range(weight.shape[-1]):
            if 0 <= t + k - before < len(x):
                out[t] += weight[:, 0, k] * x[t + k - before]
    return F.silu(out)


def one_head(x: Tensor, d: Tensor, b: Tensor, c: Tensor, rates: Rates, place: int, start: Any = None) -> Tensor:
    """The recurrence of one head: x (L, p), d (L), B and C (L, n) -> (L, p)."""
    steps = F.softplus(d + rates.bias[place])
    a = -rates.log_decay[place].exp() * steps
    parts = (steps[:, None] * x, a, b, c)
    return recurrence(*(part[None, None] for part in parts), start)[0, 0]


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


@torch.no_grad()
def test_mamba_both_ways_equals_loops() -> None:
    layer, v = shaken(TwoWayScan(8, 3, 2, 2)), torch.randn(1, 7, 8, dtype=torch.float64)  # two heads of 8, a group each
    z, mixed, d = (v[0] @ layer.maps.weight.T).split((16, 28, 2), -1)
    total = torch.zeros(7, 16, dtype=torch.float64)
    for way in range(2):
        turn = (lambda x: x.flip(0)) if way else (lambda x: x)
        channels = slice(28 * way, 28 * way + 28)
        here = local(turn(mixed), layer.conv.weight[channels], layer.conv.bias[channels], 3)
        x, b, c = here.split((16, 6, 6), -1)
        for head in range(2):
            part, group, place = slice(8 * head, 8 * head + 8), slice(3 * head, 3 * head + 3), 2 * way + head
            y = one_head(x[:, part], turn(d)[:, head], b[:, group], c[:, group], layer.rates, place)
            total[:, part] += turn(y + layer.skip[place, 0, 0] * x[:, part]) / 2
    exact = rms(total * F.silu(z), layer.norm.weight) @ layer.out.weight.T
    assert torch.allclose(layer(v)[0], exact, atol=1e-12)


@torch.no_grad()
def test_hydra_equals_a_quasi_separable_matrix() -> None:
    """Below the diagonal, above it, and on it: M_ij = C_i-1 (decays of j+1 .. i-1) B_j for j < i, and so on."""
    layer, v = shaken(Hydra(8, 3, 2, 2)), torch.randn(1, 6, 8, dtype=torch.float64)
    layer.start.zero_()
    z, mixed, d = (v[0] @ layer.maps.weight.T).split((16, 40, 4), -1)
    x, *others = local(mixed, layer.conv.weight, layer.conv.bias, 1).split((16, 6, 6, 6, 6), -1)
    total = torch.zeros(6, 16, dtype=torch.float64)
    for head in range(2):
        part, group = slice(8 * head, 8 * head + 8), slice(3 * head, 3 * head + 3)
        matrix = torch.diag(layer.skip[head] + x @ layer.diagonal.weight[head])
        for way in range(2):
            steps = F.softplus(d[:, 2 * way + head] + layer.rates.bias[2 * way + head])
            a = -layer.rates.log_decay[2 * way + head].exp() * steps
            b, c = others[way][:, group], others[2 + way][:, group]
            for i in range(6):
                for j in range(i) if way == 0 else range(i + 1, 6):
                    between, readout = (a[j + 1 : i], c[i - 1]) if way == 0 else (a[i + 1 : j], c[i + 1])
                    matrix[i, j] = between.sum().exp() * (readout @ b[j]) * steps[j]
        total[:, part] = matrix @ x[:, part]
    exact = (rms(total, layer.norm.weight) * F.silu(z)) @ layer.out.weight.T
    assert torch.allclose(layer(v)[0], exact, atol=1e-12)
    layer.start.normal_()
    assert not torch.allclose(layer(v)[0], exact, atol=1e-3)


@pytest.mark.parametrize("points", [(5,), (3, 4), (2, 3, 2)])
@torch.no_grad()
def test_grid_scan_equals_scans_of_its_lists(points: tuple[int, ...]) -> None:
    dims = len(points)
    layer, v = shaken(GridScan(4, dims, 3, 2)), torch.randn(1, *points, 4, dtype=torch.float64)
    x, z = layer.maps(v).chunk(2, -1)
    x = F.gelu(layer.conv(x.movedim(-1, 1))).movedim(1, -1)[0]  # (*n, 8), one head
    total = layer.skip * x
    chosen = (x @ layer.select.weight.T).unflatten(-1, (2 * dims, 7))
    places = list(torch.cartesian_prod(*(torch.arange(n) for n in points)).reshape(-1, dims).tolist())
    for number in range(2 * dims):
        axis, back = divmod(number, 2)
        others = [other for other in range(dims) if other != axis]
        order = sorted(places, key=lambda i: ([i[other] for other in others], i[axis]), reverse=bool(back))
        listed = [tuple(place) for place in order]
        d, b, c = torch.stack([chosen[place][number] for place in listed]).split((1, 3, 3), -1)
        y = one_head(torch.stack([x[place] for place in listed]), d[:, 0], b, c, layer.rates, number)
        for t, place in enumerate(listed):
            total[place] += y[t]
    exact = layer.out(F.layer_norm(total, (8,), layer.norm.weight, layer.norm.bias) * F.gelu(z[0]))
    assert torch.allclose(layer(v)[0], exact, atol=1e-12)


@pytest.mark.parametrize("layer", [TwoWayScan(4, 2, 1, 1), Hydra(4, 2, 1, 1), GridScan(4, 1, 2, 1)])
def test_layers_have_gradients(layer: torch.nn.Module) -> None:
    v = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(shaken(layer), (v,))


@pytest.mark.parametrize("make", [TwoWayScan, Hydra])
def test_every_token_hears_of_every_other(make: type[TwoWayScan | Hydra]) -> None:
    layer, v = shaken(make(8, 3, 2, 1)), torch.randn(1, 9, 8, dtype=torch.float64)
    found = torch.autograd.functional.jacobian(lambda v: layer(v)[0].sum(-1), v)
    assert isinstance(found, Tensor)
    assert float(found[:, 0].abs().amax(-1).min()) > 1e-12  # (9 tokens out, 9 tokens in)


def test_steps_at_the_start() -> None:
    torch.manual_seed(0)
    rates = Rates(2000, 16.0)
    steps, a = rates(torch.zeros(2000))
    assert SLOWEST * 0.999 <= float(steps.min().detach()) < float(steps.max().detach()) <= FASTEST * 1.001
    assert float(steps.log().mean().detach()) == pytest.approx(math.log(1e-2), abs=0.1)
    assert 1.0 <= float((-a / steps).min().detach()) < 1.1 < 15.9 < float((-a / steps).max().detach()) <= 16.001


def test_wrong_arguments() -> None:
    with pytest.raises(SpecError, match="groups must divide the 16 channels that are scanned; got 3"):
        Hydra(8, 3, 2, 3)
    with pytest.raises(SpecError, match="states must be at least 1"):
        TwoWayScan(8, 0, 2, 1)
    with pytest.raises(SpecError, match="growth must be at least 1"):
        GridScan(8, 2, 3, 0)
