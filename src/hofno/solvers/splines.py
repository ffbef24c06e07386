r"""Cubic spline interpolation as a matrix, from equally spaced knots to any points.

The spline through y_0 .. y_{n-1} has second derivatives M_i with

    M_{i-1} + 4 M_i + M_{i+1} = 6 (y_{i-1} - 2 y_i + y_{i+1}) / h^2,

and no knot at the second and last but one point: M_0 - 2 M_1 + M_2 = 0, and so at the other end. Between knots i and
i + 1, with t = (x - x_i) / h and s = 1 - t,

    S(x) = s y_i + t y_{i+1} + h^2/6 [(s^3 - s) M_i + (t^3 - t) M_{i+1}];

outside the knots the first and last piece go on.
"""

from __future__ import annotations

import numpy as np

from hofno.errors import SolverError


def spline_matrix(knots: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The matrix that takes values at `knots` (n,) to those of their not-a-knot spline at `points` (p,). (p, n)"""
    n = len(knots)
    if n < 4:
        raise SolverError(f"a cubic spline without end knots needs at least 4 values; got {n}; use a finer grid")
    h = (knots[-1] - knots[0]) / (n - 1)
    if not np.allclose(np.diff(knots), h, rtol=1e-9, atol=0):
        raise SolverError("the knots of the spline must be equally spaced and increasing; got others")
    second = np.eye(n, k=-1) - 2 * np.eye(n) + np.eye(n, k=1)
    system = second + 6 * np.eye(n)
    system[0, :3] = system[-1, -3:] = (1, -2, 1)
    second[0] = second[-1] = 0
    curvature = np.linalg.solve(system, 6 * second)  # h^2 M = curvature @ y
    piece = np.clip(np.floor((points - knots[0]) / h).astype(int), 0, n - 2)
    t = ((points - knots[piece]) / h)[:, None]
    s = 1 - t
    unit = np.eye(n)
    lines = s * unit[piece] + t * unit[piece + 1]
    return lines + ((s**3 - s) * curvature[piece] + (t**3 - t) * curvature[piece + 1]) / 6
