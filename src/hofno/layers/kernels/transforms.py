"""Matrices of the truncated transforms as the kernels take them: those of a tile of image rows, and of the columns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hofno.layers.kernels._common import Tile, tile_of
from hofno.layers.kernels.columns import Columns, columns_of

Matrices = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of the last axis, (2M, n2) and back, (n2, 2M); of the leading one, (2K, 2 n1) and back."""


class Transforms(NamedTuple):
    """Matrices of the truncated transform of one grid and mode set, and the tile the rows are taken in."""

    tile: Tile
    kept: int  # real numbers for each image row: 2 M
    rows_in: Tensor  # F_w of a tile, (modes, points)
    rows_in_transposed: Tensor
    rows_out: Tensor  # F_w^-1 of a tile, (points, modes)
    rows_out_transposed: Tensor
    columns: Columns
    kept_modes: tuple[int, int]  # K, M


POINTS = 64  # of a tile: measured on an H200
_transforms: dict[tuple[int | Tile, ...], tuple[Matrices, Transforms]] = {}


def transforms_of(matrices: Matrices, tile: Tile | None = None) -> Transforms:
    """`tile_transforms` of these matrices, made once; a caller that keeps its matrices finds them again.

    `tile` is that of narrow blocks unless given.
    """
    tile = tile or tile_of(matrices[0].shape[1], POINTS)
    key = (tile, *(id(m) for m in matrices))
    if key not in _transforms:
        with torch.inference_mode(False), torch.no_grad():
            _transforms[key] = (matrices, tile_transforms(tile, *matrices))  # kept: their ids are not given again
    return _transforms[key][1]


def tile_transforms(
    tile: Tile, last: Tensor, last_inverse: Tensor, leading: Tensor, leading_inverse: Tensor
) -> Transforms:
    """From the matrices of one image row, (2M, n2) and (n2, 2M), those of a tile of rows, filled up by zeros."""
    kept = last.shape[0]
    modes = tile.modes(kept)
    forward = last.new_zeros(modes, tile.places)
    backward = last.new_zeros(tile.places, modes)
    for row in range(tile.rows):
        here, there = slice(row * kept, (row + 1) * kept), slice(row * tile.width, (row + 1) * tile.width)
        forward[here, there] = last
        backward[there, here] = last_inverse
    return Transforms(
        tile,
        kept,
        forward,
        forward.T.contiguous(),
        backward,
        backward.T.contiguous(),
        columns_of(leading, leading_inverse),
        (leading.shape[0] // 2, kept // 2),
    )
