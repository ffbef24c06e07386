"""How the kernels of the classic block share out image rows, and add up the gradients of its pointwise maps.

Channels lie in 32 or 64 places, those past the last one masked. A tile is one image row in blocks of 64 points, or as
many rows as one block has room for. A program takes every `programs`-th tile, so that it reads matrices once for many.

In the backward pass a program keeps its share of dW = sum_points d x^T and db = sum_points d in registers and writes it
once, at the end; the shares are added up in one fixed order. Both come from one matrix product, of the rows x_1, 1,
x_2, 1, ... with d: that many rows are what the tensor cores of a Hopper GPU take.
"""

# The kernel language is not Python to a type checker:
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import Tile, blocks_of, power_of_two
from hofno.layers.kernels.sums import sum_rows

FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 5 * 132, 3 * 132  # most that share the rows: what fits into an H200 at once
POINTS = 64  # of a block, as many rows as tensor cores take
COEFFICIENTS = 128  # most of a tile
REGISTERS = 168  # of a thread in the backward pass, so that three programs share a multiprocessor


@triton.jit
def rows_and_ones(x, POINTS: tl.constexpr, PLACES: tl.constexpr):
    """(POINTS, PLACES) -> (2 PLACES, POINTS): the rows of x^T and rows of ones by turns."""
    both = tl.join(x, tl.full((POINTS, PLACES), 1.0, x.dtype))
    return tl.trans(tl.reshape(both, (POINTS, 2 * PLACES)))


@triton.jit
def store_share(
    sums,  # (2 PLACES, OUTS), from `rows_and_ones`
    outs,  # (OUTS,), output channels
    weight_pointer,  # (C, C), output channel first
    bias_pointer,  # (C,)
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Write the gradients of one map, or of some of its output channels."""
    rows = tl.arange(0, 2 * PLACES)
    ins, inside = rows // 2, (outs < CHANNELS)[None, :]
    of_weight = (rows % 2 == 0) & (ins < CHANNELS)
    tl.store(weight_pointer + outs[None, :] * CHANNELS + ins[:, None], sums, mask=of_weight[:, None] & inside)
    tl.store(bias_pointer + outs[None, :] + 0 * rows[:, None], sums, mask=(rows == 1)[:, None] & inside)


def row_tile(width: int, kept: int) -> Tile:
    """The tile of image rows of so many points, with `kept` coefficients each."""
    rows = max(1, min(POINTS // width, COEFFICIENTS // kept))
    return Tile(rows=rows, width=width, points=POINTS, blocks=blocks_of(rows * width, POINTS))


def places_of(channels: int) -> int:
    """Places for so many channels."""
    return max(32, power_of_two(channels))


def row_counts(x: Tensor, kept: int) -> tuple[int, int]:
    """How many points x has, and its transform coefficients."""
    image_rows = x.shape[0] * x.shape[1]
    return image_rows * x.shape[2], image_rows * kept


def row_programs(x: Tensor, tile: Tile, most: int) -> int:
    """How many programs share the image rows of x (b, n1, n2, C)."""
    return min(most, tile.count(x.shape[0] * x.shape[1]))


def row_launch(x: Tensor, tile: Tile, kept: int, programs: int, precision: str) -> dict[str, int | str]:
    """Sizes and launch options that every kernel along image rows takes."""
    places = places_of(x.shape[-1])
    return {
        "CHANNELS": x.shape[-1],
        "PLACES": places,
        "BLOCKS": tile.blocks,
        **tile.sizes(kept),
        "STEPS": blocks_of(tile.count(x.shape[0] * x.shape[1]), programs),
        "PRECISION": precision,
        "num_warps": 4 if places == 32 else 8,
    }


def mode_rows(tile: Tile, kept: int) -> int:
    """Places for the coefficients of a tile where they are rows of a product."""
    return max(64, tile.modes(kept))


def registers(x: Tensor, precision: str) -> int | None:
    """At most so many for each thread in the backward pass, where they are enough."""
    return REGISTERS if places_of(x.shape[-1]) == 32 and precision == "tf32" else None


class Shares(NamedTuple):
    """Every program's share of the gradients of pointwise maps: parts of one tensor, so that one sum adds all up."""

    weights: Tensor  # (programs, maps, C*C)
    biases: Tensor  # (programs, maps, C)

    def of(self, first: int, stop: int) -> Shares:
        """Those of some of the maps."""
        return Shares(self.weights[:, first:stop], self.biases[:, first:stop])


def new_shares(x: Tensor, maps: int, tile: Tile) -> tuple[Tensor, Shares]:
    """Room for the shares of so many maps of x (b, n1, n2, C), as one (programs, maps*C*C + maps*C) and in parts."""
    channels = x.shape[-1]
    whole = x.new_empty(row_programs(x, tile, BACKWARD_PROGRAMS), maps * channels * (channels + 1))
    weights, biases = whole.split((maps * channels * channels, maps * channels), dim=1)
    return whole, Shares(weights.unflatten(1, (maps, -1)), biases.unflatten(1, (maps, -1)))


def summed(whole: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """The gradients of all weights, (maps*C, C), and biases, (maps*C,)."""
    outs = whole.shape[1] // (channels + 1)
    weights, biases = sum_rows(whole).split((outs * channels, outs))
    return weights.view(outs, channels), biases
