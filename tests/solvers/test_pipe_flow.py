"""Flow through bent channels: exact solutions, orders of convergence, conservation, and an independent solver."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.polynomial import Legendre
from taylor_hood import taylor_hood
from torch import Tensor

from hofno.errors import SolverError
from hofno.solvers.pipe_basis import hermite, wall_polynomials
from hofno.solvers.pipe_flow import Centreline, Flow, PipeFlow

ETA = torch.linspace(-0.5, 0.5, 65, dtype=torch.float64)
LENGTH = 2.0


def bends(*amplitudes: float) -> Centreline:
    """f = a (10 r^3 - 15 r^4 + 6 r^5), r = x / 2: a smooth step, level at both ends."""
    a = torch.tensor(amplitudes, dtype=torch.float64)[:, None]

    def line(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = x / LENGTH
        return (
            a * r**3 * (10 - 15 * r + 6 * r**2),
            a * 30 * r**2 * (1 - r) ** 2 / LENGTH,
            a * 60 * r * (1 - r) * (1 - 2 * r) / LENGTH**2,
        )

    return line


def slants(*slopes: float) -> Centreline:
    """f = a x - x^2 / 8, which meets inlet and outlet at an angle."""
    a = torch.tensor(slopes, dtype=torch.float64)[:, None]
    return lambda x: (a * x - x**2 / 8, a - x / 4, (0 * a - 0.25).expand(len(a), len(x)))


def pipe(cells: int = 16, modes: int = 12, viscosity: float = 0.02) -> PipeFlow:
    return PipeFlow(np.linspace(0, LENGTH, cells + 1), modes, viscosity)


class TestFunctions:
    def test_polynomials(self) -> None:
        """Zero with zero slope at the walls, orthonormal second derivatives, and derivatives of each other."""
        z, weights = np.polynomial.legendre.leggauss(20)
        value, first, second = wall_polynomials(z, 9)
        assert (second * weights) @ second.T == pytest.approx(np.eye(9), abs=1e-12)
        assert wall_polynomials(np.array([-1.0, 1.0]), 9)[:2] == pytest.approx(np.zeros((2, 9, 2)), abs=1e-14)
        for k in range(9):
            series = Legendre.fit(z, value[k], 15, domain=[-1, 1])
            assert series.deriv()(z) == pytest.approx(first[k], abs=1e-9)
            assert series.deriv(2)(z) == pytest.approx(second[k], abs=1e-8)

    def test_cubics(self) -> None:
        """A cubic given by its values and slopes at the ends of each element, on elements of any length."""
        cubic = np.polynomial.Polynomial([0.3, -1.0, 2.0, 0.7])
        stations, t, unit = np.array([0.0, 0.5, 2.0]), np.array([0.0, 0.2, 0.9, 1.0]), 0.7
        lengths = np.diff(stations)
        ends = [
            [f(x) * s for x in pair for f, s in ((cubic, 1), (cubic.deriv(), unit))] for pair in ((0, 0.5), (0.5, 2))
        ]
        found = np.einsum("depf,ef->dep", hermite(t, lengths, unit), np.array(ends))
        x = stations[:-1, None] + lengths[:, None] * t
        for d in range(3):
            assert found[d] == pytest.approx(cubic.deriv(d)(x) if d else cubic(x), abs=1e-12)


class TestExactSolutions:
    @pytest.mark.parametrize("viscosity", [1.0, 0.005])
    def test_the_straight_pipe_is_poiseuille_flow(self, viscosity: float) -> None:
        solver = pipe(8, 6, viscosity)
        flow = solver.solve(bends(0.0))
        u, v = solver.velocity(flow, ETA)
        assert flow.converged.all()
        torch.testing.assert_close(u, (0.25 - ETA**2).expand_as(u), rtol=0, atol=1e-12)
        torch.testing.assert_close(v, torch.zeros_like(v), rtol=0, atol=1e-12)

    def test_order_of_convergence_along(self) -> None:
        """With elements half as long the horizontal velocity gains a factor of 2^4, the vertical one at least 2^3."""
        errors = [manufactured(cells, 14) for cells in (4, 8, 16, 32)]
        orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
        assert (orders[1:, 0] > 3.8).all(), orders
        assert (orders[1:, 1] > 2.9).all(), orders
        assert max(errors[-1]) < 1e-6

    def test_polynomials_across_converge_faster_than_any_power(self) -> None:
        errors = [max(manufactured(64, modes)) for modes in (2, 4, 6, 8)]
        assert all(after < before / 10 for before, after in itertools.pairwise(errors)), errors


def manufactured(cells: int, modes: int) -> tuple[float, float]:
    """Largest errors of both velocities for g = straight pipe + 0.05 (1 - cos(pi x / 4)) cos(pi e)^2, p = nu u_x.

    The force is what these leave in the equation, by automatic differentiation in x and y. At the outlet g_xx = 0, so
    that nu dw/dx = (p, 0); there u_x is not 0.
    """
    viscosity, line = 0.02, bends(0.5)

    def stream(x: Tensor, y: Tensor) -> Tensor:
        r = x / LENGTH
        e = y - 0.5 * r**3 * (10 - 15 * r + 6 * r**2)
        bump = 0.05 * (1 - torch.cos(math.pi * x / (2 * LENGTH))) * torch.cos(math.pi * e) ** 2
        return e / 4 - e**3 / 3 + bump

    def by(axis: int, f: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        def derivative(x: Tensor, y: Tensor) -> Tensor:
            x, y = (part.detach().requires_grad_() if not part.requires_grad else part for part in (x, y))
            return torch.autograd.grad(f(x, y).sum(), (x, y)[axis], create_graph=True)[0]

        return derivative

    def u(x: Tensor, y: Tensor) -> Tensor:
        return by(1, stream)(x, y)

    def v(x: Tensor, y: Tensor) -> Tensor:
        return -by(0, stream)(x, y)

    def force(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        pushes = []
        for axis, w in enumerate((u, v)):
            wx, wy = by(0, w), by(1, w)
            carried = u(x, y) * wx(x, y) + v(x, y) * wy(x, y)
            viscous = by(0, wx)(x, y) + by(1, wy)(x, y)
            pushes.append((carried - viscosity * viscous + viscosity * by(axis, by(0, u))(x, y)).detach())
        return pushes[0], pushes[1]

    solver = pipe(cells, modes, viscosity)
    flow = solver.solve(line, force)
    assert flow.converged.all()
    y = line(solver.stations)[0][..., None] + ETA
    x = solver.stations[:, None].expand_as(y)
    found = solver.velocity(flow, ETA)
    first, second = (float((a - b(x, y).detach()).abs().max()) for a, b in zip(found, (u, v), strict=True))
    return first, second


class TestFlow:
    def test_against_taylor_hood_elements(self) -> None:
        """Velocity and pressure elements, another formulation of everything, come nearer as they get finer."""
        slope, solver = 0.6, pipe(48, 20, 0.01)
        flow = solver.solve(slants(slope))
        distances = []
        for along, across in ((12, 8), (24, 16)):
            eta = torch.linspace(-0.5, 0.5, 2 * across + 1, dtype=torch.float64)
            found = [w[0, :: 24 // along].numpy() for w in solver.velocity(flow, eta)]
            other = taylor_hood(lambda x: slope - x / 4, LENGTH, along, across, 0.01)
            scale = np.linalg.norm(found[0])
            distances.append([np.linalg.norm(a - b) / scale for a, b in zip(found, other[:2], strict=True)])
        assert (np.array(distances[0]) / np.array(distances[1]) > 2.5).all(), distances
        assert max(distances[1]) < 3e-3, distances

    def test_every_section_carries_the_same_flux(self) -> None:
        solver = pipe(16, 12)
        u, _ = solver.velocity(solver.solve(slants(0.8, -0.3)), ETA)
        simpson = torch.tensor([1.0, *[4.0, 2.0] * 31, 4.0, 1.0], dtype=torch.float64) / (3 * 64)
        torch.testing.assert_close(u @ simpson, torch.full_like(u[..., 0], 1 / 6), rtol=2e-4, atol=0)

    def test_boundaries(self) -> None:
        """No slip at the walls; at the inlet the given profile, and v = 0 but for a thin layer at the walls."""
        solver = pipe(16, 30)
        u, v = solver.velocity(solver.solve(slants(0.8, -0.3)), ETA)
        for w in (u, v):
            torch.testing.assert_close(w[..., [0, -1]], torch.zeros_like(w[..., :2]), rtol=0, atol=1e-13)
        torch.testing.assert_close(u[:, 0], (0.25 - ETA**2).expand(2, -1), rtol=0, atol=1e-13)
        assert float(v[:, 0].abs().max()) < 2e-3
        assert float(v[:, 0].square().mean().sqrt()) < 2e-4

    def test_no_divergence(self) -> None:
        """u_x from the values along a line of constant e, and v from the slopes: they are one stream function's."""
        solver = pipe(64, 12)
        flow = solver.solve(bends(0.6))
        u, v = solver.velocity(flow, ETA)
        normal = (v - flow.slope[..., None] * u)[0]  # -g_x
        u_x = (u[0, 2:] - u[0, :-2]) / (2 * LENGTH / 64)
        normal_e = (normal[:, 2:] - normal[:, :-2]) / (2 / 64)
        assert float(u_x[:-8].abs().max()) > 0.05
        assert float((u_x[:, 1:-1] + normal_e[1:-1])[:-8].abs().max()) < 2e-3  # but for the corners of the outlet

    def test_mirror_image(self) -> None:
        solver = pipe()
        flow = solver.solve(lambda x: mirrored(slants(0.5)(x)))
        u, v = solver.velocity(flow, ETA)
        torch.testing.assert_close(u[1], u[0].flip(-1), rtol=0, atol=1e-11)
        torch.testing.assert_close(v[1], -v[0].flip(-1), rtol=0, atol=1e-11)

    def test_elements_of_any_length(self) -> None:
        even, graded = pipe(48, 12), PipeFlow(LENGTH * np.linspace(0, 1, 49) ** 1.3, 12, 0.02)
        u, w = (s.velocity(s.solve(bends(0.5)), ETA)[0][:, -1] for s in (even, graded))
        torch.testing.assert_close(u, w, rtol=0, atol=1e-5)


def mirrored(parts: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    f, slope, curvature = (torch.cat((part, -part)) for part in parts)
    return f, slope, curvature


class TestNewton:
    def test_the_jacobian_is_the_derivative_of_the_residual(self) -> None:
        solver = pipe(4, 5)
        line = slants(0.7, -0.2)
        slope, curvature = (part.unflatten(1, (4, 5))[..., None] for part in line(solver._points.flatten())[1:])
        g, change = (torch.randn(2, 5, 2, 5, dtype=torch.float64) for _ in "ab")
        change[:, 0] = 0.0

        def residual(at: Tensor) -> Tensor:
            return solver._residual(solver._fields(at, slope, curvature), slope, curvature, None)

        step = 1e-4  # the residual is quadratic: central differences are exact
        derivative = (residual(g + step * change) - residual(g - step * change)) / (2 * step)
        local = solver._jacobian(
            solver._fields(g, slope, curvature), slope, curvature, solver._viscous(slope, curvature)
        )
        found = solver._newton(local, -derivative)
        torch.testing.assert_close(found, change[:, 1:], rtol=1e-6, atol=1e-6)

    def test_few_steps_and_honest_account(self) -> None:
        solver = pipe(32, 12, 0.005)
        flow = solver.solve(bends(0.0, 1.0, -0.5))
        assert flow.converged.all()
        assert flow.steps[0] == 1
        assert flow.steps.max() <= 6
        cut = solver.solve(bends(0.0, 1.0, -0.5), max_steps=2)
        assert cut.converged.tolist() == [True, False, False]
        assert cut.steps.tolist() == [1, 2, 2]
        assert (cut.update[1:] > 1e-8).all()
        early = solver.solve(bends(1.0), tolerance=0.1)
        assert early.steps < flow.steps[1]

    def test_companions_do_not_matter(self) -> None:
        solver = pipe(16, 8, 0.005)
        alone = solver.solve(bends(0.1))
        streams = []
        for company in ((0.1, 0.0), (0.1, math.nan), (0.1, 1.5)):
            together = solver.solve(bends(*company))
            assert together.steps[0] == alone.steps[0]
            torch.testing.assert_close(together.stream[0], alone.stream[0], rtol=0, atol=1e-11)
            streams.append(together.stream[0])
        assert together.steps[1] > together.steps[0]
        assert torch.equal(streams[0], streams[2])  # to the bit, though the last one went on
        assert torch.equal(streams[0], streams[1])
        assert not solver.solve(bends(0.1, math.nan)).converged[1]

    def test_every_argument_matters(self) -> None:
        def flux_line(solver: PipeFlow, flow: Flow) -> Tensor:
            return solver.velocity(flow, ETA)[0][:, -1]

        plain = flux_line(pipe(), pipe().solve(bends(0.5)))
        for solver in (pipe(cells=12), pipe(modes=8), pipe(viscosity=0.01)):
            assert not torch.equal(flux_line(solver, solver.solve(bends(0.5))), plain)
        blown = pipe().solve(bends(0.5), lambda x, y: (0 * x, torch.sin(y) * x))
        assert not torch.allclose(flux_line(pipe(), blown), plain)

    def test_bad_arguments(self) -> None:
        for stations in (np.array([0.0, 1.0]), np.array([0.0, 1.0, 1.0]), np.zeros((3, 3))):
            with pytest.raises(SolverError, match="at least 3 stations in increasing order"):
                PipeFlow(stations, 8, 0.01)
        for modes, viscosity in ((0, 0.1), (8, 0.0), (8, math.nan)):
            with pytest.raises(SolverError, match="modes and viscosity must be positive"):
                PipeFlow(np.linspace(0, 1, 5), modes, viscosity)
