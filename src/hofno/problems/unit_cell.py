r"""The mesh of the unit cell with a void: 108 nine-node quadrilaterals, 496 nodes, in the published order.

The cell is the unit square, the void of the reference mesh a circle of radius 0.3 about its centre. The mesh is what
gmsh makes of this with size 0.1, recombination and second order (the file square-circle-coarse-o2.msh of NNFEM.jl, MIT
licence, holds it, part "Square"). It maps onto itself when turned by 90 degrees, to 5e-11. So one quarter of its
corners says all: corner 4 n + t is corner n of the quarter after t turns. Elements come in 27 rows of four, which are
turns of each other. Other nodes are the middles of edges, on the circle where the edge is, and

    centre = sum(middles) / 2 - sum(corners) / 4.

A void r(phi) moves every node radially,

    rho -> rho + (r(phi) - 0.3) (0.5 - rho) / 0.2        for rho < 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

RADIUS = 0.3
"""Radius of the void in the reference mesh."""

_REACH = 0.5  # nodes at this distance from the centre, or farther, stay where they are

_INSIDE = (
    (0.785247752152, 0.727256912817),
    (0.823832469702, 0.653725266490),
    (0.900645545113, 0.666979600130),
    (0.865857917804, 0.744205730367),
    (0.920140606723, 0.394432342993),
    (0.923984980913, 0.490620383603),
    (0.919664396388, 0.304213407947),
    (0.848112818755, 0.573991089961),
    (0.919257358746, 0.583054702497),
    (0.810208184964, 0.274883562183),
    (0.840527741215, 0.819835976491),
    (0.924777688907, 0.757347200755),
    (0.921981507288, 0.819686358489),
    (0.899333877375, 0.170807466562),
    (0.888597105315, 0.228207301758),
    (0.855125261248, 0.488645218021),
    (0.845280515281, 0.397488728062),
    (0.925134940529, 0.245703535963),
    (0.912241970571, 0.905533270869),
)
_VOID_DEGREES = (-45, -30, -15, 0, 15, 30)
_SIDE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # y at x = 1

_QUADS = (  # the corners of the first element of each row
    (0, 4, 8, 12),
    (17, 117, 121, 21),
    (25, 113, 117, 17),
    (30, 34, 10, 6),
    (1, 38, 82, 78),
    (43, 15, 47, 51),
    (36, 43, 52, 56),
    (38, 1, 13, 41),
    (20, 60, 64, 16),
    (12, 8, 128, 44),
    (109, 69, 57, 53),
    (7, 3, 76, 99),
    (61, 29, 93, 89),
    (64, 60, 88, 84),
    (28, 4, 96, 92),
    (84, 80, 36, 64),
    (125, 33, 21, 121),
    (138, 103, 107, 74),
    (16, 64, 36, 24),
    (128, 8, 32, 124),
    (111, 55, 74, 107),
    (50, 46, 130, 134),
    (27, 71, 111, 115),
    (42, 50, 74, 55),
    (134, 138, 74, 50),
    (61, 21, 33, 29),
    (36, 56, 68, 24),
)
_ORDER = (  # the turns of the four elements of each row, 27 x 4 digits
    "0132 0123 0213 0321 0321 0312 0312 0321 0312 0321 0213 0312 0123 0321 "
    "0312 0312 0123 0123 0312 0312 0123 0123 0213 0123 0123 0321 0321"
)


@dataclass(frozen=True)
class CellMesh:
    """Nodes (N, 2), elements (E, 9), and what is held (F,) and loaded (L, 3: start, end, middle) of them."""

    nodes: Tensor
    elements: Tensor
    bottom: Tensor
    top: Tensor


def unit_cell() -> CellMesh:
    """The reference mesh, float64; nodes are the corners and then the other nodes in the order of the elements."""
    corners = _corners()
    rows = zip(_QUADS, _ORDER.split(), strict=True)
    quads = [_turned(quad, int(turns)) for quad, order in rows for turns in order]
    places = [tuple(point) for point in corners.tolist()]
    middles: dict[frozenset[int], int] = {}
    elements = []
    for quad in quads:
        sides = [(quad[i], quad[(i + 1) % 4]) for i in range(4)]
        for side in sides:
            if frozenset(side) not in middles:
                middles[frozenset(side)] = len(places)
                places.append(_middle(places[side[0]], places[side[1]]))
        mids = [middles[frozenset(side)] for side in sides]
        centre = [sum(places[m][k] for m in mids) / 2 - sum(places[c][k] for c in quad) / 4 for k in range(2)]
        elements.append([*quad, *mids, len(places)])
        places.append((centre[0], centre[1]))
    nodes = torch.tensor(places, dtype=torch.float64)
    top = [[*sorted(side, key=lambda c: places[c][0]), m] for side, m in middles.items() if places[m][1] == 1.0]
    return CellMesh(nodes, torch.tensor(elements), (nodes[:, 1] == 0.0).nonzero().flatten(), torch.tensor(top))


def with_void(nodes: Tensor, radius: Tensor) -> Tensor:
    """The nodes of the reference mesh after the void has become r(phi), given at the angle of each node.

    (N, 2), (b, N) -> (b, N, 2)
    """
    away = nodes - 0.5
    rho = torch.hypot(away[:, 0], away[:, 1])
    shift = (radius - RADIUS) * (_REACH - rho).clamp(min=0) / (_REACH - RADIUS)
    return nodes + away * (shift / rho)[..., None]


def _corners() -> Tensor:
    """All 140 corners: number 4 n + t is corner n of the quarter after t turns by 90 degrees."""
    angles = [math.radians(degrees) for degrees in _VOID_DEGREES]
    void = [(0.5 + RADIUS * math.cos(a), 0.5 + RADIUS * math.sin(a)) for a in angles]
    quarter = torch.tensor([*_INSIDE, *void, *((1.0, y) for y in _SIDE)], dtype=torch.float64)
    x, y = quarter[:, 0], quarter[:, 1]
    turns = [(x, y), (1 - y, x), (1 - x, 1 - y), (y, 1 - x)]
    return torch.stack([torch.stack(turn, -1) for turn in turns], 1).flatten(0, 1)


def _turned(quad: tuple[int, ...], turns: int) -> list[int]:
    return [corner - corner % 4 + (corner + turns) % 4 for corner in quad]


def _middle(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    """The middle of an edge: of its arc if both ends lie on the void."""
    x, y = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
    if all(abs(math.hypot(p[0] - 0.5, p[1] - 0.5) - RADIUS) < 1e-9 for p in (a, b)):
        scale = RADIUS / math.hypot(x - 0.5, y - 0.5)
        return 0.5 + scale * (x - 0.5), 0.5 + scale * (y - 0.5)
    return x, y
