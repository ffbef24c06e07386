r"""Plane stress on meshes of nine-node quadrilaterals: many shapes of one mesh at once.

    div P = 0,      P n = t on loaded edges,      u given at held nodes,      P = 0 through the thickness

Two materials are known. `Linear` has sigma = lambda tr(e) + 2 mu e with plane-stress lambda = E nu / (1 - nu^2).
`RivlinSaunders` is incompressible rubber at finite strain, W = c1 (I1 - 3) + c2 (I2 - 3). With C = F^T F in the plane
and d = det C, incompressibility makes the stretch through the thickness C_33 = 1 / d, so that

    W = c1 (tr C + 1/d - 3) + c2 (d + tr C / d - 3),      S = 2 dW/dC,      P = F S,      sigma = F S F^T.

At small strain it is `Linear` with E = 6 (c1 + c2) and nu = 1/2.

All shapes share the elements, so all stiffness matrices have one pattern: they are put together and factorised at once,
as block tridiagonal Cholesky, and used again in every correction K du = f - f_int(u), one for a linear material, eight
for rubber (enough for strains of half a per cent). Nothing waits for the device before the end, where the last residual
is checked.

Shapes: b samples, N nodes, E elements of 9 nodes (corners, middles of edges, centre) and 9 Gauss points, n free
unknowns. Gauss points come in the order (0, -, +) x (0, -, +) of sqrt(0.6), the first local coordinate slowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.solvers.block_tridiagonal import BlockTridiagonal, sum_rounds

_ABSCISSAE = torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64) * math.sqrt(0.6)
_WEIGHTS = torch.tensor([8.0, 5.0, 5.0], dtype=torch.float64) / 9
_LOCAL = ((0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (1, 2), (2, 1), (0, 2), (2, 2))  # nodes -1, 1, 0 on both axes
_TOLERANCE = 1e-9  # of the first residual


@dataclass(frozen=True)
class Linear:
    """Hooke's law."""

    modulus: float
    poisson_ratio: float
    corrections: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.modulus) and self.modulus > 0 and -1 < self.poisson_ratio <= 0.5):
            raise SolverError(
                f"a material needs modulus > 0 and -1 < poisson_ratio <= 0.5; "
                f"got {self.modulus} and {self.poisson_ratio}"
            )

    def stresses(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Nominal and true stress, which are one here, of displacement gradients. (.., 2, 2) -> 2 x (.., 2, 2)"""
        first, shear = lame(self)
        strain = (gradient + gradient.mT) / 2
        identity = torch.eye(2, dtype=gradient.dtype, device=gradient.device)
        stress = first * _trace(strain) * identity + 2 * shear * strain
        return stress, stress


@dataclass(frozen=True)
class RivlinSaunders:
    """Incompressible rubber, W = c1 (I1 - 3) + c2 (I2 - 3), at finite strain."""

    c1: float
    c2: float
    corrections: ClassVar[int] = 8
    poisson_ratio: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.c1 + self.c2) and self.c1 > 0 and self.c2 >= 0):
            raise SolverError(f"a material needs c1 > 0 and c2 >= 0; got {self.c1} and {self.c2}")

    @property
    def modulus(self) -> float:
        return 6 * (self.c1 + self.c2)

    def stresses(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Nominal stress P and true stress sigma of displacement gradients. (.., 2, 2) -> 2 x (.., 2, 2)"""
        identity = torch.eye(2, dtype=gradient.dtype, device=gradient.device)
        deformation = identity + gradient
        stretch = deformation.mT @ deformation
        trace, d = _trace(stretch), _determinant(stretch)
        adjugate = trace * identity - stretch  # d times the inverse
        second = 2 * (
            self.c1 * (identity - adjugate / d**2) + self.c2 * (adjugate + identity / d - trace * adjugate / d**2)
        )
        nominal = deformation @ second
        return nominal, nominal @ deformation.mT


Material = Linear | RivlinSaunders


class PlaneStress:
    """Displacements and stresses of many shapes of one mesh.

    Args:
        elements: nodes of each element, (E, 9): corners in either sense of turning, middles of edges, centre.
        held: nodes whose displacement is given, (F,).
        loaded: edges under traction, (L, 3): start, end, middle.
        material: `Linear` or `RivlinSaunders`.
        device: where the work is done, in float64.
    """

    def __init__(
        self, elements: Tensor, held: Tensor, loaded: Tensor, material: Material, device: str | torch.device = "cpu"
    ) -> None:
        if (
            elements.dim() != 2
            or elements.shape[1] != 9
            or held.dim() != 1
            or loaded.dim() != 2
            or loaded.shape[1] != 3
        ):
            raise ShapeError(
                "expected elements (E, 9), held (F,) and loaded (L, 3); "
                f"got {tuple(elements.shape)}, {tuple(held.shape)} and {tuple(loaded.shape)}"
            )
        self.material, self.device = material, torch.device(device)
        self.node_count = int(elements.max()) + 1
        self.elements, self.held, self.loaded = (part.to(self.device) for part in (elements, held, loaded))
        local = torch.cartesian_prod(_ABSCISSAE, _ABSCISSAE)
        values, gradients = shape_functions(local)
        self._values, self._gradients = values.to(self.device), gradients.to(self.device)  # (9, 9), (9, 9, 2)
        self._weights = torch.outer(_WEIGHTS, _WEIGHTS).flatten().to(self.device)
        self._edge_points = _ABSCISSAE.to(self.device)[:, None, None, None]  # (3, 1, 1, 1)
        self._edge_weights = _WEIGHTS.to(self.device)[:, None, None]
        unknowns = torch.stack((2 * elements, 2 * elements + 1), -1).flatten(1).cpu()  # (E, 18)
        held_unknowns = torch.stack((2 * held, 2 * held + 1), -1).flatten().cpu()
        free = torch.ones(2 * self.node_count, dtype=torch.bool)
        free[held_unknowns] = False
        self._free = free.nonzero().flatten().to(self.device)  # (n,)
        number = torch.where(free, free.cumsum(0) - 1, -1)[unknowns]  # (E, 18)
        rows, columns = (part.flatten() for part in torch.broadcast_tensors(number[:, :, None], number[:, None, :]))
        kept = ((rows >= 0) & (columns >= 0)).nonzero().flatten()
        self._kept = kept.to(self.device)  # entries of the elements' matrices that couple free unknowns
        self._system = BlockTridiagonal(len(self._free), rows[kept], columns[kept], self.device)
        self._gathers = [
            (place.to(self.device), source.to(self.device)) for place, source in sum_rounds(unknowns.flatten())
        ]

    @torch.no_grad()
    def solve(self, nodes: Tensor, traction: tuple[float, float], held_at: Tensor | None = None) -> Tensor:
        """Displacements of all nodes. (b, N, 2) -> (b, N, 2)

        Args:
            nodes: positions in the state without load.
            traction: force on each unit of length of the loaded edges.
            held_at: displacements of the held nodes, (b, F, 2) or (F, 2); None holds them where they are.
        """
        nodes = self._checked(nodes)
        gradients, volumes = self._geometry(nodes)
        lowers, couplings, failed = self._system.factorise(self._stiffness(gradients, volumes))
        load = self._load(nodes, traction)
        u = torch.zeros_like(nodes)
        if held_at is not None:
            u[:, self.held] = held_at.to(u)
        first = residual = self._residual(u, gradients, volumes, load)[:, self._free]
        for _ in range(self.material.corrections):
            correction = self._system.solve(lowers, couplings, residual)
            u.view(len(u), -1)[:, self._free] += correction
            residual = self._residual(u, gradients, volumes, load)[:, self._free]
        folded = ~(volumes > 0).flatten(1).all(1)
        self._check_solved(folded | failed, first.norm(dim=1), residual.norm(dim=1))
        return u

    @torch.no_grad()
    def stress(self, nodes: Tensor, u: Tensor) -> Tensor:
        """True stress at the Gauss points: xx, yy, xy. (b, N, 2), (b, N, 2) -> (b, 9 E, 3)"""
        gradients, _ = self._geometry(self._checked(nodes))
        _, true = self.material.stresses(self._displacement_gradient(u, gradients))
        return torch.stack((true[..., 0, 0], true[..., 1, 1], true[..., 0, 1]), -1).flatten(1, 2)

    @torch.no_grad()
    def reaction(self, nodes: Tensor, u: Tensor, traction: tuple[float, float]) -> Tensor:
        """Forces that hold the held nodes. (b, N, 2), (b, N, 2) -> (b, F, 2)"""
        nodes = self._checked(nodes)
        residual = self._residual(u, *self._geometry(nodes), self._load(nodes, traction))
        return -residual.unflatten(1, (-1, 2))[:, self.held]

    def points(self, nodes: Tensor) -> Tensor:
        """Positions of the Gauss points. (b, N, 2) -> (b, 9 E, 2)"""
        return (self._values @ self._checked(nodes)[:, self.elements]).flatten(1, 2)

    def bytes_per_sample(self) -> int:
        """Memory that one more sample takes, about: a matrix, its factor and the elements' parts."""
        return self._system.bytes_per_matrix() + 8 * len(self.elements) * (4 * 18**2 + 12 * 18)

    def _checked(self, nodes: Tensor) -> Tensor:
        if nodes.dim() != 3 or nodes.shape[1:] != (self.node_count, 2) or len(nodes) == 0 or nodes.is_complex():
            raise ShapeError(
                f"expected nodes of shape (b, {self.node_count}, 2), real; got {nodes.dtype} {tuple(nodes.shape)}"
            )
        return nodes.to(self.device, torch.float64)

    def _geometry(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the shape functions (b, E, 9, 9, 2) and the volumes of the Gauss points (b, E, 9)."""
        jacobian = torch.einsum("beai,gaj->begij", nodes[:, self.elements], self._gradients)
        determinant = _determinant(jacobian)[..., 0, 0]
        adjugate = _trace(jacobian) * torch.eye(2, dtype=torch.float64, device=self.device) - jacobian
        gradients = self._gradients @ (adjugate / determinant[..., None, None])
        sense = determinant[..., :1].sign()  # of each element; a Gauss point of the other sense gets a negative volume
        return gradients, self._weights * determinant * sense

    def _stiffness(self, gradients: Tensor, volumes: Tensor) -> Tensor:
        """Entries of the elements' stiffness matrices at rest that couple free unknowns. -> (b, p)"""
        first, shear = lame(self.material)
        flat = gradients.flatten(-2)  # (b, E, 9, 18)
        products = ((flat * volumes[..., None]).mT @ flat).unflatten(-1, (9, 2)).unflatten(-3, (9, 2))  # a i b j
        parts = first * products + shear * products.transpose(-3, -1)
        both = shear * (products[..., 0, :, 0] + products[..., 1, :, 1])
        parts[..., 0, :, 0] += both
        parts[..., 1, :, 1] += both
        return parts.flatten(1)[:, self._kept]

    def _displacement_gradient(self, u: Tensor, gradients: Tensor) -> Tensor:
        """du_i / dx_j at the Gauss points. -> (b, E, 9, 2, 2)"""
        return u[:, self.elements].mT[:, :, None] @ gradients

    def _residual(self, u: Tensor, gradients: Tensor, volumes: Tensor, load: Tensor) -> Tensor:
        """f - f_int(u), held unknowns included. -> (b, 2 N)"""
        nominal, _ = self.material.stresses(self._displacement_gradient(u, gradients))
        forces = (gradients @ (nominal * volumes[..., None, None]).mT).sum(2).flatten(1)  # (b, E * 18)
        found = load.clone()
        for place, source in self._gathers:
            found[:, place] -= forces[:, source]
        return found

    def _load(self, nodes: Tensor, traction: tuple[float, float]) -> Tensor:
        """Forces of the traction on the loaded edges. -> (b, 2 N)"""
        start, end, middle = nodes[:, self.loaded].unbind(2)  # (b, L, 2) each
        s = self._edge_points
        tangent = (s - 0.5) * start + (s + 0.5) * end - 2 * s * middle  # (3, b, L, 2)
        length = tangent.norm(dim=-1) * self._edge_weights
        s = s[..., 0]
        shares = torch.stack([(part * length).sum(0) for part in (s * (s - 1) / 2, s * (s + 1) / 2, 1 - s * s)], -1)
        force = torch.stack([component * shares for component in traction], -1)  # (b, L, 3, 2)
        load = nodes.new_zeros(len(nodes), self.node_count, 2)
        for column in range(3):  # a node is the start, end or middle of one edge at most
            load[:, self.loaded[:, column]] += force[:, :, column]
        return load.flatten(1)

    def _check_solved(self, folded: Tensor, first: Tensor, last: Tensor) -> None:
        """One look at the outcome: matrices that are not positive, and residuals that did not fall."""
        wrong = folded | ~(last <= _TOLERANCE * first)
        if not bool(wrong.any()):
            return
        sample = int(wrong.nonzero()[0, 0])
        if bool(folded[sample]):
            raise SolverError(
                f"sample {sample} of the batch has no positive stiffness; its elements are folded over or not finite, "
                "or too few nodes are held: mend the mesh"
            )
        raise SolverError(
            f"the residual of sample {sample} of the batch fell only to {float(last[sample] / first[sample]):.2g} of "
            f"its start in {self.material.corrections} corrections, {_TOLERANCE:g} is wanted; lower the load"
        )


def von_mises(stress: Tensor) -> Tensor:
    """sqrt(s1^2 - s1 s2 + s2^2) of plane stresses xx, yy, xy. (.., 3) -> (..)"""
    xx, yy, xy = stress.unbind(-1)
    return torch.sqrt(xx * xx - xx * yy + yy * yy + 3 * xy * xy)


def lame(material: Material) -> tuple[float, float]:
    """lambda of plane stress, and mu."""
    modulus, ratio = material.modulus, material.poisson_ratio
    return modulus * ratio / (1 - ratio**2), modulus / (2 * (1 + ratio))


def shape_functions(local: Tensor) -> tuple[Tensor, Tensor]:
    """Values and local gradients of the nine shape functions. (p, 2) -> (p, 9), (p, 9, 2)"""
    s = local[..., None]  # (p, 2, 1)
    values = torch.cat((s * (s - 1) / 2, s * (s + 1) / 2, 1 - s * s), -1)  # (p, 2, 3)
    slopes = torch.cat((s - 0.5, s + 0.5, -2 * s), -1)
    i, j = torch.tensor(_LOCAL).unbind(-1)
    gradients = torch.stack((slopes[:, 0, i] * values[:, 1, j], values[:, 0, i] * slopes[:, 1, j]), -1)
    return values[:, 0, i] * values[:, 1, j], gradients


def _trace(matrix: Tensor) -> Tensor:
    return (matrix[..., 0, 0] + matrix[..., 1, 1])[..., None, None]


def _determinant(matrix: Tensor) -> Tensor:
    return (matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0])[..., None, None]
