"""Fused complex product per mode and channel: out = w s, ds = conj(w) g, dw = sum_b conj(s) g.

Everything is stored as real numbers: spectra (B, 2, K, C) with axis 1 = (real, imaginary), weights (K, C, 2). A
position n = k C + c counts modes and channels together, and one program owns a block of positions.
"""

# The kernel language is not Python to a type checker, nor are launch options and autograd's wrapped methods:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hofno.errors import ShapeError
from hofno.layers.kernels._common import blocks_of, on_device_of, parameter

FORWARD_BLOCK = 512
BACKWARD_BLOCK = 128


@triton.jit
def _forward_kernel(
    spectrum_pointer,  # (B, 2, N)
    weight_pointer,  # (N, 2)
    filtered_pointer,  # (B, 2, N)
    position_count,
    BLOCK: tl.constexpr,
):
    positions = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = positions < position_count
    real_at = tl.program_id(0).to(tl.int64) * 2 * position_count + positions
    imaginary_at = real_at + position_count
    weight_real = tl.load(weight_pointer + 2 * positions, mask=inside, other=0.0)
    weight_imaginary = tl.load(weight_pointer + 2 * positions + 1, mask=inside, other=0.0)
    real = tl.load(spectrum_pointer + real_at, mask=inside, other=0.0)
    imaginary = tl.load(spectrum_pointer + imaginary_at, mask=inside, other=0.0)
    tl.store(filtered_pointer + real_at, weight_real * real - weight_imaginary * imaginary, mask=inside)
    tl.store(filtered_pointer + imaginary_at, weight_imaginary * real + weight_real * imaginary, mask=inside)


@triton.jit
def _backward_kernel(
    spectrum_pointer,  # (B, 2, N)
    weight_pointer,  # (N, 2)
    grad_pointer,  # (B, 2, N)
    spectrum_grad_pointer,  # (B, 2, N)
    weight_grad_pointer,  # (N, 2)
    position_count,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    positions = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = positions < position_count
    weight_real = tl.load(weight_pointer + 2 * positions, mask=inside, other=0.0)
    weight_imaginary = tl.load(weight_pointer + 2 * positions + 1, mask=inside, other=0.0)
    weight_real_grad = tl.full((BLOCK,), 0.0, tl.float32)
    weight_imaginary_grad = tl.full((BLOCK,), 0.0, tl.float32)
    real_at = positions.to(tl.int64)
    for _ in range(BATCH):
        imaginary_at = real_at + position_count
        real = tl.load(spectrum_pointer + real_at, mask=inside, other=0.0)
        imaginary = tl.load(spectrum_pointer + imaginary_at, mask=inside, other=0.0)
        grad_real = tl.load(grad_pointer + real_at, mask=inside, other=0.0)
        grad_imaginary = tl.load(grad_pointer + imaginary_at, mask=inside, other=0.0)
        real_grad = weight_real * grad_real + weight_imaginary * grad_imaginary
        imaginary_grad = weight_real * grad_imaginary - weight_imaginary * grad_real
        tl.store(spectrum_grad_pointer + real_at, real_grad, mask=inside)
        tl.store(spectrum_grad_pointer + imaginary_at, imaginary_grad, mask=inside)
        weight_real_grad += real * grad_real + imaginary * grad_imaginary
        weight_imaginary_grad += real * grad_imaginary - imaginary * grad_real
        real_at = imaginary_at + position_count
    tl.store(weight_grad_pointer + 2 * positions, weight_real_grad, mask=inside)
    tl.store(weight_grad_pointer + 2 * positions + 1, weight_imaginary_grad, mask=inside)


def multiply(spectrum: Tensor, weight: Tensor) -> Tensor:
    """w s of a contiguous spectrum (B, 2, ..., C) and weight (..., C, 2)."""
    filtered, positions = torch.empty_like(spectrum), weight.numel() // 2
    with on_device_of(spectrum):
        _forward_kernel[(spectrum.shape[0], blocks_of(positions, FORWARD_BLOCK))](
            spectrum, weight, filtered, positions, BLOCK=FORWARD_BLOCK, num_warps=4
        )
    return filtered


def multiply_grads(spectrum: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of spectrum and weight, from the contiguous one of the product."""
    spectrum_grad, weight_grad, positions = torch.empty_like(spectrum), torch.empty_like(weight), weight.numel() // 2
    with on_device_of(spectrum):
        _backward_kernel[(blocks_of(positions, BACKWARD_BLOCK),)](
            spectrum,
            weight,
            grad,
            spectrum_grad,
            weight_grad,
            positions,
            BATCH=spectrum.shape[0],
            BLOCK=BACKWARD_BLOCK,
            num_warps=4,
        )
    return spectrum_grad, weight_grad


class ModeFilter(torch.autograd.Function):
    """Autograd of `mode_filter`."""

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor, weight: Tensor) -> Tensor:
        if spectrum.dim() != 4 or spectrum.shape[1] != 2 or spectrum.dtype != torch.float32:
            raise ShapeError(
                f"expected a float32 spectrum (B, 2, K, C), got {tuple(spectrum.shape)} {spectrum.dtype}; "
                "use the plain version"
            )
        if spectrum.numel() == 0:
            raise ShapeError(f"expected a non-empty spectrum, got {tuple(spectrum.shape)}; use the plain version")
        weight = parameter("weight", weight, (*spectrum.shape[2:], 2), spectrum)
        spectrum = spectrum.contiguous()
        ctx.save_for_backward(spectrum, weight)
        return multiply(spectrum, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        spectrum, weight = ctx.saved_tensors
        spectrum_grad, weight_grad = multiply_grads(spectrum, weight, grad.contiguous())
        return spectrum_grad if ctx.needs_input_grad[0] else None, weight_grad
