"""Shallow water on a sphere: exact solutions, conservation laws, measured order, and refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.solvers import shallow_water
from hofno.solvers.shallow_water import EARTH, HOUR, Planet, ShallowWaterSolver
from hofno.transforms import sphere

DAY = 24 * HOUR
HEIGHT = 2.94e4 / EARTH.gravity
STILL = Planet(rotation=0.0)


def grid(solver: ShallowWaterSolver) -> tuple[Tensor, Tensor]:
    """Colatitude (rows, 1) and longitude (columns,)."""
    return solver.colatitude[:, None], solver.longitude


def over_sphere(solver: ShallowWaterSolver, values: Tensor) -> Tensor:
    """Mean over the sphere, (..., rows, columns) -> (...)."""
    return (values * solver.weights[:, None]).sum((-2, -1)) / (2 * solver.columns)


def solid_rotation(solver: ShallowWaterSolver) -> tuple[Tensor, Tensor]:
    """The second test of Williamson et al.: fields (1, 3, rows, columns) and the streamfunction, about the axis."""
    planet = solver.planet
    theta, phi = grid(solver)
    cos, sin = math.cos(planet.tilt), math.sin(planet.tilt)
    speed = 2 * math.pi * planet.radius / (12 * DAY)
    along = cos * torch.cos(theta) - sin * torch.sin(theta) * torch.cos(phi)  # cosine of the angle from the axis
    height = -(planet.radius * planet.rotation * speed + speed**2 / 2) * along**2 / planet.gravity
    south = speed * sin * torch.sin(phi).expand_as(along)
    east = speed * (cos * torch.sin(theta) + sin * torch.cos(theta) * torch.cos(phi))
    return torch.stack((height, south, east))[None], -speed * planet.radius * along


def stormy(solver: ShallowWaterSolver, samples: int = 1, seed: int = 0) -> Tensor:
    """Balanced random flows of some 20 m/s, with a jet."""
    rng = torch.Generator().manual_seed(seed)
    spectrum = torch.zeros(samples, 2, solver.degrees, solver.degrees, dtype=torch.float64)
    spectrum[:, :, :6, :6] = torch.randn(samples, 2, 6, 6, generator=rng, dtype=torch.float64).triu()
    spectrum[:, 1, 0] = 0.0
    psi = solver.values(spectrum.cpu())
    theta, _ = grid(solver)
    return solver.balanced(1.5e7 * psi - 1.5e8 * torch.cos(theta))


def hills(solver: ShallowWaterSolver) -> Tensor:
    theta, phi = grid(solver)
    return 800.0 * torch.sin(theta) ** 2 * (1 + torch.cos(2 * phi + 1.0) * torch.cos(theta))


def bumpy(degrees: int, **given: Any) -> ShallowWaterSolver:
    return ShallowWaterSolver(degrees, 5000.0, orography=hills(ShallowWaterSolver(degrees, 5000.0)), **given)


def energy(solver: ShallowWaterSolver, fields: Tensor, ground: Tensor) -> Tensor:
    """(depth u^2 + g (h^2 + 2 H h)) / 2, mean over the sphere; the ground adds a constant."""
    height, south, east = fields.unbind(1)
    depth = solver.mean_height + height - ground
    gravity = solver.planet.gravity
    return over_sphere(
        solver, depth * (south**2 + east**2) / 2 + gravity * (height**2 / 2 + solver.mean_height * height)
    )


class TestExactSolutions:
    @pytest.mark.parametrize("tilt", [0.0, 0.7, math.pi / 2 - 0.05])
    @pytest.mark.parametrize("degrees", [8, 13])
    def test_solid_rotation_stays(self, tilt: float, degrees: int) -> None:
        """Two days, to rounding: heights of 3 km and speeds of 39 m/s, also across the poles."""
        solver = ShallowWaterSolver(degrees, HEIGHT, planet=Planet(tilt=tilt), step=1800.0)
        fields, _ = solid_rotation(solver)
        after = solver.fields_of(solver.advance_(solver.state_of(fields), 2 * DAY))
        assert (after - fields)[:, 0].abs().max() < 1e-9
        assert (after - fields)[:, 1:].abs().max() < 1e-11

    @pytest.mark.parametrize("tilt", [0.0, 0.7])
    def test_balance_of_solid_rotation(self, tilt: float) -> None:
        solver = ShallowWaterSolver(9, HEIGHT, planet=Planet(tilt=tilt))
        fields, streamfunction = solid_rotation(solver)
        fields[:, 0] -= over_sphere(solver, fields[:, 0])
        torch.testing.assert_close(solver.fields_of(solver.balanced(streamfunction)), fields, rtol=0, atol=1e-9)

    def test_a_balanced_flow_does_not_diverge_at_first(self) -> None:
        solver = bumpy(12)
        before = stormy(solver)
        linear = solver._linear * before
        rate = (solver.tendency(before) + linear)[1:].imag
        assert rate.abs().max() < 1e-12 * linear[1:].abs().max()

    @pytest.mark.parametrize(("degree", "order"), [(1, 0), (4, 3), (9, 9)])
    def test_gravity_waves_at_rest(self, degree: int, order: int) -> None:
        """A small bump of one degree swings as cos(w t), w = sqrt(g H l (l + 1)) / R, whatever the step."""
        solver = ShallowWaterSolver(10, 5000.0, planet=STILL, step=3000.0)
        spectrum = torch.zeros(1, 2, 10, 10, dtype=torch.float64)
        spectrum[0, 0, order, degree] = 1e-6
        height = solver.values(spectrum)
        start = torch.stack((height, 0 * height, 0 * height), 1)
        frequency = math.sqrt(EARTH.gravity * 5000.0 * degree * (degree + 1)) / EARTH.radius
        for periods in (0.25, 0.6, 1.0):
            state = solver.advance_(solver.state_of(start), periods * 2 * math.pi / frequency)
            found = solver.fields_of(state)[:, 0]
            torch.testing.assert_close(
                found, height * math.cos(2 * math.pi * periods), rtol=0, atol=1e-8 * float(height.max())
            )

    @pytest.mark.parametrize("degree", [2, 7])
    def test_hyperviscosity_of_one_mode(self, degree: int) -> None:
        """Slow zonal flow of one degree without rotation decays as exp(-nu l^2 (l + 1)^2 t / R^4), exactly."""
        nu = 2e19
        solver = ShallowWaterSolver(8, 5000.0, nu, planet=STILL, step=3600.0)
        spectrum = torch.zeros(1, 2, 8, 8, dtype=torch.float64)
        spectrum[0, 0, 0, degree] = 1e-3
        before = solver.fields_of(solver.balanced(solver.values(spectrum)))
        after = solver.fields_of(solver.advance_(solver.state_of(before), DAY))
        factor = math.exp(-nu * (degree * (degree + 1) / EARTH.radius**2) ** 2 * DAY)
        assert factor < 0.99
        torch.testing.assert_close(after[:, 2], factor * before[:, 2], rtol=0, atol=1e-12 * float(before[:, 2].max()))

    def test_a_source_is_integrated(self) -> None:
        """Uniform, F = A cos(2 pi t / day): water at rest rises by A day / (2 pi) sin."""
        flat = ShallowWaterSolver(6, 5000.0)
        plane = torch.ones(flat.rows, flat.columns, dtype=torch.float64)
        solver = ShallowWaterSolver(6, 5000.0, forcing=lambda now: 1e-3 * math.cos(2 * math.pi * now / DAY) * plane)
        rest = solver.state_of(torch.zeros(1, 3, solver.rows, solver.columns))
        begin, end = 5 * HOUR, 9 * HOUR
        after = solver.fields_of(solver.advance_(rest, end - begin, begin))
        swing = 1e-3 * DAY / (2 * math.pi)
        rise = swing * (math.sin(2 * math.pi * end / DAY) - math.sin(2 * math.pi * begin / DAY))
        torch.testing.assert_close(after[:, 0], rise * plane[None], rtol=0, atol=1e-6)
        assert after[:, 1:].abs().max() < 1e-12


class TestConservation:
    def test_mass_and_energy(self) -> None:
        """Over hills, a day: mass to rounding; energy, which only truncation changes, to 1e-6 of the kinetic."""
        solver = bumpy(16, step=600.0)
        state = stormy(solver)
        before = solver.fields_of(state)
        after = solver.fields_of(solver.advance_(state.clone(), DAY))
        assert (after - before)[:, 0].abs().max() > 20, "the flow moves"
        assert over_sphere(solver, (after - before)[:, 0]).abs() < 1e-10
        ground = solver._ground[..., 0]
        kinetic = over_sphere(solver, solver.mean_height * before[:, 1:].square().sum(1) / 2)
        change = energy(solver, after, ground) - energy(solver, before, ground)
        assert change.abs() < 1e-6 * kinetic

    def test_mass_with_hyperviscosity_and_a_source_without_mean(self) -> None:
        flat = ShallowWaterSolver(8, 5000.0)
        theta, phi = grid(flat)
        source = 1e-3 * torch.sin(theta) * torch.cos(phi)
        solver = ShallowWaterSolver(8, 5000.0, 1e17, forcing=lambda now: source)
        state = stormy(solver)
        mean = over_sphere(solver, solver.fields_of(state)[:, 0])
        after = solver.fields_of(solver.advance_(state, DAY / 2))
        assert (over_sphere(solver, after[:, 0]) - mean).abs() < 1e-10


class TestNumerics:
    def test_order_in_time(self) -> None:
        """Halving the step divides the error by 16."""
        solver = bumpy(12, hyperviscosity=1e16)
        start = stormy(solver)
        solver.advance_(start, HOUR)

        def after(steps: int) -> Tensor:
            state = start.clone()
            for index in range(steps):
                solver.step_(state, 6 * HOUR / steps, index * 6 * HOUR / steps)
            return solver.fields_of(state)

        exact = after(96)
        errors = [float((after(steps) - exact).norm()) for steps in (6, 12, 24)]
        orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
        assert all(3.6 < order < 4.6 for order in orders), orders

    def test_products_are_free_of_aliasing(self) -> None:
        """The rate of change is the same with products on a much finer grid."""
        solver = bumpy(10)
        fine = bumpy(20)
        state = stormy(solver, 2)
        wide = torch.zeros(3, 20, 20, 2, dtype=state.dtype)
        wide[:, :10, :10] = state
        fine._ground = sphere.inverse(
            sphere.forward(solver._ground[None], 10, "gauss"), fine.rows, fine.columns, "gauss"
        )[0]
        expected = fine.tendency(wide)[:, :10, :10]
        found = solver.tendency(state)
        for row in range(3):
            scale = float(expected[row].abs().max())
            torch.testing.assert_close(found[row], expected[row], rtol=0, atol=1e-11 * scale)

    def test_fields_and_states_are_the_same(self) -> None:
        solver = ShallowWaterSolver(11, 5000.0)
        state = stormy(solver, 3)
        torch.testing.assert_close(solver.state_of(solver.fields_of(state)), state, rtol=0, atol=1e-9)

    def test_fields_on_another_grid(self) -> None:
        """Equiangular rows hold the same function; rows too few hold its low degrees."""
        solver = ShallowWaterSolver(9, HEIGHT)
        fields, _ = solid_rotation(solver)
        found = solver.fields_of(solver.state_of(fields), 5, 12)
        theta = (torch.arange(5, dtype=torch.float64) + 0.5) * math.pi / 5
        speed = 2 * math.pi * EARTH.radius / (12 * DAY)
        assert found.shape == (1, 3, 5, 12)
        torch.testing.assert_close(found[0, 2], (speed * torch.sin(theta))[:, None].expand(5, 12), rtol=0, atol=1e-10)

    def test_samples_do_not_touch_each_other(self) -> None:
        solver = bumpy(8)
        state = stormy(solver, 3)
        together = solver.advance_(state.clone(), 2 * HOUR)
        for sample in range(3):
            alone = solver.advance_(state[..., sample : sample + 1].clone(), 2 * HOUR)
            torch.testing.assert_close(together[..., sample : sample + 1], alone, rtol=1e-10, atol=1e-12)

    def test_single_precision(self) -> None:
        """Errors after six hours are those of rounding."""
        fine, single = (bumpy(12, dtype=dtype) for dtype in (torch.float64, torch.float32))
        state = stormy(fine)
        exact = fine.fields_of(fine.advance_(state.clone(), 6 * HOUR))
        found = single.fields_of(single.advance_(state.to(torch.complex64), 6 * HOUR))
        assert found.dtype == torch.float32
        assert (found - exact).norm() < 2e-5 * exact.norm()

    def test_rotation_and_gravity_matter(self) -> None:
        solver = ShallowWaterSolver(8, 5000.0)
        start = stormy(solver)
        found = []
        for planet in (EARTH, Planet(rotation=1e-4), Planet(gravity=5.0), Planet(tilt=0.3)):
            other = ShallowWaterSolver(8, 5000.0, planet=planet)
            found.append(other.fields_of(other.advance_(other.state_of(solver.fields_of(start)), 2 * HOUR)))
        assert all((other - found[0]).abs().max() > 1 for other in found[1:])


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"degrees": 2}, "degrees must be at least 3"),
            ({"mean_height": 0.0}, "mean_height must be positive"),
            ({"mean_height": math.nan}, "mean_height must be positive"),
            ({"hyperviscosity": -1.0}, "hyperviscosity must be zero or positive"),
            ({"step": 0.0}, "step must be positive"),
            ({"dtype": torch.float16}, "dtype must be"),
            ({"planet": Planet(radius=-1.0)}, "positive radius and gravity"),
            ({"orography": torch.full((8, 16), math.nan)}, "the orography is not finite"),
        ],
    )
    def test_parameters(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(SolverError, match=words):
            ShallowWaterSolver(**{"degrees": 6, "mean_height": 5000.0, **given})

    def test_shapes(self) -> None:
        solver = ShallowWaterSolver(6, 5000.0)
        with pytest.raises(ShapeError, match=r"shape \(b, 3, 8, 16\); got torch.float32 \(1, 3, 8, 8\)"):
            solver.state_of(torch.zeros(1, 3, 8, 8))
        with pytest.raises(ShapeError, match=r"the streamfunction on the solver's grid \(8, 16\)"):
            solver.balanced(torch.zeros(2, 9, 16))
        with pytest.raises(SolverError, match="time to advance"):
            solver.advance_(stormy(solver), -1.0)

    def test_a_step_above_the_limit(self) -> None:
        solver = ShallowWaterSolver(12, 5000.0, step=DAY)
        state = stormy(solver)
        with pytest.raises(SolverError, match=r"above the stability limit at time 0 s: CFL number .* use step <="):
            solver.advance_(state, DAY)
        usable = ShallowWaterSolver(12, 5000.0, step=0.9 * solver.stable_step(state))
        assert usable.fields_of(usable.advance_(state, 10 * usable.step)).isfinite().all()

    def test_stable_steps_are(self) -> None:
        """At the limit a flow over hills, without any damping, keeps its size for a hundred steps."""
        solver = bumpy(12)
        state = stormy(solver)
        size, step = solver.fields_of(state).abs().max(), solver.stable_step(state)
        for _ in range(100):
            solver.step_(state, step)
        assert solver.fields_of(state).abs().max() < 2 * size

    def test_states_that_are_not_finite(self, monkeypatch: pytest.MonkeyPatch) -> None:
        solver = ShallowWaterSolver(8, 5000.0, step=600.0)
        state = stormy(solver, 2)
        broken = state.clone()
        broken[0, 1, 1, 1] = math.nan
        with pytest.raises(SolverError, match=r"state given is not finite in sample 1"):
            solver.advance_(broken, HOUR)
        monkeypatch.setattr(shallow_water, "CFL_LIMIT", 1e9)
        far = ShallowWaterSolver(8, 5000.0, step=20 * DAY)
        with pytest.raises(SolverError, match=r"(not finite|run dry) at time .* use a step below"):
            far.advance_(state, 2000 * DAY)

    def test_dry_ground(self) -> None:
        flat = ShallowWaterSolver(8, 500.0)
        solver = ShallowWaterSolver(8, 500.0, orography=hills(flat))
        with pytest.raises(SolverError, match="ground is above the water in sample 0"):
            solver.advance_(solver.state_of(torch.zeros(1, 3, solver.rows, solver.columns)), HOUR)
