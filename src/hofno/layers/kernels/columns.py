"""The middle of a block, along image columns: s -> F^-1 (w * F s) for one mode of the last axis at a time.

F and its inverse are the truncated transforms of the leading axis as real matrices; w is one complex number for each
mode and channel. With g the gradient of the result and h = F^-T g: dw = sum_b conj(F s) h and ds = F^T (conj(w) h).
Where the domain is padded, `offset` is the spectrum of what the product is outside; it is added to F s. All of this is
one kernel where the matrices are small enough to be read by every program, and library products around the filter else.
Layouts: s (b, n1, 2, M, C) from the last axis' transform, spectrum (b, 2, K, M, C), w (K, M, C, 2).
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import dot, power_of_two
from hofno.layers.kernels.mode_product import multiply, multiply_grads
from hofno.layers.precision import full_precision
from hofno.transforms.fourier import left_product

TILE = 2**13  # numbers of a program's columns, channels times lines
LARGEST_MATRIX = 2**14  # numbers of F that every program may read, with its places filled up
REGISTERS = 168  # of a thread, so that three programs share a multiprocessor


@triton.jit
def _forward_kernel(
    s_pointer,  # (B, LINES, M, C), LINES = (n1, re/im)
    transform_pointer,  # (2*KEPT, LINES)
    inverse_pointer,  # (LINES, 2*KEPT)
    weight_pointer,  # (KEPT, M, C, 2)
    offset_pointer,  # (2, KEPT, M, C)
    spectrum_pointer,  # (B, 2, KEPT, M, C)
    out_pointer,  # (B, LINES, M, C)
    PADDED: tl.constexpr,
    LINES: tl.constexpr,
    LINE_PLACES: tl.constexpr,
    KEPT: tl.constexpr,
    KEPT_PLACES: tl.constexpr,
    M: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sample, mode = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lines, k = tl.arange(0, LINE_PLACES), tl.arange(0, KEPT_PLACES)
    channels = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    line, kept = lines < LINES, k < KEPT
    both = kept[:, None] & line[None, :]
    at = sample * (LINES * M * C) + (lines[:, None] * M + mode) * C + channels[None, :]
    s = tl.load(s_pointer + at, mask=line[:, None], other=0.0)
    square = k[:, None] * LINES + lines[None, :]  # reads F, (KEPT, LINES)
    real = dot(tl.load(transform_pointer + square, mask=both, other=0.0), s, PRECISION)
    imaginary = dot(tl.load(transform_pointer + KEPT * LINES + square, mask=both, other=0.0), s, PRECISION)
    modes = (k[:, None] * M + mode) * C + channels[None, :]
    if PADDED:
        real += tl.load(offset_pointer + modes, mask=kept[:, None], other=0.0)
        imaginary += tl.load(offset_pointer + KEPT * M * C + modes, mask=kept[:, None], other=0.0)
    to = sample * (2 * KEPT * M * C) + modes
    tl.store(spectrum_pointer + to, real, mask=kept[:, None])
    tl.store(spectrum_pointer + KEPT * M * C + to, imaginary, mask=kept[:, None])
    weight_real = tl.load(weight_pointer + 2 * modes, mask=kept[:, None], other=0.0)
    weight_imaginary = tl.load(weight_pointer + 2 * modes + 1, mask=kept[:, None], other=0.0)
    out_real = weight_real * real - weight_imaginary * imaginary
    out_imaginary = weight_imaginary * real + weight_real * imaginary
    slender = lines[:, None] * (2 * KEPT) + k[None, :]  # reads F^-1, (LINES, KEPT)
    mask = line[:, None] & kept[None, :]
    out = dot(tl.load(inverse_pointer + slender, mask=mask, other=0.0), out_real, PRECISION)
    inverse = tl.load(inverse_pointer + KEPT + slender, mask=mask, other=0.0)
    out = dot(inverse, out_imaginary, PRECISION, acc=out)
    tl.store(out_pointer + at, out, mask=line[:, None])


@triton.jit
def _backward_kernel(
    spectrum_pointer,  # (B, 2, KEPT, M, C)
    transform_pointer,  # (LINES, 2*KEPT), transposed
    inverse_pointer,  # (2*KEPT, LINES), transposed
    weight_pointer,  # (KEPT, M, C, 2)
    out_grad_pointer,  # (B, LINES, M, C)
    s_grad_pointer,  # (B, LINES, M, C)
    weight_grad_pointer,  # (B, 2, KEPT, M, C)
    offset_grad_pointer,  # (B, 2, KEPT, M, C)
    PADDED: tl.constexpr,
    LINES: tl.constexpr,
    LINE_PLACES: tl.constexpr,
    KEPT: tl.constexpr,
    KEPT_PLACES: tl.constexpr,
    M: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sample, mode = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lines, k = tl.arange(0, LINE_PLACES), tl.arange(0, KEPT_PLACES)
    channels = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    line, kept = lines < LINES, k < KEPT
    both = kept[:, None] & line[None, :]
    at = sample * (LINES * M * C) + (lines[:, None] * M + mode) * C + channels[None, :]
    g = tl.load(out_grad_pointer + at, mask=line[:, None], other=0.0)
    square = k[:, None] * LINES + lines[None, :]  # (KEPT, LINES)
    h_real = dot(tl.load(inverse_pointer + square, mask=both, other=0.0), g, PRECISION)
    h_imaginary = dot(tl.load(inverse_pointer + KEPT * LINES + square, mask=both, other=0.0), g, PRECISION)
    modes = (k[:, None] * M + mode) * C + channels[None, :]
    here = sample * (2 * KEPT * M * C) + modes
    real = tl.load(spectrum_pointer + here, mask=kept[:, None], other=0.0)
    imaginary = tl.load(spectrum_pointer + KEPT * M * C + here, mask=kept[:, None], other=0.0)
    tl.store(weight_grad_pointer + here, real * h_real + imaginary * h_imaginary, mask=kept[:, None])
    tl.store(weight_grad_pointer + KEPT * M * C + here, real * h_imaginary - imaginary * h_real, mask=kept[:, None])
    weight_real = tl.load(weight_pointer + 2 * modes, mask=kept[:, None], other=0.0)
    weight_imaginary = tl.load(weight_pointer + 2 * modes + 1, mask=kept[:, None], other=0.0)
    s_real = weight_real * h_real + weight_imaginary * h_imaginary
    s_imaginary = weight_real * h_imaginary - weight_imaginary * h_real
    if PADDED:
        tl.store(offset_grad_pointer + here, s_real, mask=kept[:, None])
        tl.store(offset_grad_pointer + KEPT * M * C + here, s_imaginary, mask=kept[:, None])
    slender = lines[:, None] * (2 * KEPT) + k[None, :]  # (LINES, KEPT)
    mask = line[:, None] & kept[None, :]
    s_grad = dot(tl.load(transform_pointer + slender, mask=mask, other=0.0), s_real, PRECISION)
    transform = tl.load(transform_pointer + KEPT + slender, mask=mask, other=0.0)
    s_grad = dot(transform, s_imaginary, PRECISION, acc=s_grad)
    tl.store(s_grad_pointer + at, s_grad, mask=line[:, None])


def _sizes(s: Tensor, weight: Tensor) -> dict[str, int]:
    lines, kept, m, c = 2 * s.shape[1], *weight.shape[:3]
    places = max(16, power_of_two(lines))
    return {
        "LINES": lines,
        "LINE_PLACES": places,
        "KEPT": kept,
        "KEPT_PLACES": max(16, power_of_two(kept)),
        "M": m,
        "C": c,
        "CHUNK": math.gcd(c, max(16, min(64, TILE // places))),
    }


def _fuses(sizes: dict[str, int]) -> bool:
    return sizes["LINE_PLACES"] * sizes["KEPT_PLACES"] <= LARGEST_MATRIX


def forward(
    s: Tensor, transform: Tensor, inverse: Tensor, weight: Tensor, offset: Tensor | None, precision: str
) -> tuple[Tensor, Tensor]:
    """The filtered s (b, n1, 2M, C) and its spectrum (b, 2, K, M, C), which the backward pass wants.

    `transform` is F (2K, 2 n1), `inverse` F^-1 (2 n1, 2K), `offset` (2, K, M, C).
    """
    sizes = _sizes(s, weight)
    batch, (kept, m, c) = s.shape[0], weight.shape[:3]
    if not _fuses(sizes):
        with full_precision(s):
            spectrum = left_product(transform, s.view(batch, -1, m * c)).view(batch, 2, kept, m, c)
            spectrum = spectrum if offset is None else spectrum.add_(offset)
            out = left_product(inverse, multiply(spectrum, weight).view(batch, 2 * kept, m * c))
        return out.view_as(s), spectrum
    spectrum, out = s.new_empty(batch, 2, kept, m, c), torch.empty_like(s)
    _forward_kernel[(batch, m, c // sizes["CHUNK"])](
        s,
        transform,
        inverse,
        weight,
        weight if offset is None else offset.contiguous(),
        spectrum,
        out,
        PADDED=offset is not None,
        **sizes,
        PRECISION=precision,
        num_warps=4,
        num_stages=1,
        maxnreg=REGISTERS,
    )
    return out, spectrum


def backward(
    spectrum: Tensor,
    transform: Tensor,
    inverse: Tensor,
    weight: Tensor,
    out_grad: Tensor,
    padded: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of s, of the weight and of the offset; the matrices are transposed, F^T (2 n1, 2K), F^-T (2K, 2 n1)."""
    sizes = _sizes(out_grad, weight)
    batch, (kept, m, c) = out_grad.shape[0], weight.shape[:3]
    if not _fuses(sizes):
        with full_precision(out_grad):
            h = left_product(inverse, out_grad.view(batch, -1, m * c)).view_as(spectrum)
            spectrum_grad, weight_grad = multiply_grads(spectrum, weight, h)
            s_grad = left_product(transform, spectrum_grad.view(batch, 2 * kept, m * c)).view_as(out_grad)
        return s_grad, weight_grad, spectrum_grad.sum(0) if padded else None
    s_grad, weight_grad = torch.empty_like(out_grad), torch.empty_like(spectrum)
    offset_grad = torch.empty_like(spectrum) if padded else None
    _backward_kernel[(batch, m, c // sizes["CHUNK"])](
        spectrum,
        transform,
        inverse,
        weight,
        out_grad,
        s_grad,
        weight_grad,
        weight_grad if offset_grad is None else offset_grad,
        PADDED=padded,
        **sizes,
        PRECISION=precision,
        num_warps=4,
        num_stages=1,
        maxnreg=REGISTERS,
    )
    offset_total = None if offset_grad is None else offset_grad.sum(0)
    return s_grad, weight_grad.sum(0).movedim(0, -1).contiguous(), offset_total
