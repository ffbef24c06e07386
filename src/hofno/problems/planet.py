r"""A random planet and its weather: ground, source of height, and flows that are nearly in balance.

ground      b ~ max(0, x - 0.3)^2, x Gaussian of deviation 1 with coefficients ~ (1 + l)^-2 at degrees 1..20
source      F = A cos(phi - 2 pi t / 24 h) exp(-(lat - 0.4 sin(2 pi t / 1008 h))^2 / s^2),    s = 2 pi / 3
flow        psi = jets + (0.4 + 0.6 sin^2 2 lat) eddies, with the height of nonlinear balance
jets        one in each hemisphere, eastward, u = U exp(-(lat - lat_0)^2 / d^2); U, lat_0 and d uniform
eddies      Gaussian, isotropic; kinetic energy of degree l ~ l^2 / (l^2 + 8^2)^(5/2), so l^-3 at small scales

Every sample has a random stream of its own, in which the numbers of a degree follow those of the degrees below: more
samples extend a set, and more degrees continue the same fields.

Shapes: b samples, L degrees, M = L orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hofno.solvers.shallow_water import HOUR, Forcing, ShallowWaterSolver

DAY, YEAR = 24 * HOUR, 1008 * HOUR
SEASONS = 0.4  # of latitude, in radians, between the middle of the source in spring and in summer
SPREAD = 2 * math.pi / 3  # of the source in latitude
GROUND_DEGREES, GROUND_LEVEL = 20, 0.3
EDDY_DEGREE, EDDY_SPEED = 8.0, 10.0
JET_SPEED, JET_LATITUDE, JET_WIDTH = (20.0, 32.0), (0.62, 0.82), (0.24, 0.32)  # m/s, radians, radians


def source_of_height(colatitude: Tensor, longitude: Tensor, amplitude: float, device: torch.device) -> Forcing:
    """F at colatitudes (rows,) and longitudes (columns,), with an amplitude in m/s."""
    latitude, longitude = (math.pi / 2 - colatitude).to(device)[:, None], longitude.to(device)

    def source(now: float) -> Tensor:
        middle = SEASONS * math.sin(2 * math.pi * now / YEAR)
        profile = torch.exp(-(((latitude - middle) / SPREAD) ** 2))
        return amplitude * profile * torch.cos(longitude - 2 * math.pi * now / DAY)

    return source


def gaussian_coefficients(rng: np.random.Generator, deviations: np.ndarray) -> np.ndarray:
    """Coefficients of an isotropic random field, those of degree l of the given deviation. (L,) -> (2, M, L)"""
    degrees = len(deviations)
    degree, order = np.tril_indices(degrees)  # row by row: all orders of degree 0, then of degree 1, ...
    drawn = rng.standard_normal((len(degree), 2)) * deviations[degree, None]
    zonal = order == 0
    drawn[~zonal] /= math.sqrt(2)
    drawn[zonal, 1] = 0.0
    coefficients = np.zeros((2, degrees, degrees))
    coefficients[:, order, degree] = drawn.T
    return coefficients


def ground(solver: ShallowWaterSolver, height: float, seed: int) -> Tensor:
    """The orography on the solver's grid, (rows, columns); `height` is that of its highest point."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 0, 1])))
    degree = np.arange(GROUND_DEGREES + 1)
    deviations = np.where(degree > 0, (1.0 + degree) ** -2, 0.0)
    deviations /= math.sqrt(((2 * degree + 1) * deviations**2).sum() / (4 * math.pi))
    coefficients = gaussian_coefficients(rng, deviations)
    held = min(solver.degrees, len(degree))
    spectrum = torch.zeros(1, 2, solver.degrees, solver.degrees, dtype=torch.float64)
    spectrum[0, :, :held, :held] = torch.from_numpy(coefficients[:, :held, :held])
    above = (solver.values(spectrum)[0] - GROUND_LEVEL).clamp(min=0.0)
    return height * (above / above.max()) ** 2


def eddy_deviations(degrees: int, radius: float) -> np.ndarray:
    """Deviations of the coefficients of the eddies' streamfunction, in m^2/s, for velocities of EDDY_SPEED. (L,)"""
    every = np.arange(1, 2000.0)
    energy = every**2 / (every**2 + EDDY_DEGREE**2) ** 2.5
    share = (energy / energy.sum())[: degrees - 1]
    degree = every[: degrees - 1]
    square = 8 * math.pi * (EDDY_SPEED * radius) ** 2 * share / (degree * (degree + 1) * (2 * degree + 1))
    return np.concatenate(([0.0], np.sqrt(square)))


def streamfunctions(solver: ShallowWaterSolver, seed: int, samples: Sequence[int | None]) -> Tensor:
    """Of samples by their numbers, None for water at rest, in m^2/s on the solver's grid. (b, rows, columns)"""
    radius = solver.planet.radius
    deviations = eddy_deviations(solver.degrees, radius)
    latitude = (math.pi / 2 - solver.colatitude).numpy()
    jets = np.zeros((len(samples), len(latitude)))
    eddies = np.zeros((len(samples), 2, solver.degrees, solver.degrees))
    for row, sample in enumerate(samples):
        if sample is None:
            continue
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, sample])))
        for side in (1, -1):
            speed, middle, width = (rng.uniform(*ends) for ends in (JET_SPEED, JET_LATITUDE, JET_WIDTH))
            away = torch.from_numpy((latitude - side * middle) / width)
            jets[row] -= radius * speed * width * math.sqrt(math.pi) / 2 * torch.erf(away).numpy()
        eddies[row] = gaussian_coefficients(rng, deviations)
    envelope = torch.from_numpy(0.4 + 0.6 * np.sin(2 * latitude) ** 2).to(solver.device, solver.dtype)
    zonal = torch.from_numpy(jets).to(solver.device, solver.dtype)
    return zonal[..., None] + envelope[:, None] * solver.values(torch.from_numpy(eddies))
