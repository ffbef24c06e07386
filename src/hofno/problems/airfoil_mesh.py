r"""Deformed NACA-0012 airfoils and the C-grid around them.

    y_0(x) = +-0.6 (0.2969 sqrt(x) - 0.1260 x - 0.3516 x^2 + 0.2843 x^3 - 0.1036 x^4),     0 <= x <= 1
    y = y_0 + sum_k d_k B_k(x, y_0),     B_k = cubic Lagrange in x on -0.25, 0.25, 0.75, 1.25, linear in y on -+0.1

Nodes 1..4 of the design element are its lower side, left to right, 5..8 its upper side, right to left.

The grid: i runs from the outflow along the upper side of the wake to the trailing edge, over the upper surface to the
leading edge, back along the lower surface and along the lower side of the wake to the outflow; j runs outwards. Body
and wake (straight, from the trailing edge to (40, 0)) are joined with the outer boundary (a half circle of radius 40
about (1, 0), then y = +-40 up to x = 40) by straight lines, on which the nodes lie at the same fractions w_j.

The first 38 of 50 steps grow by 1.02 each, the others by the ratio that fills the length. All distributions are
functions of a continuous index, so that other numbers of cells give a grid of the same family: half of them is every
second node.

Shapes: b designs of 8 numbers, nodes (b, 2, wake + foil + wake + 1, normal + 1) in cells.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError

WAKE_CELLS, FOIL_CELLS, NORMAL_CELLS = 50, 120, 50
"""The published grid: 221 x 51 nodes."""

_FAR = 40.0  # radius and length of the domain
_STATIONS = (-0.25, 0.25, 0.75, 1.25)
_HALF_HEIGHT = 0.1
_GENTLE, _GENTLE_RATIO, _STEPS = 38, 1.02, 50


def c_grid(design: Tensor, wake: int = WAKE_CELLS, foil: int = FOIL_CELLS, normal: int = NORMAL_CELLS) -> Tensor:
    """The C-grid of each design: (b, 8) -> (b, 2, 2 wake + foil + 1, normal + 1), float64."""
    if min(wake, foil, normal) < 2 or foil % 2:
        raise SpecError(
            f"a C-grid needs at least 2 cells each way and an even number on the foil; got wake={wake}, foil={foil}, "
            f"normal={normal}"
        )
    return grid_around(airfoil(design, foil), wake, normal)


def grid_around(surface: Tensor, wake: int = WAKE_CELLS, normal: int = NORMAL_CELLS) -> Tensor:
    """The C-grid of each foil, (b, 2, foil + 1) at the places of `airfoil`: (b, 2, 2 wake + foil + 1, normal + 1)."""
    foil = surface.shape[-1] - 1
    here = surface.new_tensor((_FAR, 0.0))[:, None]
    edge = surface[:, :, :1]
    cut = edge + (here - edge) * _fractions(_trailing_panel() / (_FAR - 1), wake).to(surface)  # from the edge back
    inner = torch.cat((cut.flip(-1), surface[:, :, 1:-1], cut), -1)
    angle = math.pi * torch.linspace(0.5, 1.5, foil + 1, dtype=surface.dtype, device=surface.device)
    arc = torch.stack((1 + _FAR * torch.cos(angle), _FAR * torch.sin(angle)))
    x = torch.linspace(1.0, _FAR, wake + 1, dtype=surface.dtype, device=surface.device)
    above, below = (torch.stack((x, torch.full_like(x, y))) for y in (_FAR, -_FAR))
    outer = torch.cat((above.flip(-1), arc[:, 1:-1], below), -1)
    w = _fractions(1 / 60 / _FAR, normal).to(surface)
    return inner[..., None] * (1 - w) + outer[..., None] * w


def airfoil(design: Tensor, cells: int = FOIL_CELLS) -> Tensor:
    """Points from the trailing edge over the upper surface to the leading edge and back below. (b, 2, cells + 1)"""
    if design.dim() != 2 or design.shape[1] != 8:
        raise ShapeError(f"expected designs of shape (b, 8); got {tuple(design.shape)}")
    design = design.double()
    side = _abscissae(cells // 2).to(design)
    height = thickness(side)
    x = torch.cat((side.flip(0), side[1:])).expand(len(design), -1)
    y = torch.cat((height.flip(0), -height[1:])).expand(len(design), -1)
    lagrange = torch.stack([_lagrange(x, k) for k in range(4)], 1)  # (b, 4, n)
    low = (design[:, :4, None] * lagrange).sum(1)
    high = (design[:, 4:, None] * lagrange.flip(1)).sum(1)
    part = (y + _HALF_HEIGHT) / (2 * _HALF_HEIGHT)
    return torch.stack((x, y + low * (1 - part) + high * part), 1)


def through(points: np.ndarray, cells: int = FOIL_CELLS) -> Tensor:
    """The foil through given points (k, 2), which run as those of `airfoil`, at its places. (1, 2, cells + 1)

    Between them y is a cubic of each interval in the signed root of x, in which the nose is smooth; its slopes are
    those of parabolas through three points.
    """
    side = _abscissae(cells // 2).sqrt().numpy()
    wanted = np.concatenate((-side[::-1], side[1:]))  # from the trailing edge, s = -1, round the nose to s = 1
    x, y = points.T
    nose = int(x.argmin())
    s = np.concatenate((-np.sqrt(x[:nose]), np.sqrt(x[nose:])))
    slope = np.gradient(y, s, edge_order=2)
    k = np.clip(np.searchsorted(s, wanted, "right") - 1, 0, len(s) - 2)
    h = s[k + 1] - s[k]
    t = (wanted - s[k]) / h
    left = (1 - t) ** 2 * ((1 + 2 * t) * y[k] + t * h * slope[k])
    right = t**2 * ((3 - 2 * t) * y[k + 1] + (t - 1) * h * slope[k + 1])
    return torch.from_numpy(np.stack((wanted**2, left + right))[None])


def thickness(x: Tensor) -> Tensor:
    """Half the thickness of NACA-0012 with a closed trailing edge."""
    return 0.6 * (0.2969 * torch.sqrt(x) - 0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)


def _lagrange(x: Tensor, k: int) -> Tensor:
    """The cubic that is 1 at station k and 0 at the other three."""
    value = torch.ones_like(x)
    for m, station in enumerate(_STATIONS):
        if m != k:
            value = value * (x - station) / (_STATIONS[k] - station)
    return value


def _abscissae(cells: int) -> Tensor:
    """x of one side from the leading edge on: 0, 1/236, 1/59, 2/59, .., 1, at `cells` + 1 equal steps of the index."""
    index = torch.linspace(0.0, 60.0, cells + 1, dtype=torch.float64)
    return torch.where(index < 2, index * index / 4, index - 1) / 59  # smooth, and fine where the nose is blunt


def _trailing_panel() -> float:
    """Length of the last panel of the undeformed foil."""
    before = 58 / 59
    return math.hypot(1 / 59, float(thickness(torch.tensor(before, dtype=torch.float64))))


def _fractions(first: float, cells: int) -> Tensor:
    """Fractions of a length, 0 to 1, the first of 50 steps being `first`. (cells + 1,)"""
    gentle = first * (_GENTLE_RATIO**_GENTLE - 1) / (_GENTLE_RATIO - 1)
    last = first * _GENTLE_RATIO ** (_GENTLE - 1)
    rest = _STEPS - _GENTLE
    low, high = 1.0 + 1e-9, 4.0
    for _ in range(200):
        ratio = 0.5 * (low + high)
        if last * ratio * (ratio**rest - 1) / (ratio - 1) < 1 - gentle:
            low = ratio
        else:
            high = ratio
    ratio = 0.5 * (low + high)
    index = torch.linspace(0.0, _STEPS, cells + 1, dtype=torch.float64)
    near = first * (_GENTLE_RATIO**index - 1) / (_GENTLE_RATIO - 1)
    beyond = (index - _GENTLE).clamp_min(0)
    far = gentle + last * ratio * (ratio**beyond - 1) / (ratio - 1)
    found = torch.where(index <= _GENTLE, near, far)
    found[-1] = 1.0
    return found
