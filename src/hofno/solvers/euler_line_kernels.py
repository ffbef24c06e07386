r"""Block-tridiagonal lines of the Euler preconditioner, one line of one flow to a thread.

    S_k = D_k - U_k S_{k+1}^{-1} L_{k+1},    y_k = S_k^{-1} (r_k - U_k y_{k+1}),    x_k = y_k - S_k^{-1} L_k x_{k-1}

What is computed is `BlockLines`, for the lines of `LinePreconditioner`. A line is walked in one launch with its blocks
in registers: down, from its last station to the second, and up again, with what two lines that meet bring to each
other in between. Lines along i start in the middle and go both ways; those along j start at the body, where those of
the cut meet.

Arrays are (.., I, J, b), b flows innermost, for both families of lines: neighbours in memory are flows that do the
same. A block is a tuple of its 16 entries, by rows.
"""

# The kernel language adds tuples but does not unpack them:
# ruff: noqa: RUF005
# It is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

LANES, WARPS = 64, 2  # lines of one program


@triton.jit
def _line(n_i, n_j, b, wake, ALONG_I: tl.constexpr, LANES: tl.constexpr):
    """Of each line: whether it is one, its first place, the way to the next station, the way of the line that it meets
    and that line's first place (itself where there is none), and whether i grows along it."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    if ALONG_I:
        row = n_j * b
        there = lane < 2 * row
        grows = lane >= row
        first = (n_i // 2) * row + lane % row
        step = tl.where(grows, row, -row)
        other, other_step, meets = first, -step, there
    else:
        there = lane < n_i * b
        i, flow = lane // b, lane % b
        first = i * n_j * b + flow
        step = tl.zeros_like(lane) + b
        meets = there & ((i <= wake) | (i >= n_i - 1 - wake)) & (wake > 0)
        other, other_step, grows = (n_i - 1 - i) * n_j * b + flow, step, there
    return there, first, step, grows, meets, other, other_step


@triton.jit
def _nothing(COUNT: tl.constexpr, LANES: tl.constexpr):
    out = ()
    for _ in tl.static_range(COUNT):
        out = out + (tl.zeros([LANES], tl.float64),)
    return out


@triton.jit
def _load_block(pointer, at, size, there):
    out = ()
    for m in tl.static_range(16):
        out = out + (tl.load(pointer + at + m * size, mask=there, other=0.0),)
    return out


@triton.jit
def _load_diagonal(pointer, at, size, there):
    """The unit block for lanes that are no line."""
    out = ()
    for m in tl.static_range(16):
        out = out + (tl.load(pointer + at + m * size, mask=there, other=1.0 if m % 5 == 0 else 0.0),)
    return out


@triton.jit
def _store_block(pointer, block, at, size, there):
    for m in tl.static_range(16):
        tl.store(pointer + at + m * size, block[m], mask=there)


@triton.jit
def _load_vector(pointer, at, size, there):
    out = ()
    for m in tl.static_range(4):
        out = out + (tl.load(pointer + at + m * size, mask=there, other=0.0),)
    return out


@triton.jit
def _store_vector(pointer, vector, at, size, there):
    for m in tl.static_range(4):
        tl.store(pointer + at + m * size, vector[m], mask=there)


@triton.jit
def _product(a, b):
    out = ()
    for r in tl.static_range(4):
        for c in tl.static_range(4):
            out = out + (
                a[4 * r] * b[c] + a[4 * r + 1] * b[4 + c] + a[4 * r + 2] * b[8 + c] + a[4 * r + 3] * b[12 + c],
            )
    return out


@triton.jit
def _apply(a, x):
    out = ()
    for r in tl.static_range(4):
        out = out + (a[4 * r] * x[0] + a[4 * r + 1] * x[1] + a[4 * r + 2] * x[2] + a[4 * r + 3] * x[3],)
    return out


@triton.jit
def _minus(a, b):
    out = ()
    for m in tl.static_range(len(a)):
        out = out + (a[m] - b[m],)
    return out


@triton.jit
def _plus(a, b):
    out = ()
    for m in tl.static_range(len(a)):
        out = out + (a[m] + b[m],)
    return out


@triton.jit
def _minors(a, R: tl.constexpr):
    """Those of rows R and R + 1, by pairs of columns 01, 02, 03, 12, 13, 23."""
    p: tl.constexpr = 4 * R
    q: tl.constexpr = 4 * R + 4
    return (
        a[p] * a[q + 1] - a[q] * a[p + 1],
        a[p] * a[q + 2] - a[q] * a[p + 2],
        a[p] * a[q + 3] - a[q] * a[p + 3],
        a[p + 1] * a[q + 2] - a[q + 1] * a[p + 2],
        a[p + 1] * a[q + 3] - a[q + 1] * a[p + 3],
        a[p + 2] * a[q + 3] - a[q + 2] * a[p + 3],
    )


@triton.jit
def _inverse(a):
    """From 2 x 2 minors: no pivots, no branches."""
    t, u = _minors(a, 0), _minors(a, 2)
    d = 1.0 / (t[0] * u[5] - t[1] * u[4] + t[2] * u[3] + t[3] * u[2] - t[4] * u[1] + t[5] * u[0])
    return (
        (a[5] * u[5] - a[6] * u[4] + a[7] * u[3]) * d,
        (a[2] * u[4] - a[1] * u[5] - a[3] * u[3]) * d,
        (a[13] * t[5] - a[14] * t[4] + a[15] * t[3]) * d,
        (a[10] * t[4] - a[9] * t[5] - a[11] * t[3]) * d,
        (a[6] * u[2] - a[4] * u[5] - a[7] * u[1]) * d,
        (a[0] * u[5] - a[2] * u[2] + a[3] * u[1]) * d,
        (a[14] * t[2] - a[12] * t[5] - a[15] * t[1]) * d,
        (a[8] * t[5] - a[10] * t[2] + a[11] * t[1]) * d,
        (a[4] * u[4] - a[5] * u[2] + a[7] * u[0]) * d,
        (a[1] * u[2] - a[0] * u[4] - a[3] * u[0]) * d,
        (a[12] * t[4] - a[13] * t[2] + a[15] * t[0]) * d,
        (a[9] * t[2] - a[8] * t[4] - a[11] * t[0]) * d,
        (a[5] * u[1] - a[4] * u[3] - a[6] * u[0]) * d,
        (a[0] * u[3] - a[1] * u[1] + a[2] * u[0]) * d,
        (a[13] * t[1] - a[12] * t[3] - a[14] * t[0]) * d,
        (a[8] * t[3] - a[9] * t[1] + a[10] * t[0]) * d,
    )


@triton.jit
def _factor_kernel(
    diagonal,  # (16, I, J, b)
    coupling,  # (2, 16, I, J, b): with the next node, with the one before; zero where there is none
    inverse,  # (16, I, J, b): S^{-1}
    outward,  # (16, I, J, b): S^{-1} U
    inward,  # (16, I, J, b): S^{-1} L
    n_i,
    n_j,
    b,
    wake,
    last,  # station of a line
    ALONG_I: tl.constexpr,
    LANES: tl.constexpr,
):
    """The factors of all stations but the first."""
    there, first, step, grows, _, _, _ = _line(n_i, n_j, b, wake, ALONG_I, LANES)
    size = n_i * n_j * b
    out, back = tl.where(grows, 0, 16 * size), tl.where(grows, 16 * size, 0)
    before = _nothing(16, LANES)
    k = last
    while k > 0:
        at = first + k * step
        upper = _load_block(coupling, at + out, size, there)
        pivot = _minus(_load_diagonal(diagonal, at, size, there), _product(upper, before))
        found = _inverse(pivot)
        _store_block(inverse, found, at, size, there)
        _store_block(outward, _product(found, upper), at, size, there)
        before = _product(found, _load_block(coupling, at + back, size, there))
        _store_block(inward, before, at, size, there)
        k -= 1


@triton.jit
def _factor_first_kernel(
    diagonal, coupling, inverse, inward, n_i, n_j, b, wake, ALONG_I: tl.constexpr, LANES: tl.constexpr
):
    """S^{-1} of the first stations, with what the line that is met brings."""
    there, first, step, grows, meets, other, other_step = _line(n_i, n_j, b, wake, ALONG_I, LANES)
    size = n_i * n_j * b
    out, back = tl.where(grows, 0, 16 * size), tl.where(grows, 16 * size, 0)
    met = back if ALONG_I else out
    brought = _product(_load_block(coupling, first + out, size, there), _load_block(inward, first + step, size, there))
    more = _product(
        _load_block(coupling, other + met, size, meets), _load_block(inward, other + other_step, size, meets)
    )
    pivot = _load_diagonal(diagonal, first, size, there)
    _store_block(inverse, _inverse(_minus(pivot, _plus(brought, more))), first, size, there)


@triton.jit
def _given(right, diagonal, inverse, ALONG_I: tl.constexpr):
    """S^{-1} r, along i S^{-1} D r."""
    if ALONG_I:
        right = _apply(diagonal, right)
    return _apply(inverse, right)


@triton.jit
def _down_kernel(
    right,  # (4, I, J, b): r
    diagonal,  # (16, I, J, b)
    inverse,
    outward,
    y_pointer,  # (4, I, J, b)
    n_i,
    n_j,
    b,
    wake,
    last,  # station of a line
    ALONG_I: tl.constexpr,
    LANES: tl.constexpr,
):
    there, first, step, _, _, _, _ = _line(n_i, n_j, b, wake, ALONG_I, LANES)
    size = n_i * n_j * b
    y = _nothing(4, LANES)
    at = first + last * step
    r, s = _load_vector(right, at, size, there), _load_block(inverse, at, size, there)
    u = _load_block(outward, at, size, there)
    d = _load_block(diagonal, at, size, there & ALONG_I)
    k = last
    while k > 0:
        found = _given(r, d, s, ALONG_I)
        block = u
        to = at - step  # what comes next is on its way while this is computed
        r, s = _load_vector(right, to, size, there), _load_block(inverse, to, size, there)
        u = _load_block(outward, to, size, there & (k > 1))
        if ALONG_I:
            d = _load_block(diagonal, to, size, there)
        y = _minus(found, _apply(block, y))
        _store_vector(y_pointer, y, at, size, there)
        at = to
        k -= 1
    _store_vector(y_pointer, _given(r, d, s, ALONG_I), first, size, there)


@triton.jit
def _up_kernel(
    y_pointer,  # (4, I, J, b)
    coupling,
    inverse,
    inward,
    x_pointer,  # (4, I, J, b)
    n_i,
    n_j,
    b,
    wake,
    last,  # station of a line
    ALONG_I: tl.constexpr,
    LANES: tl.constexpr,
):
    there, first, step, grows, meets, other, other_step = _line(n_i, n_j, b, wake, ALONG_I, LANES)
    size = n_i * n_j * b
    out, back = tl.where(grows, 0, 16 * size), tl.where(grows, 16 * size, 0)
    met = back if ALONG_I else out
    brought = _apply(
        _load_block(coupling, first + out, size, there), _load_vector(y_pointer, first + step, size, there)
    )
    more = _apply(
        _load_block(coupling, other + met, size, meets), _load_vector(y_pointer, other + other_step, size, meets)
    )
    brought = _plus(brought, more)
    x = _minus(_load_vector(y_pointer, first, size, there), _apply(_load_block(inverse, first, size, there), brought))
    _store_vector(x_pointer, x, first, size, there)
    at = first + step
    y, lower = _load_vector(y_pointer, at, size, there), _load_block(inward, at, size, there)
    k = 1
    while k <= last:
        x = _minus(y, _apply(lower, x))
        to = at + step
        more_follow = there & (k < last)
        y, lower = _load_vector(y_pointer, to, size, more_follow), _load_block(inward, to, size, more_follow)
        _store_vector(x_pointer, x, at, size, there)
        at = to
        k += 1


@triton.jit
def _mean_kernel(x_pointer, n_i, n_j, b, wake, LANES: tl.constexpr):
    """Both places of a node of the cut get the mean of what they hold. (4, I, J, b)"""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there = lane < (wake + 1) * b
    start = x_pointer + tl.program_id(1) * n_i * n_j * b + lane % b
    one, other = start + (lane // b) * n_j * b, start + (n_i - 1 - lane // b) * n_j * b
    mean = (tl.load(one, mask=there, other=0.0) + tl.load(other, mask=there, other=0.0)) * 0.5
    tl.store(one, mean, mask=there)
    tl.store(other, mean, mask=there)


class FusedLines:
    """Room for the factors of both families of lines, (.., I, J, b), and the launches.

    Args:
        diagonal: D, (16, I, J, b), and
        coupling: U and L of lines along i and of lines along j, (2, 2, 16, I, J, b), zero where a line ends; both are
            read at every call of `factorise`, D also by `solve`.
        wake: cells of the cut at each end of j = 0.
    """

    def __init__(self, diagonal: Tensor, coupling: Tensor, wake: int) -> None:
        self._diagonal, self._coupling = diagonal, coupling
        self._factors = diagonal.new_empty(2, 3, *diagonal.shape)  # S^{-1}, S^{-1} U, S^{-1} L of each family
        self._down, self._between = (diagonal.new_empty(4, *diagonal.shape[1:]) for _ in range(2))
        n_i, n_j, b = diagonal.shape[1:]
        self._sizes = (n_i, n_j, b, wake)
        self._last = (n_i // 2, n_j - 1)
        self._grids = ((-(-2 * n_j * b // LANES),), (-(-n_i * b // LANES),))

    def factorise(self) -> None:
        for along_i, last, grid, coupling, factors in self._families():
            options = (*self._sizes, last, along_i, LANES)
            _factor_kernel[grid](self._diagonal, coupling, *factors, *options, num_warps=WARPS)
            _factor_first_kernel[grid](
                self._diagonal, coupling, factors[0], factors[2], *self._sizes, along_i, LANES, num_warps=WARPS
            )

    def solve(self, right: Tensor, out: Tensor) -> None:
        """Lines along j, times D, lines along i; both places of a node of the cut get the mean of their values."""
        found = self._between
        for along_i, last, grid, coupling, factors in reversed(self._families()):
            options = (*self._sizes, last, along_i, LANES)
            _down_kernel[grid](right, self._diagonal, *factors[:2], self._down, *options, num_warps=WARPS)
            found = out if along_i else self._between
            _up_kernel[grid](self._down, coupling, factors[0], factors[2], found, *options, num_warps=WARPS)
            right = found
        n_i, n_j, b, wake = self._sizes
        if wake:
            _mean_kernel[(triton.cdiv((wake + 1) * b, LANES), 4)](out, n_i, n_j, b, wake, LANES, num_warps=WARPS)

    def _families(self) -> list[tuple[bool, int, tuple[int], Tensor, Tensor]]:
        return list(zip((True, False), self._last, self._grids, self._coupling, self._factors, strict=True))
