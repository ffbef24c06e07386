r"""Functions of a stream function between two walls: polynomials across, piecewise cubics along.

Across, with z in [-1, 1] from wall to wall, the polynomials b_k have orthonormal second derivatives,

    b_k'' = sqrt((2 j + 1)/2) P_j,   j = k + 2 = 2, 3, ..,        b_k = b_k' = 0 at both walls,

since Legendre's P_j, j >= 2, is orthogonal to 1 and z. Along, each station carries a value and a slope (Hermite
cubics), so that functions and their first derivatives are continuous.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import legendre


def wall_polynomials(z: np.ndarray, count: int) -> np.ndarray:
    """b_k(z), b_k'(z) and b_k''(z) of `count` polynomials. (p,) -> (3, count, p)"""
    p = legendre.legvander(z, count + 3).T  # (count + 4, p): P_j(z)
    j = np.arange(2, count + 2)[:, None]
    second = np.sqrt((2 * j + 1) / 2)
    first = second / (2 * j + 1)  # P_j = (P_{j+1} - P_{j-1})' / (2j + 1)
    up, down = p[4:], p[:count]
    value = first * ((up - p[2:-2]) / (2 * j + 3) - (p[2:-2] - down) / (2 * j - 1))
    return np.stack((value, first * (p[3:-1] - p[1 : count + 1]), second * p[2:-2]))


def hermite(t: np.ndarray, lengths: np.ndarray, unit: float) -> np.ndarray:
    """Cubics with unit value or slope 1/unit at one end of each element, and their x-derivatives 0, 1, 2.

    Functions come as (left value, left slope, right value, right slope), at the places t in [0, 1] of each element.
    (p,), (elements,) -> (3, elements, p, 4)
    """
    one, zero = np.ones_like(t), np.zeros_like(t)
    cubics = np.array([[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1]], float)  # in powers of t
    powers = np.stack(
        (
            (one, t, t**2, t**3),
            (zero, one, 2 * t, 3 * t**2),
            (zero, zero, 2 * one, 6 * t),
        )
    )  # (3, 4, p)
    values = np.einsum("fn,dnp->dpf", cubics, powers)[:, None]  # (3, 1, p, 4)
    h = lengths[:, None, None]
    scale = np.concatenate((np.ones_like(h), h / unit, np.ones_like(h), h / unit), -1)  # (elements, 1, 4)
    return np.stack([values[d] * scale / h**d for d in range(3)])
