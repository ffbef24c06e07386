r"""A torus without symmetries, triangulated.

    centre line   C(s) = (c cos s, c sin s, 0.25 sin 2s),   c = 1 + 0.15 cos 2s,   0 <= s < 2 pi
    tube          a = 0.4 (1 + 0.2 sin 3s + 0.12 cos(2t - s)),   0 <= t < 2 pi
    surface       X(s, t) = C + a (cos t cos s, cos t sin s, sin t)

all times `size`. Vertex i n + j is at s = 2 pi i / 2n, t = 2 pi j / n; every cell of that grid is two triangles.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hofno.surface import Surface


@lru_cache(maxsize=8)
def lumpy_torus(resolution: int, size: float = 1.0) -> Surface:
    """With `resolution` vertices around the tube and twice as many along it."""
    along, around = 2 * resolution, resolution
    s = np.arange(along)[:, None] * (2 * math.pi / along)
    t = np.arange(around)[None] * (2 * math.pi / around)
    tube = 0.4 * (1 + 0.2 * np.sin(3 * s) + 0.12 * np.cos(2 * t - s))
    out = 1 + 0.15 * np.cos(2 * s) + tube * np.cos(t)
    places = (out * np.cos(s), out * np.sin(s), 0.25 * np.sin(2 * s) + tube * np.sin(t))
    vertices = size * np.stack(np.broadcast_arrays(*places), -1).reshape(-1, 3)
    return Surface(vertices=vertices, triangles=grid_triangles(along, around))


def grid_triangles(rows: int, columns: int) -> np.ndarray:
    """Two triangles for every cell of a grid that closes on itself along both axes, (2 rows columns, 3)."""
    i, j = (part.ravel() for part in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    below, right = (i + 1) % rows, (j + 1) % columns
    a, b, c, d = i * columns + j, below * columns + j, below * columns + right, i * columns + right
    return np.concatenate((np.stack((a, b, c), -1), np.stack((a, c, d), -1)))
