r"""Inner products, combinations and the small least-squares problem of GMRES, for many systems at a time.

    h_m = <v_m, w>,        w <- w - sum_m h_m v_m,        y = argmin | s e_0 - H y |

Vectors are (n, b), b systems innermost, a basis (m, n, b). Sums have an order that does not depend on b where b is a
multiple of 32: what a system computes does then not depend on how many others there are.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNKS = 64  # parts of a sum, each of one program
ROWS, SYSTEMS = 16, 32  # that a program takes at a time
LANES = 256


@triton.jit
def _dots_kernel(
    basis,  # (.., n, b)
    w_pointer,  # (n, b)
    parts,  # (CHUNKS, count, b)
    n,
    b,
    count,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    SYSTEMS: tl.constexpr,
):
    m, chunk = tl.program_id(0), tl.program_id(1)
    system = tl.program_id(2) * SYSTEMS + tl.arange(0, SYSTEMS)
    each = (n + CHUNKS - 1) // CHUNKS
    stop = tl.minimum((chunk + 1) * each, n)
    vector = basis + m.to(tl.int64) * n * b
    total = tl.zeros([ROWS, SYSTEMS], tl.float64)
    row = chunk * each
    while row < stop:
        rows = row + tl.arange(0, ROWS)
        at = rows[:, None] * b + system[None, :]
        there = (rows < stop)[:, None] & (system < b)[None, :]
        total += tl.load(vector + at, mask=there, other=0.0) * tl.load(w_pointer + at, mask=there, other=0.0)
        row += ROWS
    tl.store(parts + (chunk * count + m) * b + system, tl.sum(total, 0), mask=system < b)


@triton.jit
def _total_kernel(
    parts,  # (CHUNKS, count, b)
    dots,  # (count, b)
    sums,  # (count, .., b)
    b,
    count,
    stride,  # of sums
    ADD: tl.constexpr,  # to the sums
    CHUNKS: tl.constexpr,
    SYSTEMS: tl.constexpr,
):
    m = tl.program_id(0)
    system = tl.program_id(1) * SYSTEMS + tl.arange(0, SYSTEMS)
    chunks, there = tl.arange(0, CHUNKS), system < b
    at = (chunks[:, None] * count + m) * b + system[None, :]
    total = tl.sum(tl.load(parts + at, mask=there[None, :], other=0.0), 0)
    tl.store(dots + m * b + system, total, mask=there)
    if ADD:
        total += tl.load(sums + m * stride + system, mask=there, other=0.0)
    tl.store(sums + m * stride + system, total, mask=there)


@triton.jit
def _subtract_kernel(
    basis,  # (.., n, b)
    dots,  # (count, b)
    w_pointer,  # (n, b)
    n,
    b,
    count,
    FRESH: tl.constexpr,  # from zero
    LANES: tl.constexpr,
):
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there, system, size = at < n * b, at % b, n.to(tl.int64) * b
    w = tl.zeros([LANES], tl.float64) if FRESH else tl.load(w_pointer + at, mask=there, other=0.0)
    m = 0
    while m < count:
        w -= tl.load(dots + m * b + system, mask=there, other=0.0) * tl.load(
            basis + m * size + at, mask=there, other=0.0
        )
        m += 1
    tl.store(w_pointer + at, w, mask=there)


@triton.jit
def _least_squares_kernel(
    hessenberg,  # (count + 1, count, b)
    size_pointer,  # (b,)
    weights,  # (count, b)
    left,  # (b,)
    b,
    count,
    SIDE: tl.constexpr,  # a power of two above count
):
    """One system for each program: normal equations, eliminated without pivots."""
    system = tl.program_id(0)
    index = tl.arange(0, SIDE)
    down, across = index[:, None], index[None, :]
    known = index < count
    size = tl.load(size_pointer + system)
    normal = tl.where((down == across) & (down >= count), 1.0, tl.zeros([SIDE, SIDE], tl.float64))
    row = 0
    while row <= count:
        h = tl.load(hessenberg + (row * count + index) * b + system, mask=known, other=0.0)
        normal += h[:, None] * h[None, :]
        row += 1
    normal = tl.where(down == across, normal * (1.0 + 1e-14), normal)
    right = size * tl.load(hessenberg + index * b + system, mask=known, other=0.0)
    k = 0
    while k < count:
        pivot_row = tl.sum(tl.where(down == k, normal, 0.0), 0)
        pivot_column = tl.sum(tl.where(across == k, normal, 0.0), 1)
        pivot = tl.sum(tl.where(index == k, pivot_row, 0.0), 0)
        given = tl.sum(tl.where(index == k, right, 0.0), 0)
        factor = tl.where(index == k, 0.0, pivot_column / pivot)
        normal -= factor[:, None] * pivot_row[None, :]
        right -= factor * given
        k += 1
    y = right / tl.sum(tl.where(down == across, normal, 0.0), 1)
    tl.store(weights + index * b + system, y, mask=known)
    at = (down * count + across) * b + system
    h = tl.load(hessenberg + at, mask=(down <= count) & (across < count), other=0.0)
    reached = tl.sum(h * y[None, :], 1)
    rest = tl.where(index == 0, size, 0.0) - reached
    tl.store(left + system, tl.sqrt(tl.sum(rest * rest, 0)) / size)


class Krylov:
    """Room for a basis of `count` + 1 vectors like `like`, (.., b) each, its Hessenberg matrix, and the launches."""

    def __init__(self, like: Tensor, count: int) -> None:
        b = like.shape[-1]
        self.count, self._n, self._b = count, like[..., 0].numel(), b
        self.basis = like.new_empty(count + 1, *like.shape)
        self.hessenberg = like.new_zeros(count + 1, count, b)
        self._dots, self._squares = like.new_empty(count + 1, b), like.new_empty(1, b)
        self._parts = like.new_empty(CHUNKS, count + 1, b)
        self._left = like.new_empty(b)
        self._blocks = triton.cdiv(b, SYSTEMS)

    def norm(self, vector: Tensor) -> Tensor:
        """(.., b) -> (b,)"""
        self._sum(vector[None], vector, self._squares, self._squares, False)
        return self._squares[0].sqrt()

    def orthogonalise(self, k: int, w: Tensor, tiny: float) -> None:
        """Make vector k + 1 from w, which is lost, by Gram-Schmidt twice, and column k of the Hessenberg matrix."""
        known, column = self.basis[: k + 1], self.hessenberg[: k + 1, k]
        for again in (False, True):
            self._sum(known, w, self._dots, column, again)
            self._subtract(known, self._dots, w, False)
        length = self.norm(w).clamp_min_(tiny)
        self.hessenberg[k + 1, k].copy_(length)
        self.scaled(w, length, k + 1)

    def scaled(self, w: Tensor, length: Tensor, k: int) -> None:
        """Vector k is w / length."""
        torch.div(w, length, out=self.basis[k])

    def minimise(self, size: Tensor, out: Tensor) -> Tensor:
        """- sum_k y_k v_k into `out`, y of the right-hand side `size` v_0, and what is left of it, relative (b,)."""
        count, b = self.count, self._b
        side = triton.next_power_of_2(count + 1)
        _least_squares_kernel[(b,)](self.hessenberg, size, self._dots, self._left, b, count, side, num_warps=1)
        self._subtract(self.basis[:count], self._dots, out, True)
        return self._left

    def _sum(self, basis: Tensor, w: Tensor, dots: Tensor, sums: Tensor, add: bool) -> None:
        count, b = len(basis), self._b
        _dots_kernel[(count, CHUNKS, self._blocks)](basis, w, self._parts, self._n, b, count, CHUNKS, ROWS, SYSTEMS)
        _total_kernel[(count, self._blocks)](self._parts, dots, sums, b, count, sums.stride(0), add, CHUNKS, SYSTEMS)

    def _subtract(self, basis: Tensor, dots: Tensor, w: Tensor, fresh: bool) -> None:
        grid = (triton.cdiv(self._n * self._b, LANES),)
        _subtract_kernel[grid](basis, dots, w, self._n, self._b, len(basis), fresh, LANES)
