"""A step of AdamW for the weights of many tensors, in one launch.

m <- m + (1 - b1) (g - m),   v <- b2 v + (1 - b2) g^2
w <- (1 - lr decay) w - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

Moments m, v of all tensors lie one after another; gradients g are read and weights w changed where they are. A program
takes a block of one tensor, and a table says where it is. Bias corrections are in float64: 1 - b2^t is small at first.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import on_device_of

BLOCK = 1024  # weights of a program
WARPS = 4


@triton.jit
def _adamw_kernel(
    table_pointer,  # (programs, 5), see `table_of`
    gradients_pointer,  # an address for each tensor
    average_pointer,
    square_pointer,
    steps_pointer,  # a number for each tensor
    lr_pointer,  # one number
    weight_decay,
    eps,
    SLOW: tl.constexpr,
    FAST: tl.constexpr,
    LOG_SLOW: tl.constexpr,
    LOG_FAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = table_pointer + tl.program_id(0).to(tl.int64) * 5
    tensor = tl.load(row)
    start = tl.load(row + 1)
    inside = tl.arange(0, BLOCK) < tl.load(row + 2)
    at = tl.load(row + 3) + tl.arange(0, BLOCK)
    weight_pointer = tl.load(row + 4).to(tl.pointer_type(tl.float32)) + tl.arange(0, BLOCK)
    gradient_pointer = tl.load(gradients_pointer + tensor).to(tl.pointer_type(tl.float32)) + start + tl.arange(0, BLOCK)
    steps = tl.load(steps_pointer + tensor).to(tl.float64)
    lr = tl.load(lr_pointer)
    slow_correction = (1.0 - tl.exp(steps * LOG_SLOW)).to(tl.float32)
    fast_correction = (1.0 - tl.exp(steps * LOG_FAST)).to(tl.float32)

    gradient = tl.load(gradient_pointer, mask=inside, other=0.0)
    average = tl.load(average_pointer + at, mask=inside, other=0.0)
    square = tl.load(square_pointer + at, mask=inside, other=0.0)
    weight = tl.load(weight_pointer, mask=inside, other=0.0)
    average += (1.0 - SLOW) * (gradient - average)
    square = square * FAST + (1.0 - FAST) * gradient * gradient
    step = average / (tl.sqrt(square) / tl.sqrt(fast_correction) + eps)
    weight = weight * (1.0 - lr * weight_decay) - (lr / slow_correction) * step
    tl.store(average_pointer + at, average, mask=inside)
    tl.store(square_pointer + at, square, mask=inside)
    tl.store(weight_pointer, weight, mask=inside)


def table_of(params: list[Tensor], places: list[int], indices: list[int]) -> Tensor:
    """A row for each program: which tensor, where it starts in it, with how many weights, the place of their moments,
    and the address of the first weight.

    `places` says where the moments of each tensor start, `indices` where its steps and the address of its gradient are.
    """
    sizes = torch.tensor([p.numel() for p in params])
    programs = -(-sizes // BLOCK)
    tensor = torch.arange(len(params)).repeat_interleave(programs)
    start = (torch.arange(len(tensor)) - (programs.cumsum(0) - programs)[tensor]) * BLOCK
    counts = (sizes[tensor] - start).clamp(max=BLOCK)
    moments = torch.tensor(places)[tensor] + start
    weights = torch.tensor([p.data_ptr() for p in params])[tensor] + 4 * start
    rows = torch.stack((torch.tensor(indices)[tensor], start, counts, moments, weights), dim=1)
    return rows.to(params[0].device)


def adamw_step(
    table: Tensor,
    gradients: Tensor,
    average: Tensor,
    square: Tensor,
    steps: Tensor,
    lr: Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Take the step that is the `steps`-th of each tensor: moments and the weights of the table change in place."""
    if len(table) == 0:
        return
    slow, fast = betas
    with on_device_of(average):
        _adamw_kernel[(len(table),)](
            table,
            gradients,
            average,
            square,
            steps,
            lr,
            weight_decay,
            eps,
            SLOW=slow,
            FAST=fast,
            LOG_SLOW=log(slow) if slow > 0.0 else float("-inf"),
            LOG_FAST=log(fast) if fast > 0.0 else float("-inf"),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
