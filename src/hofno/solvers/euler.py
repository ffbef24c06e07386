r"""The compressible Euler equations on structured curvilinear meshes, in space: the sum of fluxes around every node.

    d/dt (rho, rho u, rho v, rho E) + div (rho U, rho u U + p e_x, rho v U + p e_y, rho H U) = 0,     gamma = 1.4

Unknowns live at the nodes. The control volume of a node is bounded by the lines from the centres of its cells to the
midpoints of its edges, so each edge (a, b) of the mesh owns one face, with normal n. Its flux is Roe's,

    F = (F(l) + F(r)) . n / 2 - |A| (r - l) / 2,
    |A| = |U| I + c (x) (k1 nu / a + k2 pi / a^2) + N (x) (k1 pi / a + k2 nu)

with c = (1, u, v, H), N = (0, n_x, n_y, U), nu and pi the differentials of U (times rho) and of p, and a the speed of
sound: |A| is a multiple of the identity plus two dyads, since A - U I has the eigenvalues 0, a, -a. There is no entropy
fix. The states l and r are linear along the edge, in (rho, u, v, p), limited by minmod: with d = q_b - q_a,

    l = q_a + minmod(d, -d/3 + 4/3 grad q_a . (x_b - x_a)) / 2,         r likewise from b,

where the gradient of a node fits its edges by least squares without weights. |minmod| <= |d|, so l and r lie between
q_a and q_b: density and pressure stay positive. On a wall only the pressure acts; the outer boundary takes Roe's flux
between the node and the exterior state.

A C-grid is cut behind the body: nodes (i, 0) and (I-1-i, 0), i = 0..wake, are one node each, and both places always
hold the same numbers.

Shapes: b flows, (b, 4, I, J) states, (b, 2, I, J) nodes; j = 0 is the body.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError

GAMMA = 1.4


def free_stream(mach: float, degrees: float = 0.0) -> Tensor:
    """(rho, u, v, p) of a uniform stream with rho = p = 1 at an angle of attack. (4,) in float64"""
    if not (math.isfinite(mach) and mach > 0):
        raise SolverError(f"the Mach number must be positive and finite; got {mach}")
    speed, angle = mach * math.sqrt(GAMMA), math.radians(degrees)
    return torch.tensor([1.0, speed * math.cos(angle), speed * math.sin(angle), 1.0], dtype=torch.float64)


def primitive(state: Tensor) -> Tensor:
    """(rho, rho u, rho v, rho E) to (rho, u, v, p). (b, 4, ..) -> (b, 4, ..)"""
    rho, mx, my, energy = state.unbind(1)
    u, v = mx / rho, my / rho
    return torch.stack((rho, u, v, (GAMMA - 1) * (energy - 0.5 * (mx * u + my * v))), 1)


def conservative(q: Tensor) -> Tensor:
    """(rho, u, v, p) to (rho, rho u, rho v, rho E). (b, 4, ..) -> (b, 4, ..)"""
    rho, u, v, p = q.unbind(1)
    return torch.stack((rho, rho * u, rho * v, p / (GAMMA - 1) + 0.5 * rho * (u * u + v * v)), 1)


def mach_number(q: Tensor) -> Tensor:
    """(b, 4, ..) primitive -> (b, ..)"""
    rho, u, v, p = q.unbind(1)
    return torch.sqrt((u * u + v * v) * rho / (GAMMA * p))


def total_enthalpy(q: Tensor) -> Tensor:
    """H = gamma / (gamma - 1) p / rho + |U|^2 / 2. (b, 4, ..) primitive -> (b, ..)"""
    rho, u, v, p = q.unbind(1)
    return GAMMA / (GAMMA - 1) * p / rho + 0.5 * (u * u + v * v)


def roe_flux(left: Tensor, right: Tensor, normal: Tensor) -> Tensor:
    """Flux through faces with normals of the faces' lengths. (b, 4, ..), (b, 4, ..), (b, 2, ..) -> (b, 4, ..)"""
    rho_l, u_l, v_l, p_l = left.unbind(1)
    rho_r, u_r, v_r, p_r = right.unbind(1)
    nx, ny = normal.unbind(1)
    area = torch.sqrt(nx * nx + ny * ny).clamp_min(1e-300)  # faces without length have no flux
    h_l, h_r = total_enthalpy(left), total_enthalpy(right)
    through_l, through_r = nx * u_l + ny * v_l, nx * u_r + ny * v_r
    weight = torch.sqrt(rho_r / rho_l)
    rho, share = weight * rho_l, weight / (1 + weight)
    u, v, h = u_l + share * (u_r - u_l), v_l + share * (v_r - v_l), h_l + share * (h_r - h_l)
    through = nx * u + ny * v
    sound = torch.sqrt((GAMMA - 1) * (h - 0.5 * (u * u + v * v)))
    a = sound * area
    still, ahead, back = through.abs(), (through + a).abs(), (through - a).abs()
    odd, even = 0.5 * (ahead - back), 0.5 * (ahead + back) - still
    impulse, dp = rho * (through_r - through_l), p_r - p_l
    carried = (odd * impulse / area + even * dp / sound) / sound  # multiplies (1, u, v, H)
    pushed = (odd * dp / sound + even * impulse / area) / area  # multiplies (0, nx, ny, U)
    mass_l, mass_r, pressure = rho_l * through_l, rho_r * through_r, p_l + p_r
    energy = rho_r * h_r - p_r - (rho_l * h_l - p_l)
    twice = (
        mass_l + mass_r - still * (rho_r - rho_l) - carried,
        mass_l * u_l + mass_r * u_r + (pressure - pushed) * nx - still * (rho_r * u_r - rho_l * u_l) - carried * u,
        mass_l * v_l + mass_r * v_r + (pressure - pushed) * ny - still * (rho_r * v_r - rho_l * v_l) - carried * v,
        mass_l * h_l + mass_r * h_r - still * energy - carried * h - pushed * through,
    )
    return 0.5 * torch.stack(twice, 1)


def minmod(a: Tensor, b: Tensor) -> Tensor:
    """The smaller of two slopes where they agree in sign, else 0."""
    return torch.where(a > 0, torch.minimum(a, b).clamp_min(0), torch.maximum(a, b).clamp_max(0))


def orientation(nodes: Tensor) -> tuple[Tensor, Tensor]:
    """+1 where i, j are right-handed, -1 where left-handed, and where cells are folded. (b, 1, 1), (b,)"""
    one, two = nodes[:, :, 1:, 1:] - nodes[:, :, :-1, :-1], nodes[:, :, :-1, 1:] - nodes[:, :, 1:, :-1]
    area = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0]
    sign = torch.sign(area[:, :1, :1])
    return sign, ~((area * sign > 0).flatten(1).all(1))


class Euler:
    """Steady Euler flow on a batch of meshes of one shape.

    Args:
        nodes: (b, 2, I, J), cells of one orientation, I, J >= 3 and I odd.
        exterior: (rho, u, v, p) beyond the outer boundary: (4,), or (b, 4, I, J) of which the boundary nodes count.
        wake: cells of the cut at each end of j = 0; 0 for a mesh without a cut.
        wall: whether the rest of j = 0 is a wall; otherwise it is outer boundary as well.
    """

    def __init__(self, nodes: Tensor, exterior: Tensor, wake: int = 0, wall: bool = True) -> None:
        shape = tuple(nodes.shape)
        if len(shape) != 4 or shape[1] != 2 or min(shape[0], shape[2] - 2, shape[3] - 2) < 1 or shape[2] % 2 == 0:
            raise ShapeError(f"expected nodes of shape (b, 2, I, J) with I, J >= 3 and I odd; got {shape}")
        b, _, n_i, n_j = nodes.shape
        if not 0 <= 2 * wake < n_i - 1:
            raise ShapeError(f"a cut of {wake} cells at each end leaves no body on {n_i} nodes; give a smaller wake")
        self.nodes, self.wake, self.wall = nodes, wake, wall
        if exterior.dim() == 1:
            exterior = exterior.reshape(1, 4, 1, 1)
        self.exterior = exterior.to(nodes).expand(b, 4, n_i, n_j)
        sign = self._orientation()
        centres = 0.25 * (nodes[:, :, 1:, 1:] + nodes[:, :, 1:, :-1] + nodes[:, :, :-1, 1:] + nodes[:, :, :-1, :-1])
        on_i, on_j = 0.5 * (nodes[:, :, 1:] + nodes[:, :, :-1]), 0.5 * (nodes[..., 1:] + nodes[..., :-1])
        along_j = torch.cat((on_i[..., :1], centres, on_i[..., -1:]), -1).diff(dim=-1)
        along_i = torch.cat((on_j[:, :, :1], centres, on_j[:, :, -1:]), -2).diff(dim=-2)
        self.normal_i = -sign * _turn(along_j)  # (b, 2, I-1, J), towards growing i
        self.normal_j = sign * _turn(along_i)  # (b, 2, I, J-1), towards growing j
        self.edge_i, self.edge_j = nodes.diff(dim=-2), nodes.diff(dim=-1)
        sign = sign[..., 0]
        body = self.edge_i[..., 0].clone()
        body[..., :wake] = body[..., n_i - 1 - wake :] = 0
        self.body_normal = -_to_nodes(sign * _turn(body))  # (b, 2, I), out of the flow
        self.outer_normal = _to_nodes(sign * _turn(self.edge_i[..., -1]))  # (b, 2, I)
        self.start_normal = _to_nodes(sign * _turn(self.edge_j[:, :, 0]))  # (b, 2, J), at i = 0
        self.end_normal = -_to_nodes(sign * _turn(self.edge_j[:, :, -1]))  # (b, 2, J), at i = I-1
        normals = [self.outer_normal, self.start_normal, self.end_normal, self.body_normal]
        self._rim_normal = torch.cat(normals[:3] if wall else normals, -1)
        self._rim_exterior = torch.cat(self._rim(self.exterior), -1)
        self._rim_lengths = [part.shape[-1] for part in self._rim(self.exterior)]
        self.once = nodes.new_ones(n_i - 1, n_j)  # an edge of the cut is stored twice and counts half each time
        self.once[:wake, 0] = self.once[n_i - 1 - wake :, 0] = 0.5
        self.fit = self._least_squares()

    def uniform(self) -> Tensor:
        """The state that is the exterior everywhere, (b, 4, I, J)."""
        return conservative(self.exterior)

    def residual(self, state: Tensor) -> Tensor:
        """Net flux out of every control volume; zero for a steady flow. (b, 4, I, J) -> (b, 4, I, J)"""
        q = primitive(state)
        left_i, right_i, left_j, right_j = self._edge_states(q)
        flux = roe_flux(left_i, right_i, self.normal_i)
        out = torch.zeros_like(state)
        out[:, :, :-1] += flux
        out[:, :, 1:] -= flux
        flux = roe_flux(left_j, right_j, self.normal_j)
        out[..., :-1] += flux
        out[..., 1:] -= flux
        flux = roe_flux(torch.cat(self._rim(q), -1), self._rim_exterior, self._rim_normal)
        for rim, part in zip(self._rim(out), flux.split(self._rim_lengths, -1), strict=True):
            rim += part
        if self.wall:
            out[:, 1:3, :, 0] += q[:, 3:, :, 0] * self.body_normal
        return self.join_(out)

    def force(self, state: Tensor) -> Tensor:
        """The force of the flow on the wall, (b, 2)."""
        return (primitive(state)[:, 3:, :, 0] * self.body_normal).sum(-1)

    def coarse(self) -> Euler:
        """The flow on every second node."""
        return Euler(self.nodes[:, :, ::2, ::2], self.exterior[:, :, ::2, ::2], self.wake // 2, self.wall)

    def join_(self, values: Tensor) -> Tensor:
        """Add up what the two sides of the cut bring to their common nodes, in place. (.., I, J)"""
        if self.wake:
            n, m = self.wake + 1, values.shape[-2] - self.wake - 1
            both = values[..., :n, 0] + values[..., m:, 0].flip(-1)
            values[..., :n, 0] = both
            values[..., m:, 0] = both.flip(-1)
        return values

    def _rim(self, values: Tensor) -> list[Tensor]:
        """Views of the outer boundary, (b, 4, n) each: outer, start, end, and the body where it is no wall."""
        rim = [values[..., -1], values[:, :, 0], values[:, :, -1]]
        return rim if self.wall else [*rim, values[..., 0]]

    def _edge_states(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Limited states on both sides of every face: (b, 4, I-1, J) twice and (b, 4, I, J-1) twice."""
        d_i, d_j = q.diff(dim=-2), q.diff(dim=-1)
        grad_x, grad_y = self._gradient(d_i, d_j)
        x, y = self.edge_i[:, :1], self.edge_i[:, 1:]
        left_i = q[:, :, :-1] + _half_step(d_i, grad_x[:, :, :-1] * x + grad_y[:, :, :-1] * y)
        right_i = q[:, :, 1:] - _half_step(d_i, grad_x[:, :, 1:] * x + grad_y[:, :, 1:] * y)
        x, y = self.edge_j[:, :1], self.edge_j[:, 1:]
        left_j = q[..., :-1] + _half_step(d_j, grad_x[..., :-1] * x + grad_y[..., :-1] * y)
        right_j = q[..., 1:] - _half_step(d_j, grad_x[..., 1:] * x + grad_y[..., 1:] * y)
        return left_i, right_i, left_j, right_j

    def _gradient(self, d_i: Tensor, d_j: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient at every node, (b, 4, I, J) twice, from the differences along all edges."""
        xx, xy, yy = self.fit
        weighted = d_i * self.once
        sum_x, sum_y = (
            self._gather(weighted * self.edge_i[:, axis, None], d_j * self.edge_j[:, axis, None]) for axis in (0, 1)
        )
        return xx * sum_x + xy * sum_y, xy * sum_x + yy * sum_y

    def _gather(self, on_i: Tensor, on_j: Tensor) -> Tensor:
        """Sum at every node over its edges. (.., I-1, J), (.., I, J-1) -> (.., I, J)"""
        out = on_i.new_zeros((*on_i.shape[:-2], on_j.shape[-2], on_i.shape[-1]))
        out[..., :-1, :] += on_i
        out[..., 1:, :] += on_i
        out[..., :-1] += on_j
        out[..., 1:] += on_j
        return self.join_(out)

    def _least_squares(self) -> tuple[Tensor, Tensor, Tensor]:
        """The inverse of sum x x^T over the edges x of every node, as xx, xy, yy, each (b, 1, I, J)."""
        i, j = self.edge_i, self.edge_j
        xx, xy, yy = (
            self._gather(i[:, a : a + 1] * i[:, c : c + 1] * self.once, j[:, a : a + 1] * j[:, c : c + 1])
            for a, c in ((0, 0), (0, 1), (1, 1))
        )
        determinant = xx * yy - xy * xy
        return yy / determinant, -xy / determinant, xx / determinant

    def _orientation(self) -> Tensor:
        """+1 where i, j are right-handed, -1 where left-handed; folded meshes are refused. (b, 1, 1, 1)"""
        sign, bad = orientation(self.nodes)
        if bool(bad.any()):
            raise SolverError(
                f"the mesh of sample {int(bad.nonzero()[0])} of the batch has cells that are folded, empty or not "
                "finite; give nodes whose cells all have positive area"
            )
        return sign[:, None]


def _half_step(difference: Tensor, slope: Tensor) -> Tensor:
    return 0.5 * minmod(difference, (4 * slope - difference) / 3)


def _turn(vectors: Tensor) -> Tensor:
    """Vectors turned by a right angle to the left. (b, 2, ..)"""
    return torch.stack((-vectors[:, 1], vectors[:, 0]), 1)


def _to_nodes(edges: Tensor) -> Tensor:
    """Half of each edge to each of its ends. (b, 2, n-1) -> (b, 2, n)"""
    return 0.5 * (torch.nn.functional.pad(edges, (1, 0)) + torch.nn.functional.pad(edges, (0, 1)))
