"""Triangulated surfaces whose functions are known: spheres, tori of revolution, a square."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hofno.problems.lumpy_torus import grid_triangles
from hofno.surface import Surface


@lru_cache
def torus(rows: int, columns: int, radius: float = 1.0, tube: float = 0.4) -> Surface:
    """A torus of revolution; vertex i columns + j is at angles 2 pi i / rows along the ring and 2 pi j / columns."""
    s, t = (part.ravel() for part in angles(rows, columns))
    out = radius + tube * np.cos(t)
    vertices = np.stack((out * np.cos(s), out * np.sin(s), tube * np.sin(t)), -1)
    return Surface(vertices=vertices, triangles=grid_triangles(rows, columns))


def angles(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Both angles at the vertices of a torus, (rows, columns)."""
    s, t = np.arange(rows) * (2 * math.pi / rows), np.arange(columns) * (2 * math.pi / columns)
    found = np.meshgrid(s, t, indexing="ij")
    return found[0], found[1]


@lru_cache
def icosphere(times: int) -> Surface:
    """The unit sphere, 10 4^times + 2 vertices: an icosahedron whose triangles are cut into four, so many times."""
    golden = (1 + 5**0.5) / 2
    vertices = [np.roll((0.0, a, b * golden), turn) for turn in range(3) for a in (-1, 1) for b in (-1, 1)]
    places = [vertex / np.linalg.norm(vertex) for vertex in vertices]
    apart = np.linalg.norm(np.array(places)[:, None] - np.array(places), axis=-1)
    near = (apart > 0) & (apart < 1.1)  # edges are 1.05 long, other distances 1.7 and more
    triangles = [
        (a, b, c)
        for a in range(12)
        for b in range(a + 1, 12)
        for c in range(b + 1, 12)
        if near[[a, a, b], [b, c, c]].all()
    ]
    for _ in range(times):
        middles: dict[tuple[int, int], int] = {}

        def middle(a: int, b: int, middles: dict[tuple[int, int], int] = middles) -> int:
            key = (min(a, b), max(a, b))
            if key not in middles:
                between = places[a] + places[b]
                places.append(between / np.linalg.norm(between))
                middles[key] = len(places) - 1
            return middles[key]

        cut = []
        for a, b, c in triangles:
            ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
            cut += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        triangles = cut
    return Surface(vertices=np.array(places), triangles=np.array(triangles))


@lru_cache
def square(points: int) -> Surface:
    """The unit square with its border, points x points vertices, the first axis along x."""
    x, y = np.meshgrid(*[np.linspace(0, 1, points)] * 2, indexing="ij")
    index = np.arange(points**2).reshape(points, points)
    a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    triangles = np.concatenate((np.stack((a, b, c), -1), np.stack((a, c, d), -1)))
    return Surface(vertices=np.stack((x, y, 0 * x), -1).reshape(-1, 3), triangles=triangles)
