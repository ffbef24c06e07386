"""gelu(x + b) of hidden activations (P, H) and its gradients, in the type of x, one pass over memory each."""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, normal_law, triton_type
from hofno.layers.kernels.sums import sum_rows

ROWS, COLUMNS = 64, 128
GRAD_ROWS, TURNS = 32, 8


@triton.jit
def logistic_law(v):
    """Phi(v) and phi(v) to 2e-5, for operands in bfloat16, at half the arithmetic of `normal_law`.

    Phi(v) = 1 / (1 + exp(-v P(v^2))) with P of second degree, fitted; phi is the derivative of that.
    """
    square = tl.minimum(v * v, 64.0)
    p = 1.5954356 + square * (0.073596591 + square * -0.00063163202)
    slope = 1.5954356 + square * (3 * 0.073596591 + square * (-5 * 0.00063163202))
    d = 1.0 + tl.exp2(-1.4426950408889634 * v * p)
    law = tl.rsqrt(d * d)
    return law, law * (1.0 - law) * slope


@triton.jit
def _gelu_kernel(
    x_pointer,  # (P, H), operand type
    bias_pointer,  # (H,)
    out_pointer,  # (P, H), operand type
    row_count,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OPERAND: tl.constexpr,
    EXACT: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = (rows < row_count)[:, None] & (columns < H)[None, :]
    at = rows[:, None] * H + columns[None, :]
    bias = tl.load(bias_pointer + columns, mask=columns < H, other=0.0)
    x = tl.load(x_pointer + at, mask=there, other=0.0).to(tl.float32) + bias[None, :]
    law, _ = normal_law(x) if EXACT else logistic_law(x)
    tl.store(out_pointer + at, (x * law).to(OPERAND), mask=there)


@triton.jit
def _gelu_grad_kernel(
    x_pointer,  # (P, H), operand type
    bias_pointer,  # (H,)
    grad_pointer,  # (P, H), operand type: that of the result, then that of x
    bias_grad_pointer,  # (row blocks, H)
    row_count,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TURNS: tl.constexpr,
    OPERAND: tl.constexpr,
    EXACT: tl.constexpr,
):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias = tl.load(bias_pointer + columns, mask=columns < H, other=0.0)
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)  # summed over rows once, at the end
    for turn in range(TURNS):
        rows = (tl.program_id(0).to(tl.int64) * TURNS + turn) * ROWS + tl.arange(0, ROWS)
        there = (rows < row_count)[:, None] & (columns < H)[None, :]
        at = rows[:, None] * H + columns[None, :]
        x = tl.load(x_pointer + at, mask=there, other=0.0).to(tl.float32) + bias[None, :]
        law, density = normal_law(x) if EXACT else logistic_law(x)
        grad = tl.load(grad_pointer + at, mask=there, other=0.0).to(tl.float32) * (law + x * density)
        tl.store(grad_pointer + at, grad.to(OPERAND), mask=there)
        total += grad
    to = tl.program_id(0) * H + columns
    tl.store(bias_grad_pointer + to, tl.sum(total, axis=0), mask=columns < H)


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias) of (P, H), in the type of x."""
    rows, hidden = x.shape
    out = torch.empty_like(x)
    _gelu_kernel[(blocks_of(rows, ROWS), blocks_of(hidden, COLUMNS))](
        x,
        bias,
        out,
        rows,
        H=hidden,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        OPERAND=triton_type(x.dtype),
        EXACT=x.dtype == torch.float32,
        num_warps=8,
    )
    return out


def gelu_grad_(x: Tensor, bias: Tensor, grad: Tensor) -> Tensor:
    """Turn `grad`, that of gelu(x + bias), into that of x, in place; the gradient of the bias is returned."""
    rows, hidden = x.shape
    blocks = blocks_of(rows, GRAD_ROWS * TURNS)
    bias_grad = bias.new_empty(blocks, hidden)
    _gelu_grad_kernel[(blocks, blocks_of(hidden, COLUMNS))](
        x,
        bias,
        grad,
        bias_grad,
        rows,
        H=hidden,
        ROWS=GRAD_ROWS,
        COLUMNS=COLUMNS,
        TURNS=TURNS,
        OPERAND=triton_type(x.dtype),
        EXACT=x.dtype == torch.float32,
        num_warps=8,
    )
    return sum_rows(bias_grad)
