"""The second half of a block along image rows: v = x + F_w^-1 s, then y = v + W_down gelu(W_up h + b_up) + b_down.

h = RMSNorm(v); F_w^-1 is the inverse transform of the last axis, a real matrix. Neither v, h nor a hidden activation is
written in the forward pass. With g the gradient of y, u = W_up h + b_up and a = gelu(u): du = gelu'(u) (W_down^T g),
dh = W_up^T du, dv = g + (the norm's part), ds = F_w^-T dv. Hidden channels are taken in chunks; v s (s from
the norm), a, du and g are left in memory, in the operands' type, for the gradients of weights and gain (`outer`).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import Tile, dot, inverse_rms, norm_input_grad, normal_law, triton_type

FORWARD_CHUNK, BACKWARD_CHUNK = 64, 32  # hidden channels at a time: measured on an H200


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    spectrum_pointer,  # (tiles*KEPT, C)
    transform_pointer,  # (POINTS, MODES)
    gain_pointer,  # (C,)
    up_pointer,  # (H, C), operand type
    up_bias_pointer,  # (H,)
    down_pointer,  # (C, H), operand type
    down_bias_pointer,  # (C,)
    y_pointer,  # (P, C)
    point_count,
    coefficient_count,
    eps,
    HIDDEN: tl.constexpr,
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
    from_ = (tile * KEPT + modes)[:, None] * CHANNELS + channels[None, :]
    x = tl.load(x_pointer + at, mask=there[:, None], other=1.0)
    spectrum = tl.load(spectrum_pointer + from_, mask=kept[:, None], other=0.0)
    transform = tl.load(transform_pointer + points[:, None] * MODES + modes[None, :])
    v = x + dot(transform, spectrum, PRECISION)
    gain = tl.load(gain_pointer + channels)
    h = (v * inverse_rms(v, eps, CHANNELS) * gain[None, :]).to(OPERAND)
    y = v + tl.load(down_bias_pointer + channels)[None, :]
    for q in tl.static_range(HIDDEN // CHUNK):
        hidden = q * CHUNK + chunk
        up = tl.load(up_pointer + hidden[:, None] * CHANNELS + channels[None, :])  # (CHUNK, C)
        down = tl.load(down_pointer + channels[:, None] * HIDDEN + hidden[None, :])  # (C, CHUNK)
        up_bias = tl.load(up_bias_pointer + hidden)
        u = dot(h, tl.trans(up), PRECISION) + up_bias[None, :]
        law, _ = normal_law(u)
        y = dot((u * law).to(OPERAND), tl.trans(down), PRECISION, acc=y)
    tl.store(y_pointer + at, y, mask=there[:, None])


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    spectrum_pointer,  # (tiles*KEPT, C)
    transform_pointer,  # (POINTS, MODES)
    transposed_pointer,  # (MODES, POINTS)
    gain_pointer,  # (C,)
    up_pointer,  # (H, C), operand type
    up_bias_pointer,  # (H,)
    down_pointer,  # (C, H), operand type
    y_grad_pointer,  # (P, C)
    v_grad_pointer,  # (P, C)
    spectrum_grad_pointer,  # (tiles*KEPT, C)
    unit_pointer,  # (P, C), operand type
    u_grad_pointer,  # (P, H), operand type
    active_pointer,  # (P, H), operand type
    y_grad_copy_pointer,  # (P, C), operand type
    point_count,
    coefficient_count,
    eps,
    HIDDEN: tl.constexpr,
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
    coefficients = (tile * KEPT + modes)[:, None] * CHANNELS + channels[None, :]
    x = tl.load(x_pointer + at, mask=there[:, None], other=1.0)
    y_grad = tl.load(y_grad_pointer + at, mask=there[:, None], other=0.0)
    spectrum = tl.load(spectrum_pointer + coefficients, mask=kept[:, None], other=0.0)
    transform = tl.load(transform_pointer + points[:, None] * MODES + modes[None, :])
    v = x + dot(transform, spectrum, PRECISION)
    gain = tl.load(gain_pointer + channels)
    scale = inverse_rms(v, eps, CHANNELS)
    unit = v * scale
    h = (unit * gain[None, :]).to(OPERAND)
    tl.store(unit_pointer + at, unit.to(OPERAND), mask=there[:, None])
    g = y_grad.to(OPERAND)
    tl.store(y_grad_copy_pointer + at, g, mask=there[:, None])
    h_grad = tl.full((POINTS, CHANNELS), 0.0, tl.float32)
    for q in tl.static_range(HIDDEN // CHUNK):
        hidden = q * CHUNK + chunk
        up = tl.load(up_pointer + hidden[:, None] * CHANNELS + channels[None, :])  # (CHUNK, C)
        down = tl.load(down_pointer + channels[:, None] * HIDDEN + hidden[None, :])  # (C, CHUNK)
        up_bias = tl.load(up_bias_pointer + hidden)
        u = dot(h, tl.trans(up), PRECISION) + up_bias[None, :]
        law, density = normal_law(u)
        to = (tile * FILLED + points)[:, None] * HIDDEN + hidden[None, :]
        tl.store(active_pointer + to, (u * law).to(OPERAND), mask=there[:, None])
        u_grad = (dot(g, down, PRECISION) * (law + u * density)).to(OPERAND)
        tl.store(u_grad_pointer + to, u_grad, mask=there[:, None])
        h_grad = dot(u_grad, up, PRECISION, acc=h_grad)
    v_grad = y_grad + norm_input_grad(h_grad * gain[None, :], unit, scale, CHANNELS)
    tl.store(v_grad_pointer + at, v_grad, mask=there[:, None])
    transposed = tl.load(transposed_pointer + modes[:, None] * POINTS + points[None, :])
    spectrum_grad = dot(transposed, v_grad, PRECISION)
    tl.store(spectrum_grad_pointer + coefficients, spectrum_grad, mask=kept[:, None])


class Gradients(NamedTuple):
    """What the backward pass leaves: two gradients, and the operands of the parameters' gradients."""

    v: Tensor  # (b, n1, n2, C)
    spectrum: Tensor  # (b, n1, kept, C)
    unit: Tensor  # (P, C)
    u: Tensor  # (P, H)
    active: Tensor  # (P, H)
    y: Tensor  # (P, C)


def forward(
    x: Tensor,
    spectrum: Tensor,
    transform: Tensor,
    gain: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    tile: Tile,
    eps: float,
    precision: str,
) -> Tensor:
    """y (b, n1, n2, C) of x and the transform (b, n1, kept, C) of what is added to it."""
    image_rows, kept, channels = x.shape[0] * x.shape[1], spectrum.shape[2], x.shape[-1]
    y = torch.empty_like(x)
    _forward_kernel[(tile.count(image_rows),)](
        x,
        spectrum,
        transform,
        gain,
        up,
        up_bias,
        down,
        down_bias,
        y,
        image_rows * tile.width,
        image_rows * kept,
        eps,
        HIDDEN=up.shape[0],
        CHANNELS=channels,
        CHUNK=min(up.shape[0], FORWARD_CHUNK),
        **tile.launch(kept),
        OPERAND=triton_type(up.dtype),
        PRECISION=precision,
    )
    return y


def backward(
    x: Tensor,
    spectrum: Tensor,
    transform: Tensor,
    transposed: Tensor,
    gain: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    y_grad: Tensor,
    tile: Tile,
    eps: float,
    precision: str,
) -> Gradients:
    """Everything but the parameters' gradients, which come from unit, u, active and y (`outer`)."""
    image_rows, kept, channels = x.shape[0] * x.shape[1], spectrum.shape[2], x.shape[-1]
    hidden, count, tiles = up.shape[0], image_rows * tile.width, tile.count(image_rows)
    v_grad, spectrum_grad = torch.empty_like(x), torch.empty_like(spectrum)
    unit, y = (x.new_empty(count, channels, dtype=up.dtype) for _ in range(2))
    u, active = (x.new_empty(count, hidden, dtype=up.dtype) for _ in range(2))
    _backward_kernel[(tiles,)](
        x,
        spectrum,
        transform,
        transposed,
        gain,
        up,
        up_bias,
        down,
        y_grad,
        v_grad,
        spectrum_grad,
        unit,
        u,
        active,
        y,
        count,
        image_rows * kept,
        eps,
        HIDDEN=hidden,
        CHANNELS=channels,
        CHUNK=min(hidden, BACKWARD_CHUNK),
        **tile.launch(kept),
        OPERAND=triton_type(up.dtype),
        PRECISION=precision,
    )
    return Gradients(v_grad, spectrum_grad, unit, u, active, y)
