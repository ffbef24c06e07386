r"""Explicit dynamics of elastic, perfectly plastic blocks in plane stress, many at a time.

    rho dv/dt = div sigma,     sigma_zz = 0,     |sigma|_Mises <= yield,     large displacements

Stress is kept as p, q, s (see `perfect_plastic`). With L the velocity gradient in the middle of a step of dt,

    p* = p + a (L_xx + L_yy) dt/2,    q* = q + G (L_xx - L_yy) dt - w s,    s* = s + G (L_xy + L_yx) dt + w q,

where w = (L_yx - L_xy) dt turns the stress with the material (Jaumann); then p*, q*, s* return to the yield surface.
Plastic volume is constant, so that the thickness grows by exp(-2 m p - 2 nu/E dp).

Elements have four nodes and one point of integration. The mode that it does not see, velocities + - + - around an
element, is resisted by a force that is linear in its amplitude up to a limit: elastic, perfectly plastic as the
material. It is orthogonal to linear fields, so that patches stay exact. Time is central differences, v half a step
before x.

Nodes of the top row never enter the die; between them its edges may, by ALLOWANCE: where the die is rounder than an
edge can be, keeping the whole edge out would hold the block away from the die by as much. A step reads nothing back, so
that a CUDA graph holds it; on a GPU it is one pass over elements and one over nodes (`plasticity_kernels`), on a CPU
with a C compiler a single one (`plasticity_native`). Both keep forces of the top row only.

Units: mm, ms, kg and therefore kN and GPa. Arrays: (2, J, I, b), rows J upwards, columns I along x, blocks b last, so
that all work is on long rows; element arrays are (e) = (J - 1, I - 1, b).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SolverError
from hofno.solvers.die import Die
from hofno.solvers.gpu import Replayed
from hofno.solvers.parallel import go_on
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.triton_use import kernels_run_on

ALLOWANCE = 0.035
"""How deep an edge of the top may be in the die, mm, before its nodes are pushed back."""

TOUCHING = 1e-6
"""How far inside a die nodes may begin, mm: rounding."""

PLACES = 3
"""Inner places of an edge at which it is looked at."""

_ELEMENTS_AT_ONCE = 2_000_000
"""Steps of elements that compiled code takes before it is asked whether to go on: a fiftieth of a second."""

_STATE = (
    *("x", "v", "p", "q", "s", "thickness", "hourglass", "hourglass_work", "plastic_work"),
    *("impact", "die_work", "_support_work", "depth"),
)


@dataclass(frozen=True)
class Energies:
    """Where the work of the die and of moving supports went, kN mm = J, of each block (b,)."""

    kinetic: Tensor
    elastic: Tensor
    plastic: Tensor
    hourglass: Tensor  # stored and dissipated
    impact: Tensor  # lost when nodes meet the die
    external: Tensor  # done by the die and by moving supports

    @property
    def imbalance(self) -> Tensor:
        """external - all others, as a part of external."""
        found = self.kinetic + self.elastic + self.plastic + self.hourglass + self.impact
        return (self.external - found) / self.external.abs().clamp_min(1e-300)


class Blocks:
    """Blocks of one reference mesh and material that move in time.

    Args:
        nodes: reference positions (2, J, I), rows upwards, columns to the right.
        count: blocks b.
        material: elasticity, yield stress and density.
        die: what comes down on the top row; None for nothing.
        held: (2, J, I), components that keep their velocity whatever the forces: supports, or imposed motion.
        velocity: initial velocities (2, J, I); None for rest.
        hourglass: part of the resistance of a fully integrated element against the unseen mode, in (0, 1].
        thickness: initial, mm.
        device: where the work is done.

    Good values: hourglass=0.15; steps of `advance` such that they are below `stable_step` at its end.
    """

    def __init__(
        self,
        nodes: Tensor,
        count: int,
        material: PerfectPlastic,
        die: Die | None = None,
        held: Tensor | None = None,
        velocity: Tensor | None = None,
        hourglass: float = 0.15,
        thickness: float = 1.0,
        device: str | torch.device = "cpu",
    ) -> None:
        if nodes.dim() != 3 or len(nodes) != 2 or min(nodes.shape) < 2 or count < 1:
            raise ShapeError(f"expected nodes (2, J, I) and count >= 1; got {tuple(nodes.shape)} and {count}")
        if any(part is not None and part.shape != nodes.shape for part in (held, velocity)):
            raise ShapeError(f"held and velocity must have the shape of nodes, {tuple(nodes.shape)}; got others")
        if not (0 < hourglass <= 1 and math.isfinite(thickness) and thickness > 0):
            raise SolverError(f"hourglass must be in (0, 1] and thickness positive; got {hourglass} and {thickness}")
        self.material, self.die, self.device, self.steps = material, die, torch.device(device), 0
        nodes = nodes.to(self.device, torch.float64)
        _, rows, columns = nodes.shape
        doubled = _diagonals(nodes)[2]
        if not bool((doubled > 0).all()):
            raise SolverError(
                "elements must have positive area; got others; order rows upwards and columns to the right"
            )
        mass = nodes.new_zeros(rows, columns)
        for corner in _corners(mass):  # a quarter of each element for each of its nodes
            corner += material.density * thickness * doubled / 8
        self.mass = mass[..., None]
        start = torch.zeros_like(nodes) if velocity is None else velocity.to(nodes)
        kept = torch.zeros_like(nodes, dtype=torch.bool) if held is None else held.to(self.device)
        self._supports = torch.where(kept, start, 0.0)[..., None] if bool((kept & (start != 0)).any()) else None
        self._free = (~kept)[..., None]
        self.inverse_mass = torch.where(kept, 0.0, 1 / mass)[..., None]
        self.x, self.v = (part[..., None].repeat(1, 1, 1, count) for part in (nodes, start))
        self.force = torch.zeros_like(self.x)  # of stress and hourglass, against the motion of nodes
        elements = (rows - 1, columns - 1, count)
        self.p, self.q, self.s = (nodes.new_zeros(elements) for _ in range(3))
        self.thickness = nodes.new_full(elements, thickness)
        self.hourglass_part = hourglass
        self.hourglass = nodes.new_zeros(2, *elements)
        self.hourglass_work, self.plastic_work = (nodes.new_zeros(elements) for _ in range(2))
        self.impact, self.die_work = (nodes.new_zeros(columns, count) for _ in range(2))  # by columns of the top
        self._support_work = nodes.new_zeros(count)
        self.depth = nodes.new_zeros(())  # that the die has come down
        if bool((inside := self.penetration()).max() > TOUCHING):
            raise SolverError(
                f"die {int(inside.argmax())} begins {float(inside.max()):.3g} mm inside its block; raise it by as much"
            )

    @torch.no_grad()
    def advance(self, time: float, steps: int, taken: int | None = None) -> None:
        """Go on by `time` ms in so many steps, or take only some of them, `taken`.

        A step is not checked: see `stable_step` and `energies`.
        """
        if not (math.isfinite(time) and time > 0 and steps >= 1):
            raise SolverError(f"time and steps must be positive; got {time} and {steps}")
        dt, left = time / steps, steps if taken is None else taken
        native = self._native(dt)
        if native is not None:
            at_once = max(1, _ELEMENTS_AT_ONCE // self.p.numel())
            for first in range(0, left, at_once):
                go_on()
                native(min(at_once, left - first))
                self.steps += min(at_once, left - first)
            return
        step = Replayed(self._step_of(dt), self.device)
        try:
            for _ in range(left):
                go_on()
                step()
                self.steps += 1
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # before the graph goes, also when interrupted

    def state(self) -> dict[str, Tensor]:
        """All that a step changes, as it is now: the tensors themselves, not copies."""
        return {name: getattr(self, name) for name in _STATE} | {"steps": torch.tensor(self.steps)}

    def go_back_to(self, state: dict[str, Tensor]) -> None:
        """Be as other blocks, made in the same way, were in this state."""
        for name in _STATE:
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])

    @property
    def moves_supports(self) -> bool:
        """Whether some nodes have an imposed velocity."""
        return self._supports is not None

    def _native(self, dt: float) -> Callable[[int], None] | None:
        """What takes so many steps on a CPU, where it is compiled."""
        from hofno.solvers.plasticity_native import native_steps

        return native_steps(self, dt)

    def _step_of(self, dt: float) -> Callable[[], None]:
        """What one step calls: the fused kernels where they run."""
        if not self.moves_supports and self.x.is_cuda and kernels_run_on(self.x):
            from hofno.solvers.plasticity_kernels import FusedStep

            return FusedStep(self, dt)
        return lambda: self._advance(dt)

    def stable_step(self) -> Tensor:
        """The largest stable step of each block as it is now: least height of an element / wave speed, less 10 %. (b,)

        0 where an element is turned over or not finite.
        """
        first, second, third, fourth = _corners(self.x)
        pairs = ((second, first), (third, second), (fourth, third), (first, fourth))
        longest = torch.stack([torch.linalg.vector_norm(a - b, dim=0) for a, b in pairs]).amax(0)
        least = (_diagonals(self.x)[2] / 2 / longest).amin((0, 1))
        return torch.where(least > 0, 0.9 * least / self.material.wave_speed, 0.0)

    def energies(self) -> Energies:
        """Of each block, now. Nodes with an imposed velocity are no part of the block's kinetic energy."""
        volume = _diagonals(self.x)[2] / 2 * self.thickness
        density = self.p**2 / self.material.mean_stiffness
        density += (self.q**2 + self.s**2) / (2 * self.material.shear_modulus)
        return Energies(
            kinetic=(self.mass / 2 * self._free * self.v**2).sum((0, 1, 2)),
            elastic=(density * volume).sum((0, 1)),
            plastic=self.material.yield_stress**2 * self.plastic_work.sum((0, 1)),
            hourglass=self.hourglass_work.sum((0, 1)),
            impact=self.impact.sum(0),
            external=self.die_work.sum(0) + self._support_work,
        )

    def penetration(self, places: int = 1) -> Tensor:
        """How deep the top edge is in the die, mm, looked at in so many places on each element's edge. (b,)"""
        if self.die is None:
            return torch.zeros_like(self._support_work)
        top = self.x[:, -1]  # (2, I, b)
        edges = [torch.lerp(top[:, :-1], top[:, 1:], k / places) for k in range(places)]
        x, y = torch.cat((*edges, top[:, -1:]), 1)
        return (y - self.die.height(x)[0] + self.depth).amax(0).clamp_min(0)

    def _advance(self, dt: float) -> None:
        """One step; nothing is read back, so that a CUDA graph can hold it."""
        material = self.material
        middle = torch.add(self.x, self.v, alpha=dt / 2)
        one, two, doubled = _diagonals(middle)  # (2, e), (2, e), (e)
        v_one, v_two = _differences(self.v)
        scale = doubled.reciprocal()
        along = (v_one * two[1]).addcmul_(v_two, one[1], value=-1).mul_(scale).mul_(dt)  # L_kx dt, (2, e)
        across = (v_two * one[0]).addcmul_(v_one, two[0], value=-1).mul_(scale).mul_(dt)  # L_ky dt
        turn = across[0].neg().add_(along[1])
        skew = _alternating(middle)  # 0 for parallelograms
        amplitude = _alternating(self.v).mul_(dt).addcmul_(along, skew[0], value=-1).addcmul_(across, skew[1], value=-1)

        shear = material.shear_modulus
        p = self.p.add(along[0], alpha=material.mean_stiffness / 2).add_(across[1], alpha=material.mean_stiffness / 2)
        q = self.q.add(along[0], alpha=shear).add_(across[1], alpha=-shear).addcmul_(turn, self.s, value=-1)
        s = self.s.add(along[1], alpha=shear).add_(across[0], alpha=shear).addcmul_(turn, self.q)
        m = material.multiplier(p, q, s)
        p.div_((m * material.mean_stiffness).add_(1))
        rest = (m * (6 * shear)).add_(1).reciprocal_()
        self.q.copy_(q.mul_(rest))
        self.s.copy_(s.mul_(rest))
        grown = self.p.sub_(p).mul_(2 * material.poisson_ratio / material.modulus).addcmul_(m, p, value=-2)
        self.thickness.mul_(grown.exp_())
        self.p.copy_(p)
        self.plastic_work.addcmul_(m.mul_(doubled), self.thickness)
        resisting = self._resist(amplitude, turn, doubled)

        half = self.thickness / 2
        skew.mul_(scale)
        x_column = torch.stack((p + q, s)).mul_(half).addcmul_(resisting, skew[0], value=-1)  # on faces x, (2, e)
        y_column = torch.stack((s, p.sub_(q))).mul_(half).addcmul_(resisting, skew[1], value=-1)
        f_one = (x_column * two[1]).addcmul_(y_column, two[0], value=-1)
        f_two = (y_column * one[0]).addcmul_(x_column, one[1], value=-1)
        first, second, third, fourth = _corners(self.force.zero_())
        first += resisting - f_one
        third += f_one.add_(resisting)
        second -= resisting + f_two
        fourth += f_two.sub_(resisting)
        if self._supports is not None:
            self._support_work.add_((self.force * self._supports).sum((0, 1, 2)), alpha=dt)
        self.x.add_(self.v, alpha=dt)
        before = self.v[:, -1].clone()
        self.v.addcmul_(self.inverse_mass, self.force, value=-dt)
        if self.die is not None:
            self._meet(self.die, before, dt)

    def _resist(self, amplitude: Tensor, turn: Tensor, doubled: Tensor) -> Tensor:
        """Force of the unseen mode after its amplitude has grown. (2, e), (e), (e) -> (2, e)

        For a square of side h and thickness t, a fully integrated element has about E t/12 for an amplitude and at most
        yield h t/4.
        """
        force, before, material = self.hourglass, self.hourglass.clone(), self.material
        force[0].addcmul_(turn, before[1], value=-0.5)
        force[1].addcmul_(turn, before[0], value=0.5)
        force.addcmul_(amplitude, self.thickness, value=self.hourglass_part * material.modulus / 12)
        limit = doubled.sqrt().mul_(self.thickness).mul_(self.hourglass_part * material.yield_stress / math.sqrt(32))
        torch.minimum(force, limit, out=force)
        torch.maximum(force, limit.neg_(), out=force)
        self.hourglass_work.add_(before.add_(force).mul_(amplitude).sum(0), alpha=0.5)
        return force

    def _meet(self, die: Die, before: Tensor, dt: float) -> None:
        """Impulses on the top row where the next step would carry it into the die; velocities `before` forces."""
        v, mass = self.v[:, -1], self.mass[-1]  # (2, I, b), (I, 1)
        self.depth.add_(die.speed * dt)
        after = self.depth + die.speed * dt
        place = torch.add(self.x[:, -1], v, alpha=dt)
        height, slope = die.height(place[0])
        over = (place[1] - height + after).clamp_min_(0) / (1 + slope * slope)
        shift = torch.stack((over * slope, -over))
        shift = shift + self._push_edges(die, place + shift, after)
        impulse = mass * shift / dt
        v.add_(shift, alpha=1 / dt)
        work = impulse[1] * -die.speed
        self.die_work.add_(work)
        self.impact.add_(work - (impulse * before.add_(v)).sum(0) / 2)

    def _push_edges(self, die: Die, place: Tensor, depth: Tensor) -> Tensor:
        """How far nodes move so that no edge is deeper than ALLOWANCE where it is deepest, half of it a step.

        Each edge asks both its nodes, in the shares of that place, and each node hears two edges. (2, I, b) -> same
        """
        x, y = place
        deepest, slope, share = torch.full_like(x[1:], -1e300), torch.zeros_like(x[1:]), torch.zeros_like(x[1:])
        for k in range(1, PLACES + 1):
            part = k / (PLACES + 1)
            height, inclined = die.height(torch.lerp(x[:-1], x[1:], part))
            inside = torch.lerp(y[:-1], y[1:], part) - height + depth
            deeper = inside > deepest
            deepest = torch.where(deeper, inside, deepest)
            slope = torch.where(deeper, inclined, slope)
            share = torch.where(deeper, part, share)
        left, right = (1 - share) / self.mass[-1, :-1], share / self.mass[-1, 1:]
        size = (deepest - ALLOWANCE).clamp_min_(0) / (1 + slope * slope) / ((1 - share) * left + share * right) / 2
        push = torch.stack((size * slope, -size))
        return nn.functional.pad(push * left, (0, 0, 0, 1)) + nn.functional.pad(push * right, (0, 0, 1, 0))


def _corners(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Views of the corners of all elements, counter-clockwise from the lower left. (J, I), (2, J, I) or (2, J, I, b)"""
    rows = 0 if nodes.dim() == 2 else 1
    low, high = nodes.narrow(rows, 0, nodes.shape[rows] - 1), nodes.narrow(rows, 1, nodes.shape[rows] - 1)
    last = nodes.shape[rows + 1] - 1
    return (
        low.narrow(rows + 1, 0, last),
        low.narrow(rows + 1, 1, last),
        high.narrow(rows + 1, 1, last),
        high.narrow(rows + 1, 0, last),
    )


def _differences(field: Tensor) -> tuple[Tensor, Tensor]:
    """Along both diagonals. (2, J, I, ..) -> two of (2, J - 1, I - 1, ..)"""
    first, second, third, fourth = _corners(field)
    return third - first, fourth - second


def _diagonals(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both diagonals and twice the area."""
    one, two = _differences(x)
    return one, two, (one[0] * two[1]).addcmul_(one[1], two[0], value=-1)


def _alternating(field: Tensor) -> Tensor:
    """Around an element with signs + - + -. (2, J, I, ..) -> (2, J - 1, I - 1, ..)"""
    first, second, third, fourth = _corners(field)
    return (first + third).sub_(second).sub_(fourth)
