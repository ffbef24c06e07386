r"""The screened Poisson equation on a triangulated surface, by linear finite elements.

    -Laplace u + kappa u = f on the surface, no slope across its borders, kappa > 0

    (S + kappa M) u = M f,    S_ij = integral of grad h_i . grad h_j,    M_ij = integral of h_i h_j

h_i are the hat functions of the vertices, u and f the values there; M is the full mass matrix. The matrix is symmetric
and positive definite, is factored once (Cholesky) and serves any number of right-hand sides. Constants are solved
exactly, kappa times the integral of u is that of f, and errors fall with the square of the triangles' size.

Good values: up to some eight thousand vertices, whose matrices take 0.5 GB each: they are dense.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.surface import Surface
from hofno.transforms.manifold import assembled, local_mass, local_stiffness


class SurfaceElliptic:
    """The factored equation of one surface."""

    def __init__(self, surface: Surface, kappa: float = 1.0) -> None:
        if not kappa > 0:
            raise SpecError(f"kappa must be above 0, or constants have no solution; got {kappa}")
        self.mass = torch.from_numpy(assembled(local_mass(surface), surface))
        self.matrix = torch.from_numpy(assembled(local_stiffness(surface), surface)) + kappa * self.mass
        self.factor = torch.linalg.cholesky(self.matrix)

    def solve(self, source: Tensor) -> Tensor:
        """Solutions at the vertices, (.., N) -> (.., N), in float64."""
        vertices = len(self.mass)
        if source.shape[-1] != vertices:
            raise ShapeError(f"expected sources (.., {vertices}) at the vertices; got shape {tuple(source.shape)}")
        loads = source.double().reshape(-1, vertices) @ self.mass  # (n, N); the matrix is symmetric
        return torch.cholesky_solve(loads.T, self.factor).T.reshape(source.shape)
