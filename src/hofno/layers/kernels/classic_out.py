"""The second half of a classic block along image rows: y = gelu(u), u = W x + b + F_w^-1 s; or y = u in the last one.

F_w^-1 is the inverse transform of the last axis, a real matrix. u is never written: the backward pass computes it again
from x and s, which are fewer bytes to keep. With g = gelu'(u) dy: ds = F_w^-T g, dx = W^T g, and dW = sum_points g x^T
and db = sum_points g are summed in registers (`classic_rows`).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import normal_law, rounded
from hofno.layers.kernels.classic_rows import (
    FORWARD_PROGRAMS,
    Shares,
    mode_rows,
    registers,
    row_counts,
    row_launch,
    row_programs,
    rows_and_ones,
    store_share,
)
from hofno.layers.kernels.transforms import Transforms


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    spectrum_pointer,  # (tiles*KEPT, C)
    transform_pointer,  # (BLOCKS*POINTS, MODES)
    weight_pointer,  # (C, C)
    bias_pointer,  # (C,)
    y_pointer,  # (P, C)
    point_count,
    coefficient_count,
    GELU: tl.constexpr,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    points, modes, channels = tl.arange(0, POINTS), tl.arange(0, MODES), tl.arange(0, PLACES)
    filled = channels < CHANNELS
    square = filled[:, None] & filled[None, :]
    weight = tl.load(weight_pointer + channels[:, None] * CHANNELS + channels[None, :], mask=square, other=0.0)
    weight = rounded(weight, PRECISION)
    bias = tl.load(bias_pointer + channels, mask=filled, other=0.0)
    matrix_at = points[:, None] * MODES + modes[None, :]
    matrix = rounded(tl.load(transform_pointer + matrix_at), PRECISION)
    for step in range(STEPS * BLOCKS):
        tile = tl.program_id(0).to(tl.int64) + step // BLOCKS * tl.num_programs(0)
        place = step % BLOCKS * POINTS + points
        there = (place < FILLED) & (tile * FILLED + place < point_count)
        kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
        at = (tile * FILLED + place)[:, None] * CHANNELS + channels[None, :]
        inside = there[:, None] & filled[None, :]
        from_ = (tile * KEPT + modes)[:, None] * CHANNELS + channels[None, :]
        x = rounded(tl.load(x_pointer + at, mask=inside, other=0.0), PRECISION)
        spectrum = tl.load(spectrum_pointer + from_, mask=kept[:, None] & filled[None, :], other=0.0)
        part = tl.load(transform_pointer + step % BLOCKS * (POINTS * MODES) + matrix_at)
        transform = matrix if BLOCKS == 1 else rounded(part, PRECISION)
        u = tl.dot(transform, rounded(spectrum, PRECISION), input_precision=PRECISION)
        u = tl.dot(x, tl.trans(weight), acc=u, input_precision=PRECISION) + bias[None, :]
        if GELU:
            law, _ = normal_law(u)
            u = u * law
        tl.store(y_pointer + at, u, mask=inside)


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    spectrum_pointer,  # (tiles*KEPT, C)
    transform_pointer,  # (BLOCKS*POINTS, MODES)
    transposed_pointer,  # (MODES, BLOCKS*POINTS)
    weight_pointer,  # (C, C)
    bias_pointer,  # (C,)
    y_grad_pointer,  # (P, C)
    x_grad_pointer,  # (P, C)
    spectrum_grad_pointer,  # (tiles*KEPT, C)
    weight_share_pointer,  # (programs, C, C), programs `share_size` apart
    bias_share_pointer,  # (programs, C), likewise
    share_size,
    point_count,
    coefficient_count,
    GELU: tl.constexpr,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    MODE_ROWS: tl.constexpr,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    points, modes, channels = tl.arange(0, POINTS), tl.arange(0, MODES), tl.arange(0, PLACES)
    mode_rows, filled = tl.arange(0, MODE_ROWS), channels < CHANNELS
    square = filled[:, None] & filled[None, :]
    weight = tl.load(weight_pointer + channels[:, None] * CHANNELS + channels[None, :], mask=square, other=0.0)
    weight = rounded(weight, PRECISION)
    bias = tl.load(bias_pointer + channels, mask=filled, other=0.0)
    matrix_at = points[:, None] * MODES + modes[None, :]
    matrix = rounded(tl.load(transform_pointer + matrix_at), PRECISION)
    turned_at = mode_rows[:, None] * (BLOCKS * POINTS) + points[None, :]
    mode = (mode_rows < MODES)[:, None]
    turned = rounded(tl.load(transposed_pointer + turned_at, mask=mode, other=0.0), PRECISION)
    sums = tl.full((2 * PLACES, PLACES), 0.0, tl.float32)
    for step in range(STEPS):
        tile = tl.program_id(0).to(tl.int64) + step * tl.num_programs(0)
        spectrum_grad = tl.full((MODE_ROWS, PLACES), 0.0, tl.float32)
        for block in range(BLOCKS):
            place = block * POINTS + points
            there = (place < FILLED) & (tile * FILLED + place < point_count)
            at = (tile * FILLED + place)[:, None] * CHANNELS + channels[None, :]
            inside = there[:, None] & filled[None, :]
            x = rounded(tl.load(x_pointer + at, mask=inside, other=0.0), PRECISION)
            grad = tl.load(y_grad_pointer + at, mask=inside, other=0.0)
            if GELU:
                kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
                from_ = (tile * KEPT + modes)[:, None] * CHANNELS + channels[None, :]
                spectrum = tl.load(spectrum_pointer + from_, mask=kept[:, None] & filled[None, :], other=0.0)
                part = tl.load(transform_pointer + block * (POINTS * MODES) + matrix_at)
                transform = matrix if BLOCKS == 1 else rounded(part, PRECISION)
                u = tl.dot(transform, rounded(spectrum, PRECISION), input_precision=PRECISION)
                u = tl.dot(x, tl.trans(weight), acc=u, input_precision=PRECISION) + bias[None, :]
                law, density = normal_law(u)
                grad = grad * (law + u * density)
            turned_part = tl.load(transposed_pointer + block * POINTS + turned_at, mask=mode, other=0.0)
            transposed = turned if BLOCKS == 1 else rounded(turned_part, PRECISION)
            grad = rounded(grad, PRECISION)
            spectrum_grad = tl.dot(transposed, grad, acc=spectrum_grad, input_precision=PRECISION)
            tl.store(x_grad_pointer + at, tl.dot(grad, weight, input_precision=PRECISION), mask=inside)
            sums = tl.dot(rows_and_ones(x, POINTS, PLACES), grad, acc=sums, input_precision=PRECISION)
        written = (mode_rows < KEPT) & (tile * KEPT + mode_rows < coefficient_count)
        to = (tile * KEPT + mode_rows)[:, None] * CHANNELS + channels[None, :]
        tl.store(spectrum_grad_pointer + to, spectrum_grad, mask=written[:, None] & filled[None, :])
    share = tl.program_id(0) * share_size
    store_share(sums, channels, weight_share_pointer + share, bias_share_pointer + share, CHANNELS, PLACES)


def forward(
    x: Tensor, spectrum: Tensor, weight: Tensor, bias: Tensor, transforms: Transforms, gelu: bool, precision: str
) -> Tensor:
    """y (b, n1, n2, C) of x and the transform (b, n1, kept, C) of what is added to its linear map."""
    tile, kept = transforms.tile, transforms.kept
    y = torch.empty_like(x)
    programs = row_programs(x, tile, FORWARD_PROGRAMS)
    _forward_kernel[(programs,)](
        x,
        spectrum,
        transforms.rows_out,
        weight,
        bias,
        y,
        *row_counts(x, kept),
        GELU=gelu,
        **row_launch(x, tile, kept, programs, precision),
        num_stages=2,
    )
    return y


def backward(
    x: Tensor,
    spectrum: Tensor,
    weight: Tensor,
    bias: Tensor,
    transforms: Transforms,
    y_grad: Tensor,
    shares: Shares,
    gelu: bool,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """The linear map's gradient of x, and that of the spectrum; fills the shares of that map."""
    tile, kept, programs = transforms.tile, transforms.kept, shares.weights.shape[0]
    x_grad, spectrum_grad = torch.empty_like(x), torch.empty_like(spectrum)
    _backward_kernel[(programs,)](
        x,
        spectrum,
        transforms.rows_out,
        transforms.rows_out_transposed,
        weight,
        bias,
        y_grad,
        x_grad,
        spectrum_grad,
        shares.weights,
        shares.biases,
        shares.weights.stride(0),
        *row_counts(x, kept),
        GELU=gelu,
        MODE_ROWS=mode_rows(tile, kept),
        **row_launch(x, tile, kept, programs, precision),
        num_stages=1,
        maxnreg=registers(x, precision),
    )
    return x_grad, spectrum_grad
