"""An independent solution of the flow through a bent channel: Taylor-Hood elements Q2-Q1, velocity and pressure.

Written with scipy, for the tests only, by products of matrices that evaluate all functions in all quadrature points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

Slope = Callable[[np.ndarray], np.ndarray]


def taylor_hood(
    slope: Slope, length: float, along: int, across: int, viscosity: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Velocities (2 along + 1, 2 across + 1) and pressure (along + 1, across + 1) of the pipe with slope f'(x)."""
    z, gauss = np.polynomial.legendre.leggauss(4)
    t, gauss = (1 + z) / 2, gauss / 2
    x, x_derivative = _axis(along, length, 2, t)
    y, y_derivative = _axis(across, 1.0, 2, t)
    places = ((np.arange(along)[:, None] + t) * length / along).ravel()
    weights = sparse.diags(np.kron(np.tile(gauss * length / along, along), np.tile(gauss / across, across)))
    shear = sparse.diags(np.repeat(slope(places), len(t) * across))
    value, dy = sparse.kron(x, y, "csr"), sparse.kron(x, y_derivative, "csr")
    dx = sparse.kron(x_derivative, y, "csr") - shear @ dy
    pressure = sparse.kron(_axis(along, length, 1, t)[0], _axis(across, 1.0, 1, t)[0], "csr")
    stiffness = viscosity * (dx.T @ weights @ dx + dy.T @ weights @ dy)
    bx, by = -pressure.T @ weights @ dx, -pressure.T @ weights @ dy
    n, shape = value.shape[1], (2 * along + 1, 2 * across + 1)
    held = np.zeros(shape, bool)
    held[0] = held[:, 0] = held[:, -1] = True
    free = np.flatnonzero(~np.concatenate((held.ravel(), held.ravel(), np.zeros(pressure.shape[1], bool))))
    s = np.linspace(0, 1, shape[1])
    found = np.concatenate((np.tile(s * (1 - s), shape[0]), np.zeros(n + pressure.shape[1])))
    tested = value.T @ weights
    for _ in range(12):
        u, v, p = np.split(found, (n, 2 * n))
        carried = tested @ (sparse.diags(value @ u) @ dx + sparse.diags(value @ v) @ dy)
        jacobian = sparse.bmat(
            [
                [
                    stiffness + carried + tested @ sparse.diags(dx @ u) @ value,
                    tested @ sparse.diags(dy @ u) @ value,
                    bx.T,
                ],
                [
                    tested @ sparse.diags(dx @ v) @ value,
                    stiffness + carried + tested @ sparse.diags(dy @ v) @ value,
                    by.T,
                ],
                [bx, by, None],
            ],
            "csr",
        )
        momentum = stiffness + carried
        residual = np.concatenate((momentum @ u + bx.T @ p, momentum @ v + by.T @ p, bx @ u + by @ v))
        change = splu(jacobian[free][:, free].tocsc()).solve(-residual[free])
        found[free] += change
        if np.abs(change).max() < 1e-9:
            break
    u, v, p = np.split(found, (n, 2 * n))
    return u.reshape(shape), v.reshape(shape), p.reshape(along + 1, across + 1)


def _axis(cells: int, length: float, degree: int, t: np.ndarray) -> tuple[Any, Any]:
    """Lagrange functions of one axis and their derivatives in the points t of every cell. (cells t, functions)"""
    nodes = np.linspace(0, 1, degree + 1)
    values, derivatives = (sparse.lil_matrix((cells * len(t), cells * degree + 1)) for _ in "vd")
    for i, node in enumerate(nodes):
        others = np.delete(nodes, i)
        basis = np.polynomial.Polynomial.fromroots(others) / np.prod(node - others)
        for cell in range(cells):
            rows = slice(cell * len(t), (cell + 1) * len(t))
            values[rows, cell * degree + i] = basis(t)[:, None]
            derivatives[rows, cell * degree + i] = basis.deriv()(t)[:, None] * cells / length
    return values.tocsr(), derivatives.tocsr()
