"""What lies between the matrix products of a wide block, along image rows, each in one pass over memory.

    product_in           F_w prod_i (q_i + b_i)                          and its gradient in q and b
    residual_out         v' = v + F_w^-1 t,  u' = v' s',  s' = (mean_c v'^2 + eps)^(-1/2)      and its gradient

The gain of a norm belongs to the weights after it, so no kernel knows of it. A program goes through its image row in
blocks of points (`tile_for`) and adds up what its transform makes of them. Where norms need all channels of a point, a
program has them all at hand up to WIDE_WHOLE; of more it takes chunks, in one loop for the sum and in a second one
for its use.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels import WIDE_TILE, WIDE_WHOLE
from hofno.layers.kernels._common import Tile, blocks_of, dot, power_of_two, stored, tile_of, triton_type
from hofno.layers.kernels.sums import sum_rows

CHUNK = 64
BLOCK = 32  # points at a time: this and what follows measured on an H200
WARPS, STAGES = 4, 2


@triton.jit
def _product_kernel(
    q_pointer,  # (P, ORDER*C), operand type
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (MODES, BLOCKS*POINTS)
    out_pointer,  # (tiles*KEPT, C)
    point_count,
    coefficient_count,
    ORDER: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile, modes = tl.program_id(0).to(tl.int64), tl.arange(0, MODES)
    channels = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    kept = ((modes < KEPT) & (tile * KEPT + modes < coefficient_count))[:, None]
    total = tl.full((MODES, CHUNK), 0.0, tl.float32)
    for block in range(BLOCKS):
        points = block * POINTS + tl.arange(0, POINTS)
        there = ((points < FILLED) & (tile * FILLED + points < point_count))[:, None]
        at = (tile * FILLED + points)[:, None] * (ORDER * C) + channels[None, :]
        product = tl.full((POINTS, CHUNK), 1.0, tl.float32)
        for i in tl.static_range(ORDER):
            q = tl.load(q_pointer + at + i * C, mask=there, other=0.0).to(tl.float32)
            product = product * (q + tl.load(bias_pointer + i * C + channels)[None, :])
        transform = tl.load(transform_pointer + modes[:, None] * (BLOCKS * POINTS) + points[None, :])
        total = dot(transform, product, PRECISION, acc=total)
    to = (tile * KEPT + modes)[:, None] * C + channels[None, :]
    tl.store(out_pointer + to, stored(total, out_pointer.dtype.element_ty), mask=kept)


@triton.jit
def _product_grad_kernel(
    q_pointer,  # (P, ORDER*C), operand type
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (BLOCKS*POINTS, MODES), the transposed transform
    out_grad_pointer,  # (tiles*KEPT, C)
    q_grad_pointer,  # (P, ORDER*C), operand type
    bias_grad_pointer,  # (BLOCKS*tiles, ORDER*C)
    point_count,
    coefficient_count,
    SUMMED: tl.constexpr,
    ORDER: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile, modes = (tl.program_id(0) // BLOCKS).to(tl.int64), tl.arange(0, MODES)
    channels = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    kept = ((modes < KEPT) & (tile * KEPT + modes < coefficient_count))[:, None]
    from_ = (tile * KEPT + modes)[:, None] * C + channels[None, :]
    out_grad = tl.load(out_grad_pointer + from_, mask=kept, other=0.0)
    points = tl.program_id(0) % BLOCKS * POINTS + tl.arange(0, POINTS)
    there = ((points < FILLED) & (tile * FILLED + points < point_count))[:, None]
    at = (tile * FILLED + points)[:, None] * (ORDER * C) + channels[None, :]
    transform = tl.load(transform_pointer + points[:, None] * MODES + modes[None, :])
    factors = ()
    for i in tl.static_range(ORDER):
        q = tl.load(q_pointer + at + i * C, mask=there, other=0.0).to(tl.float32)
        factors += (q + tl.load(bias_pointer + i * C + channels)[None, :],)
    right = dot(transform, out_grad, PRECISION)
    reversed_rights = (right,)  # at m-1-i: g * prod_{j > i} p_j
    for i in tl.static_range(ORDER - 1):
        right = right * factors[ORDER - 1 - i]
        reversed_rights += (right,)
    left = tl.full((POINTS, CHUNK), 1.0, tl.float32)  # prod_{j < i} p_j
    for i in tl.static_range(ORDER):
        q_grad = left * reversed_rights[ORDER - 1 - i]
        left = left * factors[i]
        tl.store(q_grad_pointer + at + i * C, q_grad.to(OPERAND), mask=there)
        if SUMMED:
            to = tl.program_id(0).to(tl.int64) * (ORDER * C) + i * C + channels
            tl.store(bias_grad_pointer + to, tl.sum(q_grad, axis=0))


@triton.jit
def _residual_kernel(
    v_pointer,  # (P, C)
    spectrum_pointer,  # (tiles*KEPT, C)
    transform_pointer,  # (BLOCKS*POINTS, MODES)
    bias_pointer,  # (C,)
    out_pointer,  # (P, C)
    unit_pointer,  # (P, C), operand type
    scale_pointer,  # (P,)
    point_count,
    coefficient_count,
    eps,
    BIASED: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    OPERAND: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile, modes = (tl.program_id(0) // BLOCKS).to(tl.int64), tl.arange(0, MODES)
    kept = ((modes < KEPT) & (tile * KEPT + modes < coefficient_count))[:, None]
    points = tl.program_id(0) % BLOCKS * POINTS + tl.arange(0, POINTS)
    inside = (points < FILLED) & (tile * FILLED + points < point_count)
    transform = tl.load(transform_pointer + points[:, None] * MODES + modes[None, :])
    squares = tl.full((POINTS,), 0.0, tl.float32)
    sums = ()
    for k in tl.static_range(CHUNKS):
        channels = k * CHUNK + tl.arange(0, CHUNK)
        there = inside[:, None] & (channels < C)[None, :]
        at = (tile * FILLED + points)[:, None] * C + channels[None, :]
        from_ = (tile * KEPT + modes)[:, None] * C + channels[None, :]
        spectrum = tl.load(spectrum_pointer + from_, mask=kept & (channels < C)[None, :], other=0.0)
        v = tl.load(v_pointer + at, mask=there, other=0.0) + dot(transform, spectrum, PRECISION)
        out = v
        if BIASED:
            out += tl.load(bias_pointer + channels, mask=channels < C, other=0.0)[None, :]
        tl.store(out_pointer + at, out, mask=there)
        squares += tl.sum(v * v, axis=1)
        sums += (v if CHUNKS == 1 else v.to(OPERAND),)
    scale = tl.rsqrt(squares / C + eps)
    tl.store(scale_pointer + tile * FILLED + points, scale, mask=inside)
    for k in tl.static_range(CHUNKS):
        channels = k * CHUNK + tl.arange(0, CHUNK)
        at = (tile * FILLED + points)[:, None] * C + channels[None, :]
        unit = tl.cast(sums[k], tl.float32) * scale[:, None]
        tl.store(unit_pointer + at, unit.to(OPERAND), mask=inside[:, None] & (channels < C)[None, :])


@triton.jit
def _residual_grad_kernel(
    unit_pointer,  # (P, C), operand type
    scale_pointer,  # (P,)
    unit_grad_pointer,  # (P, C), operand type
    out_grad_pointer,  # (P, C)
    transform_pointer,  # (MODES, BLOCKS*POINTS), the transposed inverse transform
    v_grad_pointer,  # (P, C)
    spectrum_grad_pointer,  # (tiles*KEPT, C)
    point_count,
    coefficient_count,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,  # 1 where there are several blocks: their spectra add up
    POINTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    FILLED: tl.constexpr,
    MODES: tl.constexpr,
    KEPT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile, modes = tl.program_id(0).to(tl.int64), tl.arange(0, MODES)
    kept = ((modes < KEPT) & (tile * KEPT + modes < coefficient_count))[:, None]
    total = tl.full((MODES, CHUNK), 0.0, tl.float32)
    for block in range(BLOCKS):
        points = block * POINTS + tl.arange(0, POINTS)
        inside = (points < FILLED) & (tile * FILLED + points < point_count)
        scale = tl.load(scale_pointer + tile * FILLED + points, mask=inside, other=0.0)
        along = tl.full((POINTS,), 0.0, tl.float32)
        for k in tl.static_range(CHUNKS):
            channels = k * CHUNK + tl.arange(0, CHUNK)
            there = inside[:, None] & (channels < C)[None, :]
            at = (tile * FILLED + points)[:, None] * C + channels[None, :]
            unit = tl.load(unit_pointer + at, mask=there, other=0.0).to(tl.float32)
            unit_grad = tl.load(unit_grad_pointer + at, mask=there, other=0.0).to(tl.float32)
            along += tl.sum(unit * unit_grad, axis=1)
        along = along / C
        for k in tl.static_range(CHUNKS):
            channels = k * CHUNK + tl.arange(0, CHUNK)
            there = inside[:, None] & (channels < C)[None, :]
            at = (tile * FILLED + points)[:, None] * C + channels[None, :]
            if CHUNKS > 1:
                unit = tl.load(unit_pointer + at, mask=there, other=0.0).to(tl.float32)
                unit_grad = tl.load(unit_grad_pointer + at, mask=there, other=0.0).to(tl.float32)
            grad = tl.load(out_grad_pointer + at, mask=there, other=0.0)
            grad += scale[:, None] * (unit_grad - unit * along[:, None])
            tl.store(v_grad_pointer + at, grad, mask=there)
            transform = tl.load(transform_pointer + modes[:, None] * (BLOCKS * POINTS) + points[None, :])
            to = (tile * KEPT + modes)[:, None] * C + channels[None, :]
            if CHUNKS > 1:
                tl.store(spectrum_grad_pointer + to, dot(transform, grad, PRECISION), mask=kept)
            else:
                total = dot(transform, grad, PRECISION, acc=total)
    if CHUNKS == 1:
        channels = tl.arange(0, CHUNK)
        to = (tile * KEPT + modes)[:, None] * C + channels[None, :]
        tl.store(spectrum_grad_pointer + to, total, mask=kept & (channels < C)[None, :])


def tile_for(width: int, channels: int) -> Tile:
    """The points that programs of a wide block take: short rows together, long ones in blocks."""
    if channels > WIDE_WHOLE:
        return tile_of(width, WIDE_TILE)
    if width <= BLOCK:
        return tile_of(width, BLOCK)
    return Tile(rows=1, width=width, points=BLOCK, blocks=blocks_of(width, BLOCK))


def _whole(channels: int) -> dict[str, int]:
    """How kernels that need all channels of a point take them."""
    chunk = power_of_two(channels) if channels <= WIDE_WHOLE else CHUNK
    return {"C": channels, "CHUNK": chunk, "CHUNKS": blocks_of(channels, chunk), "num_warps": WARPS}


def _sizes(tile: Tile, kept: int) -> dict[str, int]:
    return {**tile.sizes(kept), "BLOCKS": tile.blocks, "num_stages": STAGES if tile.blocks > 1 else 1}


def product_in(q: Tensor, bias: Tensor, order: int, transform: Tensor, tile: Tile, kept: int, precision: str) -> Tensor:
    """F_w of the product of the factors q (P, m C) plus bias: (image rows, kept, C), in the type of the transform."""
    image_rows, channels = q.shape[0] // tile.width, q.shape[1] // order
    out = q.new_empty(image_rows, kept, channels, dtype=transform.dtype)
    _product_kernel[(tile.count(image_rows), channels // CHUNK)](
        q,
        bias,
        transform,
        out,
        q.shape[0],
        image_rows * kept,
        ORDER=order,
        PRECISION=precision,
        C=channels,
        CHUNK=CHUNK,
        num_warps=WARPS,
        **_sizes(tile, kept),
    )
    return out


def product_in_grad(
    q: Tensor,
    bias: Tensor,
    order: int,
    transposed: Tensor,
    out_grad: Tensor,
    tile: Tile,
    kept: int,
    precision: str,
    summed: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of q, in its type, and, if it is to be `summed`, that of the bias."""
    image_rows, channels = q.shape[0] // tile.width, q.shape[1] // order
    programs = tile.blocks * tile.count(image_rows)
    q_grad, bias_grad = torch.empty_like(q), bias.new_empty(programs, order * channels) if summed else None
    _product_grad_kernel[(programs, channels // CHUNK)](
        q,
        bias,
        transposed,
        out_grad,
        q_grad,
        bias if bias_grad is None else bias_grad,
        q.shape[0],
        image_rows * kept,
        SUMMED=summed,
        ORDER=order,
        OPERAND=triton_type(q.dtype),
        PRECISION=precision,
        C=channels,
        CHUNK=CHUNK,
        num_warps=WARPS,
        **_sizes(tile, kept),
    )
    return q_grad, None if bias_grad is None else sum_rows(bias_grad)


def residual_out(
    v: Tensor,
    spectrum: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    tile: Tile,
    kept: int,
    eps: float,
    operand: torch.dtype,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """v' = v + F_w^-1 spectrum of v (P, C): v', plus a bias if given, then the unit points of v' and their scale."""
    count, channels = v.shape
    image_rows = count // tile.width
    out, unit, scale = torch.empty_like(v), v.new_empty(count, channels, dtype=operand), v.new_empty(count)
    _residual_kernel[(tile.blocks * tile.count(image_rows),)](
        v,
        spectrum,
        transform,
        v if bias is None else bias,
        out,
        unit,
        scale,
        count,
        image_rows * kept,
        eps,
        BIASED=bias is not None,
        OPERAND=triton_type(operand),
        PRECISION=precision,
        **_whole(channels),
        **_sizes(tile, kept),
    )
    return out, unit, scale


def residual_out_grad(
    unit: Tensor,
    scale: Tensor,
    unit_grad: Tensor,
    out_grad: Tensor,
    transposed: Tensor,
    tile: Tile,
    kept: int,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of v (P, C) and of the spectrum (image rows, kept, C), the latter in the type of the transform."""
    count, channels = out_grad.shape
    image_rows = count // tile.width
    v_grad, spectrum_grad = torch.empty_like(out_grad), transposed.new_empty(image_rows, kept, channels)
    _residual_grad_kernel[(tile.count(image_rows),)](
        unit,
        scale,
        unit_grad,
        out_grad,
        transposed,
        v_grad,
        spectrum_grad,
        count,
        image_rows * kept,
        PRECISION=precision,
        **_whole(channels),
        **_sizes(tile, kept),
    )
    return v_grad, spectrum_grad
