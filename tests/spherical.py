"""Slow, obvious float64 references on the sphere: fields as functions of a place, and sums over SciPy's harmonics."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import sph_harm_y
from torch import Tensor

from hofno.geometry import Nodes, Sphere


def places(rows: int, columns: int, nodes: Nodes) -> Tensor:
    """Unit vectors (x, y, z) of all points of a grid, z to the north. (rows, columns, 3)"""
    return Sphere(shape=(rows, columns), nodes=nodes).coordinates()[..., [1, 2, 0]]


def rotation(seed: int = 0) -> Tensor:
    """A rotation of space that moves every axis."""
    made = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))[0]
    return made * torch.sign(torch.det(made))


def polynomials(x: Tensor, channels: int, degree: int) -> Tensor:
    """Fields of at most a degree, a different one for each channel, at places x. (..., 3) -> (..., channels)"""
    made = torch.Generator().manual_seed(7)
    along = torch.randn(channels, degree + 1, 3, dtype=torch.float64, generator=made)
    powers = torch.arange(degree + 1)
    return ((x @ along.flatten(0, 1).T).unflatten(-1, (channels, degree + 1)) ** powers).sum(-1)


def harmonics(x: Tensor, degrees: int) -> np.ndarray:
    """Y_l^m at places x without the Condon-Shortley phase, (..., 3) -> (..., orders, degrees), zero where l < m."""
    theta, phi = torch.arccos(x[..., 2].clamp(-1, 1)).numpy(), torch.atan2(x[..., 1], x[..., 0]).numpy()
    out = np.zeros((*theta.shape, degrees, degrees), complex)
    for degree in range(degrees):
        for order in range(degree + 1):
            out[..., order, degree] = (-1) ** order * sph_harm_y(degree, order, theta, phi)
    return out


def evaluated(spectrum: Tensor, x: Tensor) -> Tensor:
    """The field of coefficients (2, M, L, c) at any places x: (..., 3) -> (..., c)."""
    coefficients = spectrum[0].detach().numpy() + 1j * spectrum[1].detach().numpy()
    coefficients[1:] *= 2
    return torch.from_numpy(np.einsum("...ml,mlc->...c", harmonics(x, spectrum.shape[1]), coefficients).real)


def integrated(field: Tensor, x: Tensor, weights: Tensor, degrees: int) -> Tensor:
    """Coefficients of a field by sums over its points. (rows, columns, c) -> (2, M, L, c)"""
    share = weights.numpy()[:, None, None] * (2 * math.pi / field.shape[1])
    found = np.einsum("rjml,rjc->mlc", harmonics(x, degrees).conj(), share * field.detach().numpy())
    return torch.from_numpy(np.stack((found.real, found.imag)))
