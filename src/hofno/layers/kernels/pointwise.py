"""A pointwise MLP of few channels: y = W2 gelu(h) + b2 with h = W1 x + b1, forward and backward in one pass each.

h is never written: a program takes blocks of points and makes it in chunks of hidden channels, in the backward pass
again. There, with a = gelu(h) and g = gelu'(h) W2^T dy at every point, dx = W1^T g, and a program sums over its points

    dW1 = g x^T    db1 = g    in a product of g with x and, where channels leave a place free, a one after them
    dW2 = dy a^T   db2 = dy   in registers: outputs are few, and products of matrices take more than that

It writes its share once, at the end, and `sum_rows` adds the shares up in a fixed order. Many hidden channels are taken
in groups, one launch each, so that maps and sums stay at hand; a later launch adds to the y and dx of those before it.
Operands are float32 (TF32 where that is allowed), under bfloat16 autocast too: see `classic`.
"""

# The kernel language is not Python to a type checker, nor are launch options and autograd's wrapped methods:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels import dot_precision, mlp_plain
from hofno.layers.kernels._common import blocks_of, normal_law, on_device_of, parameter, rounded
from hofno.layers.kernels.classic_rows import places_of
from hofno.layers.kernels.sums import sum_rows
from hofno.layers.parts import plain_backward

POINTS = 64  # of a block, as many rows as tensor cores take
CHUNK = 16  # hidden channels at a time
FORWARD_MAP, BACKWARD_MAP = 2**13, 2**12  # most numbers of W1 that a program keeps
COLUMNS = 512  # most numbers of W2 of which a program sums the gradients
FORWARD_PROGRAMS = 4 * 132  # most that share the points: what fits into an H200 at once
BACKWARD_PROGRAMS, LIMITED_PROGRAMS = 2 * 132, 3 * 132
REGISTERS = 168  # of a thread of the latter


@triton.jit
def _read_map(up_pointer, GROUP, CHANNELS, PLACES, CHUNK, CHUNKS, PRECISION):
    """W1 of a group as (CHUNK, PLACES) matrices."""
    chunk, channels, maps = tl.arange(0, CHUNK), tl.arange(0, PLACES), ()
    for q in tl.static_range(CHUNKS):
        hidden = q * CHUNK + chunk
        inside = (hidden < GROUP)[:, None] & (channels < CHANNELS)[None, :]
        weight = tl.load(up_pointer + hidden[:, None] * CHANNELS + channels[None, :], mask=inside, other=0.0)
        maps += (rounded(weight, PRECISION),)
    return maps


@triton.jit
def _half_sums(v, POINTS: tl.constexpr, CHUNK: tl.constexpr):
    """(POINTS, CHUNK) -> (POINTS/16, 8, CHUNK): sums of the two points that a thread has after a product."""
    return tl.sum(tl.reshape(v, (POINTS // 16, 2, 8, CHUNK)), axis=1)


@triton.jit
def _forward_kernel(
    x_pointer,  # (P, C)
    up_pointer,  # (GROUP, C)
    up_bias_pointer,  # (GROUP,)
    down_pointer,  # (OUT, GROUP), rows HIDDEN apart
    down_bias_pointer,  # (OUT,)
    y_pointer,  # (P, OUT)
    point_count,
    FIRST: tl.constexpr,  # of the groups: otherwise y holds what comes of those before
    HIDDEN: tl.constexpr,
    GROUP: tl.constexpr,
    OUT: tl.constexpr,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    POINTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    points, chunk, channels = tl.arange(0, POINTS), tl.arange(0, CHUNK), tl.arange(0, PLACES)
    at = points[:, None] * CHANNELS + channels[None, :]
    maps = _read_map(up_pointer, GROUP, CHANNELS, PLACES, CHUNK, CHUNKS, PRECISION)
    for step in range(STEPS):
        start = (tl.program_id(0).to(tl.int64) + step * tl.num_programs(0)) * POINTS
        there = start + points < point_count
        inside = there[:, None] & (channels < CHANNELS)[None, :]
        x = rounded(tl.load(x_pointer + start * CHANNELS + at, mask=inside, other=0.0), PRECISION)
        totals = ()
        for _ in tl.static_range(OUT):
            totals += (tl.full((POINTS, CHUNK), 0.0, tl.float32),)
        for q in tl.static_range(CHUNKS):
            hidden = q * CHUNK + chunk
            up_bias = tl.load(up_bias_pointer + hidden, mask=hidden < GROUP, other=0.0)
            h = tl.dot(x, tl.trans(maps[q]), input_precision=PRECISION) + up_bias[None, :]
            law, _ = normal_law(h)
            active, new_totals = h * law, ()
            for o in tl.static_range(OUT):
                down = tl.load(down_pointer + o * HIDDEN + hidden, mask=hidden < GROUP, other=0.0)
                new_totals += (totals[o] + active * down[None, :],)
            totals = new_totals
        for o in tl.static_range(OUT):
            to = y_pointer + start * OUT + points * OUT + o
            before = tl.load(down_bias_pointer + o) if FIRST else tl.load(to, mask=there, other=0.0)
            tl.store(to, tl.sum(totals[o], axis=1) + before, mask=there)


@triton.jit
def _backward_kernel(
    x_pointer,  # (P, C)
    up_pointer,  # (GROUP, C)
    up_bias_pointer,  # (GROUP,)
    down_pointer,  # (OUT, GROUP), rows HIDDEN apart
    y_grad_pointer,  # (P, OUT)
    x_grad_pointer,  # (P, C)
    up_share_pointer,  # (programs, GROUP, C), programs `share_size` apart; so are those below
    up_bias_share_pointer,  # (programs, GROUP)
    down_share_pointer,  # (programs, OUT, GROUP), rows HIDDEN apart
    down_bias_share_pointer,  # (programs, OUT)
    share_size,
    point_count,
    FIRST: tl.constexpr,  # of the groups: otherwise x_grad holds what comes of those before
    HIDDEN: tl.constexpr,
    GROUP: tl.constexpr,
    OUT: tl.constexpr,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    POINTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    points, chunk, channels = tl.arange(0, POINTS), tl.arange(0, CHUNK), tl.arange(0, PLACES)
    at = points[:, None] * CHANNELS + channels[None, :]
    maps = _read_map(up_pointer, GROUP, CHANNELS, PLACES, CHUNK, CHUNKS, PRECISION)
    FULL: tl.constexpr = CHANNELS == PLACES  # no place for a one
    SUMS: tl.constexpr = OUT + FULL
    up_sums, sums, y_sums = (), (), ()
    for _ in tl.static_range(CHUNKS):
        up_sums += (tl.full((CHUNK, PLACES), 0.0, tl.float32),)
    for _ in tl.static_range(CHUNKS * SUMS):
        sums += (tl.full((POINTS // 16, 8, CHUNK), 0.0, tl.float32),)
    for _ in tl.static_range(OUT):
        y_sums += (tl.full((POINTS,), 0.0, tl.float32),)
    for step in range(STEPS):
        start = (tl.program_id(0).to(tl.int64) + step * tl.num_programs(0)) * POINTS
        there = start + points < point_count
        inside = there[:, None] & (channels < CHANNELS)[None, :]
        x = rounded(tl.load(x_pointer + start * CHANNELS + at, mask=inside, other=0.0), PRECISION)
        x = tl.where((channels == CHANNELS)[None, :], 1.0, x)  # meets a zero of W1, and sums up g
        y_grads, new_up_sums, new_sums, new_y_sums = (), (), (), ()
        for o in tl.static_range(OUT):
            y_grad = tl.load(y_grad_pointer + start * OUT + points * OUT + o, mask=there, other=0.0)
            y_grads += (y_grad,)
            new_y_sums += (y_sums[o] + y_grad,)
        x_grad = tl.full((POINTS, PLACES), 0.0, tl.float32)
        for q in tl.static_range(CHUNKS):
            hidden = q * CHUNK + chunk
            up_bias = tl.load(up_bias_pointer + hidden, mask=hidden < GROUP, other=0.0)
            h = tl.dot(x, tl.trans(maps[q]), input_precision=PRECISION) + up_bias[None, :]
            law, density = normal_law(h)
            active, grad = h * law, tl.full((POINTS, CHUNK), 0.0, tl.float32)
            for o in tl.static_range(OUT):
                down = tl.load(down_pointer + o * HIDDEN + hidden, mask=hidden < GROUP, other=0.0)
                grad += y_grads[o][:, None] * down[None, :]
                new_sums += (sums[q * SUMS + o] + _half_sums(active * y_grads[o][:, None], POINTS, CHUNK),)
            grad = rounded(grad * (law + h * density), PRECISION)
            if FULL:
                new_sums += (sums[q * SUMS + OUT] + _half_sums(grad, POINTS, CHUNK),)
            x_grad = tl.dot(grad, maps[q], acc=x_grad, input_precision=PRECISION)
            new_up_sums += (tl.dot(tl.trans(grad), x, acc=up_sums[q], input_precision=PRECISION),)
        up_sums, sums, y_sums = new_up_sums, new_sums, new_y_sums
        to = x_grad_pointer + start * CHANNELS + at
        if not FIRST:
            x_grad += tl.load(to, mask=inside, other=0.0)
        tl.store(to, x_grad, mask=inside)
    share = tl.program_id(0).to(tl.int64) * share_size
    for q in tl.static_range(CHUNKS):
        hidden = q * CHUNK + chunk
        rows = (hidden < GROUP)[:, None]
        to = up_share_pointer + share + hidden[:, None] * CHANNELS + channels[None, :]
        tl.store(to, up_sums[q], mask=rows & (channels < CHANNELS)[None, :])
        to = up_bias_share_pointer + share + hidden
        if FULL:
            tl.store(to, tl.sum(tl.sum(sums[q * SUMS + OUT], axis=0), axis=0), mask=hidden < GROUP)
        else:
            tl.store(to[:, None] + 0 * channels[None, :], up_sums[q], mask=rows & (channels == CHANNELS)[None, :])
        for o in tl.static_range(OUT):
            total = tl.sum(tl.sum(sums[q * SUMS + o], axis=0), axis=0)
            tl.store(down_share_pointer + share + o * HIDDEN + hidden, total, mask=hidden < GROUP)
    if FIRST:
        for o in tl.static_range(OUT):
            tl.store(down_bias_share_pointer + share + o, tl.sum(y_sums[o], axis=0))


def _groups(hidden: int, most: int) -> Iterator[slice]:
    """At most so many hidden channels at a time, whole chunks of nearly one number."""
    size = CHUNK * blocks_of(hidden, CHUNK * blocks_of(hidden, most))
    return (slice(start, min(start + size, hidden)) for start in range(0, hidden, size))


def _launch(x: Tensor, down: Tensor, group: slice, programs: int, precision: str) -> dict[str, int | str]:
    """Sizes and launch options that both kernels take."""
    here = group.stop - group.start
    return {
        "FIRST": group.start == 0,
        "HIDDEN": down.shape[1],
        "GROUP": here,
        "OUT": down.shape[0],
        "CHANNELS": x.shape[1],
        "PLACES": places_of(x.shape[1]),
        "POINTS": POINTS,
        "CHUNK": CHUNK,
        "CHUNKS": blocks_of(here, CHUNK),
        "STEPS": blocks_of(x.shape[0], POINTS * programs),
        "PRECISION": precision,
        "num_warps": 4,
    }


def forward(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, precision: str) -> Tensor:
    """y (P, OUT) of x (P, C)."""
    y = x.new_empty(x.shape[0], down.shape[0])
    programs = min(FORWARD_PROGRAMS, blocks_of(x.shape[0], POINTS))
    for group in _groups(up.shape[0], FORWARD_MAP // places_of(x.shape[1])):
        maps, options = (up[group], up_bias[group], down[:, group]), _launch(x, down, group, programs, precision)
        _forward_kernel[(programs,)](x, *maps, down_bias, y, x.shape[0], **options, num_stages=2)
    return y


def backward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, y_grad: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, W1, b1, W2 and b2."""
    (hidden, channels), out = up.shape, down.shape[0]
    places = places_of(channels)
    few = places == 32 and hidden * out <= 96 and precision == "tf32"  # so that three programs fit
    programs = min(LIMITED_PROGRAMS if few else BACKWARD_PROGRAMS, blocks_of(x.shape[0], POINTS))
    sizes = (hidden * channels, hidden, out * hidden, out)
    x_grad, whole = torch.empty_like(x), x.new_empty(programs, sum(sizes))
    up_share, up_bias_share, down_share, down_bias_share = whole.split(sizes, dim=1)
    for group in _groups(hidden, min(BACKWARD_MAP // places, COLUMNS // out)):
        _backward_kernel[(programs,)](
            x,
            up[group],
            up_bias[group],
            down[:, group],
            y_grad,
            x_grad,
            up_share[:, group.start * channels :],
            up_bias_share[:, group],
            down_share[:, group],
            down_bias_share,
            whole.shape[1],
            x.shape[0],
            **_launch(x, down, group, programs, precision),
            num_stages=1,
            maxnreg=REGISTERS if few else None,
        )
    up_grad, up_bias_grad, down_grad, down_bias_grad = sum_rows(whole).split(sizes)
    return x_grad, up_grad.view_as(up), up_bias_grad, down_grad.view_as(down), down_bias_grad


class FusedMLP(torch.autograd.Function):
    """Autograd of `hofno.layers.kernels.mlp`, on points (P, C). Derivatives of derivatives come from the plain form."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
        hidden, out = up_bias.numel(), down_bias.numel()
        ctx.save_for_backward(x, up, up_bias, down, down_bias)
        ctx.precision = dot_precision(x)
        up = parameter("up.weight", up, (hidden, x.shape[1]), x)
        up_bias = parameter("up.bias", up_bias, (hidden,), x)
        down = parameter("down.weight", down, (out, hidden), x)
        down_bias = parameter("down.bias", down_bias, (out,), x)
        with on_device_of(x):
            return forward(x.contiguous(), up, up_bias, down, down_bias, ctx.precision)

    @staticmethod
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_backward(mlp_plain, inputs, y_grad)
        x, up, up_bias, down, y_grad = (t.contiguous() for t in (*inputs[:4], y_grad))
        with on_device_of(x):
            return backward(x, up, up_bias, down, y_grad, ctx.precision)
