"""Matrices of the truncated transforms as the kernels take them: those of a tile of image rows, and of the columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from hofno.layers.kernels._common import Tile, tile_of
from hofno.layers.kernels.columns import Columns, columns_of

Matrices = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of the last axis, (2M, n2) and back, (n2, 2M); of the leading one, (2K, 2 n1) and back."""


@dataclass(frozen=True, kw_only=True)
class Transforms:
    """Matrices of the truncated transform of one grid and mode set, and the tile the rows are taken in."""

    tile: Tile
    kept: int  # real numbers for each image row: 2 M
    rows_in: Tensor  # F_w of a tile, (modes, points)
    rows_in_transposed: Tensor
    rows_out: Tensor  # F_w^-1 of a tile, (points, modes)
    rows_out_transposed: Tensor
    leading: tuple[Tensor, Tensor]  # (2K, 2 n1) and back

    @property
    def kept_modes(self) -> tuple[int, int]:
        """K, M"""
        return self.leading[0].shape[0] // 2, self.kept // 2

    @cached_property
    def columns(self) -> Columns:
        """Of the leading axis, made when they are first asked for."""
        with torch.inference_mode(False), torch.no_grad():
            return columns_of(*self.leading)

    @cached_property
    def halved(self) -> Transforms:
        """The same for spectra in float16, which has the digits of TF32, and their gradients in bfloat16.

        A transform is a mean over points, so that a spectrum is no larger than the field it is of; what a filter leaves
        of it may be small, and has a gain on its way back. Gradients are as small as a loss makes them, and bfloat16
        has the range for that; those of the factors are in it too.
        """
        spectra, gradients = torch.float16, torch.bfloat16
        with torch.inference_mode(False), torch.no_grad():
            low = replace(
                self,
                rows_in=self.rows_in.to(spectra),
                rows_in_transposed=self.rows_in_transposed.to(gradients),
                rows_out=(self.rows_out / GAIN).to(spectra),
                rows_out_transposed=self.rows_out_transposed.to(gradients),
            )
            low.__dict__["columns"] = self.columns.cast(spectra, gradients, GAIN)
            return low


GAIN = 32.0  # filters start at one over the width; a power of two changes no digit
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
        tile=tile,
        kept=kept,
        rows_in=forward,
        rows_in_transposed=forward.T.contiguous(),
        rows_out=backward,
        rows_out_transposed=backward.T.contiguous(),
        leading=(leading.contiguous(), leading_inverse.contiguous()),
    )
