"""The MLP of a wide block without its hidden activations in memory: H of them a point, chunk by chunk on the chip.

add_mlp         y + g (W2 gelu(W1 u + b1) + b2) of normalised points u, in the place of y
add_mlp_grad    the hidden activations again; from them and dy the gradient of u, and what `weight_grads` makes those of
                the maps of: g dy, the activations and their gradients in the operands' type

g scales a sample; tiles come and go by tensor descriptors, which fill up and cut off what is outside of an array.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import INTERPRETED, TensorDescriptor, blocks_of, dot, normal_law, tiles, triton_type

CHANNELS = (128,)  # with more, what a program holds leaves no room to hide the gelu behind products
CHUNK, GRAD_CHUNK = 64, 32  # hidden activations of a point that a program holds at a time: this and
POINTS, GRAD_POINTS = 128, 64  # what follows measured on an H200


@triton.jit
def _tanh(x):
    """To 5e-4 of its value, in one instruction, which the interpreter has not."""
    if INTERPRETED:
        return 1.0 - 2.0 / (tl.exp2(2.885390081777927 * x) + 1.0)
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _law(v, EXACT: tl.constexpr):
    """Phi(v) and gelu'(v). Not EXACT, to 3e-4, for operands in bfloat16: 2 Phi(v) = 1 + tanh(v P(v^2)), P fitted."""
    if EXACT:
        law, density = normal_law(v)
    else:
        square = tl.minimum(v * v, 64.0)
        law = 0.5 + 0.5 * _tanh(v * (0.7977178 + square * (0.0367982955 + square * -0.00031581601)))
        density = (law - law * law) * (1.5954356 + square * (0.220789773 + square * -0.0031581601))
    return law, law + v * density


@triton.jit
def _of_samples(pointer, row, point_count, sample_points, P: tl.constexpr):
    """The numbers of the samples that P points from `row` on belong to, (P, 1)."""
    points = row + tl.arange(0, P)
    return tl.load(pointer + points // sample_points, mask=points < point_count, other=0.0)[:, None]


@triton.jit
def _add_mlp_kernel(
    y_tiles,  # (N, C) float32
    unit_tiles,  # (N, C), operand type
    up_tiles,  # (H, C), operand type
    up_bias_pointer,  # (H,)
    down_tiles,  # (H, C), operand type
    down_bias_pointer,  # (C,)
    scale_pointer,  # (samples,)
    point_count,
    sample_points,
    H: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
    CHUNK: tl.constexpr,
    SCALED: tl.constexpr,
    OPERAND: tl.constexpr,
    EXACT: tl.constexpr,
):
    row = tl.program_id(0) * P
    unit = unit_tiles.load([row, 0])
    total = tl.zeros((P, C), tl.float32)
    for start in tl.range(0, H, CHUNK, num_stages=2):
        up, down = up_tiles.load([start, 0]), down_tiles.load([start, 0])
        hidden = dot(unit, tl.trans(up), "ieee") + tl.load(up_bias_pointer + start + tl.arange(0, CHUNK))[None, :]
        law, _ = _law(hidden, EXACT)
        total = dot((hidden * law).to(OPERAND), down, "ieee", acc=total)
    total += tl.load(down_bias_pointer + tl.arange(0, C))[None, :]
    if SCALED:
        total *= _of_samples(scale_pointer, row, point_count, sample_points, P)
    y_tiles.store([row, 0], y_tiles.load([row, 0]) + total)


@triton.jit
def _add_mlp_grad_kernel(
    y_grad_tiles,  # (N, C) float32
    unit_tiles,  # (N, C), operand type
    up_tiles,  # (H, C), operand type
    up_bias_pointer,  # (H,)
    down_tiles,  # (H, C), operand type
    scale_pointer,  # (samples,)
    unit_grad_tiles,  # (N, C), operand type
    low_tiles,  # (N, C), operand type
    active_tiles,  # (N, H), operand type
    hidden_grad_tiles,  # (N, H), operand type
    point_count,
    sample_points,
    H: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
    CHUNK: tl.constexpr,
    SCALED: tl.constexpr,
    OPERAND: tl.constexpr,
    EXACT: tl.constexpr,
):
    row = tl.program_id(0) * P
    grad = y_grad_tiles.load([row, 0])
    if SCALED:
        grad *= _of_samples(scale_pointer, row, point_count, sample_points, P)
    low = grad.to(OPERAND)
    low_tiles.store([row, 0], low)
    unit = unit_tiles.load([row, 0])
    total = tl.zeros((P, C), tl.float32)
    for start in tl.range(0, H, CHUNK, num_stages=3):
        up, down = up_tiles.load([start, 0]), down_tiles.load([start, 0])
        hidden = dot(unit, tl.trans(up), "ieee") + tl.load(up_bias_pointer + start + tl.arange(0, CHUNK))[None, :]
        law, slope = _law(hidden, EXACT)
        hidden_grad = dot(low, tl.trans(down), "ieee") * slope
        total = dot(hidden_grad.to(OPERAND), up, "ieee", acc=total)
        active_tiles.store([row, start], (hidden * law).to(OPERAND))
        hidden_grad_tiles.store([row, start], hidden_grad.to(OPERAND))
    unit_grad_tiles.store([row, 0], total.to(OPERAND))


class Grads(NamedTuple):
    """Of `add_mlp`: with u and `low` the hidden activations and their gradients make those of the maps."""

    unit: Tensor  # (N, C)
    low: Tensor  # (N, C)
    active: Tensor  # (N, H)
    hidden: Tensor  # (N, H)


def takes(operand: torch.dtype, channels: int, hidden: int, device: torch.device) -> bool:
    """Whether these kernels are for points of so many channels and hidden activations, and faster than others."""
    return (
        TensorDescriptor is not None
        and channels in CHANNELS
        and hidden % CHUNK == 0
        and (INTERPRETED.value or (operand == torch.bfloat16 and _has_descriptors(device.index)))
    )


@lru_cache
def _has_descriptors(index: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= (9, 0)


def add_mlp(
    y: Tensor, unit: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, scale: Tensor | None
) -> Tensor:
    """y (N, C) + scale (down^T gelu(up u + b1) + b2), in place; both weights (H, C), `scale` (samples,) or none."""
    (count, channels), hidden = y.shape, up.shape[0]
    _add_mlp_kernel[(blocks_of(count, POINTS),)](
        tiles(y, POINTS, channels),
        tiles(unit, POINTS, channels),
        tiles(up, CHUNK, channels),
        up_bias,
        tiles(down, CHUNK, channels),
        down_bias,
        *_samples(scale, y),
        P=POINTS,
        CHUNK=CHUNK,
        **_options(hidden, channels, scale, unit.dtype),
        num_warps=8,
    )
    return y


def add_mlp_grad(
    y_grad: Tensor, unit: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, scale: Tensor | None
) -> Grads:
    """Of `add_mlp`, for the gradient of its result, (N, C)."""
    (count, channels), hidden = y_grad.shape, up.shape[0]
    unit_grad, low = torch.empty_like(unit), torch.empty_like(unit)
    active, hidden_grad = unit.new_empty(count, hidden), unit.new_empty(count, hidden)
    numbers, *counts = _samples(scale, y_grad)
    _add_mlp_grad_kernel[(blocks_of(count, GRAD_POINTS),)](
        tiles(y_grad, GRAD_POINTS, channels),
        tiles(unit, GRAD_POINTS, channels),
        tiles(up, GRAD_CHUNK, channels),
        up_bias,
        tiles(down, GRAD_CHUNK, channels),
        numbers,
        tiles(unit_grad, GRAD_POINTS, channels),
        tiles(low, GRAD_POINTS, channels),
        tiles(active, GRAD_POINTS, GRAD_CHUNK),
        tiles(hidden_grad, GRAD_POINTS, GRAD_CHUNK),
        *counts,
        P=GRAD_POINTS,
        CHUNK=GRAD_CHUNK,
        **_options(hidden, channels, scale, unit.dtype),
        num_warps=4,
    )
    return Grads(unit_grad, low, active, hidden_grad)


def _samples(scale: Tensor | None, y: Tensor) -> tuple[Tensor, int, int]:
    """Numbers of the samples (any tensor where there are none), how many points there are, and of a sample."""
    return (y, len(y), len(y)) if scale is None else (scale, len(y), len(y) // len(scale))


def _options(hidden: int, channels: int, scale: Tensor | None, operand: torch.dtype) -> dict[str, object]:
    return {
        "H": hidden,
        "C": channels,
        "SCALED": scale is not None,
        "OPERAND": triton_type(operand),
        "EXACT": operand == torch.float32,
    }
