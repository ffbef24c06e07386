r"""Legendre multiwavelets: functions that are polynomials on each cell of a grid, told coarse to fine.

On the unit cell, with P_i the polynomials of Legendre and i < k,

    phi_i(x) = sqrt(2i + 1) P_i(2x - 1)                               orthonormal

A function on two halves of a cell, with coefficients x^0 on the left and x^1 on the right one, is one on the whole cell
and what is missing there:

    s = H^0 x^0 + H^1 x^1,     d = G^0 x^0 + G^1 x^1,     x^e = (H^e)^T s + (G^e)^T d

H^0_ij = <phi_i, sqrt 2 phi_j(2x)> and so on; the rows of G complete those of H to an orthogonal matrix, by Gram and
Schmidt from sqrt 2 phi_j(2x) on the left half. The d of a polynomial of degree below k are 0.

On d axes the matrix is the product of one for each axis, and there are 2^d types of coefficients for each cell: one of
H alone (s), and details with G along some axes. `details="diagonal"` keeps of these the one with G along all of them,
as published code does: a function is not told completely then, and does not come back. On one axis both are the same.

    fine (b, n1, ..., nd, c, k^d)    <->    coarse (b, n1/2, ..., nd/2, c, types, k^d)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import choose

DETAILS = ("all", "diagonal")


def legendre(order: int, x: np.ndarray) -> np.ndarray:
    """phi_i(x) for i < order. (points) -> (order, points)"""
    values = np.polynomial.legendre.legvander(2.0 * x - 1.0, order - 1).T
    return np.sqrt(2.0 * np.arange(order) + 1.0)[:, None] * values


@lru_cache
def filters(order: int) -> np.ndarray:
    """H and G of k = `order`, from both halves: (2 types, k, 2 halves, k) in float64."""
    if order < 1:
        raise SpecError(f"order is the number of polynomials along an axis, at least 1; got {order}")
    nodes, weights = np.polynomial.legendre.leggauss(order)  # exact up to degree 2k - 1
    nodes, weights = (nodes + 1.0) / 2.0, weights / 2.0
    inner = legendre(order, nodes) * weights
    low = np.stack([legendre(order, (nodes + half) / 2.0) @ inner.T for half in (0, 1)], 1) / np.sqrt(2.0)  # (k, 2, k)
    rows = low.reshape(order, 2 * order)
    basis, upper = np.linalg.qr(np.concatenate((rows.T, np.eye(2 * order, order)), 1))
    high = (basis * np.sign(np.diag(upper)))[:, order:].T  # (k, 2k)
    return np.stack((rows, high)).reshape(2, order, 2, order)


@lru_cache
def cell_filters(order: int, dims: int, details: str = "all") -> np.ndarray:
    """The product of `filters` along `dims` axes: (types, k^d, 2^d children, k^d) in float64; the first type is s."""
    choose(details, DETAILS, "details")
    one = filters(order)
    product = one
    for _ in range(dims - 1):
        product = np.einsum("tiej,sahb->tsiaehjb", product, one)
        shape = product.shape
        product = product.reshape(*(shape[2 * a] * shape[2 * a + 1] for a in range(4)))
    return product if details == "all" else product[[0, -1]]


def decompose(x: Tensor, matrix: Tensor) -> Tensor:
    """Coefficients on cells of twice the size. (b, *n, c, k^d) -> (b, *n/2, c, types, k^d)"""
    dims = x.ndim - 3
    batch, *points, channels, size = x.shape
    halves = x.reshape(batch, *(part for n in points for part in (n // 2, 2)), channels, size)
    order = (0, *range(1, 2 * dims, 2), 2 * dims + 1, *range(2, 2 * dims + 1, 2), 2 * dims + 2)
    children = halves.permute(order).flatten(2 + dims)  # (b, *n/2, c, 2^d k^d)
    return F.linear(children, matrix.flatten(2).flatten(0, 1)).unflatten(-1, matrix.shape[:2])


def reconstruct(y: Tensor, matrix: Tensor) -> Tensor:
    """The inverse of `decompose`; where types are missing, its transpose. (b, *m, c, types, k^d) -> (b, *2m, c, k^d)"""
    dims = y.ndim - 4
    batch, *cells, channels = y.shape[: 2 + dims]
    children = torch.matmul(y.flatten(-2), matrix.flatten(2).flatten(0, 1))  # (b, *m, c, 2^d k^d)
    halves = children.unflatten(-1, (*(2,) * dims, matrix.shape[-1]))
    order = (0, *(place for axis in range(dims) for place in (1 + axis, 2 + dims + axis)), 1 + dims, 2 + 2 * dims)
    return halves.permute(order).reshape(batch, *(2 * m for m in cells), channels, matrix.shape[-1])
