"""The vorticity solver: exact solutions, measured order, budgets, and references written in other ways."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from hofno.errors import ShapeError, SolverError
from hofno.solvers import VorticitySolver
from hofno.solvers.vorticity import CFL_LIMIT, half_plane

TAU = 2 * math.pi


def grid(n: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(n, dtype=torch.float64) / n
    return x[:, None].expand(n, n), x[None, :].expand(n, n)


def wave(n: int, kx: int, ky: int, phase: float = 0.0) -> Tensor:
    x, y = grid(n)
    return torch.cos(TAU * (kx * x + ky * y) + phase)


def smooth(n: int, count: int = 2, seed: int = 0, size: float = 1.0) -> Tensor:
    """Random fields of wavenumbers up to 3, the same functions on every grid. (count, n, n)"""
    rng = np.random.default_rng(seed)
    fields = torch.zeros(count, n, n, dtype=torch.float64)
    for field, kx, ky in itertools.product(fields, range(-3, 4), range(4)):
        if (kx, ky) != (0, 0):
            field += size * rng.normal() / (kx * kx + ky * ky) * wave(n, kx, ky, rng.uniform(0, TAU))
    return fields


def derivatives(w: Tensor) -> dict[str, Tensor]:
    """u, v, w_x, w_y, psi and the Laplacian by the full complex transform, written apart from the solver."""
    n = w.shape[-1]
    k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    k = torch.where(k == -n / 2, 0.0, k)  # the derivative of the Nyquist wave vanishes on the grid
    dx, dy = 1j * TAU * k[:, None], 1j * TAU * k[None, :]
    laplacian = dx**2 + dy**2
    spectrum = torch.fft.fft2(w)
    psi = -spectrum / torch.where(laplacian == 0, 1.0, laplacian)
    psi[..., 0, 0] = 0
    parts = {"u": dy * psi, "v": -dx * psi, "w_x": dx * spectrum, "w_y": dy * spectrum}
    parts |= {"psi": psi, "laplacian": laplacian * spectrum}
    return {name: torch.fft.ifft2(part).real for name, part in parts.items()}


def advection(w: Tensor) -> Tensor:
    d = derivatives(w)
    return d["u"] * d["w_x"] + d["v"] * d["w_y"]


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def mean(field: Tensor) -> Tensor:
    return field.mean((-2, -1))


class TestModes:
    @pytest.mark.parametrize("cutoff", [1, 2, 5])
    def test_half_plane_holds_one_of_each_pair(self, cutoff: int) -> None:
        kept = {tuple(k) for k in half_plane(cutoff).tolist()}
        assert len(kept) == len(half_plane(cutoff)) == 2 * cutoff * (cutoff + 1)
        every = set(itertools.product(range(-cutoff, cutoff + 1), repeat=2)) - {(0, 0)}
        assert kept | {(-a, -b) for a, b in kept} == every

    @given(n=st.integers(4, 21), count=st.integers(1, 3))
    def test_round_trip(self, n: int, count: int) -> None:
        solver = VorticitySolver(n, 0.0)
        modes = torch.randn(count, len(solver.wavenumbers), dtype=torch.complex128)
        torch.testing.assert_close(solver.modes_of(solver.field_of(modes)), modes, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("n", [15, 16, 22, 24])
    def test_modes_are_fourier_coefficients(self, n: int) -> None:
        solver = VorticitySolver(n, 0.0)
        found = solver.modes_of(3 * wave(n, -2, 1, 0.4)[None])[0]
        place = solver.wavenumbers.tolist().index([-2, 1])
        assert complex(found[place]) == pytest.approx(1.5 * complex(math.cos(0.4), math.sin(0.4)), abs=1e-14)
        found[place] = 0
        assert float(found.abs().max()) < 1e-14

    @pytest.mark.parametrize("n", [15, 16])
    def test_velocity(self, n: int) -> None:
        w = smooth(n)
        d = derivatives(w)
        torch.testing.assert_close(VorticitySolver(n, 0.0).velocity(w), torch.stack((d["u"], d["v"]), 1))


class TestTendency:
    @pytest.mark.parametrize("n", [7, 8, 10])
    def test_against_the_convolution_sum(self, n: int) -> None:
        """-(u.grad w)^(k) = - sum_{p+q=k} (u^_p, v^_p).(2 pi i q) w^_q over all kept p and q, one by one."""
        solver = VorticitySolver(n, 0.0)
        modes = torch.randn(1, len(solver.wavenumbers), dtype=torch.complex128)
        pairs = list(zip(solver.wavenumbers.tolist(), modes[0].tolist(), strict=True))
        w = {(kx, ky): z for (kx, ky), z in pairs} | {(-kx, -ky): z.conjugate() for (kx, ky), z in pairs}
        expected = []
        for kx, ky in solver.wavenumbers.tolist():
            total = 0j
            for (px, py), w_p in w.items():
                if (q := (kx - px, ky - py)) in w:
                    psi = w_p / (TAU**2 * (px**2 + py**2))
                    total -= (1j * TAU * py * psi * 1j * TAU * q[0] - 1j * TAU * px * psi * 1j * TAU * q[1]) * w[q]
            expected.append(total)
        torch.testing.assert_close(
            solver.tendency(modes)[0], torch.tensor(expected, dtype=torch.complex128), rtol=1e-12, atol=1e-12
        )

    @pytest.mark.parametrize("n", [24, 25])
    def test_against_the_product_in_physical_space(self, n: int) -> None:
        w = smooth(n)
        solver = VorticitySolver(n, 0.0, forcing=wave(n, 2, -1))
        expected = solver.modes_of(wave(n, 2, -1) - advection(w))
        torch.testing.assert_close(solver.tendency(solver.modes_of(w)), expected, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("n", [16, 17, 18, 19, 20, 21])
    def test_dealiasing(self, n: int) -> None:
        """Full spectra up to the cutoff: the same tendency as on a grid three times finer, where nothing can alias."""
        coarse, fine = VorticitySolver(n, 0.0), VorticitySolver(3 * n, 0.0)
        modes = torch.randn(1, len(coarse.wavenumbers), dtype=torch.complex128)
        position = {tuple(k): index for index, k in enumerate(fine.wavenumbers.tolist())}
        places = torch.tensor([position[tuple(k)] for k in coarse.wavenumbers.tolist()])
        padded = torch.zeros(1, len(fine.wavenumbers), dtype=torch.complex128)
        padded[:, places] = modes
        torch.testing.assert_close(coarse.tendency(modes), fine.tendency(padded)[:, places], rtol=1e-11, atol=1e-11)
        assert 3 * coarse.cutoff < n <= 3 * (coarse.cutoff + 1)

    def test_energy_and_enstrophy_are_not_produced(self) -> None:
        """sum conj(psi) N = sum conj(w) N = 0 for every truncated field, smooth or not."""
        solver = VorticitySolver(20, 0.0)
        modes = torch.randn(4, len(solver.wavenumbers), dtype=torch.complex128)
        tendency = solver.tendency(modes)
        square = (solver.wavenumbers.double() ** 2).sum(-1)
        for weight in (torch.ones_like(square), 1 / square):
            produced = (weight * (modes.conj() * tendency).real).sum(-1)
            scale = (weight * (modes.abs() * tendency.abs())).sum(-1)
            assert float((produced / scale).abs().max()) < 1e-14

    def test_needs_nothing_from_the_device(self) -> None:
        """A step runs on tensors without values: no number is read back, so a CUDA graph can hold it."""
        solver = VorticitySolver(16, 1e-3)
        with FakeTensorMode(allow_non_fake_inputs=True):
            modes = torch.zeros(3, len(solver.wavenumbers), dtype=torch.complex128)
            assert solver.step_modes_(modes, 0.01).shape == (3, 60)
            with pytest.raises(DataDependentOutputException):
                solver.advance_modes_(modes, 0.01)


class TestExactSolutions:
    @given(n=st.integers(13, 20), kx=st.integers(-4, 4), ky=st.integers(-4, 4), nu=st.floats(0, 0.05))
    def test_one_wave_decays(self, n: int, kx: int, ky: int, nu: float) -> None:
        w = 0.5 * wave(n, kx, ky, 0.3)[None]
        decay = math.exp(-nu * TAU**2 * (kx**2 + ky**2) * 0.1)
        torch.testing.assert_close(VorticitySolver(n, nu, step=0.02).advance(w, 0.1), decay * w, rtol=0, atol=1e-14)

    def test_taylor_green(self) -> None:
        """Waves of one wavelength advect nothing: cos x cos y and others decay together."""
        n, nu = 24, 1e-2
        w = wave(n, 3, 4) + 0.7 * wave(n, 5, 0, 1.0) - 0.4 * wave(n, -4, 3, 2.0) + wave(n, 0, 5)
        found = VorticitySolver(n, nu, step=0.01).advance(w[None], 0.3)
        torch.testing.assert_close(found[0], math.exp(-nu * TAU**2 * 25 * 0.3) * w, rtol=0, atol=1e-13)

    def test_forced_wave(self) -> None:
        """f = F cos(k.x): w = F/a (1 - e^{-a t}) cos(k.x), a = nu 4 pi^2 |k|^2; exact for any step."""
        n, nu, f = 16, 3e-3, 0.2 * wave(16, 1, 2)
        rate = nu * TAU**2 * 5
        found = VorticitySolver(n, nu, f, step=0.5).advance(torch.zeros(2, n, n), 2.0)
        expected = f / rate * (1 - math.exp(-2 * rate))
        torch.testing.assert_close(found, expected.expand(2, n, n), rtol=0, atol=1e-14)

    def test_kolmogorov_flow_stands_still(self) -> None:
        n, nu = 32, 1e-3
        w = 2.0 * wave(n, 0, 4)
        f = nu * (TAU * 4) ** 2 * w
        found = VorticitySolver(n, nu, f, step=0.01).advance(w[None], 1.0)
        torch.testing.assert_close(found[0], w, rtol=0, atol=1e-11)

    def test_steady_flow_with_advection_stands_still(self) -> None:
        """w = cos X + cos 2Y, X = 2 pi x, Y = 2 pi y, has u = -sin(2Y)/(4 pi), v = sin(X)/(2 pi)."""
        n, nu = 24, 5e-3
        x, y = (TAU * part for part in grid(n))
        w = torch.cos(x) + torch.cos(2 * y)
        u, v = -torch.sin(2 * y) / (2 * TAU), torch.sin(x) / TAU
        f = u * -TAU * torch.sin(x) + v * -2 * TAU * torch.sin(2 * y)
        assert float(f.abs().max()) > 1
        f += nu * TAU**2 * (torch.cos(x) + 4 * torch.cos(2 * y))
        found = VorticitySolver(n, nu, f, step=0.01).advance(w[None], 0.5)
        torch.testing.assert_close(found[0], w, rtol=0, atol=1e-12)

    def test_shift_and_reflection(self) -> None:
        """Solutions shifted by grid cells are solutions; (x, y) -> (y, x) with w -> -w as well."""
        n = 24
        solver, w = VorticitySolver(n, 1e-3, step=0.02), smooth(n)
        after = solver.advance(w, 0.4)
        torch.testing.assert_close(solver.advance(w.roll((5, -7), (-2, -1)), 0.4), after.roll((5, -7), (-2, -1)))
        torch.testing.assert_close(solver.advance(-w.mT, 0.4), -after.mT)
        assert difference(after, w) > 0.02

    def test_a_mean_is_kept_and_moves_nothing(self) -> None:
        solver, w = VorticitySolver(16, 1e-3, step=0.02), smooth(16)
        torch.testing.assert_close(solver.advance(w + 0.3, 0.2), solver.advance(w, 0.2) + 0.3, rtol=0, atol=1e-14)


class TestConvergence:
    def test_order_four_in_time(self) -> None:
        n, nu = 32, 1e-3
        w, f = smooth(n, size=3.0), wave(n, 1, 1)
        reference = VorticitySolver(n, nu, f, step=1 / 800).advance(w, 1.0)
        counts = [40, 60, 80, 120]
        errors = [difference(VorticitySolver(n, nu, f, step=1 / c).advance(w, 1.0), reference) for c in counts]
        slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
        assert -slope == pytest.approx(4, abs=0.15)
        assert difference(reference, w) > 0.3, "the flow must be nonlinear for this to mean anything"

    def test_spectral_accuracy_in_space(self) -> None:
        """Errors against 96 points fall faster than any power: the order between two grids grows with the grid."""
        nu, time, fine = 4e-3, 0.5, 96
        reference = VorticitySolver(fine, nu, step=0.0125).advance(smooth(fine, 1), time)
        sizes, errors = (12, 24, 32, 48), []
        for n in sizes:
            found = VorticitySolver(n, nu, step=0.0125).advance(smooth(n, 1), time)
            errors.append(difference(found, reference[:, :: fine // n, :: fine // n]))
        orders = -np.diff(np.log(errors)) / np.diff(np.log(sizes))
        assert orders[0] < orders[1] < orders[2]
        assert errors[-1] < 1e-7

    def test_float32(self) -> None:
        n = 32
        double = VorticitySolver(n, 1e-3, wave(n, 1, 1), step=0.02).advance(smooth(n), 1.0)
        single = VorticitySolver(n, 1e-3, wave(n, 1, 1), step=0.02, dtype=torch.float32).advance(smooth(n), 1.0)
        assert single.dtype == torch.float32
        assert 1e-8 < difference(single.double(), double) < 3e-6  # measured: 1.4e-6


class TestBudgets:
    def test_inviscid_flow_keeps_energy_and_enstrophy(self) -> None:
        n = 32
        w = smooth(n, size=3.0)

        def quantities(field: Tensor) -> Tensor:
            d = derivatives(field)
            return torch.stack((mean(d["u"] ** 2 + d["v"] ** 2), mean(field**2)))

        drifts = []
        for step in (0.02, 0.01, 0.005):
            after = VorticitySolver(n, 0.0, step=step).advance(w, 1.0)
            drifts.append(float((quantities(after) / quantities(w) - 1).abs().max()))
        assert drifts[-1] < 1e-6
        assert all(a / b > 2**3.8 for a, b in itertools.pairwise(drifts))
        assert difference(after, w) > 0.5

    def test_viscous_forced_budgets(self) -> None:
        """dE/dt = -2 nu Z + <psi f>, dZ/dt = -2 nu P + <w f>, by Simpson's rule over one short interval."""
        n, nu, f, half = 32, 2e-3, 0.5 * wave(32, 2, 1, 0.3), 0.02
        solver = VorticitySolver(n, nu, f, step=0.005)
        states = [smooth(n)]
        for _ in range(2):
            states.append(solver.advance(states[-1], half))
        energy, enstrophy, power, production = [], [], [], []
        for w in states:
            d = derivatives(w)
            energy.append(mean(d["u"] ** 2 + d["v"] ** 2) / 2)
            enstrophy.append(mean(w**2) / 2)
            power.append(-2 * nu * mean(w**2) / 2 + mean(d["psi"] * f))
            production.append(-nu * mean(d["w_x"] ** 2 + d["w_y"] ** 2) + mean(w * f))
        for quantity, rate in ((energy, power), (enstrophy, production)):
            integral = half / 3 * (rate[0] + 4 * rate[1] + rate[2])
            torch.testing.assert_close(quantity[2] - quantity[0], integral, rtol=1e-5, atol=1e-9)


class TestSteps:
    def test_the_step_is_divided_to_fit(self) -> None:
        """0.1 in steps of at most 0.03 is four steps of 0.025, to the bit."""
        coarse, fitted = VorticitySolver(16, 1e-3, step=0.03), VorticitySolver(16, 1e-3, step=0.025)
        modes = fitted.modes_of(smooth(16))
        by_hand = modes.clone()
        for _ in range(4):
            fitted.step_modes_(by_hand, 0.025)
        assert torch.equal(fitted.advance_modes_(modes.clone(), 0.1), by_hand)
        assert torch.equal(coarse.advance_modes_(modes.clone(), 0.1), by_hand)

    @pytest.mark.parametrize(("time", "step", "count"), [(5.4, 0.3, 18), (0.3, 0.1, 3), (0.31, 0.1, 4), (0.01, 0.1, 1)])
    def test_the_number_of_steps(self, time: float, step: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """5.4 / 0.3 is 18.000000000000004 in floating point: eighteen steps, not nineteen."""
        taken: list[float] = []
        monkeypatch.setattr(VorticitySolver, "step_modes_", lambda self, modes, step: taken.append(step))
        VorticitySolver(16, 1e-3, step=step).advance(0.1 * smooth(16), time)
        assert taken == [time / count] * count

    def test_a_batch_is_its_samples(self) -> None:
        w = smooth(20, count=7)
        solver = VorticitySolver(20, 1e-3, wave(20, 1, 1), step=0.02)
        together = solver.advance(w, 0.2)
        for size in (1, 2, 3):
            apart = torch.cat([solver.advance(part, 0.2) for part in w.split(size)])
            torch.testing.assert_close(apart, together, rtol=0, atol=1e-14)

    def test_the_input_is_not_changed(self) -> None:
        w = smooth(16)
        before = w.clone()
        VorticitySolver(16, 1e-3, step=0.02).advance(w, 0.1)
        assert torch.equal(w, before)

    def test_stable_step(self) -> None:
        """u = -A sin(k y) / k for w = A cos(k y); the estimate is 2.8 / (2 pi K max|u|)."""
        solver = VorticitySolver(24, 0.0)
        amplitude = 5.0
        expected = CFL_LIMIT / (TAU * 7 * amplitude / (TAU * 2))
        assert solver.stable_step(amplitude * wave(24, 0, 2)[None]) == pytest.approx(expected, rel=1e-12)
        assert solver.stable_step(torch.zeros(1, 24, 24)) == math.inf

    @pytest.mark.parametrize(("fraction", "stable"), [(1.0, True), (1.6, False)])
    def test_the_limit_is_the_limit(self, fraction: float, stable: bool) -> None:
        """Noise on a fast steady flow stays as it is up to the limit and explodes above it (measured: from 1.4 on)."""
        solver, w = VorticitySolver(48, 0.0), 20 * (wave(48, 0, 1) + wave(48, 1, 0))
        modes = solver.modes_of(w[None])
        modes += 1e-8 * torch.randn_like(modes)
        for _ in range(20):
            solver.step_modes_(modes, fraction * solver.stable_step(w[None]))
        assert (difference(solver.field_of(modes)[0], w) < 1e-7) == stable

    def test_a_step_above_the_limit_is_refused(self) -> None:
        w = smooth(16, count=3)
        w[1] *= 100
        solver = VorticitySolver(16, 1e-3, step=0.1)
        with pytest.raises(SolverError, match=r"CFL number .* > 2.8 .*sample 1 of the batch.*use step <= ") as caught:
            solver.advance(w, 1.0)
        advised = float(str(caught.value).split("use step <= ")[1].split()[0])
        assert advised < solver.stable_step(w)
        VorticitySolver(16, 1e-3, step=advised).advance(w, 3 * advised)

    def test_a_flow_that_becomes_too_fast_is_refused(self) -> None:
        with pytest.raises(SolverError, match=r"at time (?!0:|100:)\d.*CFL number"):
            VorticitySolver(16, 1e-2, 5 * wave(16, 1, 0), step=0.05).advance(smooth(16), 100.0)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_values_that_are_not_finite(self, bad: float) -> None:
        w = smooth(16)
        w[1, 2, 3] = bad
        with pytest.raises(SolverError, match="the field given is not finite in sample 1"):
            VorticitySolver(16, 1e-3).advance(w, 0.1)

    def test_a_blow_up_is_reported(self) -> None:
        """Steps beyond every check: the overflow is found at the end."""
        solver = VorticitySolver(16, 0.0, 1e300 * wave(16, 1, 0) + 1e300 * wave(16, 0, 2), step=1.0)
        with pytest.raises(
            SolverError, match=r"not finite at time 3 .*CFL number 0 at the last check.*use a step below 0.5"
        ):
            solver.advance(torch.zeros(1, 16, 16), 3.0)

    def test_bad_arguments(self) -> None:
        with pytest.raises(SolverError, match="resolution must be at least 4"):
            VorticitySolver(3, 0.0)
        with pytest.raises(SolverError, match="viscosity"):
            VorticitySolver(8, -1.0)
        with pytest.raises(SolverError, match="step must be positive"):
            VorticitySolver(8, 0.0, step=0.0)
        with pytest.raises(SolverError, match="dtype"):
            VorticitySolver(8, 0.0, dtype=torch.bfloat16)
        with pytest.raises(SolverError, match="zero mean"):
            VorticitySolver(8, 0.0, wave(8, 1, 0) + 0.1)
        with pytest.raises(SolverError, match="forcing is not finite"):
            VorticitySolver(8, 0.0, wave(8, 1, 0) * math.nan)
        with pytest.raises(ShapeError, match=r"forcing of shape \(8, 8\)"):
            VorticitySolver(8, 0.0, wave(9, 1, 0))
        solver = VorticitySolver(8, 0.0)
        with pytest.raises(SolverError, match="time to advance"):
            solver.advance(torch.zeros(1, 8, 8), -1.0)
        for wrong in (
            torch.zeros(8, 8),
            torch.zeros(1, 8, 9),
            torch.zeros(0, 8, 8),
            torch.zeros(1, 8, 8, dtype=torch.complex64),
        ):
            with pytest.raises(ShapeError, match=r"shape \(b, 8, 8\)"):
                solver.advance(wrong, 0.1)
