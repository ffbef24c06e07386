r"""The middle of a block, along image columns: s -> A (w * F s) for every mode of the last axis.

F and A are the truncated transform of the leading axis and its inverse, complex matrices (K, n1) and (n1, K); w is one
complex number for each mode and channel. Wavenumbers come in pairs +k, -k, whose rows are conjugate, C - iS and C + iS:

    c = C s,   z = S s,     (F s)_+ = c - iz,   (F s)_- = c + iz          C, S real, of half the rows
    A t = C' (t_+ + t_-) + S' i (t_+ - t_-)

so that each way is one real library product [C; S] of half the arithmetic, and one kernel between them combines,
filters and separates again. With g the gradient of the result, h_+- follow from [C'; S']^T g as F s does from [C; S] s;
then dw = sum_b conj(F s) h and ds = [C; S]^T of conj(w) h, separated. Where the domain is padded, `offset` is the
spectrum of what the product is outside; it is added to F s.

Layouts: s (b, n1, 2, M, C) from the last axis' transform, w (K, M, C, 2), offset (2, K, M, C), and by pairs
(b, 2R, 2, M, C): first R rows of C, then R of S, real and imaginary parts.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.layers.kernels._common import blocks_of, power_of_two, stored
from hofno.layers.precision import full_precision
from hofno.transforms.fourier import left_product

FILLED = 4  # pairs are a multiple of this
BLOCK = 256  # modes of the last axis and channels of a program: this and what follows measured on an H200
GRAD_BLOCK, SAMPLES = 64, 2


@triton.jit
def _combined(pointer, at, inside, N: tl.constexpr, PAIRS: tl.constexpr):
    """c - iz and c + iz, real and imaginary, of what lies by pairs."""
    c_real = tl.load(pointer + at, mask=inside, other=0.0).to(tl.float32)
    c_imaginary = tl.load(pointer + N + at, mask=inside, other=0.0).to(tl.float32)
    z_real = tl.load(pointer + PAIRS * 2 * N + at, mask=inside, other=0.0).to(tl.float32)
    z_imaginary = tl.load(pointer + (PAIRS * 2 + 1) * N + at, mask=inside, other=0.0).to(tl.float32)
    return c_real + z_imaginary, c_imaginary - z_real, c_real - z_imaginary, c_imaginary + z_real


@triton.jit
def _separate(pointer, at, inside, plus_real, plus_imaginary, minus_real, minus_imaginary, N: tl.constexpr,
              PAIRS: tl.constexpr):  # fmt: skip
    """Write t_+ + t_- and i (t_+ - t_-) by pairs."""
    kind: tl.constexpr = pointer.dtype.element_ty
    tl.store(pointer + at, stored(plus_real + minus_real, kind), mask=inside)
    tl.store(pointer + N + at, stored(plus_imaginary + minus_imaginary, kind), mask=inside)
    tl.store(pointer + PAIRS * 2 * N + at, stored(minus_imaginary - plus_imaginary, kind), mask=inside)
    tl.store(pointer + (PAIRS * 2 + 1) * N + at, stored(plus_real - minus_real, kind), mask=inside)


@triton.jit
def _weight(weight_pointer, row, places, inside, N: tl.constexpr):
    """w of a wavenumber; 0 where there is none."""
    at = 2 * (row * N + places)
    there = inside & (row >= 0)
    return tl.load(weight_pointer + at, mask=there, other=0.0), tl.load(weight_pointer + at + 1, mask=there, other=0.0)


@triton.jit
def _offset(offset_pointer, row, places, inside, KEPT: tl.constexpr, N: tl.constexpr, PADDED: tl.constexpr):
    at, there = row * N + places, inside & (row >= 0)
    real, imaginary = places * 0.0, places * 0.0
    if PADDED:
        real = tl.load(offset_pointer + at, mask=there, other=0.0)
        imaginary = tl.load(offset_pointer + KEPT * N + at, mask=there, other=0.0)
    return real, imaginary


@triton.jit
def _filter_kernel(
    pairs_pointer,  # (B, 2*PAIRS, 2, N): [C; S] s
    weight_pointer,  # (KEPT, N, 2)
    offset_pointer,  # (2, KEPT, N)
    scale_pointer,  # (B,)
    rows_pointer,  # (2, PAIRS): places of +k and -k among the wavenumbers, -1 for none
    out_pointer,  # (B, 2*PAIRS, 2, N)
    PADDED: tl.constexpr,
    SCALED: tl.constexpr,
    GAIN: tl.constexpr,
    KEPT: tl.constexpr,
    PAIRS: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample, pair = tl.program_id(0).to(tl.int64), tl.program_id(1)
    places = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = places < N
    plus, minus = tl.load(rows_pointer + pair), tl.load(rows_pointer + PAIRS + pair)
    at = (sample * (2 * PAIRS) + pair) * (2 * N) + places
    plus_real, plus_imaginary, minus_real, minus_imaginary = _combined(pairs_pointer, at, inside, N, PAIRS)
    more_real, more_imaginary = _offset(offset_pointer, plus, places, inside, KEPT, N, PADDED)
    plus_real, plus_imaginary = plus_real + more_real, plus_imaginary + more_imaginary
    more_real, more_imaginary = _offset(offset_pointer, minus, places, inside, KEPT, N, PADDED)
    minus_real, minus_imaginary = minus_real + more_real, minus_imaginary + more_imaginary
    w_real, w_imaginary = _weight(weight_pointer, plus, places, inside, N)
    u_real, u_imaginary = _weight(weight_pointer, minus, places, inside, N)
    if SCALED or GAIN != 1.0:
        scale = GAIN * tl.load(scale_pointer + sample) if SCALED else GAIN
        w_real, w_imaginary = w_real * scale, w_imaginary * scale
        u_real, u_imaginary = u_real * scale, u_imaginary * scale
    _separate(
        out_pointer, at, inside,
        w_real * plus_real - w_imaginary * plus_imaginary, w_imaginary * plus_real + w_real * plus_imaginary,
        u_real * minus_real - u_imaginary * minus_imaginary, u_imaginary * minus_real + u_real * minus_imaginary,
        N, PAIRS,
    )  # fmt: skip


@triton.jit
def _filter_grad_kernel(
    pairs_pointer,  # (B, 2*PAIRS, 2, N): [C; S] s
    weight_pointer,  # (KEPT, N, 2)
    offset_pointer,  # (2, KEPT, N)
    scale_pointer,  # (B,)
    rows_pointer,  # (2, PAIRS)
    grad_pointer,  # (B, 2*PAIRS, 2, N): [C'; S']^T g
    pairs_grad_pointer,  # (B, 2*PAIRS, 2, N)
    weight_grad_pointer,  # (KEPT, N, 2)
    offset_grad_pointer,  # (2, KEPT, N)
    sample_count,
    PADDED: tl.constexpr,
    SCALED: tl.constexpr,
    KEPT: tl.constexpr,
    PAIRS: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    SAMPLES: tl.constexpr,
    TURNS: tl.constexpr,
):
    pair = tl.program_id(0)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < N
    plus, minus = tl.load(rows_pointer + pair), tl.load(rows_pointer + PAIRS + pair)
    w_real, w_imaginary = _weight(weight_pointer, plus, places, inside, N)
    u_real, u_imaginary = _weight(weight_pointer, minus, places, inside, N)
    more_real, more_imaginary = _offset(offset_pointer, plus, places, inside, KEPT, N, PADDED)
    less_real, less_imaginary = _offset(offset_pointer, minus, places, inside, KEPT, N, PADDED)
    zero = tl.full((SAMPLES, BLOCK), 0.0, tl.float32)
    dw_real, dw_imaginary, du_real, du_imaginary = zero, zero, zero, zero
    dp_real, dp_imaginary, dm_real, dm_imaginary = zero, zero, zero, zero
    for turn in range(TURNS):
        sample = (turn * SAMPLES + tl.arange(0, SAMPLES)).to(tl.int64)
        at = (sample * (2 * PAIRS) + pair)[:, None] * (2 * N) + places[None, :]
        there = (sample < sample_count)[:, None] & inside[None, :]
        plus_real, plus_imaginary, minus_real, minus_imaginary = _combined(pairs_pointer, at, there, N, PAIRS)
        plus_real, plus_imaginary = plus_real + more_real[None, :], plus_imaginary + more_imaginary[None, :]
        minus_real, minus_imaginary = minus_real + less_real[None, :], minus_imaginary + less_imaginary[None, :]
        h_real, h_imaginary, j_real, j_imaginary = _combined(grad_pointer, at, there, N, PAIRS)
        if SCALED:
            scale = tl.load(scale_pointer + sample, mask=sample < sample_count, other=0.0)[:, None]
            h_real, h_imaginary, j_real, j_imaginary = (
                h_real * scale,
                h_imaginary * scale,
                j_real * scale,
                j_imaginary * scale,
            )
        dw_real += plus_real * h_real + plus_imaginary * h_imaginary
        dw_imaginary += plus_real * h_imaginary - plus_imaginary * h_real
        du_real += minus_real * j_real + minus_imaginary * j_imaginary
        du_imaginary += minus_real * j_imaginary - minus_imaginary * j_real
        p_real = w_real[None, :] * h_real + w_imaginary[None, :] * h_imaginary
        p_imaginary = w_real[None, :] * h_imaginary - w_imaginary[None, :] * h_real
        m_real = u_real[None, :] * j_real + u_imaginary[None, :] * j_imaginary
        m_imaginary = u_real[None, :] * j_imaginary - u_imaginary[None, :] * j_real
        _separate(pairs_grad_pointer, at, there, p_real, p_imaginary, m_real, m_imaginary, N, PAIRS)
        if PADDED:
            dp_real, dp_imaginary = dp_real + p_real, dp_imaginary + p_imaginary
            dm_real, dm_imaginary = dm_real + m_real, dm_imaginary + m_imaginary
    to_plus, to_minus = plus * N + places, minus * N + places
    has_minus = inside & (minus >= 0)
    has_plus = inside & (plus >= 0)
    tl.store(weight_grad_pointer + 2 * to_plus, tl.sum(dw_real, axis=0), mask=has_plus)
    tl.store(weight_grad_pointer + 2 * to_plus + 1, tl.sum(dw_imaginary, axis=0), mask=has_plus)
    tl.store(weight_grad_pointer + 2 * to_minus, tl.sum(du_real, axis=0), mask=has_minus)
    tl.store(weight_grad_pointer + 2 * to_minus + 1, tl.sum(du_imaginary, axis=0), mask=has_minus)
    if PADDED:
        tl.store(offset_grad_pointer + to_plus, tl.sum(dp_real, axis=0), mask=has_plus)
        tl.store(offset_grad_pointer + KEPT * N + to_plus, tl.sum(dp_imaginary, axis=0), mask=has_plus)
        tl.store(offset_grad_pointer + to_minus, tl.sum(dm_real, axis=0), mask=has_minus)
        tl.store(offset_grad_pointer + KEPT * N + to_minus, tl.sum(dm_imaginary, axis=0), mask=has_minus)


class Columns(NamedTuple):
    """The real matrices of a leading axis, and which wavenumbers make its pairs.

    Pairs are filled up to a multiple of FILLED and lie along memory, as fast library products want. Spectra have the
    type of these matrices, and their gradients that of `into_grad` and `back_grad`, which are the same but for it.
    """

    into: Tensor  # [C; S]^T, (n1, 2R)
    back: Tensor  # [C', S'], (n1, 2R)
    into_grad: Tensor
    back_grad: Tensor
    rows: Tensor  # (2, R), int32: places of +k and -k among the K wavenumbers, -1 for none
    kept: int  # K
    gain: float = 1.0  # of what comes out; the transform after it takes it back

    def cast(self, spectra: torch.dtype, gradients: torch.dtype, gain: float) -> Columns:
        """The same for spectra and gradients of these types, and with this gain."""
        into, back = self.into.to(spectra), self.back.to(spectra)
        return Columns(into, back, self.into.to(gradients), self.back.to(gradients), self.rows, self.kept, gain)


def columns_of(leading: Tensor, inverse: Tensor) -> Columns:
    """From the real matrices (2K, 2 n1) and (2 n1, 2K): points have (re, im) by turns, modes all re and then all im.

    They stand for complex ones; wavenumbers make a pair where both F and A have conjugate ones.
    """
    kept, points = (n // 2 for n in leading.shape)
    real, imaginary = leading.view(2, kept, points, 2)[..., 0].double().cpu()  # F, (K, n1)
    back_real, back_imaginary = inverse.view(points, 2, 2, kept)[:, :, 0].permute(1, 2, 0).double().cpu()  # A^T
    conjugate = _conjugate(real, imaginary) & _conjugate(back_real, back_imaginary)
    plus, minus, taken = [], [], set[int]()
    for k in range(kept):
        if k in taken:
            continue
        partner = next((j for j in range(k + 1, kept) if conjugate[k, j] and j not in taken), -1)
        taken |= {k, partner}
        plus.append(k)
        minus.append(partner)
    count = FILLED * blocks_of(len(plus), FILLED)
    into, back = real.new_zeros(2, 2, count, points)
    into[:, : len(plus)] = torch.stack((real[plus], -imaginary[plus]))
    back[:, : len(plus)] = torch.stack((back_real[plus], back_imaginary[plus]))
    none = [-1] * (count - len(plus))
    rows = torch.tensor([plus + none, minus + none], dtype=torch.int32, device=leading.device)
    into, back = (m.flatten(0, 1).T.to(leading).contiguous() for m in (into, back))
    return Columns(into, back, into, back, rows, kept)


def _conjugate(real: Tensor, imaginary: Tensor) -> Tensor:
    """Which rows of a complex matrix are conjugate to which others."""
    unlike = (real[:, None] - real).abs().amax(-1) + (imaginary[:, None] + imaginary).abs().amax(-1)
    return unlike < 1e-3 * real.abs().max()


def forward(
    s: Tensor, columns: Columns, weight: Tensor, offset: Tensor | None, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The filtered s (b, n1, 2M, C), and [C; S] s (b, 2R, 2M, C), which the backward pass wants.

    `scale` (b,) are numbers by which what comes out is multiplied in each sample.
    """
    batch, n = s.shape[0], weight.shape[1] * weight.shape[2]
    with full_precision(s):
        pairs = left_product(columns.into.T, s.view(batch, -1, 2 * n))
        out = torch.empty_like(pairs)
        count = columns.rows.shape[1]
        _filter_kernel[(batch, count, blocks_of(n, min(BLOCK, power_of_two(n))))](
            pairs,
            weight,
            weight if offset is None else offset.contiguous(),
            weight if scale is None else scale,
            columns.rows,
            out,
            PADDED=offset is not None,
            SCALED=scale is not None,
            GAIN=columns.gain,
            KEPT=columns.kept,
            PAIRS=count,
            N=n,
            BLOCK=min(BLOCK, power_of_two(n)),
            num_warps=4,
        )
        return left_product(columns.back, out).view_as(s), pairs


def backward(
    pairs: Tensor,
    columns: Columns,
    weight: Tensor,
    offset: Tensor | None,
    out_grad: Tensor,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of s, of the weight and of the offset."""
    batch, n = out_grad.shape[0], weight.shape[1] * weight.shape[2]
    weight_grad = torch.empty_like(weight)
    offset_grad = None if offset is None else offset.new_empty(*offset.shape)
    with full_precision(out_grad):
        grad = left_product(columns.back_grad.T, out_grad.view(batch, -1, 2 * n))
        pairs_grad = torch.empty_like(grad)
        count, block = columns.rows.shape[1], min(GRAD_BLOCK, power_of_two(n))
        _filter_grad_kernel[(count, blocks_of(n, block))](
            pairs,
            weight,
            weight if offset is None else offset.contiguous(),
            weight if scale is None else scale,
            columns.rows,
            grad,
            pairs_grad,
            weight_grad,
            weight_grad if offset_grad is None else offset_grad,
            batch,
            PADDED=offset is not None,
            SCALED=scale is not None,
            KEPT=columns.kept,
            PAIRS=count,
            N=n,
            BLOCK=block,
            SAMPLES=SAMPLES,
            TURNS=blocks_of(batch, SAMPLES),
            num_warps=4,
        )
        s_grad = left_product(columns.into_grad, pairs_grad).view_as(out_grad)
    return s_grad, weight_grad, offset_grad
