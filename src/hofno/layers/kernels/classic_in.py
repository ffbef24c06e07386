"""The first half of a classic block along image rows: z = p_1 ... p_m with p_i = A_i x + a_i; then s = F_w z.

F_w is the truncated transform of the last axis, a real matrix. z is never written. With g = F_w^T ds the gradient of z,
dp_i = g prod_{j != i} p_j comes from running products from the left and the right, never from a division; dx = sum_i
A_i^T dp_i, and dA_i, da_i are summed in registers (`classic_rows`). What belongs to one output channel of the factors
needs no other channel, so channels are taken in chunks; in the backward pass by one kernel after another, each of which
adds its part of dx, since the sums of several do not fit into the registers. Few maps stay at hand for all tiles; many
are read again.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import rounded
from hofno.layers.kernels.classic_rows import (
    FORWARD_PROGRAMS,
    Shares,
    mode_rows,
    places_of,
    registers,
    row_counts,
    row_launch,
    row_programs,
    rows_and_ones,
    store_share,
)
from hofno.layers.kernels.transforms import Transforms

CHUNK = 32  # output channels of the factors at a time
AT_HAND, AT_HAND_BACKWARD = 2 * 64 * 64, 3 * 64 * CHUNK  # numbers of the maps that a program keeps


@triton.jit
def _read_map(weight_pointer, bias_pointer, first, i, CHANNELS, PLACES, CHUNK, AT_HAND, PRECISION):
    """Weight (CHUNK, PLACES) and bias (1, CHUNK) of the i-th factor, for the output channels from `first` on.

    Volatile where it is to be read again: the compiler would keep it.
    """
    channels, outs = tl.arange(0, PLACES), first + tl.arange(0, CHUNK)
    inside = (outs < CHANNELS)[:, None] & (channels < CHANNELS)[None, :]
    at = (i * CHANNELS + outs)[:, None] * CHANNELS + channels[None, :]
    weight = tl.load(weight_pointer + at, mask=inside, other=0.0, volatile=not AT_HAND)
    bias = tl.load(bias_pointer + i * CHANNELS + outs, mask=outs < CHANNELS, other=0.0)
    return rounded(weight, PRECISION), bias[None, :]


@triton.jit
def _read_maps(weight_pointer, bias_pointer, first, ORDER, CHANNELS, PLACES, CHUNK, PRECISION):
    """Those of all factors."""
    maps = ()
    for i in tl.static_range(ORDER):
        maps += (_read_map(weight_pointer, bias_pointer, first, i, CHANNELS, PLACES, CHUNK, True, PRECISION),)
    return maps


@triton.jit
def _map(maps, weight_pointer, bias_pointer, first, i, CHANNELS, PLACES, CHUNK, PRECISION):
    """That of the i-th factor, from those at hand if there are any."""
    if len(maps) > 0:
        found = maps[i]
    else:
        found = _read_map(weight_pointer, bias_pointer, first, i, CHANNELS, PLACES, CHUNK, False, PRECISION)
    return found


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    weight_pointer,  # (ORDER*C, C)
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (MODES, BLOCKS*POINTS)
    out_pointer,  # (tiles*KEPT, C)
    point_count,
    coefficient_count,
    ORDER: tl.constexpr,
    CHUNK: tl.constexpr,
    AT_HAND: tl.constexpr,
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
    points, modes = tl.arange(0, POINTS), tl.arange(0, MODE_ROWS)
    channels, chunk = tl.arange(0, PLACES), tl.arange(0, CHUNK)
    matrix_at = modes[:, None] * (BLOCKS * POINTS) + points[None, :]
    mode = (modes < MODES)[:, None]
    matrix = rounded(tl.load(transform_pointer + matrix_at, mask=mode, other=0.0), PRECISION)
    chunks = ()
    for q in tl.static_range(PLACES // CHUNK):
        maps = ()
        if AT_HAND:
            maps = _read_maps(weight_pointer, bias_pointer, q * CHUNK, ORDER, CHANNELS, PLACES, CHUNK, PRECISION)
        chunks += (maps,)
    for step in range(STEPS):
        tile = tl.program_id(0).to(tl.int64) + step * tl.num_programs(0)
        spectra = ()
        for _ in tl.static_range(PLACES // CHUNK):
            spectra += (tl.full((MODE_ROWS, CHUNK), 0.0, tl.float32),)
        for block in range(BLOCKS):
            place = block * POINTS + points
            there = (place < FILLED) & (tile * FILLED + place < point_count)
            at = (tile * FILLED + place)[:, None] * CHANNELS + channels[None, :]
            x = tl.load(x_pointer + at, mask=there[:, None] & (channels < CHANNELS)[None, :], other=0.0)
            x = rounded(x, PRECISION)
            part = tl.load(transform_pointer + block * POINTS + matrix_at, mask=mode, other=0.0)
            transform = matrix if BLOCKS == 1 else rounded(part, PRECISION)
            new_spectra = ()
            for q in tl.static_range(PLACES // CHUNK):
                product = tl.full((POINTS, CHUNK), 1.0, tl.float32)
                for i in tl.static_range(ORDER):
                    weight, bias = _map(
                        chunks[q], weight_pointer, bias_pointer, q * CHUNK, i, CHANNELS, PLACES, CHUNK, PRECISION
                    )
                    product = product * (tl.dot(x, tl.trans(weight), input_precision=PRECISION) + bias)
                product = rounded(product, PRECISION)
                new_spectra += (tl.dot(transform, product, acc=spectra[q], input_precision=PRECISION),)
            spectra = new_spectra
        kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
        for q in tl.static_range(PLACES // CHUNK):
            outs = q * CHUNK + chunk
            to = (tile * KEPT + modes)[:, None] * CHANNELS + outs[None, :]
            tl.store(out_pointer + to, spectra[q], mask=kept[:, None] & (outs < CHANNELS)[None, :])


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    weight_pointer,  # (ORDER*C, C)
    bias_pointer,  # (ORDER*C,)
    transform_pointer,  # (BLOCKS*POINTS, MODES), the transposed transform
    out_grad_pointer,  # (tiles*KEPT, C)
    x_grad_pointer,  # (P, C): what is known of it, then with what comes from these channels
    weight_share_pointer,  # (programs, ORDER, C, C), programs `share_size` apart
    bias_share_pointer,  # (programs, ORDER, C), likewise
    share_size,
    point_count,
    coefficient_count,
    first_out,  # of the CHUNK output channels of every factor that this is for
    ORDER: tl.constexpr,
    CHUNK: tl.constexpr,
    AT_HAND: tl.constexpr,
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
    points, modes = tl.arange(0, POINTS), tl.arange(0, MODES)
    channels, outs = tl.arange(0, PLACES), first_out + tl.arange(0, CHUNK)
    matrix_at = points[:, None] * MODES + modes[None, :]
    matrix = rounded(tl.load(transform_pointer + matrix_at), PRECISION)
    maps, sums = (), ()
    if AT_HAND:
        maps = _read_maps(weight_pointer, bias_pointer, first_out, ORDER, CHANNELS, PLACES, CHUNK, PRECISION)
    for _ in tl.static_range(ORDER):
        sums += (tl.full((2 * PLACES, CHUNK), 0.0, tl.float32),)
    for step in range(STEPS * BLOCKS):
        tile = tl.program_id(0).to(tl.int64) + step // BLOCKS * tl.num_programs(0)
        place = step % BLOCKS * POINTS + points
        there = (place < FILLED) & (tile * FILLED + place < point_count)
        kept = (modes < KEPT) & (tile * KEPT + modes < coefficient_count)
        at = (tile * FILLED + place)[:, None] * CHANNELS + channels[None, :]
        inside = there[:, None] & (channels < CHANNELS)[None, :]
        x = rounded(tl.load(x_pointer + at, mask=inside, other=0.0), PRECISION)
        known_grad = tl.load(x_grad_pointer + at, mask=inside, other=0.0)
        part = tl.load(transform_pointer + step % BLOCKS * (POINTS * MODES) + matrix_at)
        transform = matrix if BLOCKS == 1 else rounded(part, PRECISION)
        from_ = (tile * KEPT + modes)[:, None] * CHANNELS + outs[None, :]
        known = kept[:, None] & (outs < CHANNELS)[None, :]
        out_grad = rounded(tl.load(out_grad_pointer + from_, mask=known, other=0.0), PRECISION)
        factors = ()
        for i in tl.static_range(ORDER):
            weight, bias = _map(maps, weight_pointer, bias_pointer, first_out, i, CHANNELS, PLACES, CHUNK, PRECISION)
            factors += (tl.dot(x, tl.trans(weight), input_precision=PRECISION) + bias,)
        right = tl.dot(transform, out_grad, input_precision=PRECISION)
        reversed_rights = (right,)  # at m-1-i: g * prod_{j > i} p_j
        for i in tl.static_range(ORDER - 1):
            right = right * factors[ORDER - 1 - i]
            reversed_rights += (right,)
        left = tl.full((POINTS, CHUNK), 1.0, tl.float32)  # prod_{j < i} p_j
        factor_grads = ()
        for i in tl.static_range(ORDER):
            factor_grads += (rounded(left * reversed_rights[ORDER - 1 - i], PRECISION),)
            left = left * factors[i]
        x_grad = tl.full((POINTS, PLACES), 0.0, tl.float32)
        for i in tl.static_range(ORDER):
            weight, bias = _map(maps, weight_pointer, bias_pointer, first_out, i, CHANNELS, PLACES, CHUNK, PRECISION)
            x_grad = tl.dot(factor_grads[i], weight, acc=x_grad, input_precision=PRECISION)
        x_rows, new_sums = rows_and_ones(x, POINTS, PLACES), ()
        for i in tl.static_range(ORDER):
            new_sums += (tl.dot(x_rows, factor_grads[i], acc=sums[i], input_precision=PRECISION),)
        sums = new_sums
        tl.store(x_grad_pointer + at, known_grad + x_grad, mask=inside)
    share = tl.program_id(0) * share_size
    for i in tl.static_range(ORDER):
        to_weight = weight_share_pointer + share + i * (CHANNELS * CHANNELS)
        to_bias = bias_share_pointer + share + i * CHANNELS
        store_share(sums[i], outs, to_weight, to_bias, CHANNELS, PLACES)


def _sizes(x: Tensor, weight: Tensor, precision: str, outs: int, most: int) -> dict[str, object]:
    """Sizes and launch options that follow from the maps, of which a program takes so many output channels."""
    order, parts = weight.shape[0] // x.shape[-1], 2 if precision == "tf32x3" else 1
    at_hand = parts * order * places_of(x.shape[-1]) * outs <= most
    return {
        "ORDER": order,
        "CHUNK": CHUNK,
        "AT_HAND": at_hand,
        "num_stages": 2 if at_hand and parts == 1 else 1,
    }


def forward(x: Tensor, weight: Tensor, bias: Tensor, transforms: Transforms, precision: str) -> Tensor:
    """F_w of the product, (b, n1, kept, C), of x (b, n1, n2, C)."""
    tile, kept = transforms.tile, transforms.kept
    out = x.new_empty(x.shape[0], x.shape[1], kept, x.shape[-1])
    programs = row_programs(x, tile, FORWARD_PROGRAMS)
    _forward_kernel[(programs,)](
        x,
        weight,
        bias,
        transforms.rows_in,
        out,
        *row_counts(x, kept),
        **_sizes(x, weight, precision, places_of(x.shape[-1]), AT_HAND),
        MODE_ROWS=mode_rows(tile, kept),
        **row_launch(x, tile, kept, programs, precision),
    )
    return out


def backward_(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    transforms: Transforms,
    out_grad: Tensor,
    x_grad: Tensor,
    shares: Shares,
    precision: str,
) -> None:
    """Add the gradient of x to `x_grad`, and fill the shares of the m maps."""
    tile, kept, (programs, order) = transforms.tile, transforms.kept, shares.weights.shape[:2]
    for first_out in range(0, x.shape[-1], CHUNK):
        _backward_kernel[(programs,)](
            x,
            weight,
            bias,
            transforms.rows_in_transposed,
            out_grad,
            x_grad,
            shares.weights,
            shares.biases,
            shares.weights.stride(0),
            *row_counts(x, kept),
            first_out,
            **_sizes(x, weight, precision, CHUNK, AT_HAND_BACKWARD),
            **row_launch(x, tile, kept, programs, precision),
            maxnreg=registers(x, precision) if order <= 2 else None,
        )
