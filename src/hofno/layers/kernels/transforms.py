"""Matrices of the truncated transforms as the kernels take them: those of a tile of image rows, and of the columns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hofno.layers.kernels._common import Tile, tile_of

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
    columns: Tensor  # F_h, (2 K, 2 n1)
    columns_transposed: Tensor
    columns_inverse: Tensor  # F_h^-1, (2 n1, 2 K)
    columns_inverse_transposed: Tensor

    @property
    def kept_modes(self) -> tuple[int, int]:
        """K, M"""
        return self.columns.shape[0] // 2, self.kept // 2


POINTS = 64  # of a tile: measured on an H200
_transforms: dict[tuple[int, ...], tuple[Matrices, Transforms]] = {}


def transforms_of(matrices: Matrices) -> Transforms:
    """`tile_transforms` of these matrices, made once; a caller that keeps its matrices finds them again."""
    key = tuple(id(m) for m in matrices)
    if key not in _transforms:
        with torch.inference_mode(False), torch.no_grad():
            _transforms[key] = (matrices, tile_transforms(*matrices))  # kept, so that their ids are not given again
    return _transforms[key][1]


def tile_transforms(last: Tensor, last_inverse: Tensor, leading: Tensor, leading_inverse: Tensor) -> Transforms:
    """From the matrices of one image row, (2M, n2) and (n2, 2M), those of a tile of rows, filled up by zeros."""
    tile = tile_of(last.shape[1], POINTS)
    kept = last.shape[0]
    modes = tile.modes(kept)
    forward = last.new_zeros(modes, tile.points)
    backward = last.new_zeros(tile.points, modes)
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
        leading.contiguous(),
        leading.T.contiguous(),
        leading_inverse.contiguous(),
        leading_inverse.T.contiguous(),
    )
