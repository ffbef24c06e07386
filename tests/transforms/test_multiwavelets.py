"""Legendre multiwavelets: orthonormal, exact for polynomials, and telling a function completely."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import SpecError
from hofno.transforms.multiwavelets import cell_filters, decompose, filters, legendre, reconstruct


def matrix(order: int, dims: int, details: str = "all") -> Tensor:
    return torch.from_numpy(cell_filters(order, dims, details))


def coefficients(order: int, cells: int, powers: range) -> Tensor:
    """<x^p, phi_j> on each cell of [0, 1] for every p, with phi of norm 1 on the cell: (1, cells, powers, order)."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    nodes, weights = (nodes + 1.0) / 2.0, weights / 2.0
    out = np.zeros((1, cells, len(powers), order))
    for cell in range(cells):
        x = (cell + nodes) / cells
        for place, power in enumerate(powers):
            out[0, cell, place] = (legendre(order, nodes) * weights * x**power).sum(1) / math.sqrt(cells)
    return torch.from_numpy(out)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
def test_polynomials_are_orthonormal(order: int) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(12)
    values = legendre(order, (nodes + 1.0) / 2.0)
    assert np.allclose((values * weights / 2.0) @ values.T, np.eye(order), atol=1e-13)


def test_the_first_filters_are_those_of_haar() -> None:
    half = 1.0 / math.sqrt(2.0)
    assert np.allclose(filters(1).reshape(2, 2), [[half, half], [half, -half]])


def test_known_filters_of_order_two() -> None:
    """1 and sqrt 3 (2x - 1) on the halves: the second is sqrt 3 (y - 1/2 or y + 1/2) of y on a half, over sqrt 2."""
    low = filters(2)[0]
    half, third = 1.0 / math.sqrt(2.0), math.sqrt(3.0 / 8.0)
    assert np.allclose(low[:, 0], [[half, 0.0], [-third, half / 2.0]])
    assert np.allclose(low[:, 1], [[half, 0.0], [third, half / 2.0]])


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("dims", [1, 2])
def test_filters_are_orthogonal(order: int, dims: int) -> None:
    whole = cell_filters(order, dims).reshape((2 * order) ** dims, -1)
    assert np.allclose(whole @ whole.T, np.eye(len(whole)), atol=1e-12)
    few = cell_filters(order, dims, "diagonal").reshape(2 * order**dims, -1)
    assert np.allclose(few @ few.T, np.eye(len(few)), atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_details_of_polynomials_are_zero(order: int) -> None:
    """Of degree below the order; and the coarse coefficients are those of the same function on larger cells."""
    fine, coarse = coefficients(order, 8, range(order + 1)), coefficients(order, 4, range(order + 1))
    s, d = decompose(fine, matrix(order, 1)).unbind(-2)
    assert torch.allclose(s, coarse, atol=1e-13)
    assert torch.allclose(d[..., :order, :], torch.zeros(()).double(), atol=1e-13)
    assert float(d[..., order, :].abs().max()) > 1e-6


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_what_is_taken_apart_comes_back(dims: int, order: int, half: int) -> None:
    torch.manual_seed(order)
    points = (2 * half, 4, 2)[:dims]
    x = torch.randn(2, *points, 3, order**dims, dtype=torch.float64)
    y = decompose(x, matrix(order, dims))
    assert y.shape == (2, *(n // 2 for n in points), 3, 2**dims, order**dims)
    assert torch.allclose(reconstruct(y, matrix(order, dims)), x, atol=1e-12)
    assert float(y.norm()) == pytest.approx(float(x.norm()))


def test_of_the_published_details_on_a_plane_half_is_lost() -> None:
    x = torch.randn(2, 4, 4, 3, 9, dtype=torch.float64)
    few = matrix(3, 2, "diagonal")
    y = decompose(x, few)
    assert y.shape == (2, 2, 2, 3, 2, 9)
    torch.testing.assert_close(y, decompose(x, matrix(3, 2))[..., [0, 3], :], rtol=0.0, atol=1e-13)
    back = reconstruct(y, few)
    assert float((back - x).norm() / x.norm()) > 0.5
    assert torch.allclose(reconstruct(decompose(back, few), few), back, atol=1e-12)  # a projection
    line = matrix(3, 1, "diagonal")
    assert line.equal(matrix(3, 1))


def test_axes_are_taken_one_by_one() -> None:
    """The filters of a plane are those of a line along the first axis, then along the second."""
    order = 2
    x = torch.randn(1, 4, 6, 1, order, order, dtype=torch.float64)
    found = decompose(x.flatten(-2), matrix(order, 2)).unflatten(-1, (order, order)).unflatten(-3, (2, 2))
    one = matrix(order, 1)
    exact = torch.zeros(1, 2, 3, 1, 2, 2, order, order, dtype=torch.float64)
    for a in range(2):
        for b in range(2):
            block = x[:, a::2, b::2]  # the children (a, b) of every cell
            exact += (
                torch.einsum("ti,sj,nxycij->nxycts", one[:, :, a].flatten(0, 1), one[:, :, b].flatten(0, 1), block)
                .unflatten(-1, (2, order))
                .unflatten(-3, (2, order))
                .transpose(-3, -2)
            )
    assert torch.allclose(found, exact, atol=1e-12)


def test_wrong_arguments() -> None:
    with pytest.raises(SpecError, match="at least 1; got 0"):
        filters(0)
    with pytest.raises(SpecError, match="details must be one of all, diagonal"):
        cell_filters(2, 2, "some")
