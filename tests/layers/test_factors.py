"""Factors: every structure is m affine maps of the channels and their product."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import SpecError
from hofno.layers.factors import KINDS, FactorKind, parse_factors, pointwise_factors, product
from hofno.layers.spectral import HigherOrderSpectralConv
from reference import as_array, factor_maps, relative

POINTWISE = ("dense", "identity", "diagonal", "low-rank(2)", "diagonal+low-rank(3)", "shared")


def layer_with(factors: str, order: int, width: int = 4) -> HigherOrderSpectralConv:
    return HigherOrderSpectralConv(width, (2,), order, factors=factors).double()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", POINTWISE)
def test_factors_are_the_product_of_their_affine_maps(kind: str, order: int) -> None:
    layer = layer_with(kind, order)
    maps, biases = factor_maps(layer)
    assert len(maps) == len(biases) == order
    v = torch.randn(3, 7, 4, dtype=torch.float64)
    expected = np.ones((3, 7, 4))
    for a, b in zip(maps, biases, strict=True):
        expected = expected * (as_array(v) @ a.T + b)
    assert relative(layer.factors(v), expected) < 1e-13


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("kind", POINTWISE)
def test_at_zero_is_the_product_of_a_zero_input(kind: str, order: int) -> None:
    factors = pointwise_factors(parse_factors(kind), 4, order)
    found = factors.at_zero()
    expected = factors(torch.zeros(4))
    assert torch.allclose(torch.zeros(4) if found is None else found, expected, rtol=1e-6, atol=0)
    assert (found is None) == (kind == "identity")


def test_parameter_counts_of_each_structure() -> None:
    width, order = 6, 3
    expected = {
        "dense": order * (width * width + width),
        "identity": 0,
        "diagonal": 2 * order * width,
        "low-rank(2)": order * (2 * 2 * width + width),
        "diagonal+low-rank(2)": order * (2 * 2 * width + 2 * width),
        "shared": width * width + width,
    }
    for kind, count in expected.items():
        factors = pointwise_factors(parse_factors(kind), width, order)
        assert sum(p.numel() for p in factors.parameters()) == count, kind


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_low_rank_maps_have_their_rank(rank: int) -> None:
    for a in factor_maps(layer_with(f"low-rank({rank})", 3, width=6))[0]:
        assert np.linalg.matrix_rank(a) == rank
    for a in factor_maps(layer_with(f"diagonal+low-rank({rank})", 3, width=6))[0]:
        assert np.linalg.matrix_rank(a) == 6


@pytest.mark.parametrize("kind", ["dense", "diagonal", "low-rank(2)", "diagonal+low-rank(2)", "spectral"])
def test_untied_factors_start_different(kind: str) -> None:
    """Equal factors would have equal gradients and stay equal."""
    layer = layer_with(kind, 3)
    maps, _ = factor_maps(layer)
    for i in range(3):
        for j in range(i):
            assert np.abs(maps[i] - maps[j]).max() > 1e-3


@given(st.integers(1, 5), st.integers(1, 4))
def test_product_multiplies_equal_chunks(order: int, width: int) -> None:
    stacked = torch.randn(2, order * width, dtype=torch.float64)
    expected = stacked.reshape(2, order, width).prod(1)
    assert torch.allclose(product(stacked, order), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dense", FactorKind("dense", 0)),
        ("Spectral", FactorKind("spectral", 0)),
        ("low-rank(64)", FactorKind("low-rank", 64)),
        ("low_rank(3)", FactorKind("low-rank", 3)),
        ("diagonal + low-rank( 8 )", FactorKind("diagonal+low-rank", 8)),
    ],
)
def test_texts_that_are_understood(text: str, kind: FactorKind) -> None:
    assert parse_factors(text) == kind


@pytest.mark.parametrize(
    "text",
    ["", "full", "low-rank", "low-rank()", "low-rank(-1)", "low-rank(1.5)", "dense(2)", "diagonal+shared"],
)
def test_other_texts_are_refused_with_the_list(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_factors(text)
    assert all(kind in str(caught.value) for kind in KINDS)
    assert repr(text) in str(caught.value)


def test_rank_zero_is_refused() -> None:
    with pytest.raises(SpecError, match="must be at least 1"):
        parse_factors("low-rank(0)")
