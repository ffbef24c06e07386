"""Grids cut into windows of a few cells along each axis, and made longer to fit them. Channel-last (b, *n, c).

Fields whose axes begin elsewhere, as those of (b, c, *n) at 2, are made longer and cut by saying so.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def split_windows(v: Tensor, size: int) -> Tensor:
    """The cells of each window, of axes that are multiples of `size`. (b, *n, c) -> (b, *windows, size^d, c)"""
    dims = v.ndim - 2
    cut = v.reshape(v.shape[0], *(part for n in v.shape[1:-1] for part in (n // size, size)), v.shape[-1])
    return cut.permute(0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2), -1).flatten(1 + dims, 2 * dims)


def join_windows(cells: Tensor, size: int) -> Tensor:
    """The inverse of `split_windows`. (b, *windows, size^d, c) -> (b, *n, c)"""
    dims = cells.ndim - 3
    cut = cells.unflatten(-2, (size,) * dims)
    order = [place for axis in range(dims) for place in (1 + axis, 1 + dims + axis)]
    return cut.permute(0, *order, -1).reshape(len(cells), *(m * size for m in cells.shape[1:-2]), cells.shape[-1])


def extend(v: Tensor, points: tuple[int, ...], first: int = 1) -> Tensor:
    """Zeros at the end of each axis, from axis `first` on, up to `points`. (b, *n, c) -> (b, *points, c)"""
    given = v.shape[first : first + len(points)]
    ends = [end for big, n in zip(reversed(points), reversed(given), strict=True) for end in (0, big - n)]
    return F.pad(v, [0, 0] * (v.ndim - first - len(points)) + ends) if any(ends) else v


def crop(v: Tensor, points: tuple[int, ...], first: int = 1) -> Tensor:
    """The first `points` of each axis, from axis `first` on. (b, *n, c) -> (b, *points, c)"""
    for axis, n in enumerate(points, first):
        v = v.narrow(axis, 0, n)
    return v
