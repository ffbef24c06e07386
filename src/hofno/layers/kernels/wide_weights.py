"""The weights of a wide block as its products take them, made in one launch.

    W g1,  W_up g2,  W_down        each row by the gain of the norm before it, in the operands' type

W_down lies as its product wants it: as it is, (C, H), or `turned`, (H, C).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, power_of_two, triton_type

NUMBERS = 2048  # that a program takes


@triton.jit
def _operands_kernel(
    weight_pointer,  # (A, C)
    gain1_pointer,  # (C,)
    up_pointer,  # (H, C)
    gain2_pointer,  # (C,)
    down_pointer,  # (C, H)
    w_pointer,  # (A, C), operand type
    w_up_pointer,  # (H, C), operand type
    w_down_pointer,  # (H, C) if TURNED, else (C, H), operand type
    A,
    H,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    TURNED: tl.constexpr,
    OPERAND: tl.constexpr,
):
    rows, channels = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PLACES)
    inside = (channels < C)[None, :]
    there = inside & (rows < A)[:, None]
    at = rows[:, None] * C + channels[None, :]
    gain = tl.load(gain1_pointer + channels, mask=channels < C, other=0.0)[None, :]
    tl.store(w_pointer + at, (tl.load(weight_pointer + at, mask=there, other=0.0) * gain).to(OPERAND), mask=there)
    rows -= A
    there = inside & ((rows >= 0) & (rows < H))[:, None]
    at = rows[:, None] * C + channels[None, :]
    gain = tl.load(gain2_pointer + channels, mask=channels < C, other=0.0)[None, :]
    tl.store(w_up_pointer + at, (tl.load(up_pointer + at, mask=there, other=0.0) * gain).to(OPERAND), mask=there)
    rows -= H
    there = inside & ((rows >= 0) & (rows < H))[:, None]
    at = rows[:, None] * C + channels[None, :]
    from_ = channels[None, :] * H + rows[:, None] if TURNED else at
    tl.store(w_down_pointer + at, tl.load(down_pointer + from_, mask=there, other=0.0).to(OPERAND), mask=there)


def operands(
    weight: Tensor, gain1: Tensor, up: Tensor, gain2: Tensor, down: Tensor, turned: bool, operand: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """W g1 (A, C), W_up g2 (H, C) and W_down, (H, C) if `turned`, else (C, H)."""
    (a, channels), hidden, places = weight.shape, len(up), power_of_two(weight.shape[1])
    w, w_up = weight.new_empty(a, channels, dtype=operand), up.new_empty(hidden, channels, dtype=operand)
    w_down = down.new_empty(*(down.T if turned else down).shape, dtype=operand)
    rows = max(1, NUMBERS // places)
    _operands_kernel[(blocks_of(a + 2 * hidden, rows),)](
        *(weight, gain1, up, gain2, down, w, w_up, w_down, a, hidden),
        C=channels,
        PLACES=places,
        ROWS=rows,
        TURNED=turned,
        OPERAND=triton_type(operand),
        num_warps=4,
    )
    return w, w_up, w_down
