"""One complex channel-mixing matrix for each mode: t_o = sum_c w_co s_c; ds = conj(w) g over o, dw = sum_b conj(s) g.

Everything is stored as real numbers: spectra (B, 2, K, C) with axis 1 = (real, imaginary), weights (K, C, C, 2) with
the input channel first. A program takes one mode; its samples are rows of matrix products.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, dot, power_of_two
from hofno.layers.kernels.classic_rows import places_of

SAMPLES = 64  # rows of one product


@triton.jit
def _forward_kernel(
    spectrum_pointer,  # (B, 2, K, C)
    weight_pointer,  # (K, C, C, 2)
    out_pointer,  # (B, 2, K, C)
    batch,
    mode_count,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    SAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    mode, channels = tl.program_id(0), tl.arange(0, PLACES)
    filled = channels < C
    square = filled[:, None] & filled[None, :]
    weight_at = weight_pointer + 2 * (mode * (C * C) + channels[:, None] * C + channels[None, :])
    weight_real = tl.load(weight_at, mask=square, other=0.0)
    weight_imaginary = tl.load(weight_at + 1, mask=square, other=0.0)
    samples = tl.program_id(1).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    known = (samples < batch)[:, None] & filled[None, :]
    at = (samples * (2 * mode_count) + mode)[:, None] * C + channels[None, :]
    real = tl.load(spectrum_pointer + at, mask=known, other=0.0)
    imaginary = tl.load(spectrum_pointer + mode_count * C + at, mask=known, other=0.0)
    out_real = dot(real, weight_real, PRECISION)
    out_real = dot(-imaginary, weight_imaginary, PRECISION, acc=out_real)
    out_imaginary = dot(real, weight_imaginary, PRECISION)
    out_imaginary = dot(imaginary, weight_real, PRECISION, acc=out_imaginary)
    tl.store(out_pointer + at, out_real, mask=known)
    tl.store(out_pointer + mode_count * C + at, out_imaginary, mask=known)


@triton.jit
def _by_turns(x, PLACES: tl.constexpr):
    """The even rows and the odd ones of x (2 PLACES, PLACES)."""
    return tl.split(tl.permute(tl.reshape(x, (PLACES, 2, PLACES)), (0, 2, 1)))


@triton.jit
def _backward_kernel(
    spectrum_pointer,  # (B, 2, K, C)
    weight_pointer,  # (K, C, C, 2)
    grad_pointer,  # (B, 2, K, C)
    spectrum_grad_pointer,  # (B, 2, K, C)
    weight_grad_pointer,  # (K, C, C, 2)
    batch,
    mode_count,
    C: tl.constexpr,
    PLACES: tl.constexpr,
    SAMPLES: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    mode, channels = tl.program_id(0), tl.arange(0, PLACES)
    filled = channels < C
    square = filled[:, None] & filled[None, :]
    pairs = 2 * (mode * (C * C) + channels[:, None] * C + channels[None, :])
    weight_real = tl.load(weight_pointer + pairs, mask=square, other=0.0)
    weight_imaginary = tl.load(weight_pointer + 1 + pairs, mask=square, other=0.0)
    with_real = tl.full((2 * PLACES, PLACES), 0.0, tl.float32)  # sums of the parts of s, by turns, times those of g
    with_imaginary = tl.full((2 * PLACES, PLACES), 0.0, tl.float32)
    for step in range(STEPS):
        samples = step * SAMPLES + tl.arange(0, SAMPLES).to(tl.int64)
        known = (samples < batch)[:, None] & filled[None, :]
        at = (samples * (2 * mode_count) + mode)[:, None] * C + channels[None, :]
        real = tl.load(spectrum_pointer + at, mask=known, other=0.0)
        imaginary = tl.load(spectrum_pointer + mode_count * C + at, mask=known, other=0.0)
        grad_real = tl.load(grad_pointer + at, mask=known, other=0.0)
        grad_imaginary = tl.load(grad_pointer + mode_count * C + at, mask=known, other=0.0)
        back = dot(grad_real, tl.trans(weight_real), PRECISION)
        back = dot(grad_imaginary, tl.trans(weight_imaginary), PRECISION, acc=back)
        tl.store(spectrum_grad_pointer + at, back, mask=known)
        back = dot(grad_imaginary, tl.trans(weight_real), PRECISION)
        back = dot(-grad_real, tl.trans(weight_imaginary), PRECISION, acc=back)
        tl.store(spectrum_grad_pointer + mode_count * C + at, back, mask=known)
        parts = tl.trans(tl.reshape(tl.join(real, imaginary), (SAMPLES, 2 * PLACES)))
        with_real = dot(parts, grad_real, PRECISION, acc=with_real)
        with_imaginary = dot(parts, grad_imaginary, PRECISION, acc=with_imaginary)
    real_real, imaginary_real = _by_turns(with_real, PLACES)
    real_imaginary, imaginary_imaginary = _by_turns(with_imaginary, PLACES)
    tl.store(weight_grad_pointer + pairs, real_real + imaginary_imaginary, mask=square)
    tl.store(weight_grad_pointer + 1 + pairs, real_imaginary - imaginary_real, mask=square)


def _sizes(spectrum: Tensor) -> dict[str, int]:
    samples, places = min(SAMPLES, power_of_two(max(16, spectrum.shape[0]))), places_of(spectrum.shape[-1])
    return {"C": spectrum.shape[-1], "PLACES": places, "SAMPLES": samples, "num_warps": 8 if places == 64 else 4}


def mix(spectrum: Tensor, weight: Tensor, precision: str) -> Tensor:
    """w s of a contiguous spectrum (B, 2, ..., C) and weight (..., C, C, 2)."""
    out, sizes, batch = torch.empty_like(spectrum), _sizes(spectrum), spectrum.shape[0]
    modes = weight.numel() // (2 * sizes["C"] ** 2)
    grid = modes, blocks_of(batch, sizes["SAMPLES"])
    _forward_kernel[grid](spectrum, weight, out, batch, modes, **sizes, PRECISION=precision, num_stages=1)
    return out


def mix_grads(spectrum: Tensor, weight: Tensor, grad: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Gradients of spectrum and weight, from the contiguous one of the product."""
    spectrum_grad, weight_grad = torch.empty_like(spectrum), torch.empty_like(weight)
    sizes, batch = _sizes(spectrum), spectrum.shape[0]
    modes = weight.numel() // (2 * sizes["C"] ** 2)
    _backward_kernel[(modes,)](
        spectrum,
        weight,
        grad,
        spectrum_grad,
        weight_grad,
        batch,
        modes,
        **sizes,
        STEPS=blocks_of(batch, sizes["SAMPLES"]),
        PRECISION=precision,
        num_stages=1,
    )
    return spectrum_grad, weight_grad
