r"""Fields on other grids, by local interpolation: one matrix for each axis. Channel-last (b, *n, c) -> (b, *m, c).

    v(y_i) = sum_j w_ij u(x_j),      w_ij = k((y_i - x_j) / h) / sum_j' k((y_i - x_j') / h)

`linear` has the hat k(t) = 1 - |t| as wide as two cells of the given grid, so it goes through the given values. `cubic`
has the kernel of Keys (a = -1/2); on a coarser grid it is as wide as the cells of that one, which takes away what the
grid could not tell apart. Positions are those of `hofno.geometry`: "periodic" grids are i/n and have no ends,
"endpoint" ones are linspace(0, 1, n).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hofno.geometry import Coordinates, axis_coordinates, cached
from hofno.transforms import fourier

Shape = tuple[int, ...]


def linear(u: Tensor, points: Shape, coordinates: Coordinates) -> Tensor:
    """The piecewise linear function through the values of u, on another grid of the same kind."""

    def weights(n: int, m: int) -> Tensor:
        if n == 1:  # one value is a constant
            return torch.ones(m, 1, dtype=torch.float64)
        given, wanted = axis_coordinates(n, coordinates), axis_coordinates(m, coordinates)
        cells = n if coordinates == "periodic" else n - 1
        return _rows(wanted, given, 1.0 / cells, _hat, coordinates == "periodic")

    return _along_axes(u, points, ("linear", coordinates), weights)


def cubic(u: Tensor, points: Shape) -> Tensor:
    """The piecewise cubic function through the values of u on a torus, smoothed where the other grid is coarser."""

    def weights(n: int, m: int) -> Tensor:
        given, wanted = axis_coordinates(n, "periodic"), axis_coordinates(m, "periodic")
        return _rows(wanted, given, 1.0 / min(n, m), _keys, True)

    return _along_axes(u, points, ("cubic",), weights)


def _along_axes(u: Tensor, points: Shape, name: tuple[str, ...], weights: Callable[[int, int], Tensor]) -> Tensor:
    shape, channels = u.shape, u.shape[-1]
    y, tail = u, channels
    for axis in range(len(points) - 1, -1, -1):
        n, m = shape[axis + 1], points[axis]
        if n != m:
            matrix = cached(("resample", *name, n, m), lambda n=n, m=m: weights(n, m), u)
            y = fourier.left_product(matrix, y.reshape(-1, n, tail))
        tail *= m
    return y.reshape(shape[0], *points, channels)


def _rows(wanted: Tensor, given: Tensor, width: float, kernel: Callable[[Tensor], Tensor], torus: bool) -> Tensor:
    """Weights of the given positions for each wanted one, with the images of the former on a torus. (m, n)"""
    turns = 3 if torus else 0
    images = torch.arange(-turns, turns + 1, dtype=given.dtype).unsqueeze(1) + given  # (images, n)
    found = kernel((wanted[:, None, None] - images) / width).sum(1)
    return found / found.sum(1, keepdim=True)


def _hat(t: Tensor) -> Tensor:
    return (1 - t.abs()).clamp_min(0)


def _keys(t: Tensor) -> Tensor:
    t = t.abs()
    near, far = (1.5 * t - 2.5) * t * t + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t)))
