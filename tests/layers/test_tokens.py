"""The convolution in a learned basis: against plain sums, what it conserves, masks, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.errors import SpecError
from hofno.layers.tokens import TokenConv
from reference import relative


def make(seed: int = 0, width: int = 6, tokens: int = 4, heads: int = 2, order: int = 2) -> TokenConv:
    torch.manual_seed(seed)
    return TokenConv(width, tokens, heads, order).double()


def by_hand(layer: TokenConv, v: Tensor, order: int) -> Tensor:
    """One sample (N, c), head by head and token by token."""
    linear = layer.factors.linear
    assert isinstance(linear, torch.nn.Linear)
    z = torch.ones_like(v)
    for factor in linear(v).chunk(order, -1):
        z = z * factor
    size, parts = v.shape[1] // layer.heads, []
    for head in range(layer.heads):
        own = slice(head * layer.tokens, (head + 1) * layer.tokens)
        weigh, share = layer.analysis(v)[:, own].exp(), layer.synthesis(v)[:, own].exp()
        part = torch.zeros(len(v), size, dtype=v.dtype)
        for j in range(layer.tokens):
            mean = (weigh[:, j, None] * z[:, head * size : (head + 1) * size]).sum(0) / weigh[:, j].sum()
            part = part + (share[:, j] / share.sum(1))[:, None] * mean * layer.filter[head, j]
        parts.append(part)
    return layer.out(torch.cat(parts, -1) * layer.gate(v))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_against_plain_sums(order: int) -> None:
    layer, v = make(order=order), torch.randn(2, 9, 6, dtype=torch.float64)
    expected = torch.stack([by_hand(layer, sample, order) for sample in v])
    assert relative(layer(v), expected) < 1e-12


def test_points_that_are_not_there_change_nothing() -> None:
    layer, v = make(), torch.randn(2, 9, 6, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    found = layer(v, mask)
    assert relative(found[:1], layer(v[:1])) < 1e-12
    assert relative(found[1:, :5], layer(v[1:, :5])) < 1e-12


def test_a_point_given_twice_everywhere_changes_nothing() -> None:
    """Tokens are means: the number of points does not matter, only where they are."""
    layer, v = make(), torch.randn(1, 9, 6, dtype=torch.float64)
    assert relative(layer(v.repeat(1, 3, 1))[:, :9], layer(v)) < 1e-12


def test_a_constant_has_constant_tokens_and_comes_back() -> None:
    """With equal filters the sums give a constant back, however the basis looks."""
    layer = make(order=1)
    with torch.no_grad():
        layer.filter.fill_(1.0)
        layer.factors.linear.weight.zero_()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        layer.gate.weight.zero_()
    v = torch.randn(1, 9, 6, dtype=torch.float64)
    expected = layer.out(layer.factors.linear.bias * layer.gate.bias)  # pyright: ignore[reportAttributeAccessIssue, reportOperatorIssue]
    assert relative(layer(v), expected.expand(1, 9, 6)) < 1e-12


def test_gradcheck() -> None:
    layer = make(width=4, tokens=2)
    v = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (v,))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((6, 0, 2, 2), "tokens must be at least 1; got 0"),
        ((6, 4, 0, 2), "heads must be at least 1; got 0"),
        ((6, 4, 2, 0), "order must be at least 1; got 0"),
        ((6, 4, 4, 2), "width must be a multiple of heads; got width=6 and heads=4"),
        ((6, 4, 2, 2, "spectral"), "Fourier multipliers"),
    ],
)
def test_wrong_arguments(arguments: tuple[int, int, int, int], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        TokenConv(*arguments)
