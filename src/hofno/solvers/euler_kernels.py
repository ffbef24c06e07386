r"""The sum of Euler fluxes around every node in a handful of launches, one node or one face of one flow to a thread.

What is computed is `Euler.residual`, step by step: primitive variables, gradients, limited states and Roe's flux of the
faces along i and along j, the fluxes of the rim, and what they all bring to a node. A node of the cut also takes what
its other place brings.

Arrays are (.., I, J, b), b flows innermost; a face lies at the place of its first node. The rim is one line of nodes,
(.., R, b) with R = 2 (I + J): outer boundary, start, end, wall.
"""

# The kernel language adds tuples but does not unpack them:
# ruff: noqa: RUF005
# It is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.solvers.euler import Euler

LANES = 128

Pair = Tensor | list[Tensor]
"""Of both families of faces."""


@triton.jit
def place_of(n_i, n_j, b, LANES: tl.constexpr):
    """Of each lane: itself, i, j, the flow, and whether it is one."""
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    return at, at // b // n_j, at // b % n_j, at % b, at < n_i * n_j * b


@triton.jit
def face_of(n_i, n_j, b, ALONG_I: tl.constexpr, LANES: tl.constexpr):
    """Of each lane: its node, the next one along i or along j, and whether there is one."""
    at, i, j, _, there = place_of(n_i, n_j, b, LANES)
    there = there & ((i < n_i - 1) if ALONG_I else (j < n_j - 1))
    return at, at + (n_j * b if ALONG_I else b), there


@triton.jit
def rim_place(n_i, n_j, b, LANES: tl.constexpr):
    """Of each lane of the rim: itself, its node, whether it is wall, and whether it is a lane."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    r, wall = lane // b, lane // b >= n_i + 2 * n_j
    i = tl.where(r < n_i, r, tl.where(r < n_i + n_j, 0, n_i - 1))
    i = tl.where(wall, r - n_i - 2 * n_j, i)
    j = tl.where(r < n_i, n_j - 1, tl.where(r < n_i + n_j, r - n_i, r - n_i - n_j))
    j = tl.where(wall, 0, j)
    return lane, (i * n_j + j) * b + lane % b, wall, lane < 2 * (n_i + n_j) * b


@triton.jit
def load_all(pointer, at, size, there, other, COUNT: tl.constexpr):
    out = ()
    for m in tl.static_range(COUNT):
        out = out + (tl.load(pointer + at + m * size, mask=there, other=other),)
    return out


@triton.jit
def store_all(pointer, values, at, size, there):
    for m in tl.static_range(len(values)):
        tl.store(pointer + at + m * size, values[m], mask=there)


@triton.jit
def _primitive_kernel(
    state,  # (4, I, J, b)
    v_pointer,  # (4, I, J, b)
    length,  # (b,)
    q_pointer,  # (4, I, J, b)
    n_i,
    n_j,
    b,
    MOVED: tl.constexpr,  # by length v
    LANES: tl.constexpr,
):
    at, _, _, flow, there = place_of(n_i, n_j, b, LANES)
    size = n_i * n_j * b
    w = load_all(state, at, size, there, 1.0, 4)
    if MOVED:
        far = tl.load(length + flow, mask=there, other=0.0)
        v = load_all(v_pointer, at, size, there, 0.0, 4)
        w = (w[0] + far * v[0], w[1] + far * v[1], w[2] + far * v[2], w[3] + far * v[3])
    u, v = w[1] / w[0], w[2] / w[0]
    store_all(q_pointer, (w[0], u, v, 0.4 * (w[3] - 0.5 * (w[1] * u + w[2] * v))), at, size, there)


@triton.jit
def _add_edge(sums, q_pointer, nodes, at, near, size, there, weight):
    """Products of the differences along an edge, of (rho, u, v, p) with x and with y."""
    x = tl.load(nodes + near, mask=there, other=0.0) - tl.load(nodes + at, mask=there, other=0.0)
    y = tl.load(nodes + near + size, mask=there, other=0.0) - tl.load(nodes + at + size, mask=there, other=0.0)
    one, other = load_all(q_pointer, near, size, there, 0.0, 4), load_all(q_pointer, at, size, there, 0.0, 4)
    found = ()
    for c in tl.static_range(4):
        found = found + (sums[c] + (one[c] - other[c]) * weight * x,)
    for c in tl.static_range(4):
        found = found + (sums[4 + c] + (one[c] - other[c]) * weight * y,)
    return found


@triton.jit
def _edge_sums(q_pointer, nodes, i, j, flow, n_i, n_j, b, wake, there, LANES: tl.constexpr):
    at, row, size = (i * n_j + j) * b + flow, n_j * b, n_i * n_j * b
    none = tl.zeros([LANES], tl.float64)
    ahead = tl.where((j == 0) & ((i < wake) | (i >= n_i - 1 - wake)), 0.5, 1.0)  # edges of the cut lie there twice
    behind = tl.where((j == 0) & ((i <= wake) | (i >= n_i - wake)), 0.5, 1.0)
    sums = (none, none, none, none, none, none, none, none)
    sums = _add_edge(sums, q_pointer, nodes, at, at + row, size, there & (i < n_i - 1), ahead)
    sums = _add_edge(sums, q_pointer, nodes, at, at - row, size, there & (i > 0), behind)
    sums = _add_edge(sums, q_pointer, nodes, at, at + b, size, there & (j < n_j - 1), 1.0)
    return _add_edge(sums, q_pointer, nodes, at, at - b, size, there & (j > 0), 1.0)


@triton.jit
def _gradient_kernel(
    q_pointer,  # (4, I, J, b)
    nodes,  # (2, I, J, b)
    fit,  # (3, I, J, b): xx, xy, yy
    gradient,  # (8, I, J, b): along x, along y
    n_i,
    n_j,
    b,
    wake,
    LANES: tl.constexpr,
):
    at, i, j, flow, there = place_of(n_i, n_j, b, LANES)
    size = n_i * n_j * b
    cut = there & (j == 0) & (wake > 0) & ((i <= wake) | (i >= n_i - 1 - wake))
    one = _edge_sums(q_pointer, nodes, i, j, flow, n_i, n_j, b, wake, there, LANES)
    two = _edge_sums(q_pointer, nodes, n_i - 1 - i, j, flow, n_i, n_j, b, wake, cut, LANES)
    f = load_all(fit, at, size, there, 0.0, 3)
    for c in tl.static_range(4):
        x, y = one[c] + two[c], one[4 + c] + two[4 + c]
        tl.store(gradient + at + c * size, f[0] * x + f[1] * y, mask=there)
        tl.store(gradient + at + (4 + c) * size, f[1] * x + f[2] * y, mask=there)


@triton.jit
def _half_step(difference, slope):
    other = (4.0 * slope - difference) / 3.0
    up = tl.maximum(tl.minimum(difference, other), 0.0)
    return 0.5 * tl.where(difference > 0, up, tl.minimum(tl.maximum(difference, other), 0.0))


@triton.jit
def enthalpy(q):
    return 3.5 * q[3] / q[0] + 0.5 * (q[1] * q[1] + q[2] * q[2])


@triton.jit
def _roe(one, two, nx, ny):
    area = tl.maximum(tl.sqrt(nx * nx + ny * ny), 1e-300)
    h_l, h_r = enthalpy(one), enthalpy(two)
    through_l, through_r = nx * one[1] + ny * one[2], nx * two[1] + ny * two[2]
    weight = tl.sqrt(two[0] / one[0])
    rho, share = weight * one[0], weight / (1.0 + weight)
    u, v, h = one[1] + share * (two[1] - one[1]), one[2] + share * (two[2] - one[2]), h_l + share * (h_r - h_l)
    through = nx * u + ny * v
    sound = tl.sqrt(0.4 * (h - 0.5 * (u * u + v * v)))
    a = sound * area
    still, ahead, back = tl.abs(through), tl.abs(through + a), tl.abs(through - a)
    odd, even = 0.5 * (ahead - back), 0.5 * (ahead + back) - still
    impulse, dp = rho * (through_r - through_l), two[3] - one[3]
    carried = (odd * impulse / area + even * dp / sound) / sound
    pushed = (odd * dp / sound + even * impulse / area) / area
    mass_l, mass_r, pressure = one[0] * through_l, two[0] * through_r, one[3] + two[3] - pushed
    energy = two[0] * h_r - two[3] - (one[0] * h_l - one[3])
    du, dv = two[0] * two[1] - one[0] * one[1], two[0] * two[2] - one[0] * one[2]
    return (
        0.5 * (mass_l + mass_r - still * (two[0] - one[0]) - carried),
        0.5 * (mass_l * one[1] + mass_r * two[1] + pressure * nx - still * du - carried * u),
        0.5 * (mass_l * one[2] + mass_r * two[2] + pressure * ny - still * dv - carried * v),
        0.5 * (mass_l * h_l + mass_r * h_r - still * energy - carried * h - pushed * through),
    )


@triton.jit
def _flux_kernel(
    q_pointer,  # (4, I, J, b)
    gradient,  # (8, I, J, b)
    nodes,  # (2, I, J, b)
    normal,  # (2, I, J, b)
    flux,  # (4, I, J, b)
    n_i,
    n_j,
    b,
    ALONG_I: tl.constexpr,
    LANES: tl.constexpr,
):
    at, to, there = face_of(n_i, n_j, b, ALONG_I, LANES)
    size = n_i * n_j * b
    x = tl.load(nodes + to, mask=there, other=0.0) - tl.load(nodes + at, mask=there, other=0.0)
    y = tl.load(nodes + to + size, mask=there, other=0.0) - tl.load(nodes + at + size, mask=there, other=0.0)
    one, two = load_all(q_pointer, at, size, there, 1.0, 4), load_all(q_pointer, to, size, there, 1.0, 4)
    left, right = (), ()
    for c in tl.static_range(4):
        from_x = tl.load(gradient + at + c * size, mask=there, other=0.0)
        from_y = tl.load(gradient + at + (4 + c) * size, mask=there, other=0.0)
        to_x = tl.load(gradient + to + c * size, mask=there, other=0.0)
        to_y = tl.load(gradient + to + (4 + c) * size, mask=there, other=0.0)
        difference = two[c] - one[c]
        left = left + (one[c] + _half_step(difference, from_x * x + from_y * y),)
        right = right + (two[c] - _half_step(difference, to_x * x + to_y * y),)
    nx = tl.load(normal + at, mask=there, other=1.0)
    ny = tl.load(normal + at + size, mask=there, other=0.0)
    store_all(flux, _roe(left, right, nx, ny), at, size, there)


@triton.jit
def _rim_kernel(
    q_pointer,  # (4, I, J, b)
    exterior,  # (4, R, b)
    normal,  # (2, R, b)
    flux,  # (4, R, b)
    n_i,
    n_j,
    b,
    LANES: tl.constexpr,
):
    lane, at, wall, there = rim_place(n_i, n_j, b, LANES)
    length = 2 * (n_i + n_j) * b
    q = load_all(q_pointer, at, n_i * n_j * b, there, 1.0, 4)
    nx = tl.load(normal + lane, mask=there, other=1.0)
    ny = tl.load(normal + lane + length, mask=there, other=0.0)
    out = _roe(q, load_all(exterior, lane, length, there, 1.0, 4), nx, ny)
    out = (
        tl.where(wall, 0.0, out[0]),
        tl.where(wall, q[3] * nx, out[1]),
        tl.where(wall, q[3] * ny, out[2]),
        tl.where(wall, 0.0, out[3]),
    )
    store_all(flux, out, lane, length, there)


@triton.jit
def _net(ahead_i, behind_i, ahead_j, behind_j, rim, c, i, j, flow, n_i, n_j, b, there,
         AHEAD: tl.constexpr, BEHIND: tl.constexpr, RIM: tl.constexpr):  # fmt: skip
    at = (c * n_i * n_j + i * n_j + j) * b + flow
    out = AHEAD * tl.load(ahead_i + at, mask=there & (i < n_i - 1), other=0.0)
    out += BEHIND * tl.load(behind_i + at - n_j * b, mask=there & (i > 0), other=0.0)
    out += AHEAD * tl.load(ahead_j + at, mask=there & (j < n_j - 1), other=0.0)
    out += BEHIND * tl.load(behind_j + at - b, mask=there & (j > 0), other=0.0)
    if RIM:
        r = rim + c * 2 * (n_i + n_j) * b + flow
        out += tl.load(r + i * b, mask=there & (j == n_j - 1), other=0.0)
        out += tl.load(r + (n_i + j) * b, mask=there & (i == 0), other=0.0)
        out += tl.load(r + (n_i + n_j + j) * b, mask=there & (i == n_i - 1), other=0.0)
        out += tl.load(r + (n_i + 2 * n_j + i) * b, mask=there & (j == 0), other=0.0)
    return out


@triton.jit
def _gather_kernel(
    ahead_i,  # (c, I, J, b): what the face ahead of a node brings to it, AHEAD times
    behind_i,  # (c, I, J, b): what the face at a node brings to the next node, BEHIND times
    ahead_j,
    behind_j,
    rim,  # (c, R, b)
    out,  # (c, I, J, b)
    time_term,  # (I, J, b)
    v_pointer,  # (c, I, J, b)
    before,  # (c, I, J, b)
    length,  # (b,)
    n_i,
    n_j,
    b,
    wake,
    AHEAD: tl.constexpr,
    BEHIND: tl.constexpr,
    RIM: tl.constexpr,
    QUOTIENT: tl.constexpr,  # time_term v + (sum - before) / length instead of the sum
    LANES: tl.constexpr,
):
    at, i, j, flow, there = place_of(n_i, n_j, b, LANES)
    c = tl.program_id(1)
    cut = there & (j == 0) & (wake > 0) & ((i <= wake) | (i >= n_i - 1 - wake))
    found = _net(ahead_i, behind_i, ahead_j, behind_j, rim, c, i, j, flow, n_i, n_j, b, there, AHEAD, BEHIND, RIM)
    found += _net(
        ahead_i, behind_i, ahead_j, behind_j, rim, c, n_i - 1 - i, j, flow, n_i, n_j, b, cut, AHEAD, BEHIND, RIM
    )
    here = at + c * n_i * n_j * b
    if QUOTIENT:
        found = (found - tl.load(before + here, mask=there, other=0.0)) / tl.load(length + flow, mask=there, other=1.0)
        v = tl.load(v_pointer + here, mask=there, other=0.0)
        found += tl.load(time_term + at, mask=there, other=0.0) * v
    tl.store(out + here, found, mask=there)


class FusedEuler:
    """What the residual of some flows needs, and room for its parts.

    Args:
        flow: meshes with a wall.
        chosen: which flows of it, (b,).
    """

    def __init__(self, flow: Euler, chosen: Tensor) -> None:
        def innermost(values: Tensor) -> Tensor:
            return values[chosen].movedim(0, -1).contiguous()

        self.nodes = innermost(flow.nodes)
        _, n_i, n_j, b = self.nodes.shape
        self.shape, self.wake = (n_i, n_j, b), flow.wake
        self.normals = self.nodes.new_zeros(2, *self.nodes.shape)  # of faces along i and along j
        self.normals[0, :, :-1], self.normals[1, :, :, :-1] = innermost(flow.normal_i), innermost(flow.normal_j)
        self.fit = innermost(torch.cat(flow.fit, 1))
        rim = [flow.outer_normal, flow.start_normal, flow.end_normal, flow.body_normal]
        self.rim_normal = innermost(torch.cat(rim, -1))
        outside = flow.exterior
        sides = [outside[..., -1], outside[:, :, 0], outside[:, :, -1], outside[..., 0]]
        self.rim_exterior = innermost(torch.cat(sides, -1))
        self.q = self.nodes.new_empty(4, *self.shape)
        self._gradient = self.nodes.new_empty(8, *self.shape)
        self._flux = self.nodes.new_empty(2, 4, *self.shape)
        self._rim_flux = self.nodes.new_empty(4, *self.rim_normal.shape[1:])
        self.grid = (triton.cdiv(n_i * n_j * b, LANES),)
        self.rim_grid = (triton.cdiv(self.rim_normal[0].numel(), LANES),)

    def residual(self, state: Tensor, out: Tensor) -> None:
        """Net flux out of every control volume, into `out`. (4, I, J, b)"""
        self.primitive(state)
        self._fluxes()
        self.gather(self._flux, self._flux, self._rim_flux, out, (1, -1))

    def derivative(
        self, state: Tensor, v: Tensor, length: Tensor, before: Tensor, time_term: Tensor, out: Tensor
    ) -> None:
        """time_term v + (residual(state + length v) - before) / length, into `out`. (4, I, J, b), length (b,)"""
        _primitive_kernel[self.grid](state, v, length, self.q, *self.shape, True, LANES)
        self._fluxes()
        self._gather(self._flux, self._flux, self._rim_flux, out, (1, -1), (time_term, v, before, length))

    def primitive(self, state: Tensor) -> None:
        """(rho, u, v, p) of a state, into `q`."""
        _primitive_kernel[self.grid](state, state, state, self.q, *self.shape, False, LANES)

    def gather(self, ahead: Pair, behind: Pair, rim: Tensor | None, out: Tensor, signs: tuple[int, int]) -> None:
        """Sum at every node over its faces along i and j, and over the rim.

        Args:
            ahead, behind: of both families, what a face brings to its first and to its second node, each times one of
                `signs`; (c, I, J, b) for each family.
            rim: (c, R, b), or nothing.
            out: (c, I, J, b).
            signs: of `ahead` and of `behind`.
        """
        self._gather(ahead, behind, rim, out, signs, None)

    def _gather(
        self,
        ahead: Pair,
        behind: Pair,
        rim: Tensor | None,
        out: Tensor,
        signs: tuple[int, int],
        quotient: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    ) -> None:
        unused = (out, out, out, out)
        _gather_kernel[(*self.grid, len(out))](
            ahead[0], behind[0], ahead[1], behind[1], out if rim is None else rim, out, *(quotient or unused),
            *self.shape, self.wake, *signs, rim is not None, quotient is not None, LANES,
        )  # fmt: skip

    def _fluxes(self) -> None:
        n_i, n_j, b = self.shape
        _gradient_kernel[self.grid](self.q, self.nodes, self.fit, self._gradient, n_i, n_j, b, self.wake, LANES)
        for along_i, normal, flux in zip((True, False), self.normals, self._flux, strict=True):
            _flux_kernel[self.grid](self.q, self._gradient, self.nodes, normal, flux, n_i, n_j, b, along_i, LANES)
        _rim_kernel[self.rim_grid](self.q, self.rim_exterior, self.rim_normal, self._rim_flux, n_i, n_j, b, LANES)
