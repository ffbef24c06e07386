r"""Polynomial-Source Poisson on a curved surface.

    -Laplace u + u = f_1 f_2 ... f_p      on a torus without symmetries (`hofno.problems.lumpy_torus`)

Inputs are the p fields, target is u. Each field is the restriction of random waves in space to the surface,

    f(x) = sqrt(2 / J) sum_j xi_j cos(k_j.x + phi_j),   xi_j ~ N(0, 1),  phi_j ~ U(0, 2 pi),

with the direction of k_j uniform and |k_j| uniform in k_min..k_max: smooth functions, of variance 1 in the mean, that
are the same functions on every triangulation.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from hofno.geometry import Surface
from hofno.problems.base import Arrays, Problem, Progress
from hofno.problems.lumpy_torus import lumpy_torus
from hofno.problems.quantities import Quantities, called
from hofno.solvers.memory import empty_array
from hofno.solvers.surface_elliptic import SurfaceElliptic

CARD = """\
# Polynomial-Source Poisson on a curved surface

**Equation.** -Δu + u = Π f_l on a torus without symmetries, Δ the Laplace-Beltrami operator; degree p = 1, 2, 3, ...
**Task.** p input fields f_1..f_p to the solution u, at 2048 vertices (4096 triangles), 1000 training and 200 test
samples; not a published benchmark.
**Surface.** A bent tube of changing width around a circle of radius 2, area 68, the same in all samples.
**Inputs.** Sums of 16 plane waves in space, restricted to the surface: directions uniform, wavenumbers uniform in 1..3,
normal amplitudes, uniform phases; of variance 1 in the mean over samples, not in each. Solutions of p = 2 have a
standard deviation of 0.36.
**Solver.** Linear finite elements on the triangles with the full mass matrix, one Cholesky factor for all samples.
**Cost.** 1300 samples in three seconds on one CPU core; 8192 vertices take eight seconds more, for the factor.

Known flaws
- Errors of the discretisation are part of the data: solutions at 2048 vertices are 0.6, 0.8 and 1.1 % from those at
  8192, for p = 1, 2, 3 (20 samples), and four times nearer with each doubling of the resolution.
- Errors are means over vertices, which are denser inside the ring than outside, not over area.
"""

BATCH = 64
"""Samples that are solved together."""


class SurfacePoisson(Problem):
    """-Laplace u + u = product of p random fields, on a lumpy torus."""

    name: ClassVar[str] = "surface_poisson"
    summary: ClassVar[str] = "Polynomial source on a curved surface: -Δu + u = f_1...f_p, p fields to one"
    card: ClassVar[str] = CARD
    has_other_grids: ClassVar[bool] = False  # other triangulations are for other networks

    degree: int = Field(2, ge=1, le=16, description="number p of multiplied fields")
    resolution: int = Field(32, ge=8, le=64, description="vertices n around the tube; 2 n^2 in all")
    size: float = Field(2.0, gt=0, le=100, description="radius of the centre line")
    k_min: float = Field(1.0, ge=0, description="least wavenumber of the waves in space")
    k_max: float = Field(3.0, gt=0, description="largest wavenumber of the waves in space")
    waves: int = Field(16, ge=1, description="waves in each field")

    @model_validator(mode="after")
    def _possible(self) -> SurfacePoisson:
        if self.k_min > self.k_max:
            raise ValueError(f"k_min={self.k_min:g} is above k_max={self.k_max:g}; lower it")
        shortest, apart = (
            2 * math.pi / (self.degree * self.k_max),
            2 * math.pi * 1.6 * self.size / (2 * self.resolution),
        )
        if 2 * apart >= shortest:
            raise ValueError(
                f"products of degree {self.degree} have waves of length {shortest:.3g}, and vertices of "
                f"resolution={self.resolution} are up to {apart:.3g} apart; at least two in a wave are needed: raise "
                "resolution, or lower k_max or size"
            )
        return self

    @property
    def grid_geometry(self) -> Surface:
        return lumpy_torus(self.resolution, self.size)

    @property
    def channels(self) -> tuple[int, int]:
        return self.degree, 1

    @property
    def quantities(self) -> Quantities:
        given = called(*(f"f{index + 1}" for index in range(self.degree)))
        return Quantities(given, called("solution u"))

    def memory_bytes(self) -> int:
        return 4 * (self.train + self.valid + self.test) * (self.degree + 1) * 2 * self.resolution**2

    def generate(self, progress: Progress) -> dict[str, Arrays]:
        sizes = {"train": self.train, "valid": self.valid, "test": self.test}
        done, total = 0, sum(sizes.values())
        places = torch.from_numpy(np.array(self.grid_geometry.vertices))
        solver = SurfaceElliptic(self.grid_geometry)
        splits: dict[str, Arrays] = {}
        for stream, (name, count) in enumerate(sizes.items()):
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, stream])))
            x, y = empty_array((count, self.degree, len(places))), empty_array((count, 1, len(places)))
            for start in range(0, count, BATCH):
                stop = min(start + BATCH, count)
                fields = self.fields(rng, stop - start, places)
                x[start:stop], y[start:stop, 0] = fields.numpy(), solver.solve(fields.prod(1)).numpy()
                done += stop - start
                progress("generate", done, total)
            splits[name] = Arrays(x, y)
        return splits

    def fields(self, rng: np.random.Generator, count: int, places: Tensor) -> Tensor:
        """The fields of the next `count` samples of a stream at places (N, 3), (count, p, N) in float64."""
        # six uniform numbers for each wave, in order, so that a longer split starts with a shorter one
        draws = torch.from_numpy(rng.random((count, self.degree, self.waves, 6)))
        length = self.k_min + (self.k_max - self.k_min) * draws[..., 0]
        up, turn = 2 * draws[..., 1] - 1, 2 * math.pi * draws[..., 2]
        flat = torch.sqrt(1 - up**2)
        k = length[..., None] * torch.stack((flat * torch.cos(turn), flat * torch.sin(turn), up), -1)
        phase = 2 * math.pi * draws[..., 3]
        normal = torch.sqrt(-2.0 * torch.log1p(-draws[..., 4])) * torch.cos(2 * math.pi * draws[..., 5])
        waves = torch.cos(k @ places.T + phase[..., None])  # (count, p, waves, N)
        return math.sqrt(2 / self.waves) * (normal.unsqueeze(-2) @ waves).squeeze(-2)
