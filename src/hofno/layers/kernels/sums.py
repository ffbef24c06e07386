"""Sums of what programs or samples have left for themselves, always in the same order.

sum_rows    sum_n x_n of x (n, m), for many small n and few large ones
unfold      gradients of W and g from that of W g:   dW = d g,   dg = sum_a W_a d_a
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, power_of_two

TILE = 4096  # numbers that a program reads at a time
TURNS = 2  # of a program, if the rows can be shared out among several


@triton.jit
def _sum_kernel(
    x_pointer,  # (n, m)
    out_pointer,  # (shares, m)
    row_count,
    column_count,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TURNS: tl.constexpr,
):
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < column_count
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for turn in range(TURNS):
        start = (tl.program_id(1) * TURNS + turn) * ROWS
        at = (start + rows).to(tl.int64)[:, None] * column_count + columns[None, :]
        total += tl.load(x_pointer + at, mask=(start + rows < row_count)[:, None] & inside[None, :], other=0.0)
    tl.store(out_pointer + tl.program_id(1) * column_count + columns, tl.sum(total, axis=0), mask=inside)


@triton.jit
def _unfold_kernel(
    folded_pointer,  # (A, C), the gradient of W g
    weight_pointer,  # (A, C)
    gain_pointer,  # (C,)
    weight_grad_pointer,  # (A, C)
    gain_grad_pointer,  # (C,)
    row_count,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TURNS: tl.constexpr,
):
    rows = tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    gain = tl.load(gain_pointer + columns, mask=columns < C, other=0.0)
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for turn in range(TURNS):
        start = turn * ROWS
        at = (start + rows)[:, None] * C + columns[None, :]
        there = (start + rows < row_count)[:, None] & (columns < C)[None, :]
        folded = tl.load(folded_pointer + at, mask=there, other=0.0)
        tl.store(weight_grad_pointer + at, folded * gain[None, :], mask=there)
        total += folded * tl.load(weight_pointer + at, mask=there, other=0.0)
    tl.store(gain_grad_pointer + columns, tl.sum(total, axis=0), mask=columns < C)


def _tile(rows: int) -> tuple[int, int]:
    """Rows and columns of what a program reads at a time."""
    high = min(256, power_of_two(rows))
    return high, max(16, min(256, TILE // high))


def sum_rows(x: Tensor) -> Tensor:
    """The sum of the rows of x (n, m), contiguous."""
    count, columns = x.shape
    high, wide = _tile(count)
    turns = blocks_of(count, high)
    shares = blocks_of(turns, TURNS)
    out = x.new_empty(shares, columns)
    _sum_kernel[(blocks_of(columns, wide), shares)](
        x,
        out,
        count,
        columns,
        ROWS=high,
        COLUMNS=wide,
        TURNS=blocks_of(turns, shares),
        num_warps=8,
    )
    return out[0] if shares == 1 else sum_rows(out)


def unfold(folded_grad: Tensor, weight: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight (A, C) and gain (C,), from that of weight * gain."""
    rows, channels = weight.shape
    weight_grad, gain_grad = torch.empty_like(weight), torch.empty_like(gain)
    high, wide = _tile(rows)
    _unfold_kernel[(blocks_of(channels, wide),)](
        folded_grad,
        weight,
        gain,
        weight_grad,
        gain_grad,
        rows,
        C=channels,
        ROWS=high,
        COLUMNS=wide,
        TURNS=blocks_of(rows, high),
        num_warps=8,
    )
    return weight_grad, gain_grad
