"""Parameter gradients of pointwise linear maps, d (P, A) being the gradient of W x + b and x (P, C) the input:

    dW = sum_points d x^T,   db = sum_points d,   and for x = gain * u, given u instead:
    dW = (sum_points d u^T) * gain,   dgain = sum_a W_a (sum_points d u^T)_a

P is far larger than A and C. Programs take shares of the points and keep their sums in registers; a second kernel adds
the shares up, always in the same order.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, dot, power_of_two
from hofno.layers.kernels.sums import sum_rows

SHARES = 128
POINTS = 64


@triton.jit
def _share_kernel(
    d_pointer,  # (P, A)
    x_pointer,  # (P, C)
    share_pointer,  # (SHARES, A, C + 1): the last column is d itself
    point_count,
    A: tl.constexpr,
    C: tl.constexpr,
    A_BLOCK: tl.constexpr,
    C_BLOCK: tl.constexpr,
    POINTS: tl.constexpr,
    SHARES: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    share = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * A_BLOCK + tl.arange(0, A_BLOCK)
    columns = tl.program_id(2) * C_BLOCK + tl.arange(0, C_BLOCK)
    points = tl.arange(0, POINTS)
    weight = tl.full((A_BLOCK, C_BLOCK), 0.0, tl.float32)
    total = tl.full((POINTS, A_BLOCK), 0.0, tl.float32)
    for step in range(STEPS):
        at = (share + step * SHARES) * POINTS + points
        there = (at < point_count)[:, None]
        d = tl.load(d_pointer + at[:, None] * A + rows[None, :], mask=there, other=0.0)
        x = tl.load(x_pointer + at[:, None] * C + columns[None, :], mask=there, other=0.0)
        weight = dot(tl.trans(d), x, PRECISION, acc=weight)
        total += d.to(tl.float32)
    to = (share * A + rows) * (C + 1)
    tl.store(share_pointer + to[:, None] + columns[None, :], weight)
    if tl.program_id(2) == 0:
        tl.store(share_pointer + to + C, tl.sum(total, axis=0))


@triton.jit
def _sum_kernel(
    share_pointer,  # (SHARES, A, C + 1)
    gain_pointer,  # (C,)
    weight_pointer,  # (A, C)
    weight_grad_pointer,  # (A, C)
    bias_grad_pointer,  # (A,)
    gain_grad_pointer,  # (A, C)
    share_count,
    PLACES: tl.constexpr,
    A: tl.constexpr,
    C: tl.constexpr,
    GAIN: tl.constexpr,
):
    row = tl.program_id(0)
    shares, columns = tl.arange(0, PLACES), tl.arange(0, C)
    there = shares < share_count
    at = (shares * A + row) * (C + 1)
    weight = tl.sum(tl.load(share_pointer + at[:, None] + columns[None, :], mask=there[:, None], other=0.0), axis=0)
    bias = tl.sum(tl.load(share_pointer + at + C, mask=there, other=0.0), axis=0)
    place = row * C + columns
    if GAIN:
        values = tl.load(weight_pointer + place).to(tl.float32)
        tl.store(gain_grad_pointer + place, weight * values)
        weight = weight * tl.load(gain_pointer + columns)
    tl.store(weight_grad_pointer + place, weight)
    tl.store(bias_grad_pointer + row, bias)


def linear_grads(d: Tensor, x: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """dW (A, C) and db (A,) in float32, from the gradient d (P, A) and the input x (P, C)."""
    weight_grad, bias_grad, _ = _gradients(d, x, None, None, precision)
    return weight_grad, bias_grad


def scaled_linear_grads(
    d: Tensor, unit: Tensor, gain: Tensor, weight: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """dW (A, C), db (A,) and dgain (C,), for the input gain * unit."""
    weight_grad, bias_grad, gain_grad = _gradients(d, unit, gain, weight, precision)
    return weight_grad, bias_grad, sum_rows(gain_grad)


def _gradients(
    d: Tensor, x: Tensor, gain: Tensor | None, weight: Tensor | None, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    count, a, c = d.shape[0], d.shape[1], x.shape[1]
    shares = min(SHARES, blocks_of(count, POINTS))
    a_block, c_block = math.gcd(a, 64), math.gcd(c, 64)
    sums = d.new_empty(shares, a, c + 1, dtype=torch.float32)
    _share_kernel[(shares, a // a_block, c // c_block)](
        d,
        x,
        sums,
        count,
        A=a,
        C=c,
        A_BLOCK=a_block,
        C_BLOCK=c_block,
        POINTS=POINTS,
        SHARES=shares,
        STEPS=blocks_of(count, shares * POINTS),
        PRECISION=precision,
        num_warps=4,
        num_stages=3,
    )
    weight_grad, bias_grad = sums.new_empty(a, c), sums.new_empty(a)
    gain_grad = sums.new_empty(a, c)
    _sum_kernel[(a,)](
        sums,
        sums if gain is None else gain,
        sums if weight is None else weight,
        weight_grad,
        bias_grad,
        gain_grad,
        shares,
        PLACES=power_of_two(shares),
        A=a,
        C=c,
        GAIN=gain is not None,
        num_warps=4,
    )
    return weight_grad, bias_grad, gain_grad
