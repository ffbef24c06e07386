"""Fused z = prod_i p_i with p_i = W_i h + b_i and h = x / sqrt(mean_c x^2 + eps) * gain, forward and backward.

With g the gradient of z, dp_i = g * prod_{j != i} p_j comes from running products from the left and the right, never
from a division. Then dW_i = sum_rows dp_i h^T, db_i = sum_rows dp_i, dh = sum_i W_i^T dp_i. Each program walks its
share of the rows with the parameter gradients in registers and writes them once; their sum over programs is one
deterministic reduction.
"""

# The kernel language is not Python to a type checker, nor are launch options and autograd's wrapped methods:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hofno.errors import ShapeError
from hofno.layers.kernels import LARGEST_ORDER
from hofno.layers.kernels._common import (
    blocks_of,
    check_rows,
    dot_precision,
    inverse_rms,
    launch_shape,
    norm_input_grad,
    on_device_of,
    parameter,
    processors,
    shared_memory,
)


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    weight_pointer,  # (ORDER*C, C)
    bias_pointer,  # (ORDER*C,)
    z_pointer,  # (P, C)
    row_count,
    eps,
    ORDER: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    first_row = tl.program_id(0) * ROWS
    rows = tl.arange(0, ROWS)
    channels = tl.arange(0, CHANNELS)
    inside = rows[:, None] < row_count - first_row
    shift = first_row.to(tl.int64) * CHANNELS
    block = rows[:, None] * CHANNELS + channels[None, :]
    transposed = channels[:, None] + channels[None, :] * CHANNELS  # reads W_i^T

    x = tl.load(x_pointer + shift + block, mask=inside, other=1.0)
    gain = tl.load(gain_pointer + channels)
    h = x * inverse_rms(x, eps, CHANNELS) * gain[None, :]
    product = tl.full((ROWS, CHANNELS), 1.0, tl.float32)
    for i in tl.static_range(ORDER):
        weight = tl.load(weight_pointer + i * CHANNELS * CHANNELS + transposed)
        bias = tl.load(bias_pointer + i * CHANNELS + channels)
        product = product * (tl.dot(h, weight, input_precision=PRECISION) + bias[None, :])
    tl.store(z_pointer + shift + block, product, mask=inside)


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    weight_pointer,  # (ORDER*C, C)
    bias_pointer,  # (ORDER*C,)
    z_grad_pointer,  # (P, C)
    x_grad_pointer,  # (P, C)
    partial_pointer,  # (PROGRAMS, ORDER*C*C + ORDER*C + C)
    row_count,
    eps,
    ORDER: tl.constexpr,
    FIRST: tl.constexpr,  # this pass accumulates the gradients of factors FIRST .. LAST-1,
    LAST: tl.constexpr,
    INPUT_GRAD: tl.constexpr,  # and, where true, those of x and gain
    RESIDENT: tl.constexpr,  # read the weights once, to stay in shared memory, instead of once per block of rows
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    channels = tl.arange(0, CHANNELS)
    square = channels[:, None] * CHANNELS + channels[None, :]  # reads W_i
    transposed = channels[:, None] + channels[None, :] * CHANNELS  # reads W_i^T
    rows = tl.arange(0, ROWS)
    block = rows[:, None] * CHANNELS + channels[None, :]  # reads a block of x
    gain = tl.load(gain_pointer + channels)

    gain_grad = tl.full((CHANNELS,), 0.0, tl.float32)
    weight_grads = ()
    bias_grads = ()
    for _ in tl.static_range(FIRST, LAST):
        weight_grads += (tl.full((CHANNELS, CHANNELS), 0.0, tl.float32),)
        bias_grads += (tl.full((CHANNELS,), 0.0, tl.float32),)

    weights = ()
    transposed_weights = ()
    if RESIDENT:
        for i in tl.static_range(ORDER):
            weights += (tl.load(weight_pointer + i * CHANNELS * CHANNELS + square),)
            transposed_weights += (tl.load(weight_pointer + i * CHANNELS * CHANNELS + transposed),)

    for step in range(STEPS):
        first_row = (program + step * PROGRAMS) * ROWS
        inside = rows[:, None] < row_count - first_row
        shift = first_row.to(tl.int64) * CHANNELS
        x = tl.load(x_pointer + shift + block, mask=inside, other=1.0)
        z_grad = tl.load(z_grad_pointer + shift + block, mask=inside, other=0.0)
        scale = inverse_rms(x, eps, CHANNELS)
        unit = x * scale
        h = unit * gain[None, :]

        factors = ()
        for i in tl.static_range(ORDER):
            transposed_weight = (
                transposed_weights[i] if RESIDENT else tl.load(weight_pointer + i * CHANNELS * CHANNELS + transposed)
            )
            bias = tl.load(bias_pointer + i * CHANNELS + channels)
            factors += (tl.dot(h, transposed_weight, input_precision=PRECISION) + bias[None, :],)
        right = z_grad
        reversed_rights = (right,)  # at m-1-i: g * prod_{j > i} p_j
        for i in tl.static_range(ORDER - 1):
            right = right * factors[ORDER - 1 - i]
            reversed_rights += (right,)

        left = tl.full((ROWS, CHANNELS), 1.0, tl.float32)  # prod_{j < i} p_j
        h_grad = tl.full((ROWS, CHANNELS), 0.0, tl.float32)
        new_weight_grads = ()
        new_bias_grads = ()
        for i in tl.static_range(ORDER):
            factor_grad = left * reversed_rights[ORDER - 1 - i]
            left = left * factors[i]
            if INPUT_GRAD:
                weight = weights[i] if RESIDENT else tl.load(weight_pointer + i * CHANNELS * CHANNELS + square)
                h_grad = tl.dot(factor_grad, weight, acc=h_grad, input_precision=PRECISION)
            if i >= FIRST and i < LAST:
                weight_grad = weight_grads[i - FIRST]
                weight_grad = tl.dot(tl.trans(factor_grad), h, acc=weight_grad, input_precision=PRECISION)
                new_weight_grads += (weight_grad,)
                new_bias_grads += (bias_grads[i - FIRST] + tl.sum(factor_grad, axis=0),)
        weight_grads = new_weight_grads
        bias_grads = new_bias_grads

        if INPUT_GRAD:
            gain_grad += tl.sum(h_grad * unit, axis=0)
            x_grad = norm_input_grad(h_grad * gain[None, :], unit, scale, CHANNELS)
            tl.store(x_grad_pointer + shift + block, x_grad, mask=inside)

    partial_pointer += program * (ORDER * CHANNELS * CHANNELS + ORDER * CHANNELS + CHANNELS)
    bias_pointer_out = partial_pointer + ORDER * CHANNELS * CHANNELS
    for i in tl.static_range(FIRST, LAST):
        tl.store(partial_pointer + i * CHANNELS * CHANNELS + square, weight_grads[i - FIRST])
        tl.store(bias_pointer_out + i * CHANNELS + channels, bias_grads[i - FIRST])
    if INPUT_GRAD:
        tl.store(bias_pointer_out + ORDER * CHANNELS + channels, gain_grad)


class NormFactorsProduct(torch.autograd.Function):
    """Autograd of `norm_factors_product`: saves x and the parameters, recomputes the rest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, weight: Tensor, bias: Tensor, order: int, eps: float) -> Tensor:
        row_count, channels = check_rows(x)
        if not 1 <= order <= LARGEST_ORDER:
            raise ShapeError(f"expected an order from 1 to {LARGEST_ORDER}, got {order}; use the plain version")
        gain = parameter("gain", gain, (channels,), x)
        weight = parameter("weight", weight, (order * channels, channels), x)
        bias = parameter("bias", bias, (order * channels,), x)
        shape = launch_shape("factors", channels, order, shared_memory(x.device), dot_precision(x))
        z = torch.empty_like(x)
        with on_device_of(x):
            _forward_kernel[(blocks_of(row_count, shape.forward_rows),)](
                x,
                gain,
                weight,
                bias,
                z,
                row_count,
                eps,
                ORDER=order,
                CHANNELS=channels,
                ROWS=shape.forward_rows,
                PRECISION=dot_precision(x),
                num_warps=shape.forward_warps,
            )
        ctx.save_for_backward(x, gain, weight, bias)
        ctx.order = order
        ctx.eps = eps
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, z_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, weight, bias = ctx.saved_tensors
        order = ctx.order
        z_grad = z_grad.contiguous()
        row_count, channels = check_rows(x)
        shape = launch_shape("factors", channels, order, shared_memory(x.device), dot_precision(x))
        blocks = blocks_of(row_count, shape.backward_rows)
        programs = min(blocks, shape.backward_programs * processors(x.device))
        sizes = (order * channels * channels, order * channels, channels)
        x_grad = torch.empty_like(x)
        partial = x.new_empty(programs, sum(sizes))
        with on_device_of(x):
            for first in range(0, order, shape.terms_per_pass):
                _backward_kernel[(programs,)](
                    x,
                    gain,
                    weight,
                    bias,
                    z_grad,
                    x_grad,
                    partial,
                    row_count,
                    ctx.eps,
                    ORDER=order,
                    FIRST=first,
                    LAST=min(first + shape.terms_per_pass, order),
                    INPUT_GRAD=first == 0,
                    RESIDENT=shape.resident_weights,
                    CHANNELS=channels,
                    ROWS=shape.backward_rows,
                    PROGRAMS=programs,
                    STEPS=blocks_of(blocks, programs),
                    PRECISION=dot_precision(x),
                    num_warps=shape.backward_warps,
                    num_stages=1,
                )
        weight_grad, bias_grad, gain_grad = partial.sum(0).split(sizes)
        return (
            x_grad if ctx.needs_input_grad[0] else None,
            gain_grad,
            weight_grad.view_as(weight),
            bias_grad,
            None,
            None,
        )
