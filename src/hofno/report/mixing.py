r"""Which input modes reach which output modes of a spectral convolution, measured by applying the layer.

A signal of four Fourier modes, of which the layer keeps two, on the circle:

    u(x) = sum_{|k| < 4} c_k e^{2 pi i k x},    c_k = c_-k real,    kept: |k| < 2

Order 1 is linear, order 2 bilinear in its factors, so that responses to single waves say all of them:

    order 1     F[H e_j](k)             = R(k) where k = j,             else 0
    order 2     F[H(e_j, e_l)](k)       = R(k) where k = j + l,         else 0

with e_j = e^{2 pi i j x}. Nothing of this is put in: the layers are given waves, and their outputs are transformed.
The filter is R = 1, and the two factors of order 2 are given waves of their own, each in a channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from hofno.layers import HigherOrderSpectralConv

SIGNAL = (0.5, 0.4, 0.35, 0.3)
"""The coefficients c_0, c_1, ... of the signal."""

KEPT = 2
POINTS = 32
"""More than two factors of four modes need: nothing folds back onto a kept mode."""

REACHED = 1e-9
"""Responses below this are rounding."""


@dataclass(frozen=True)
class Mixing:
    """What the layers do to the modes -3 to 3, with the modes on all axes in this order."""

    signal: np.ndarray
    """(k,) the coefficients before."""
    linear: np.ndarray
    """(k,) the coefficients after order 1."""
    quadratic: np.ndarray
    """(k,) the coefficients after order 2."""
    single: np.ndarray
    """(k, j) the response of mode k to wave j, order 1."""
    pairs: np.ndarray
    """(k, j, l) the response of mode k to waves j and l, order 2."""

    @property
    def top(self) -> int:
        """The largest wavenumber."""
        return len(self.signal) // 2

    @property
    def modes(self) -> range:
        return range(-self.top, self.top + 1)

    @cached_property
    def contributions(self) -> dict[int, dict[tuple[int, int], float]]:
        """What pairs of modes |j| <= |l| of the signal give to each mode k >= 0 that they reach, order 2."""
        found: dict[int, dict[tuple[int, int], float]] = {}
        for k in range(self.top + 1):
            for j in self.modes:
                for m in self.modes:
                    response = self.pairs[k + self.top, j + self.top, m + self.top]
                    if abs(response) > REACHED:
                        low, high = sorted((abs(j), abs(m)))
                        given = float((response * self.signal[j + self.top] * self.signal[m + self.top]).real)
                        terms = found.setdefault(k, {})
                        terms[low, high] = terms.get((low, high), 0.0) + given
        return {k: dict(sorted(terms.items())) for k, terms in found.items()}


def measure() -> Mixing:
    """Apply a layer of order 1 and one of order 2 to the signal, to each wave and to each pair of waves."""
    top = len(SIGNAL) - 1
    x = torch.arange(POINTS, dtype=torch.float64) / POINTS
    modes = torch.arange(-top, top + 1, dtype=torch.float64)
    signal = torch.tensor(SIGNAL, dtype=torch.float64)[modes.abs().long()]
    waves = torch.exp(2j * torch.pi * modes[:, None] * x)  # (j, n)
    field = signal @ waves.real
    linear, quadratic = _linear_layer(), _quadratic_layer()
    with torch.no_grad():
        single = _apply(linear, waves.real) + 1j * _apply(linear, waves.imag)
        first, second = waves[:, None].expand(-1, len(modes), -1), waves[None].expand(len(modes), -1, -1)
        real = _apply(quadratic, first.real, second.real) - _apply(quadratic, first.imag, second.imag)
        imag = _apply(quadratic, first.real, second.imag) + _apply(quadratic, first.imag, second.real)
        return Mixing(
            signal=signal.numpy(),
            linear=_coefficients(_apply(linear, field), top).real.numpy(),
            quadratic=_coefficients(_apply(quadratic, field, field), top).real.numpy(),
            single=_coefficients(single, top).movedim(-1, 0).numpy(),
            pairs=_coefficients(real + 1j * imag, top).movedim(-1, 0).numpy(),
        )


def _linear_layer() -> HigherOrderSpectralConv:
    """The spectral convolution of the FNO."""
    return _unfiltered(HigherOrderSpectralConv(1, (KEPT,), order=1, factors="identity"))


def _quadratic_layer() -> HigherOrderSpectralConv:
    """The layer of order 2 whose first factor is channel 0 and whose second one is channel 1."""
    layer = HigherOrderSpectralConv(2, (KEPT,), order=2)
    picks = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # A_1 and below it A_2
    with torch.no_grad():
        layer.factors.get_parameter("linear.weight").copy_(picks)
        layer.factors.get_parameter("linear.bias").zero_()
    return _unfiltered(layer)


def _unfiltered(layer: HigherOrderSpectralConv) -> HigherOrderSpectralConv:
    """The layer in float64 with R = 1."""
    with torch.no_grad():
        layer.filter.weight.copy_(torch.tensor([1.0, 0.0]))
    return layer.double()


def _apply(layer: HigherOrderSpectralConv, *channels: Tensor) -> Tensor:
    """One channel of the output for fields (.., n), one for each channel of the layer."""
    fields = torch.stack(channels, -1)
    return layer(fields.reshape(-1, *fields.shape[-2:]))[..., 0].reshape(channels[0].shape)


def _coefficients(fields: Tensor, top: int) -> Tensor:
    """Coefficients of the waves -top to top, (.., n) -> (.., k)."""
    spectrum = torch.fft.fft(fields, norm="forward")
    return torch.cat((spectrum[..., -top:], spectrum[..., : top + 1]), -1)
