r"""Spectra of periodic fields by shells of integer wavenumbers, and errors by band of them.

    w(x) = sum_k w_k e^{2 pi i k.x},      shell(s) = {k : s - 1/2 <= |k| < s + 1/2}

    power (of vorticity: enstrophy)     Z(s) = 1/2 sum_{k in shell(s)} |w_k|^2,      sum_s Z(s) = mean(w^2) / 2
    energy of the flow of vorticity w   E(s) = 1/2 sum_{k in shell(s)} |w_k|^2 / (2 pi |k|)^2

On a sphere the shells are the degrees s of spherical harmonics, Z(s) = 1/(8 pi) sum_m |w_sm|^2 over all orders. Their
sum is half the mean square over the sphere: by area, where other errors are means over the points of the grid.

The error of a band is the relative L2 error of the part of a field that lies in it. The bands are shells 0 to 4 (low),
5 to 12 (medium) and 13 upwards (high); published tables by band do not say where theirs begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hofno.evaluation.metrics import TINY
from hofno.geometry import Geometry, Sphere
from hofno.transforms import sphere

Power = Callable[[Tensor], Tensor]
"""Fields (n, c, *grid) to their power by shell, (n, c, shells), float64."""

FAINT = 1e-10
"""A band with a smaller share of the power is rounding in float32: an error relative to it says nothing."""
BANDS: dict[str, tuple[int, int | None]] = {"low": (0, 5), "medium": (5, 13), "high": (13, None)}


def shells(points: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Shell and |k|^2 of every wavenumber of a grid, in the order of `torch.fft.fftn`, each of the grid's shape."""
    axes = [torch.fft.fftfreq(n, 1.0 / n, dtype=torch.float64) for n in points]
    square = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0)
    return (square.sqrt() + 0.5).floor().long(), square


def power_spectrum(fields: Tensor, dims: int) -> Tensor:
    """Z(s) of real fields on their last `dims` axes, (.., *grid) -> (.., shells), float64."""
    return _by_shell(_square(fields, dims), dims)


def power_kinds(geometry: Geometry) -> dict[str, Power]:
    """What gives the power by shell of fields that live there, under its name: "power", on a sphere "degrees"."""
    if isinstance(geometry, Sphere):
        return {"degrees": partial(spherical_power, nodes=geometry.nodes)}
    return {"power": partial(power_spectrum, dims=len(geometry.shape))}


def spherical_power(fields: Tensor, nodes: str) -> Tensor:
    """Z(s) of fields on a sphere, (n, c, rows, columns) -> (n, c, degrees), of all degrees that the grid holds."""
    degrees = min(fields.shape[-2], (fields.shape[-1] + 1) // 2)
    found = [
        sphere.power(sphere.forward(sample.double().movedim(0, -1)[None], degrees, nodes))[0].T for sample in fields
    ]
    return torch.stack(found) / (8 * math.pi)


def energy_spectrum(vorticity: Tensor) -> Tensor:
    """E(s) of plane flows on the unit torus given by their vorticity, (.., n, n) -> (.., shells), float64."""
    _, square = shells(tuple(vorticity.shape[-2:]))
    laplacian = 4 * math.pi**2 * torch.where(square > 0, square, torch.inf)  # the mean has no velocity
    return _by_shell(_square(vorticity, 2) / laplacian, 2)


def powers_by_band(power: Tensor) -> dict[str, float]:
    """The sum over samples of the power by shell, (n, shells), in each band that the grid holds."""
    return {name: float(power[:, a:b].sum()) for name, (a, b) in BANDS.items() if a < power.shape[1]}


def errors_by_band(wrong: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Relative L2 error of each band and sample, (n,) float64, from the power of error and truth, (n, shells) each.

    Bands that the grid does not hold are left out.
    """
    found: dict[str, Tensor] = {}
    for name, (low, high) in BANDS.items():
        if low < right.shape[-1]:
            inside = slice(low, high)
            found[name] = (wrong[:, inside].sum(1) / right[:, inside].sum(1).clamp_min(TINY)).sqrt()
    return found


def _square(fields: Tensor, dims: int) -> Tensor:
    """|w_k|^2 of every wavenumber, (.., *grid)."""
    axes = tuple(range(-dims, 0))
    return torch.fft.fftn(fields.double(), dim=axes, norm="forward").abs().square()


def _by_shell(square: Tensor, dims: int) -> Tensor:
    """Half of the sum over each shell, (.., *grid) -> (.., shells)."""
    index, _ = shells(tuple(square.shape[-dims:]))
    summed = square.new_zeros((*square.shape[:-dims], int(index.max()) + 1))
    return 0.5 * summed.index_add_(-1, index.flatten(), square.flatten(-dims))
