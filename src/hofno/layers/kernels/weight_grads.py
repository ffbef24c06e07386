"""Gradients of the maps of a wide block: sums over all points of what went in times the gradient of what came out.

    dW = sum_p a_p b_p^T,   db = sum_p a_p          a (P, A) the gradient behind the map, b (P, B) what it was given

Both in one pass over 16-bit operands, since a sum over the points of a tile is slow where that tile is made. Programs
share the points out, each for a tile of dW; what they have left is added up in the same order each time, together with
what a gain folded into W asks for (`sums`). Narrow blocks have the same in float32, in smaller tiles (`outer`).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import INTERPRETED, blocks_of, dot, tiles
from hofno.layers.kernels.sums import sum_rows

SIDE = 128  # of a tile of dW
POINTS, STAGES, WARPS = 64, 4, 8
TOGETHER, ROWS, COLUMNS = 8, 4, 128  # shares that are read at a time, rows and columns of dW that a program adds up


@triton.jit
def _share_kernel(
    a_tiles,  # (P, A)
    b_tiles,  # (P, B)
    share_pointer,  # (shares, A, B)
    sum_pointer,  # (shares, A)
    A: tl.constexpr,
    B: tl.constexpr,
    SIDE: tl.constexpr,
    POINTS: tl.constexpr,
    TURNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    tile, share = tl.program_id(0), tl.program_id(1)
    row, column = tile // ((B + SIDE - 1) // SIDE) * SIDE, tile % ((B + SIDE - 1) // SIDE) * SIDE
    total = tl.zeros((SIDE, SIDE), tl.float32)
    along = tl.zeros((POINTS, SIDE), tl.float32)
    for turn in tl.range(TURNS, num_stages=STAGES):
        point = (share * TURNS + turn) * POINTS
        a, b = a_tiles.load([point, row]), b_tiles.load([point, column])
        total = dot(tl.trans(a), b, "ieee", acc=total)
        along += a.to(tl.float32)
    rows, columns = row + tl.arange(0, SIDE), column + tl.arange(0, SIDE)
    share = share.to(tl.int64) * A
    there = (rows < A)[:, None] & (columns < B)[None, :]
    tl.store(share_pointer + (share + rows)[:, None] * B + columns[None, :], total, mask=there)
    if column == 0:
        tl.store(sum_pointer + share + rows, tl.sum(along, axis=0), mask=rows < A)


@triton.jit
def _add_kernel(
    share_pointer,  # (shares, A, B)
    sum_pointer,  # (shares, A)
    weight_pointer,  # (A, B)
    gain_pointer,  # (B,)
    weight_grad_pointer,  # (A, B)
    bias_grad_pointer,  # (A,)
    gain_grad_pointer,  # (programs, B)
    share_count,
    A: tl.constexpr,
    B: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOGETHER: tl.constexpr,
    TURNS: tl.constexpr,
    FOLDED: tl.constexpr,
):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at, inside = rows[:, None] * B + columns[None, :], (rows < A)[:, None] & (columns < B)[None, :]
    grad, bias = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
    for turn in range(TURNS):
        for i in tl.static_range(TOGETHER):
            share = turn * TOGETHER + i
            from_ = share.to(tl.int64) * A
            there = share < share_count
            grad += tl.load(share_pointer + from_ * B + at, mask=inside & there, other=0.0)
            bias += tl.load(sum_pointer + from_ + rows, mask=(rows < A) & there, other=0.0)
    if FOLDED:
        along = tl.sum(grad * tl.load(weight_pointer + at, mask=inside, other=0.0), axis=0)
        tl.store(gain_grad_pointer + tl.program_id(0) * B + columns, along, mask=columns < B)
        grad *= tl.load(gain_pointer + columns, mask=columns < B, other=0.0)[None, :]
    tl.store(weight_grad_pointer + at, grad, mask=inside)
    if tl.program_id(1) == 0:
        tl.store(bias_grad_pointer + rows, bias, mask=rows < A)


def weight_grads(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a^T b (A, B) and the sum of a (A,), of 16-bit a (P, A) and b (P, B), in float32."""
    weight_grad, bias_grad, _ = _added(a, b, None, None)
    return weight_grad, bias_grad


def folded_grads(a: Tensor, b: Tensor, weight: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of weight (A, B), bias (A,) and gain (B,) of a map by weight * gain."""
    weight_grad, bias_grad, gain_grad = _added(a, b, weight, gain)
    return weight_grad, bias_grad, sum_rows(gain_grad)


def _added(a: Tensor, b: Tensor, weight: Tensor | None, gain: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    (count, rows), columns = a.shape, b.shape[1]
    sides, turns = blocks_of(rows, SIDE) * blocks_of(columns, SIDE), blocks_of(count, POINTS)
    each = blocks_of(turns, max(1, _programs(a) // sides))
    shares = blocks_of(turns, each)
    share = a.new_empty(shares, rows, columns, dtype=torch.float32)
    sums = a.new_empty(shares, rows, dtype=torch.float32)
    _share_kernel[(sides, shares)](
        tiles(a, POINTS, SIDE),
        tiles(b, POINTS, SIDE),
        share,
        sums,
        A=rows,
        B=columns,
        SIDE=SIDE,
        POINTS=POINTS,
        TURNS=each,
        STAGES=STAGES,
        num_warps=WARPS,
    )
    weight_grad, bias_grad = share.new_empty(rows, columns), share.new_empty(rows)
    gain_grad = share if weight is None else share.new_empty(blocks_of(rows, ROWS), columns)
    _add_kernel[(blocks_of(rows, ROWS), blocks_of(columns, COLUMNS))](
        share,
        sums,
        share if weight is None else weight,
        share if gain is None else gain,
        weight_grad,
        bias_grad,
        gain_grad,
        shares,
        A=rows,
        B=columns,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        TOGETHER=TOGETHER,
        TURNS=blocks_of(shares, TOGETHER),
        FOLDED=weight is not None,
        num_warps=4,
    )
    return weight_grad, bias_grad, gain_grad


@lru_cache
def _multiprocessors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


def _programs(x: Tensor) -> int:
    """How many fill the device."""
    return 3 if INTERPRETED.value else _multiprocessors(x.device.index)
