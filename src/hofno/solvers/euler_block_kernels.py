r"""The blocks of the Euler preconditioner: what each face adds to the diagonal and to the couplings of its two nodes.

    (A(q_a) + |A|) / 2  to column a,    (A(q_b) - |A|) / 2  to column b,        A = U I + c (x) nu + N (x) pi

What is computed is the first half of `LinePreconditioner`, with eigenvalues rounded off as there. Arrays are
(.., I, J, b), b flows innermost, blocks by rows; see `euler_kernels` for faces and the rim.
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

from hofno.solvers.euler_kernels import LANES, FusedEuler, enthalpy, face_of, load_all, rim_place, store_all
from hofno.solvers.euler_lines import ROUNDED, couple_cut_


@triton.jit
def _dyads(scale, c, row, n, other):
    """scale I + c (x) row + n (x) other."""
    out = ()
    for r in tl.static_range(4):
        for m in tl.static_range(4):
            if r == m:
                out = out + (scale + c[r] * row[m] + n[r] * other[m],)
            else:
                out = out + (c[r] * row[m] + n[r] * other[m],)
    return out


@triton.jit
def _mixed(a, x, b, y):
    return a * x[0] + b * y[0], a * x[1] + b * y[1], a * x[2] + b * y[2], a * x[3] + b * y[3]


@triton.jit
def _vectors(q, nx, ny):
    """U, c, N, nu, pi."""
    through, none = nx * q[1] + ny * q[2], nx * 0.0
    pressure = (0.2 * (q[1] * q[1] + q[2] * q[2]), -0.4 * q[1], -0.4 * q[2], none + 0.4)
    return (
        through,
        (none + 1.0, q[1], q[2], enthalpy(q)),
        (none, nx, ny, through),
        (-through, nx, ny, none),
        pressure,
    )


@triton.jit
def _jacobian(q, nx, ny):
    through, c, n, speed, pressure = _vectors(q, nx, ny)
    return _dyads(through, c, speed, n, pressure)


@triton.jit
def _rounded(value, width):
    size = tl.abs(value)
    return tl.where(size < width, 0.5 * (size * size / width + width), size)


@triton.jit
def _size(q, nx, ny, ROUNDED: tl.constexpr):
    """|A|, and the spectral radius."""
    through, c, n, speed, pressure = _vectors(q, nx, ny)
    area = tl.maximum(tl.sqrt(nx * nx + ny * ny), 1e-300)
    sound = tl.sqrt(1.4 * q[3] / q[0])
    a = sound * area
    still, ahead, back = (
        _rounded(through, ROUNDED * a),
        _rounded(through + a, ROUNDED * a),
        _rounded(through - a, ROUNDED * a),
    )
    odd, even = 0.5 * (ahead - back) / a, 0.5 * (ahead + back) - still
    carried = _mixed(odd, speed, even / (sound * sound), pressure)
    pushed = _mixed(odd, pressure, even / (area * area), speed)
    return _dyads(still, c, carried, n, pushed), tl.abs(through) + a


@triton.jit
def _face_kernel(
    q_pointer,  # (4, I, J, b)
    normal,  # (2, I, J, b)
    coupling,  # (2, 16, I, J, b): of a node with the next, with the one before
    radius,  # (I, J, b)
    n_i,
    n_j,
    b,
    ROUNDED: tl.constexpr,
    ALONG_I: tl.constexpr,
    LANES: tl.constexpr,
):
    at, to, there = face_of(n_i, n_j, b, ALONG_I, LANES)
    size = n_i * n_j * b
    one, two = load_all(q_pointer, at, size, there, 1.0, 4), load_all(q_pointer, to, size, there, 1.0, 4)
    nx, ny = tl.load(normal + at, mask=there, other=1.0), tl.load(normal + at + size, mask=there, other=0.0)
    middle = _mixed(0.5, one, 0.5, two)
    absolute, largest = _size(middle, nx, ny, ROUNDED)
    tl.store(radius + at, largest, mask=there)
    left, right = _jacobian(one, nx, ny), _jacobian(two, nx, ny)
    for m in tl.static_range(16):
        tl.store(coupling + at + m * size, 0.5 * (right[m] - absolute[m]), mask=there)
        tl.store(coupling + to + (16 + m) * size, -0.5 * (left[m] + absolute[m]), mask=there)


@triton.jit
def _rim_kernel(
    q_pointer,  # (4, I, J, b)
    normal,  # (2, R, b)
    out,  # (16, R, b)
    n_i,
    n_j,
    b,
    ROUNDED: tl.constexpr,
    LANES: tl.constexpr,
):
    lane, at, wall, there = rim_place(n_i, n_j, b, LANES)
    length = 2 * (n_i + n_j) * b
    q = load_all(q_pointer, at, n_i * n_j * b, there, 1.0, 4)
    nx, ny = tl.load(normal + lane, mask=there, other=1.0), tl.load(normal + lane + length, mask=there, other=0.0)
    open_x = tl.where(wall, 1.0, nx)  # a wall may have no length
    absolute, _ = _size(q, open_x, ny, ROUNDED)
    through = _jacobian(q, open_x, ny)
    _, _, _, _, pressure = _vectors(q, nx, ny)
    none = nx * 0.0
    pushed = _dyads(none, (none, nx, ny, none), pressure, (none, none, none, none), pressure)
    found = ()
    for m in tl.static_range(16):
        found = found + (tl.where(wall, pushed[m], 0.5 * (through[m] + absolute[m])),)
    store_all(out, found, lane, length, there)


class FusedBlocks:
    """Room for the blocks of some flows: `diagonal` D (16, I, J, b), `coupling` U and L along i and along j
    (2, 2, 16, I, J, b), and S / CFL in `time_term` (I, J, b)."""

    def __init__(self, flow: FusedEuler) -> None:
        self._flow, n_j, b = flow, *flow.shape[1:]
        self.coupling = flow.q.new_zeros(2, 2, 16, *flow.shape)
        self.diagonal = flow.q.new_empty(16, *flow.shape)
        self.time_term = flow.q.new_empty(flow.shape)
        self._radius = flow.q.new_empty(2, 1, *flow.shape)
        self._rim = flow.q.new_empty(16, *flow.rim_normal.shape[1:])
        flat = self.coupling.flatten(3)  # a face adds to its first node what couples the second one with it, negative
        self._ahead = [flat[0, 1, :, n_j * b :], flat[1, 1, :, b:]]

    def assemble(self, cfl: Tensor) -> None:
        """All blocks for the state in the flow's `q` and CFL numbers (b,)."""
        flow = self._flow
        for k, along_i in enumerate((True, False)):
            _face_kernel[flow.grid](
                flow.q, flow.normals[k], self.coupling[k], self._radius[k], *flow.shape, ROUNDED, along_i, LANES
            )
        _rim_kernel[flow.rim_grid](flow.q, flow.rim_normal, self._rim, *flow.shape, ROUNDED, LANES)
        flow.gather(self._radius, self._radius, None, self.time_term[None], (1, 1))
        self.time_term.mul_(0.5).div_(cfl)
        flow.gather(self._ahead, self.coupling[:, 0], self._rim, self.diagonal, (-1, -1))
        for m in range(0, 16, 5):
            self.diagonal[m].add_(self.time_term)
        along_i = self.coupling[0].movedim(-1, 2)  # (2, 16, b, I, J)
        couple_cut_(along_i[1], along_i[0], flow.wake)
