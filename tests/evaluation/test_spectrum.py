"""Spectra against sums over modes written out, Parseval, and what each band of a field is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.evaluation.spectrum import (
    BANDS,
    energy_spectrum,
    errors_by_band,
    power_kinds,
    power_spectrum,
    powers_by_band,
    shells,
)
from hofno.geometry import Grid, Sphere

PLANE = power_kinds(Grid(shape=(8, 8)))["power"]


def slow_spectrum(field: np.ndarray, energy: bool) -> dict[int, float]:
    """Half the sum of |w_k|^2 over each shell, mode by mode, each mode as a sum over points."""
    n, m = field.shape
    x, y = np.arange(n)[:, None] / n, np.arange(m)[None, :] / m
    found: dict[int, float] = {}
    for kx in range(-((n - 1) // 2), n // 2 + 1):
        for ky in range(-((m - 1) // 2), m // 2 + 1):
            mode = (field * np.exp(-2j * math.pi * (kx * x + ky * y))).mean()
            size = abs(mode) ** 2 / 2
            radius = math.hypot(kx, ky)
            if energy:
                size = size / (2 * math.pi * radius) ** 2 if radius > 0 else 0.0
            shell = math.floor(radius + 0.5)
            found[shell] = found.get(shell, 0.0) + size
    return found


@pytest.mark.parametrize("shape", [(8, 8), (7, 7), (6, 9)])
@pytest.mark.parametrize("energy", [False, True])
def test_equals_the_sum_over_modes(shape: tuple[int, int], energy: bool) -> None:
    field = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = energy_spectrum(field) if energy else power_spectrum(field, 2)
    expected = slow_spectrum(field.numpy(), energy)
    assert len(found) == max(expected) + 1
    for shell, value in enumerate(found.tolist()):
        assert value == pytest.approx(expected.get(shell, 0.0), rel=1e-10, abs=1e-15)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(3, 9), min_size=1, max_size=3), st.integers(0, 10**6))
def test_parseval_in_every_dimension(shape: list[int], seed: int) -> None:
    fields = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(seed))
    found = power_spectrum(fields, len(shape)).sum(-1)
    torch.testing.assert_close(found, 0.5 * fields.double().square().flatten(2).mean(2))


def test_one_wave_has_its_energy_in_its_shell() -> None:
    """w = cos 2 pi (3 x + 4 y): |k| = 5, enstrophy 1/4, energy 1/4 / (2 pi 5)^2."""
    x = torch.arange(32, dtype=torch.float64) / 32
    wave = torch.cos(2 * math.pi * (3 * x[:, None] + 4 * x))
    assert float(power_spectrum(wave, 2)[5]) == pytest.approx(0.25)
    assert float(energy_spectrum(wave)[5]) == pytest.approx(0.25 / (10 * math.pi) ** 2)
    assert float(power_spectrum(wave, 2).sum()) == pytest.approx(0.25)


def test_energy_is_half_the_mean_square_velocity() -> None:
    """u = (psi_y, -psi_x) with -Laplace psi = w, for two waves whose velocity is known."""
    x = torch.arange(16, dtype=torch.float64)[:, None] / 16
    y = x.mT
    w = torch.sin(2 * math.pi * x) + torch.cos(4 * math.pi * y) + 0 * x * y
    u = -torch.sin(4 * math.pi * y) / (4 * math.pi) + 0 * x
    v = -torch.cos(2 * math.pi * x) / (2 * math.pi) + 0 * y
    assert float(energy_spectrum(w).sum()) == pytest.approx(float(0.5 * (u**2 + v**2).mean()))


def test_bands_are_parts_of_the_field() -> None:
    """The squares of wrong and right parts, filtered by hand, frame by frame."""
    generator = torch.Generator().manual_seed(2)
    p, y = (torch.randn(3, 2, 32, 32, dtype=torch.float64, generator=generator) for _ in range(2))
    shell, _ = shells((32, 32))
    found = errors_by_band(PLANE(p - y).sum(1), PLANE(y).sum(1))
    assert list(found) == ["low", "medium", "high"]
    for name, (low, high) in BANDS.items():
        inside = (shell >= low) & (shell < (high if high is not None else 10**6))

        def part(u: torch.Tensor, inside: torch.Tensor = inside) -> torch.Tensor:
            return torch.fft.ifft2(torch.fft.fft2(u) * inside).real.flatten(1)

        expected = (part(p) - part(y)).norm(dim=1) / part(y).norm(dim=1)
        torch.testing.assert_close(found[name], expected)
    powers = powers_by_band(PLANE(y).sum(1))
    assert sum(powers.values()) == pytest.approx(float(0.5 * y.double().square().mean((-2, -1)).sum()))


def test_a_coarse_grid_has_fewer_bands() -> None:
    power = PLANE(torch.ones(1, 1, 4, 4)).sum(1)
    assert list(errors_by_band(power, power)) == ["low"]
    assert list(powers_by_band(power)) == ["low"]


def test_on_a_sphere_shells_are_degrees() -> None:
    """Of Y_3^2, of mean square 1 / (4 pi), and of a mean."""
    sphere = Sphere(shape=(8, 16))
    theta, phi = (np.arange(8) + 0.5)[:, None] * np.pi / 8, 2 * np.pi * np.arange(16) / 16
    wave = math.sqrt(105 / (16 * np.pi)) * np.sin(theta) ** 2 * np.cos(theta) * np.cos(2 * phi)
    found = power_kinds(sphere)["degrees"](torch.from_numpy(wave + 0.0 * phi)[None, None].float() + 2.0)[0, 0]
    assert found.shape == (8,)
    expected = torch.zeros(8, dtype=torch.float64)
    expected[0], expected[3] = 2.0, 1 / (8 * math.pi)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    assert float(found.sum()) == pytest.approx(2.0 + 1 / (8 * math.pi), rel=1e-6)
