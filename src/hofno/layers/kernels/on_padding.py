"""The spectrum of a product of factors on the padding of its domain, where each factor is its bias.

    offset = outside prod_i b_i        outside (2, K, M): the spectrum of the function that is 1 there and 0 elsewhere

and db_i = prod_{j != i} b_j sum_kept outside doffset. A bias may be 0, so nothing is divided by it.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, power_of_two

ROWS = 16


@triton.jit
def _spectrum_kernel(
    outside_pointer,  # (KEPT,)
    bias_pointer,  # (ORDER*C,)
    offset_pointer,  # (KEPT, C)
    KEPT: tl.constexpr,
    ORDER: tl.constexpr,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    rows, channels = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PLACES)
    product = tl.full((PLACES,), 1.0, tl.float32)
    for i in tl.static_range(ORDER):
        product *= tl.load(bias_pointer + i * C + channels, mask=channels < C, other=0.0)
    outside = tl.load(outside_pointer + rows, mask=rows < KEPT, other=0.0)
    to = rows[:, None] * C + channels[None, :]
    tl.store(offset_pointer + to, outside[:, None] * product[None, :], mask=(rows < KEPT)[:, None] & (channels < C))


@triton.jit
def _bias_grad_kernel(
    product_grad_pointer,  # (C,)
    bias_pointer,  # (ORDER*C,)
    bias_grad_pointer,  # (ORDER*C,), added to
    ORDER: tl.constexpr,
    C: tl.constexpr,
    PLACES: tl.constexpr,
):
    channels = tl.arange(0, PLACES)
    there = channels < C
    for i in tl.static_range(ORDER):
        grad = tl.load(product_grad_pointer + channels, mask=there, other=0.0)
        for j in tl.static_range(ORDER):
            if j != i:
                grad *= tl.load(bias_pointer + j * C + channels, mask=there, other=0.0)
        at = bias_grad_pointer + i * C + channels
        tl.store(at, tl.load(at, mask=there, other=0.0) + grad, mask=there)


def spectrum(outside: Tensor | None, bias: Tensor, channels: int) -> Tensor | None:
    """The product's spectrum (2, K, M, C), from outside (2, K, M) and bias (m C,); None where there is no padding."""
    if outside is None:
        return None
    kept, order = outside.numel(), bias.numel() // channels
    offset = bias.new_empty(*outside.shape, channels)
    _spectrum_kernel[(blocks_of(kept, ROWS),)](
        *(outside, bias, offset), KEPT=kept, ORDER=order, C=channels, PLACES=power_of_two(channels), ROWS=ROWS
    )
    return offset


def add_bias_grad_(bias_grad: Tensor, outside: Tensor | None, bias: Tensor, offset_grad: Tensor | None) -> None:
    """Add to `bias_grad` (m C,) what comes through the spectrum, whose gradient is `offset_grad` (2, K, M, C)."""
    if outside is None or offset_grad is None:
        return
    channels = offset_grad.shape[-1]
    product_grad = torch.mv(offset_grad.flatten(0, -2).T, outside.flatten())
    order, places = bias.numel() // channels, power_of_two(channels)
    _bias_grad_kernel[(1,)](product_grad, bias, bias_grad, ORDER=order, C=channels, PLACES=places)
