"""The first half of a block along image rows: z = p_1 ... p_m with p_i = W_i h + b_i, h = RMSNorm(x); then F_w z.

F_w is the truncated transform of the last axis, a real matrix. Neither h nor z is ever written. With g the gradient of
z, dp_i = g prod_{j != i} p_j comes from running products from the left and the right, never from a division; dh = sum_i
W_i^T dp_i. What belongs to one output channel of the factors needs no other channel, so channels are taken in chunks.
x s (s from the norm) and dp are left in memory for the gradients of weights and gain (`outer`).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import Tile, dot, inverse_rms, norm_input_grad, triton_type

FORWARD_CHUNK, BACKWARD_CHUNK = 64, 32  # output channels at a time: measured on an H200


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    weight_pointer,  # (ORDER*C, C), operand type
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (MODES, POINTS)
    out_pointer,  # (tiles*KEPT, C)
    point_count,
    coefficient_count,
    eps,
    ORDER: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
    POINTS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile = tl.program_id(0).to(tl.int64)
    points, modes = tl.arange(0, POINTS), tl.arange(0, MODES)
    channels, chunk = tl.arange(0, CHANNELS), tl.arange(0, CHUNK)
    there = (points < FILLED) & (tile * FILLED + points < point_count)
    kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
    at = (tile * FILLED + points)[:, None] * CHANNELS + channels[None, :]
    x = tl.load(x_pointer + at, mask=there[:, None], other=1.0)
    gain = tl.load(gain_pointer + channels)
    transform = tl.load(transform_pointer + modes[:, None] * POINTS + points[None, :])
    h = (x * inverse_rms(x, eps, CHANNELS) * gain[None, :]).to(OPERAND)
    for q in tl.static_range(CHANNELS // CHUNK):
        outs = q * CHUNK + chunk
        product = tl.full((POINTS, CHUNK), 1.0, tl.float32)
        for i in tl.static_range(ORDER):
            weight = tl.load(weight_pointer + (i * CHANNELS + outs)[:, None] * CHANNELS + channels[None, :])
            bias = tl.load(bias_pointer + i * CHANNELS + outs)
            product = product * (dot(h, tl.trans(weight), PRECISION) + bias[None, :])
        spectrum = dot(transform, product, PRECISION)
        to = (tile * KEPT + modes)[:, None] * CHANNELS + outs[None, :]
        tl.store(out_pointer + to, spectrum, mask=kept[:, None])


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    gain_pointer,  # (C,)
    weight_pointer,  # (ORDER*C, C), operand type
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (POINTS, MODES), the transposed transform
    out_grad_pointer,  # (tiles*KEPT, C)
    residual_grad_pointer,  # (P, C)
    x_grad_pointer,  # (P, C)
    unit_pointer,  # (P, C), operand type
    factor_grad_pointer,  # (P, ORDER*C), operand type
    point_count,
    coefficient_count,
    eps,
    ORDER: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
    POINTS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile = tl.program_id(0).to(tl.int64)
    points, modes = tl.arange(0, POINTS), tl.arange(0, MODES)
    channels, chunk = tl.arange(0, CHANNELS), tl.arange(0, CHUNK)
    there = (points < FILLED) & (tile * FILLED + points < point_count)
    kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
    at = (tile * FILLED + points)[:, None] * CHANNELS + channels[None, :]
    x = tl.load(x_pointer + at, mask=there[:, None], other=1.0)
    residual_grad = tl.load(residual_grad_pointer + at, mask=there[:, None], other=0.0)
    gain = tl.load(gain_pointer + channels)
    transform = tl.load(transform_pointer + points[:, None] * MODES + modes[None, :])
    scale = inverse_rms(x, eps, CHANNELS)
    unit = x * scale
    h = (unit * gain[None, :]).to(OPERAND)
    tl.store(unit_pointer + at, unit.to(OPERAND), mask=there[:, None])
    h_grad = tl.full((POINTS, CHANNELS), 0.0, tl.float32)
    for q in tl.static_range(CHANNELS // CHUNK):
        outs = q * CHUNK + chunk
        from_ = (tile * KEPT + modes)[:, None] * CHANNELS + outs[None, :]
        out_grad = tl.load(out_grad_pointer + from_, mask=kept[:, None], other=0.0)
        factors = ()
        for i in tl.static_range(ORDER):
            weight = tl.load(weight_pointer + (i * CHANNELS + outs)[:, None] * CHANNELS + channels[None, :])
            bias = tl.load(bias_pointer + i * CHANNELS + outs)
            factors += (dot(h, tl.trans(weight), PRECISION) + bias[None, :],)
        right = dot(transform, out_grad, PRECISION)
        reversed_rights = (right,)  # at m-1-i: g * prod_{j > i} p_j
        for i in tl.static_range(ORDER - 1):
            right = right * factors[ORDER - 1 - i]
            reversed_rights += (right,)
        left = tl.full((POINTS, CHUNK), 1.0, tl.float32)  # prod_{j < i} p_j
        for i in tl.static_range(ORDER):
            factor_grad = (left * reversed_rights[ORDER - 1 - i]).to(OPERAND)
            left = left * factors[i]
            to = (tile * FILLED + points)[:, None] * (ORDER * CHANNELS) + i * CHANNELS + outs[None, :]
            tl.store(factor_grad_pointer + to, factor_grad, mask=there[:, None])
            weight = tl.load(weight_pointer + (i * CHANNELS + outs)[:, None] * CHANNELS + channels[None, :])
            h_grad = dot(factor_grad, weight, PRECISION, acc=h_grad)
    x_grad = residual_grad + norm_input_grad(h_grad * gain[None, :], unit, scale, CHANNELS)
    tl.store(x_grad_pointer + at, x_grad, mask=there[:, None])


def forward(
    x: Tensor,
    gain: Tensor,
    weight: Tensor,
    bias: Tensor,
    transform: Tensor,
    tile: Tile,
    kept: int,
    eps: float,
    precision: str,
) -> Tensor:
    """F_w of the product, (b, n1, kept, C), of x (b, n1, n2, C); `transform` is that of a tile, filled up by zeros."""
    channels = x.shape[-1]
    order = weight.shape[0] // channels
    image_rows = x.shape[0] * x.shape[1]
    out = x.new_empty(x.shape[0], x.shape[1], kept, channels)
    _forward_kernel[(tile.count(image_rows),)](
        x,
        gain,
        weight,
        bias,
        transform,
        out,
        image_rows * tile.width,
        image_rows * kept,
        eps,
        ORDER=order,
        CHANNELS=channels,
        CHUNK=min(channels, FORWARD_CHUNK),
        **tile.launch(kept),
        OPERAND=triton_type(weight.dtype),
        PRECISION=precision,
    )
    return out


def backward(
    x: Tensor,
    gain: Tensor,
    weight: Tensor,
    bias: Tensor,
    transposed: Tensor,
    out_grad: Tensor,
    residual_grad: Tensor,
    tile: Tile,
    kept: int,
    eps: float,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x, that of the residual added; then x s (P, C) and dp (P, m C) for the parameters."""
    channels = x.shape[-1]
    order = weight.shape[0] // channels
    image_rows = x.shape[0] * x.shape[1]
    count = image_rows * tile.width
    x_grad = torch.empty_like(x)
    unit = x.new_empty(count, channels, dtype=weight.dtype)
    factor_grad = x.new_empty(count, order * channels, dtype=weight.dtype)
    _backward_kernel[(tile.count(image_rows),)](
        x,
        gain,
        weight,
        bias,
        transposed,
        out_grad,
        residual_grad,
        x_grad,
        unit,
        factor_grad,
        count,
        image_rows * kept,
        eps,
        ORDER=order,
        CHANNELS=channels,
        CHUNK=min(channels, BACKWARD_CHUNK),
        **tile.launch(kept),
        OPERAND=triton_type(weight.dtype),
        PRECISION=precision,
    )
    return x_grad, unit, factor_grad
