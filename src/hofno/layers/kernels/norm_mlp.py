"""Fused y = x + W_down gelu(W_up h + b_up) + b_down with h = x / sqrt(mean_c x^2 + eps) * gain, both directions.

The H hidden channels are taken in chunks, so that neither direction ever writes a hidden activation to memory. With g
the gradient of y, v = W_up h + b_up and a = gelu(v): dW_down = sum_rows g a^T, dv = gelu'(v) * (W_down^T g),
dW_up = sum_rows dv h^T, dh = W_up^T dv and dx = g + (the norm's part). Parameter gradients stay in registers, as in
`norm_factors`.
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
from hofno.layers.kernels import SUPPORTED_HIDDEN
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
def _normal_cdf(v):
    """Phi(v); gelu(v) = v Phi(v)."""
    return 0.5 + 0.5 * tl.erf(v * 0.7071067811865476)


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    up_weight_pointer,  # (H, C)
    up_bias_pointer,  # (H,)
    down_weight_pointer,  # (C, H)
    down_bias_pointer,  # (C,)
    y_pointer,  # (P, C)
    row_count,
    eps,
    HIDDEN: tl.constexpr,
    CHUNK: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    first_row = tl.program_id(0) * ROWS
    rows = tl.arange(0, ROWS)
    channels = tl.arange(0, CHANNELS)
    chunk = tl.arange(0, CHUNK)
    inside = rows[:, None] < row_count - first_row
    shift = first_row.to(tl.int64) * CHANNELS
    block = rows[:, None] * CHANNELS + channels[None, :]

    x = tl.load(x_pointer + shift + block, mask=inside, other=1.0)
    gain = tl.load(gain_pointer + channels)
    down_bias = tl.load(down_bias_pointer + channels)
    h = x * inverse_rms(x, eps, CHANNELS) * gain[None, :]
    y = x + down_bias[None, :]
    for j in tl.static_range(HIDDEN // CHUNK):
        hidden = j * CHUNK + chunk
        up_weight = tl.load(up_weight_pointer + channels[:, None] + hidden[None, :] * CHANNELS)  # (C, CHUNK)
        up_bias = tl.load(up_bias_pointer + hidden)
        down_weight = tl.load(down_weight_pointer + hidden[:, None] + channels[None, :] * HIDDEN)  # (CHUNK, C)
        v = tl.dot(h, up_weight, input_precision=PRECISION) + up_bias[None, :]
        y += tl.dot(v * _normal_cdf(v), down_weight, input_precision=PRECISION)
    tl.store(y_pointer + shift + block, y, mask=inside)


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    up_weight_pointer,  # (H, C)
    up_bias_pointer,  # (H,)
    down_weight_pointer,  # (C, H)
    y_grad_pointer,  # (P, C)
    x_grad_pointer,  # (P, C)
    partial_pointer,  # (PROGRAMS, H*C + H + C*H + C + C)
    row_count,
    eps,
    HIDDEN: tl.constexpr,
    CHUNK: tl.constexpr,
    FIRST: tl.constexpr,  # this pass accumulates the gradients of chunks FIRST .. LAST-1,
    LAST: tl.constexpr,
    INPUT_GRAD: tl.constexpr,  # and, where true, those of x, gain and the last bias
    RESIDENT: tl.constexpr,  # read the weights once, to stay in shared memory, instead of once per block of rows
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    channels = tl.arange(0, CHANNELS)
    chunk = tl.arange(0, CHUNK)
    rows = tl.arange(0, ROWS)
    block = rows[:, None] * CHANNELS + channels[None, :]  # reads a block of x
    up_at = chunk[:, None] * CHANNELS + channels[None, :]  # (CHUNK, C) of W_up
    transposed_up_at = channels[:, None] + chunk[None, :] * CHANNELS  # (C, CHUNK) of W_up^T
    down_at = channels[:, None] * HIDDEN + chunk[None, :]  # (C, CHUNK) of W_down
    gain = tl.load(gain_pointer + channels)

    gain_grad = tl.full((CHANNELS,), 0.0, tl.float32)
    down_bias_grad = tl.full((CHANNELS,), 0.0, tl.float32)
    up_weight_grads = ()
    up_bias_grads = ()
    down_weight_grads = ()
    for _ in tl.static_range(FIRST, LAST):
        up_weight_grads += (tl.full((CHUNK, CHANNELS), 0.0, tl.float32),)
        up_bias_grads += (tl.full((CHUNK,), 0.0, tl.float32),)
        down_weight_grads += (tl.full((CHANNELS, CHUNK), 0.0, tl.float32),)

    up_weights = ()
    transposed_up_weights = ()
    down_weights = ()
    if RESIDENT:
        for j in tl.static_range(HIDDEN // CHUNK):
            up_weights += (tl.load(up_weight_pointer + j * CHUNK * CHANNELS + up_at),)
            transposed_up_weights += (tl.load(up_weight_pointer + j * CHUNK * CHANNELS + transposed_up_at),)
            down_weights += (tl.load(down_weight_pointer + j * CHUNK + down_at),)

    for step in range(STEPS):
        first_row = (program + step * PROGRAMS) * ROWS
        inside = rows[:, None] < row_count - first_row
        shift = first_row.to(tl.int64) * CHANNELS
        x = tl.load(x_pointer + shift + block, mask=inside, other=1.0)
        y_grad = tl.load(y_grad_pointer + shift + block, mask=inside, other=0.0)
        scale = inverse_rms(x, eps, CHANNELS)
        unit = x * scale
        h = unit * gain[None, :]

        h_grad = tl.full((ROWS, CHANNELS), 0.0, tl.float32)
        new_up_weight_grads = ()
        new_up_bias_grads = ()
        new_down_weight_grads = ()
        for j in tl.static_range(FIRST, LAST if not INPUT_GRAD else HIDDEN // CHUNK):
            if RESIDENT:
                up_weight = transposed_up_weights[j]
                down_weight = down_weights[j]
            else:
                up_weight = tl.load(up_weight_pointer + j * CHUNK * CHANNELS + transposed_up_at)
                down_weight = tl.load(down_weight_pointer + j * CHUNK + down_at)
            up_bias = tl.load(up_bias_pointer + j * CHUNK + chunk)
            v = tl.dot(h, up_weight, input_precision=PRECISION) + up_bias[None, :]  # (ROWS, CHUNK)
            cdf = _normal_cdf(v)
            slope = cdf + v * 0.3989422804014327 * tl.exp(-0.5 * v * v)
            v_grad = tl.dot(y_grad, down_weight, input_precision=PRECISION) * slope
            if INPUT_GRAD:
                up_rows = up_weights[j] if RESIDENT else tl.load(up_weight_pointer + j * CHUNK * CHANNELS + up_at)
                h_grad = tl.dot(v_grad, up_rows, acc=h_grad, input_precision=PRECISION)
            if j < LAST:
                up_weight_grad = tl.dot(tl.trans(v_grad), h, acc=up_weight_grads[j - FIRST], input_precision=PRECISION)
                down_weight_grad = tl.dot(
                    tl.trans(y_grad), v * cdf, acc=down_weight_grads[j - FIRST], input_precision=PRECISION
                )
                new_up_weight_grads += (up_weight_grad,)
                new_up_bias_grads += (up_bias_grads[j - FIRST] + tl.sum(v_grad, axis=0),)
                new_down_weight_grads += (down_weight_grad,)
        up_weight_grads = new_up_weight_grads
        up_bias_grads = new_up_bias_grads
        down_weight_grads = new_down_weight_grads

        if INPUT_GRAD:
            gain_grad += tl.sum(h_grad * unit, axis=0)
            down_bias_grad += tl.sum(y_grad, axis=0)
            x_grad = y_grad + norm_input_grad(h_grad * gain[None, :], unit, scale, CHANNELS)
            tl.store(x_grad_pointer + shift + block, x_grad, mask=inside)

    up_weight_out = partial_pointer + program * (2 * HIDDEN * CHANNELS + HIDDEN + 2 * CHANNELS)
    up_bias_out = up_weight_out + HIDDEN * CHANNELS
    down_weight_out = up_bias_out + HIDDEN
    down_bias_out = down_weight_out + CHANNELS * HIDDEN
    for j in tl.static_range(FIRST, LAST):
        tl.store(up_weight_out + j * CHUNK * CHANNELS + up_at, up_weight_grads[j - FIRST])
        tl.store(up_bias_out + j * CHUNK + chunk, up_bias_grads[j - FIRST])
        tl.store(down_weight_out + j * CHUNK + down_at, down_weight_grads[j - FIRST])
    if INPUT_GRAD:
        tl.store(down_bias_out + channels, down_bias_grad)
        tl.store(down_bias_out + CHANNELS + channels, gain_grad)


class NormMlpResidual(torch.autograd.Function):
    """Autograd of `norm_mlp_residual`: saves x and the parameters, recomputes the rest."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        up_weight: Tensor,
        up_bias: Tensor,
        down_weight: Tensor,
        down_bias: Tensor,
        eps: float,
    ) -> Tensor:
        row_count, channels = check_rows(x)
        hidden = up_bias.numel()
        if hidden not in SUPPORTED_HIDDEN:
            raise ShapeError(f"expected {SUPPORTED_HIDDEN} hidden channels, got {hidden}; use the plain version")
        gain = parameter("gain", gain, (channels,), x)
        up_weight = parameter("up_weight", up_weight, (hidden, channels), x)
        up_bias = parameter("up_bias", up_bias, (hidden,), x)
        down_weight = parameter("down_weight", down_weight, (channels, hidden), x)
        down_bias = parameter("down_bias", down_bias, (channels,), x)
        shape = launch_shape("mlp", channels, hidden, shared_memory(x.device), dot_precision(x))
        y = torch.empty_like(x)
        with on_device_of(x):
            _forward_kernel[(blocks_of(row_count, shape.forward_rows),)](
                x,
                gain,
                up_weight,
                up_bias,
                down_weight,
                down_bias,
                y,
                row_count,
                eps,
                HIDDEN=hidden,
                CHUNK=shape.hidden_chunk,
                CHANNELS=channels,
                ROWS=shape.forward_rows,
                PRECISION=dot_precision(x),
                num_warps=shape.forward_warps,
            )
        ctx.save_for_backward(x, gain, up_weight, up_bias, down_weight)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, up_weight, up_bias, down_weight = ctx.saved_tensors
        y_grad = y_grad.contiguous()
        row_count, channels = check_rows(x)
        hidden = up_bias.numel()
        shape = launch_shape("mlp", channels, hidden, shared_memory(x.device), dot_precision(x))
        chunks = hidden // shape.hidden_chunk
        blocks = blocks_of(row_count, shape.backward_rows)
        programs = min(blocks, shape.backward_programs * processors(x.device))
        sizes = (hidden * channels, hidden, channels * hidden, channels, channels)
        x_grad = torch.empty_like(x)
        partial = x.new_empty(programs, sum(sizes))
        with on_device_of(x):
            for first in range(0, chunks, shape.terms_per_pass):
                _backward_kernel[(programs,)](
                    x,
                    gain,
                    up_weight,
                    up_bias,
                    down_weight,
                    y_grad,
                    x_grad,
                    partial,
                    row_count,
                    ctx.eps,
                    HIDDEN=hidden,
                    CHUNK=shape.hidden_chunk,
                    FIRST=first,
                    LAST=min(first + shape.terms_per_pass, chunks),
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
        up_weight_grad, up_bias_grad, down_weight_grad, down_bias_grad, gain_grad = partial.sum(0).split(sizes)
        return (
            x_grad if ctx.needs_input_grad[0] else None,
            gain_grad,
            up_weight_grad.view_as(up_weight),
            up_bias_grad,
            down_weight_grad.view_as(down_weight),
            down_bias_grad,
            None,
        )
