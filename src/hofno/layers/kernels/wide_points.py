"""Passes over all points of a wide block that know nothing of the grid.

unit_rows       u = v s,  s = (mean_c v^2 + eps)^(-1/2)
unit_rows_grad  a gradient of v, plus what comes through u
cast_and_sum    a gradient in the operands' type, and its sum over the points
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, norm_input_grad, power_of_two, triton_type
from hofno.layers.kernels.sums import sum_rows

ROWS = 16
TURNS = 8
GRAD_NUMBERS = 2048  # of each array that a program holds


@triton.jit
def _unit_kernel(
    v_pointer,  # (P, C)
    unit_pointer,  # (P, C), operand type
    scale_pointer,  # (P,)
    point_count,
    eps,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    OPERAND: tl.constexpr,
):
    points = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, PLACES)
    there = (points < point_count)[:, None] & (channels < C)[None, :]
    at = points[:, None] * C + channels[None, :]
    v = tl.load(v_pointer + at, mask=there, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=1) / C + eps)
    tl.store(unit_pointer + at, (v * scale[:, None]).to(OPERAND), mask=there)
    tl.store(scale_pointer + points, scale, mask=points < point_count)


@triton.jit
def _unit_grad_kernel(
    unit_pointer,  # (P, C), operand type
    scale_pointer,  # (P,)
    unit_grad_pointer,  # (P, C), operand type
    out_grad_pointer,  # (P, C)
    v_grad_pointer,  # (P, C)
    point_count,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    points = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, PLACES)
    there = (points < point_count)[:, None] & (channels < C)[None, :]
    at = points[:, None] * C + channels[None, :]
    unit = tl.load(unit_pointer + at, mask=there, other=0.0).to(tl.float32)
    unit_grad = tl.load(unit_grad_pointer + at, mask=there, other=0.0).to(tl.float32)
    scale = tl.load(scale_pointer + points, mask=points < point_count, other=0.0)
    v_grad = norm_input_grad(unit_grad, unit, scale[:, None], C)
    tl.store(v_grad_pointer + at, tl.load(out_grad_pointer + at, mask=there, other=0.0) + v_grad, mask=there)


@triton.jit
def _cast_kernel(
    x_pointer,  # (P, C)
    low_pointer,  # (P, C), operand type
    sum_pointer,  # (programs, C)
    point_count,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    TURNS: tl.constexpr,
    OPERAND: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    channels = tl.arange(0, PLACES)
    total = tl.full((ROWS, PLACES), 0.0, tl.float32)  # summed over rows once, at the end
    for turn in range(TURNS):
        points = (program * TURNS + turn) * ROWS + tl.arange(0, ROWS)
        there = (points < point_count)[:, None] & (channels < C)[None, :]
        at = points[:, None] * C + channels[None, :]
        x = tl.load(x_pointer + at, mask=there, other=0.0)
        tl.store(low_pointer + at, x.to(OPERAND), mask=there)
        total += x
    tl.store(sum_pointer + program * C + channels, tl.sum(total, axis=0), mask=channels < C)


def unit_rows(v: Tensor, eps: float, operand: torch.dtype) -> tuple[Tensor, Tensor]:
    """The points of v (P, C) over their root mean square, in the operands' type, and one over that, (P,)."""
    count, channels = v.shape
    unit, scale = v.new_empty(count, channels, dtype=operand), v.new_empty(count)
    _unit_kernel[(blocks_of(count, ROWS),)](
        v,
        unit,
        scale,
        count,
        eps,
        C=channels,
        PLACES=power_of_two(channels),
        ROWS=ROWS,
        OPERAND=triton_type(operand),
        num_warps=4,
    )
    return unit, scale


def unit_rows_grad(unit: Tensor, scale: Tensor, unit_grad: Tensor, out_grad: Tensor) -> Tensor:
    """The gradient of v (P, C): `out_grad`, and what comes through its unit points."""
    count, channels = out_grad.shape
    places, v_grad = power_of_two(channels), torch.empty_like(out_grad)
    rows = max(1, GRAD_NUMBERS // places)
    _unit_grad_kernel[(blocks_of(count, rows),)](
        unit, scale, unit_grad, out_grad, v_grad, count, C=channels, PLACES=places, ROWS=rows, num_warps=4
    )
    return v_grad


def cast_and_sum(x: Tensor, operand: torch.dtype) -> tuple[Tensor, Tensor]:
    """x (P, C) in the operands' type, and its sum over the points, (C,)."""
    count, channels = x.shape
    programs = blocks_of(count, ROWS * TURNS)
    low, sums = x.new_empty(count, channels, dtype=operand), x.new_empty(programs, channels)
    _cast_kernel[(programs,)](
        x,
        low,
        sums,
        count,
        C=channels,
        PLACES=power_of_two(channels),
        ROWS=ROWS,
        TURNS=TURNS,
        OPERAND=triton_type(operand),
        num_warps=4,
    )
    return low, sum_rows(sums)
