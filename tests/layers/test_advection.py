r"""Advection of vorticity, u.grad w with u = grad-perp inverse-Laplacian w, in one layer.

With spectral factors one layer of order 2 holds it exactly. With pointwise factors the coefficient of
w(p) w(q) in output mode k = p + q depends on k alone, while that of advection is

    T(p, q) = (p x q) (1/|p|^2 - 1/|q|^2) / 2        (symmetrised; x the two-dimensional cross product)

whose mean over the pairs of one k is nearly zero: the best pointwise layer leaves almost all of it.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hofno.layers import HigherOrderSpectralConv
from reference import (
    Shape,
    Wave,
    as_array,
    coefficients,
    field,
    kept,
    no_biases,
    random_waves,
    relative,
    sample,
)


def advection_layer(modes: Shape, dealias: bool) -> HigherOrderSpectralConv:
    """Width 2, order 2: channel 0 is u_x times w_x, channel 1 is u_y times w_y, and the filter adds them."""
    layer = HigherOrderSpectralConv(2, modes, 2, factors="spectral", weights="dense", dealias=dealias).double()
    kx, ky = np.meshgrid(*kept(modes, "symmetric"), indexing="ij")
    square = np.where(kx**2 + ky**2 == 0, 1, kx**2 + ky**2)
    # u = (-psi_y, psi_x) with psi the inverse Laplacian of w
    velocity_x, velocity_y = 1j * ky / (2 * math.pi * square), -1j * kx / (2 * math.pi * square)
    multipliers = np.stack((velocity_x, velocity_y, 2j * math.pi * kx, 2j * math.pi * ky), -1)
    assert isinstance(layer.factors, torch.nn.Linear)
    assert layer.multipliers is not None
    with torch.no_grad():
        layer.factors.bias.zero_()
        layer.factors.weight.copy_(torch.tensor([[1.0, 0.0]] * 4))  # every factor sees w, held in channel 0
        layer.multipliers.weight.copy_(torch.from_numpy(np.stack((multipliers.real, multipliers.imag), -1)))
        layer.filter.weight.zero_()
        layer.filter.weight[..., :, 0, 0] = 1.0
    return layer


def advection(w: np.ndarray) -> np.ndarray:
    """u.grad w on an n x n grid by numpy's FFT, unresolved products left to the caller."""
    n = w.shape[0]
    k = np.fft.fftfreq(n, 1 / n)
    kx, ky = k[:, None], k[None, :]
    square = np.where(kx**2 + ky**2 == 0, 1, kx**2 + ky**2)
    psi = -np.fft.fft2(w) / (4 * math.pi**2 * square)

    def derivative(spectrum: np.ndarray, wavenumber: np.ndarray) -> np.ndarray:
        return np.fft.ifft2(2j * math.pi * wavenumber * spectrum).real

    u, v = -derivative(psi, ky), derivative(psi, kx)
    return u * derivative(np.fft.fft2(w), kx) + v * derivative(np.fft.fft2(w), ky)


def random_vorticity(band: int, points: int, seed: int) -> np.ndarray:
    waves = random_waves(band, 2, 1, np.random.default_rng(seed))
    waves[(0, 0)] = np.zeros(1, dtype=complex)
    return as_array(sample(waves, (points, points)))[0, ..., 0]


def two_channels(w: np.ndarray) -> Tensor:
    """w in channel 0; what channel 1 holds must not matter."""
    return torch.from_numpy(np.stack((w, np.random.default_rng(9).normal(size=w.shape)), -1))[None]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_spectral_factors_hold_the_advection_term(seed: int) -> None:
    """|k| <= 3 in, |k| <= 6 out, all of it kept."""
    w = random_vorticity(3, 16, seed)
    out = advection_layer((7, 7), dealias=False)(two_channels(w))[0]
    assert relative(out[..., 0], advection(w)) < 1e-10
    assert bool((out[..., 1] == 0).all())


def test_dealiased_spectral_factors_hold_the_galerkin_truncation() -> None:
    """Input and output on the same |k| <= 5: exact on the kept modes though the grid is too coarse."""
    w, fine = random_vorticity(5, 12, 3), random_vorticity(5, 48, 3)
    ks = kept((6, 6), "symmetric")
    expected = field(coefficients(advection(fine)[..., None], ks), ks, (12, 12))
    assert relative(advection_layer((6, 6), dealias=True)(two_channels(w))[0, ..., :1], expected) < 1e-10
    assert relative(advection_layer((6, 6), dealias=False)(two_channels(w))[0, ..., :1], expected) > 1e-2


def test_pointwise_coefficients_cannot_be_those_of_advection() -> None:
    """The best function of p + q alone leaves more than nine tenths of T(p, q)."""
    band = 5
    waves = [k for k in itertools.product(range(-band, band + 1), repeat=2) if k != (0, 0)]
    by_sum: dict[Wave, list[float]] = {}
    for p, q in itertools.product(waves, repeat=2):
        value = 0.5 * (p[0] * q[1] - p[1] * q[0]) * (1 / (p[0] ** 2 + p[1] ** 2) - 1 / (q[0] ** 2 + q[1] ** 2))
        by_sum.setdefault((p[0] + q[0], p[1] + q[1]), []).append(value)
    total = sum(np.square(values).sum() for values in by_sum.values())
    left = sum(np.square(np.array(values) - np.mean(values)).sum() for values in by_sum.values())
    assert math.sqrt(left / total) > 0.9


@pytest.mark.parametrize("factors", ["dense", "shared"])
def test_a_pointwise_layer_sees_a_scalar_only_through_its_square(factors: str) -> None:
    """Without biases and on v = w e its output spectrum is c(k) times that of w^2, whatever w."""
    layer = no_biases(HigherOrderSpectralConv(3, (3, 3), 2, factors=factors, weights="dense").double())
    direction, ks = np.random.default_rng(0).normal(size=3), kept((3, 3), "symmetric")
    ratios = []
    for seed in (0, 1):
        w = random_vorticity(2, 12, seed)[..., None]
        out = as_array(layer(torch.from_numpy(w * direction)[None]))[0]
        ratios.append(coefficients(out, ks)[:, 1:] / coefficients(w * w, ks)[:, 1:])
    assert np.abs(ratios[0] - ratios[1]).max() < 1e-9 * np.abs(ratios[0]).max()


def test_the_best_pointwise_layer_leaves_most_of_the_advection_term() -> None:
    """Fit c(k) of w^2, and for the biases a multiple of w and a constant, in closed form on 200 fields."""
    ks = kept((7, 7), "symmetric")
    targets, squares, fields = [], [], []
    for seed in range(200):
        w = random_vorticity(3, 16, seed)
        found = coefficients(np.stack((advection(w), w * w, w), -1), ks).reshape(-1, 3)
        targets.append(found[:, 0])
        squares.append(found[:, 1])
        fields.append(found[:, 2])
    left = total = 0.0
    for index in range(len(targets[0])):
        y = np.array([t[index] for t in targets])
        x = np.stack(([s[index] for s in squares], [f[index] for f in fields], np.ones(len(y))), -1)
        best = np.linalg.lstsq(x, y, rcond=None)[0]
        left, total = (
            left + float(np.square(np.abs(y - x @ best)).sum()),
            total + float(np.square(np.abs(y)).sum()),
        )
    assert math.sqrt(left / total) > 0.9
