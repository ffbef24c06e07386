r"""The line preconditioner of steady Euler flow: diagonally dominant alternating directions.

    (D + L_j + U_j) D^{-1} (D + L_i + U_i)  ~  J + S / CFL

J is the Jacobian of first-order Roe fluxes with |A| held fixed: the flux of the face (a, b) brings (A(q_a) + |A|) / 2
to column a and (A(q_b) - |A|) / 2 to column b. D holds all diagonal blocks and the time term, L and U the neighbours
along one family of mesh lines (those along i are eliminated from both ends at once). S is half the sum of the spectral
radii of a node's faces. Eigenvalues near zero are rounded off in |A|, here only: the flow itself has no entropy fix.

Shapes: blocks (4, 4, b, I, J), lines (n, 4, 4, lanes), states and residuals (b, 4, I, J).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.solvers.block_lines import BlockLines, apply
from hofno.solvers.euler import GAMMA, Euler, primitive, total_enthalpy

ROUNDED = 0.1
"""Eigenvalues below this part of the speed of sound are rounded off."""


class LinePreconditioner:
    """The factors for a flow at a state (b, 4, I, J) and CFL numbers (b,); `solve` applies the inverse."""

    def __init__(self, flow: Euler, state: Tensor, cfl: Tensor) -> None:
        self._flow = flow
        b, _, n_i, n_j = state.shape
        q = primitive(state)
        left_i, right_i, radius_i = _face(q[:, :, :-1], q[:, :, 1:], flow.normal_i)
        left_j, right_j, radius_j = _face(q[..., :-1], q[..., 1:], flow.normal_j)
        diagonal = state.new_zeros(4, 4, b, n_i, n_j)
        diagonal[..., :-1, :] += left_i
        diagonal[..., 1:, :] -= right_i
        diagonal[..., :-1] += left_j
        diagonal[..., 1:] -= right_j
        diagonal[..., -1] += _face(q[..., -1], q[..., -1], flow.outer_normal)[0]
        diagonal[..., 0, :] += _face(q[:, :, 0], q[:, :, 0], flow.start_normal)[0]
        diagonal[..., -1, :] += _face(q[:, :, -1], q[:, :, -1], flow.end_normal)[0]
        if flow.wall:
            diagonal[..., 0] += _dyad(*_wall(q[..., 0], flow.body_normal))
        else:
            diagonal[..., 0] += _face(q[..., 0], q[..., 0], flow.body_normal)[0]
        radius = state.new_zeros(b, n_i, n_j)
        radius[:, :-1] += radius_i
        radius[:, 1:] += radius_i
        radius[..., :-1] += radius_j
        radius[..., 1:] += radius_j
        self.time_term = (0.5 * flow.join_(radius) / cfl[:, None, None])[:, None]  # S / CFL, (b, 1, I, J)
        flow.join_(diagonal)
        diagonal += _identity(state) * self.time_term[:, 0]

        lower, upper = torch.zeros_like(diagonal), torch.zeros_like(diagonal)
        upper[..., :-1] = right_j
        lower[..., 1:] = -left_j
        self._lines_j = BlockLines(_by_j(lower), _by_j(diagonal), _by_j(upper), self._join)
        lower.zero_()
        upper.zero_()
        upper[..., :-1, :] = right_i
        lower[..., 1:, :] = -left_i
        couple_cut_(lower, upper, flow.wake)
        self._diagonal = _folded(diagonal, diagonal)
        self._lines_i = BlockLines(_folded(upper, lower), self._diagonal, _folded(lower, upper), _join_halves)

    def solve(self, right: Tensor) -> Tensor:
        """(b, 4, I, J) -> (b, 4, I, J), equal on both sides of the cut."""
        b, _, n_i, n_j = right.shape
        x = self._lines_j.solve(right.permute(3, 1, 0, 2).reshape(n_j, 4, b * n_i))
        x = x.unflatten(-1, (b, n_i)).permute(1, 2, 3, 0)  # (4, b, I, J)
        x = self._lines_i.solve(apply(self._diagonal, _folded(x, x))).unflatten(-1, (2, b, n_j))
        x = torch.cat((x[:, :, 0].flip(0), x[1:, :, 1])).permute(2, 1, 0, 3).contiguous()
        if self._flow.wake:
            self._flow.join_(x)
            n = self._flow.wake + 1
            x[:, :, :n, 0] *= 0.5
            x[:, :, n_i - n :, 0] *= 0.5
        return x

    def _join(self, values: Tensor) -> Tensor:
        """Sum over the two lines that meet at a node of the cut. (.., b * I)"""
        n = self._flow.nodes.shape[2]
        apart = values.unflatten(-1, (-1, n)).clone()
        return self._flow.join_(apart[..., None])[..., 0].flatten(-2)


def couple_cut_(lower: Tensor, upper: Tensor, wake: int) -> None:
    """Along the cut an edge is stored twice, in opposite directions: each copy gets the coupling of both.

    (.., I, J) twice, in place
    """
    if wake == 0:
        return
    n, w = lower.shape[-2], wake
    ahead = upper[..., :w, 0] + lower[..., n - w :, 0].flip(-1)
    back = lower[..., 1 : w + 1, 0] + upper[..., n - 1 - w : n - 1, 0].flip(-1)
    upper[..., :w, 0], lower[..., n - w :, 0] = ahead, ahead.flip(-1)
    lower[..., 1 : w + 1, 0], upper[..., n - 1 - w : n - 1, 0] = back, back.flip(-1)


def _face(left: Tensor, right: Tensor, normal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(A(left) + |A|) / 2 and (A(right) - |A|) / 2, (4, 4, b, ..), and the spectral radius (b, ..)."""
    through, carry, push, speed, pressure, sound = _dyads(0.5 * (left + right), normal)
    area = torch.linalg.vector_norm(normal, dim=1).clamp_min(1e-300)
    a = sound * area
    still, ahead, back = (_rounded(value, ROUNDED * a) for value in (through, through + a, through - a))
    odd, even = 0.5 * (ahead - back) / a, 0.5 * (ahead + back) - still
    size = still * _identity(left) + _dyad(carry, odd * speed + even / (sound * sound) * pressure)
    size += _dyad(push, odd * pressure + even / area / area * speed)  # the square of an area of 0 would be none
    return 0.5 * (_jacobian(left, normal) + size), 0.5 * (_jacobian(right, normal) - size), through.abs() + a


def _jacobian(q: Tensor, normal: Tensor) -> Tensor:
    """A = U I + c (x) nu + N (x) pi, (4, 4, b, ..)."""
    through, carry, push, speed, pressure, _ = _dyads(q, normal)
    return through * _identity(q) + _dyad(carry, speed) + _dyad(push, pressure)


def _dyads(q: Tensor, normal: Tensor) -> tuple[Tensor, ...]:
    """U and the vectors c, N, nu, pi, each (4, b, ..), in the order U, c, N, nu, pi, and the speed of sound."""
    rho, u, v, p = q.unbind(1)
    nx, ny = normal.unbind(1)
    through, none = nx * u + ny * v, torch.zeros_like(u)
    carry = torch.stack((torch.ones_like(u), u, v, total_enthalpy(q)))
    push = torch.stack((none, nx, ny, through))
    speed = torch.stack((-through, nx, ny, none))
    return through, carry, push, speed, _pressure_row(u, v), torch.sqrt(GAMMA * p / rho)


def _wall(q: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """The wall's flux is p (0, n_x, n_y, 0): its direction and the differential of p."""
    _, u, v, _ = q.unbind(1)
    nx, ny = normal.unbind(1)
    none = torch.zeros_like(u)
    return torch.stack((none, nx, ny, none)), _pressure_row(u, v)


def _pressure_row(u: Tensor, v: Tensor) -> Tensor:
    return (GAMMA - 1) * torch.stack((0.5 * (u * u + v * v), -u, -v, torch.ones_like(u)))


def _rounded(value: Tensor, width: Tensor) -> Tensor:
    """|value|, with a parabola below `width`."""
    size = value.abs()
    return torch.where(size < width, 0.5 * (size * size / width + width), size)


def _dyad(column: Tensor, row: Tensor) -> Tensor:
    return column[:, None] * row


def _identity(like: Tensor) -> Tensor:
    """(4, 4, 1, 1, ..) to be multiplied with (b, ..) of the tensor `like` (b, 4, ..)."""
    eye = torch.eye(4, dtype=like.dtype, device=like.device)
    return eye.reshape(4, 4, *[1] * (like.dim() - 1))


def _folded(first: Tensor, second: Tensor) -> Tensor:
    """Lines along i, folded in the middle: indices fall in the first half and grow in the second.

    (.., b, I, J) twice -> ((I + 1) / 2, .., 2 * b * J)
    """
    middle = first.shape[-2] // 2
    both = torch.stack((first[..., : middle + 1, :].flip(-2), second[..., middle:, :]))
    return both.movedim(-2, 0).movedim(1, -3).flatten(-3).contiguous()


def _join_halves(values: Tensor) -> Tensor:
    """Sum over the two halves that meet in the middle. (.., 2 * b * J)"""
    first, second = values.unflatten(-1, (2, -1)).unbind(-2)
    both = first + second
    return torch.cat((both, both), -1)


def _by_j(blocks: Tensor) -> Tensor:
    """(4, 4, b, I, J) -> (J, 4, 4, b * I)"""
    return blocks.permute(4, 0, 1, 2, 3).flatten(3).contiguous()
