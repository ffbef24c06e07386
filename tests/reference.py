r"""Slow, obvious float64 references: explicit Fourier sums in numpy, one wavenumber at a time.

    û(k) = 1/N sum_x u(x) exp(-2 pi i k.x/N)      u(x) = Re sum_k c(k_d) û(k) exp(2 pi i k.x/N)

Nothing here calls a transform of the library; a layer is read only for its parameters.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from hofno.layers.factors import DenseFactors, IdentityFactors, SharedFactors, StructuredFactors
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.problems.symmetry import Channels, Motion

Shape = tuple[int, ...]
Wave = tuple[int, ...]
Array = np.ndarray


def as_array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def kept(modes: Shape, mode_set: str) -> list[list[int]]:
    """Kept wavenumbers of every axis, in storage order."""
    axes = [list(range(m)) + list(range(-m if mode_set == "reference" else 1 - m, 0)) for m in modes[:-1]]
    return [*axes, list(range(modes[-1]))]


def wave(k: Shape, shape: Shape) -> Array:
    """exp(2 pi i k.x/N) at every point of a grid."""
    phase = np.zeros(shape)
    for axis, (wavenumber, n) in enumerate(zip(k, shape, strict=True)):
        x = np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        phase = phase + wavenumber * x / n
    return np.exp(2j * math.pi * phase)


def real_part(u: Array) -> Array:
    """A field that must be real but for rounding."""
    assert np.abs(np.imag(u)).max() < 1e-12 * max(1.0, np.abs(u).max())
    return np.real(u).copy()


def pad(u: Array, padded: Shape) -> Array:
    """Zeros at the end of every axis of (*n, c)."""
    ends = [(0, big - n) for n, big in zip(u.shape[:-1], padded, strict=True)]
    return np.pad(u, [*ends, (0, 0)])


def crop(u: Array, points: Shape) -> Array:
    return u[tuple(slice(n) for n in points)]


def coefficients(u: Array, ks: list[list[int]]) -> Array:
    """Fourier coefficients of (*n, c) at the product of the given wavenumbers: complex (K1, .., Kd, c)."""
    shape, axes = u.shape[:-1], tuple(range(u.ndim - 1))
    rows = [(u * wave(k, shape).conj()[..., None]).mean(axes) for k in itertools.product(*ks)]
    return np.stack(rows).reshape(*(len(axis) for axis in ks), u.shape[-1])


def field(spectrum: Array, ks: list[list[int]], shape: Shape) -> Array:
    """The real field (*shape, c) of kept coefficients, the negative half of the last axis being implied."""
    rows = spectrum.reshape(-1, spectrum.shape[-1])
    out = np.zeros((*shape, spectrum.shape[-1]))
    for k, row in zip(itertools.product(*ks), rows, strict=True):
        count = 1 if k[-1] == 0 or 2 * k[-1] == shape[-1] else 2
        out += count * np.real(row * wave(k, shape)[..., None])
    return out


def interpolate(u: Array, fine: Shape) -> Array:
    """The trigonometric interpolant of (*n, c) on another grid; Nyquist enters as a cosine."""
    shape = u.shape[:-1]
    ks = [list(range(-(n // 2), n // 2 + 1)) for n in shape]
    spectrum = coefficients(u, ks)
    out = np.zeros((*fine, u.shape[-1]), dtype=complex)
    for k, row in zip(itertools.product(*ks), spectrum.reshape(-1, u.shape[-1]), strict=True):
        share = math.prod(0.5 if 2 * abs(q) == n else 1.0 for q, n in zip(k, shape, strict=True))
        out += share * row * wave(k, fine)[..., None]
    return real_part(out)


def factor_maps(layer: HigherOrderSpectralConv) -> tuple[list[Array], list[Array]]:
    """The matrices A_i and biases b_i of a layer's m factors, whatever their structure."""
    factors, order, width = layer.factors, layer.order, layer.width
    if isinstance(factors, IdentityFactors):
        return [np.eye(width)] * order, [np.zeros(width)] * order
    if isinstance(factors, SharedFactors):
        return [as_array(factors.linear.weight)] * order, [as_array(factors.linear.bias)] * order
    if isinstance(factors, StructuredFactors):
        maps = [np.zeros((width, width)) for _ in range(order)]
        for index in range(order):
            if factors.scale is not None:
                maps[index] = maps[index] + np.diag(as_array(factors.scale)[index])
            if factors.up is not None and factors.down is not None:
                up = as_array(factors.up)[index]  # (r, c)
                down = np.split(as_array(factors.down.weight), order)[index]  # (r, c)
                maps[index] = maps[index] + up.T @ down
        return maps, list(as_array(factors.bias))
    linear = factors.linear if isinstance(factors, DenseFactors) else factors
    assert isinstance(linear, torch.nn.Linear)
    return np.split(as_array(linear.weight), order), np.split(as_array(linear.bias), order)


def complex_weight(weight: Tensor) -> Array:
    stored = as_array(weight)
    return stored[..., 0] + 1j * stored[..., 1]


def apply_filter(layer: HigherOrderSpectralConv, spectrum: Array) -> Array:
    weight = complex_weight(layer.filter.weight)
    if weight.ndim == spectrum.ndim:  # depthwise
        return spectrum * weight
    return (spectrum[..., :, None] * weight).sum(-2)


def higher_order(layer: HigherOrderSpectralConv, v: Tensor) -> Array:
    """The layer on (b, *n, c): pad, form the product (on a huge grid if dealiased), filter, crop."""
    return np.stack([_one_sample(layer, sample) for sample in as_array(v)])


def padded_points(points: Shape, padding: float, padded_by: str) -> Shape:
    """Axis lengths with a fraction of the points, or of the length of n - 1 intervals, appended."""
    if padded_by == "length" and padding > 0:
        return tuple(max(n + 1, round((n - 1) * (1 + padding))) for n in points)
    return tuple(n + int(padding * n) for n in points)


def share_inside(points: Shape, padded: Shape, padded_by: str) -> Array:
    """How much of each point of the padded grid lies in the domain: 1, 0, and by length 1/2 at every end. (*n, 1)"""
    share = np.ones((1,) * len(points))
    for axis, (n, total) in enumerate(zip(points, padded, strict=True)):
        along = (np.arange(total) < n).astype(float)
        if padded_by == "length" and total > n:
            along[0] = along[n - 1] = 0.5
        share = share * along.reshape([-1 if a == axis else 1 for a in range(len(points))])
    return share[..., None]


def _one_sample(layer: HigherOrderSpectralConv, v: Array) -> Array:
    points = v.shape[:-1]
    padded = padded_points(points, layer.domain_padding, layer.padded_by)
    huge = tuple((layer.order + 1) * n + 1 for n in padded)
    ks = kept(layer.modes, layer.mode_set)
    share = share_inside(points, padded, layer.padded_by)
    inside, v = pad(v, padded), pad(v, padded) * share
    maps, biases = factor_maps(layer)
    if layer.multipliers is None and not layer.dealias:  # at a jump, the mean of the products on both of its sides
        z = np.prod([inside @ a.T + b for a, b in zip(maps, biases, strict=True)], axis=0)
        z = share * z + (1 - share) * np.prod(biases, axis=0)
        return crop(field(apply_filter(layer, coefficients(z, ks)), ks, padded), points)
    if layer.multipliers is None:
        v = interpolate(v, huge)
        factors = [v @ a.T + b for a, b in zip(maps, biases, strict=True)]
    else:
        multipliers = np.split(complex_weight(layer.multipliers.weight), layer.order, axis=-1)
        grid = huge if layer.dealias else padded
        factors = [
            field(r * coefficients(v @ a.T + b, ks), ks, grid)
            for a, b, r in zip(maps, biases, multipliers, strict=True)
        ]
    z = np.ones_like(factors[0])
    for factor in factors:
        z = z * factor
    return crop(field(apply_filter(layer, coefficients(z, ks)), ks, padded), points)


def relative(found: Tensor | Array, expected: Tensor | Array) -> float:
    """||found - expected|| / ||expected||."""
    a = as_array(found) if isinstance(found, Tensor) else found
    b = as_array(expected) if isinstance(expected, Tensor) else expected
    assert a.shape == b.shape, f"{a.shape} against {b.shape}"
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300))


def random_waves(band: int, dims: int, width: int, generator: np.random.Generator) -> dict[Wave, np.ndarray]:
    """Coefficients v̂(k), |k_i| <= band, of a real field: v̂(-k) is the conjugate of v̂(k)."""
    waves: dict[Wave, np.ndarray] = {}
    for k in itertools.product(range(-band, band + 1), repeat=dims):
        minus = tuple(-q for q in k)
        value = generator.normal(size=width) + 1j * generator.normal(size=width)
        waves[k] = waves[minus].conj() if minus in waves else value
    zero = (0,) * dims
    waves[zero] = np.real(waves[zero]).astype(complex)
    return waves


def sample(waves: dict[Wave, np.ndarray], shape: Shape) -> Tensor:
    """The real field of all given coefficients, (1, *shape, c)."""
    total = np.zeros((*shape, next(iter(waves.values())).size), dtype=complex)
    for k, value in waves.items():
        total += value * wave(k, shape)[..., None]
    return torch.from_numpy(real_part(total))[None]


def no_biases(layer: HigherOrderSpectralConv) -> HigherOrderSpectralConv:
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return layer


def image_of(v: np.ndarray, motion: Motion, channels: Channels) -> np.ndarray:
    """v'_c(i) = sign_c v_c(M i + s) + offset_c of v (n, c, *grid), one point at a time."""
    shape = v.shape[2:]
    shift = motion.points(shape)
    signs, offsets = channels.of(v.shape[1])
    out = np.empty_like(v)
    for place in np.ndindex(*shape):
        there = [sum(a * i for a, i in zip(row, place, strict=True)) for row in motion.axes(shape)]
        there = tuple((t + s) % n for t, s, n in zip(there, shift, shape, strict=True))
        for c in range(v.shape[1]):
            out[:, c, *place] = motion.sign * signs[c] * v[:, c, *there] + offsets[c]
    return out
