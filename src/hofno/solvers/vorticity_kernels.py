r"""One ETDRK4 step of vorticity modes in which all that lies between two transforms is one kernel.

A right-hand side is  modes -> velocity -> inverse transform -> square -> transform -> tendency,  and what follows a
tendency is the state of the next stage, mode by mode. So one kernel takes the transformed plane Q, forms

    N(k) = g Q(k) + conj(g Q(-k)) + f(k),      the stage's state s from w, N and what it needs of earlier ones,
    q(k) = v s(k)  and  q(-k) = -v conj(s(k)),      v = 1 / (2 pi c),

and leaves q in the plane that is transformed next, which is zero for ever elsewhere. `ETDRK4` has the stages and
`VorticitySolver` the meaning of g, c and f. Modes with one k_x lie in a row of the plane side by side, those at -k
backwards, so every access is coalesced. A program takes some modes of some samples and reads its tables once.

The transforms are the library's, or on a plane of 256 x 256 our own: columns (x) back, rows (y) back, squared and
forth, columns forth, in place. They leave out what is zero or not wanted, a third of the columns, and the rows of such
columns; with the square they move a third of the bytes. 256 points are 16 x 16: n = 16 r + l has 16 numbers r in one
thread and l in 16 threads, so that with W = e^{+-2 pi i / 256} and k = i + 16 j,

    X(i + 16 j) = sum_l W^{16 l j} [ W^{l i} sum_r W^{16 r i} x(16 r + l) ],

both sums lie within threads, and one exchange between them makes l the number in a thread and i the thread. The result
is spread as the input was.

Complex numbers are pairs (real, imaginary): b samples, M modes, N^2 points.
"""

# The kernel language adds tuples but does not unpack them:
# ruff: noqa: RUF005
# It is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportOperatorIssue=false

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import pi

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.solvers.etdrk import ETDRK4
from hofno.solvers.gpu import side_by_side

MODES, SAMPLES = 128, 4  # that one program takes
OWN_POINTS, LINES = 256, 8  # on each axis of the plane they take; rows or columns of one program


@triton.jit
def _load_pairs(pointer, at, there):
    both = tl.load(pointer + 2 * at[:, None] + tl.arange(0, 2)[None, :], mask=there[:, None], other=0.0)
    return tl.split(both)


@triton.jit
def _store_pairs(pointer, at, there, real, imaginary):
    tl.store(pointer + 2 * at[:, None] + tl.arange(0, 2)[None, :], tl.join(real, imaginary), mask=there[:, None])


@triton.jit
def _store_velocity(plane_pointer, here, mirror, there, real, imaginary, v_real, v_imaginary):
    """q(k) = v s and q(-k) = -v conj(s), into their places in one sample's plane."""
    rr, ii, ri, ir = v_real * real, v_imaginary * imaginary, v_real * imaginary, v_imaginary * real
    _store_pairs(plane_pointer, here, there, rr - ii, ri + ir)
    _store_pairs(plane_pointer, mirror, there, -rr - ii, ri - ir)


@triton.jit
def _velocity_kernel(
    w_pointer,  # (b, M, 2)
    plane_pointer,  # (b, N^2, 2)
    places_pointer,  # (2, M)
    v_pointer,  # (M, 2)
    batch,
    mode_count,
    plane_size,  # 2 N^2
    MODES: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    modes = tl.program_id(0) * MODES + tl.arange(0, MODES)
    known = modes < mode_count
    here = tl.load(places_pointer + modes, mask=known, other=0)
    mirror = tl.load(places_pointer + mode_count + modes, mask=known, other=0)
    v_real, v_imaginary = _load_pairs(v_pointer, modes, known)
    for turn in range(SAMPLES):
        sample = tl.program_id(1).to(tl.int64) * SAMPLES + turn
        there = known & (sample < batch)
        real, imaginary = _load_pairs(w_pointer + sample * 2 * mode_count, modes, there)
        _store_velocity(plane_pointer + sample * plane_size, here, mirror, there, real, imaginary, v_real, v_imaginary)


@triton.jit
def _stage_kernel(
    squared_pointer,  # (b, N^2, 2), the transform of q^2
    w_pointer,  # (b, M, 2)
    n_w_pointer,  # (b, M, 2), N(w)
    n_a_pointer,  # (b, M, 2), N(a)
    plane_pointer,  # (b, N^2, 2)
    places_pointer,  # (2, M)
    v_pointer,  # (M, 2)
    gain_pointer,  # (M, 2)
    forcing_pointer,  # (M, 2)
    whole_pointer,  # (M, 2) this and the rest, both numbers of a pair being the same
    half_pointer,
    stage_pointer,
    first_pointer,
    middle_pointer,
    last_pointer,
    batch,
    mode_count,
    plane_size,  # 2 N^2
    STAGE: tl.constexpr,  # 1 to 4: N(w), N(a), N(b), N(c) is what has been transformed
    MODES: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    modes = tl.program_id(0) * MODES + tl.arange(0, MODES)
    known = modes < mode_count
    here = tl.load(places_pointer + modes, mask=known, other=0)
    mirror = tl.load(places_pointer + mode_count + modes, mask=known, other=0)
    g_real, g_imaginary = _load_pairs(gain_pointer, modes, known)
    f_real, f_imaginary = _load_pairs(forcing_pointer, modes, known)
    if STAGE == 4:
        last = tl.load(last_pointer + 2 * modes, mask=known, other=0.0)
    else:
        v_real, v_imaginary = _load_pairs(v_pointer, modes, known)
        half = tl.load(half_pointer + 2 * modes, mask=known, other=0.0)
        stage = tl.load(stage_pointer + 2 * modes, mask=known, other=0.0)
    if STAGE == 3:
        whole = tl.load(whole_pointer + 2 * modes, mask=known, other=0.0)
        early = tl.load(first_pointer + 2 * modes, mask=known, other=0.0)
        middle = tl.load(middle_pointer + 2 * modes, mask=known, other=0.0)
    for turn in range(SAMPLES):
        sample = tl.program_id(1).to(tl.int64) * SAMPLES + turn
        there = known & (sample < batch)
        at_modes = sample * 2 * mode_count
        qr, qi = _load_pairs(squared_pointer + sample * plane_size, here, there)
        mr, mi = _load_pairs(squared_pointer + sample * plane_size, mirror, there)
        wr, wi = _load_pairs(w_pointer + at_modes, modes, there)
        nr = f_real + (g_real * (qr + mr) - g_imaginary * (qi + mi))
        ni = f_imaginary + (g_real * (qi - mi) + g_imaginary * (qr - mr))
        if STAGE == 4:
            _store_pairs(w_pointer + at_modes, modes, there, wr + last * nr, wi + last * ni)
        else:
            if STAGE == 3:
                n_wr, n_wi = _load_pairs(n_w_pointer + at_modes, modes, there)
                n_ar, n_ai = _load_pairs(n_a_pointer + at_modes, modes, there)
                a_real, a_imaginary = wr + (half * wr + stage * n_wr), wi + (half * wi + stage * n_wi)
                real = a_real + (half * a_real + stage * (2 * nr - n_wr))
                imaginary = a_imaginary + (half * a_imaginary + stage * (2 * ni - n_wi))
                wr += whole * wr + early * n_wr + middle * (n_ar + nr)
                wi += whole * wi + early * n_wi + middle * (n_ai + ni)
                _store_pairs(w_pointer + at_modes, modes, there, wr, wi)
            else:
                _store_pairs((n_w_pointer if STAGE == 1 else n_a_pointer) + at_modes, modes, there, nr, ni)
                real, imaginary = wr + (half * wr + stage * nr), wi + (half * wi + stage * ni)
            _store_velocity(
                plane_pointer + sample * plane_size, here, mirror, there, real, imaginary, v_real, v_imaginary
            )


@triton.jit
def _times(z, real, imaginary):
    return real * z[0] - imaginary * z[1], imaginary * z[0] + real * z[1]


@triton.jit
def _dft4(a, b, c, d, SIGN: tl.constexpr):
    even_r, even_i, odd_r, odd_i = a[0] + c[0], a[1] + c[1], a[0] - c[0], a[1] - c[1]
    sum_r, sum_i, turned_r, turned_i = b[0] + d[0], b[1] + d[1], SIGN * (d[1] - b[1]), SIGN * (b[0] - d[0])
    return (
        (even_r + sum_r, even_i + sum_i),
        (odd_r + turned_r, odd_i + turned_i),
        (even_r - sum_r, even_i - sum_i),
        (odd_r - turned_r, odd_i - turned_i),
    )


@triton.jit
def _dft16(x, SIGN: tl.constexpr):
    """Of 16 complex numbers of each thread, by the same splitting into 4 x 4."""
    C: tl.constexpr = 0.9238795325112867  # cos(pi / 8)
    S: tl.constexpr = 0.3826834323650898  # sin(pi / 8)
    H: tl.constexpr = 0.7071067811865476
    COS: tl.constexpr = (1.0, C, H, S, 0.0, -S, -H, -C, -1.0, -C)
    SIN: tl.constexpr = (0.0, S, H, C, 1.0, C, H, S, 0.0, -S)
    y = ()
    for at in tl.static_range(4):
        y = y + _dft4(x[at], x[4 + at], x[8 + at], x[12 + at], SIGN)
    z = ()
    for i in tl.static_range(4):
        one = _times(y[4 + i], COS[i], SIGN * SIN[i])
        two = _times(y[8 + i], COS[2 * i], SIGN * SIN[2 * i])
        three = _times(y[12 + i], COS[3 * i], SIGN * SIN[3 * i])
        z = z + _dft4(y[i], one, two, three, SIGN)
    out = ()
    for k in tl.static_range(16):
        out = out + (z[4 * (k % 4) + k // 4],)
    return out


@triton.jit
def _joined(x):
    out = ()
    for i in tl.static_range(len(x) // 2):
        out = out + (tl.join(x[2 * i], x[2 * i + 1]),)
    return out


@triton.jit
def _halved(x):
    out = ()
    for i in tl.static_range(len(x)):
        out = out + tl.split(x[i])
    return out


@triton.jit
def _exchanged(x, PART: tl.constexpr, OUTER: tl.constexpr, INNER: tl.constexpr):
    """Number i of thread (o, l, n) to number l of thread (o, i, n): real parts or imaginary ones."""
    part = ()
    for i in tl.static_range(16):
        part = part + (x[i][PART],)
    whole = _joined(_joined(_joined(_joined(part))))[0]  # (threads, 2, 2, 2, 2), the lowest bit of i first
    whole = tl.permute(tl.reshape(whole, [OUTER, 16, INNER, 2, 2, 2, 2]), (0, 6, 5, 4, 3, 2, 1))
    whole = tl.permute(tl.reshape(whole, [OUTER * 16 * INNER, 2, 2, 2, 2]), (0, 4, 3, 2, 1))
    return _halved(_halved(_halved(_halved((whole,)))))


@triton.jit
def _turns(turns_pointer, lane):
    """W^{l i} for i = 0, ..., 15, from those of i = 1, 2, 4, 8: the compiler's time grows with the number of loads."""
    found = ((1.0, 0.0),)
    for power in tl.static_range(4):
        turn = tl.split(tl.load(turns_pointer + 32 * power + 2 * lane[:, None] + tl.arange(0, 2)[None, :]))
        found = found + (turn,)
        for i in tl.static_range(1, 2**power):
            found = found + (_times(found[i], turn[0], turn[1]),)
    return found


@triton.jit
def _dft256(x, turns, OUTER: tl.constexpr, INNER: tl.constexpr, SIGN: tl.constexpr):
    x = _dft16(x, SIGN)
    y = (x[0],)
    for i in tl.static_range(1, 16):
        y = y + (_times(x[i], turns[i][0], SIGN * turns[i][1]),)
    real, imaginary = _exchanged(y, 0, OUTER, INNER), _exchanged(y, 1, OUTER, INNER)
    z = ()
    for at in tl.static_range(16):
        z = z + ((real[at], imaginary[at]),)
    return _dft16(z, SIGN)


@triton.jit
def _kept(at, CUTOFF: tl.constexpr):
    return (at <= CUTOFF) | (at >= 256 - CUTOFF)


@triton.jit
def _rows_kernel(
    plane_pointer,  # (rows, 256, 2)
    turns_pointer,  # (4, 16, 2)
    CUTOFF: tl.constexpr,
    LINES: tl.constexpr,
):
    """Back to values, squared, forth again; columns beyond the cutoff are taken as zero and left alone."""
    thread = tl.arange(0, 16 * LINES)
    row, lane = tl.program_id(0).to(tl.int64) * LINES + thread // 16, thread % 16
    x = ()
    for r in tl.static_range(16):
        x = x + (_load_pairs(plane_pointer, 256 * row + 16 * r + lane, _kept(16 * r + lane, CUTOFF)),)
    turns = _turns(turns_pointer, lane)
    x = _dft256(x, turns, LINES, 1, 1)
    y = ()
    for r in tl.static_range(16):
        y = y + (_times(x[r], x[r][0], x[r][1]),)
    x = _dft256(y, turns, LINES, 1, -1)
    for r in tl.static_range(16):
        there = _kept(16 * r + lane, CUTOFF)
        _store_pairs(plane_pointer, 256 * row + 16 * r + lane, there, x[r][0], x[r][1])


@triton.jit
def _columns_kernel(
    plane_pointer,  # (b, 256, 256, 2)
    turns_pointer,  # (4, 16, 2)
    CUTOFF: tl.constexpr,
    LINES: tl.constexpr,
    SIGN: tl.constexpr,
):
    """Kept columns, back (+1) from their kept rows to all, or forth (-1) from all rows to the kept ones.

    On the way back the mean is taken as zero, whatever lies at its place: it is none of the modes.
    """
    thread = tl.arange(0, 16 * LINES)
    lane, column = thread // LINES, tl.program_id(0) * LINES + thread % LINES
    known = column <= 2 * CUTOFF
    column = tl.where(column <= CUTOFF, column, column + (255 - 2 * CUTOFF))
    at = tl.program_id(1).to(tl.int64) * (256 * 256) + column
    x = ()
    for r in tl.static_range(16):
        there = known & (_kept(16 * r + lane, CUTOFF) & ((16 * r + lane > 0) | (column > 0)) | (SIGN < 0))
        x = x + (_load_pairs(plane_pointer, at + 256 * (16 * r + lane), there),)
    x = _dft256(x, _turns(turns_pointer, lane), 1, LINES, SIGN)
    for r in tl.static_range(16):
        there = known & (_kept(16 * r + lane, CUTOFF) | (SIGN > 0))
        _store_pairs(plane_pointer, at + 256 * (16 * r + lane), there, x[r][0], x[r][1])


@dataclass(frozen=True)
class FusedStep:
    """What every step of one solver needs beside its modes."""

    places: Tensor  # (2M,) int32: of k, then of -k, in the plane
    to_velocity: Tensor  # (M,) complex: v
    gain: Tensor  # (M,) complex: g
    forcing: Tensor  # (M,) complex: f

    def __call__(self, modes: Tensor, plane: Tensor, scheme: ETDRK4) -> Tensor:
        """One step of contiguous modes (b, M) in place; the plane (b, N, N) is zero outside the kept modes."""
        batch, count = modes.shape
        own = plane.shape[-1] == OWN_POINTS
        if own:  # which leave something outside the kept modes
            plane = torch.empty_like(plane)
        w, target = torch.view_as_real(modes), torch.view_as_real(plane)
        n_w, n_a = torch.empty_like(w), torch.empty_like(w)
        tables = [torch.view_as_real(table) for table in (self.to_velocity, self.gain, self.forcing)]
        weights = (scheme.whole, scheme.half, scheme.stage, scheme.first, scheme.middle, scheme.last)
        grid = (triton.cdiv(count, MODES), triton.cdiv(batch, SAMPLES))
        sizes = (batch, count, 2 * plane.shape[1] * plane.shape[2])
        with torch.cuda.device(modes.device) if modes.is_cuda else nullcontext():
            _velocity_kernel[grid](w, target, self.places, tables[0], *sizes, MODES, SAMPLES)
            for stage in range(1, 5):
                squared = self._squared_in_place(target) if own else _squared(plane)
                _stage_kernel[grid](
                    squared, w, n_w, n_a, target, self.places, *tables, *weights, *sizes, stage, MODES, SAMPLES
                )
        return modes

    def _squared_in_place(self, plane: Tensor) -> Tensor:
        """What `_squared` computes, at the kept modes; the rest is neither read nor right. (b, 256, 256, 2) -> same"""
        cutoff = (OWN_POINTS - 1) // 3
        columns = (triton.cdiv(2 * cutoff + 1, LINES), len(plane))
        _columns_kernel[columns](plane, self._turns, cutoff, LINES, 1)
        _rows_kernel[(len(plane) * OWN_POINTS // LINES,)](plane, self._turns, cutoff, LINES)
        _columns_kernel[columns](plane, self._turns, cutoff, LINES, -1)
        return plane

    @cached_property
    def _turns(self) -> Tensor:
        """cos and sin of 2 pi l i / 256 for i = 1, 2, 4, 8. (4, 16, 2)"""
        powers, lanes = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64), torch.arange(16, dtype=torch.float64)
        angle = 2 * pi / OWN_POINTS * torch.outer(powers, lanes)
        turns = torch.stack((angle.cos(), angle.sin()), -1).to(self.gain.device, self.gain.real.dtype)
        if turns.is_cuda:
            _compile(turns)
        return turns


def _compile(turns: Tensor) -> None:
    """The kernels of our own transforms, side by side: each takes the compiler 5 to 20 s when it sees them first."""
    sizes = turns.dtype, turns.dtype, (OWN_POINTS - 1) // 3, LINES
    side_by_side(
        [
            lambda: _rows_kernel.warmup(*sizes, grid=(1,)),
            lambda: _columns_kernel.warmup(*sizes, 1, grid=(1,)),
            lambda: _columns_kernel.warmup(*sizes, -1, grid=(1,)),
        ],
        turns.device,
    )


def _squared(plane: Tensor) -> Tensor:
    """Coefficients of q to those of q^2, times N^2, by the library. (b, N, N) complex -> (b, N, N, 2)"""
    q = torch.fft.ifft2(plane, norm="forward")
    return torch.view_as_real(torch.fft.fft2(q.mul_(q)))
