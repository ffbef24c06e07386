"""Plane stress: patch tests, exact solutions, order of convergence, Kirsch's hole, balance of forces."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.problems.unit_cell import CellMesh, unit_cell, with_void
from hofno.solvers.elasticity import Linear, Material, PlaneStress, RivlinSaunders, shape_functions, von_mises

STEEL = Linear(modulus=200.0, poisson_ratio=0.3)
RUBBER = RivlinSaunders(c1=1.863e5, c2=9.79e3)
SIDES = ((0, 1, 4), (1, 2, 5), (2, 3, 6), (3, 0, 7))


def voids(mesh: CellMesh, count: int = 3) -> Tensor:
    """Nodes of sheets with wavy voids, none of them symmetric."""
    phi = torch.atan2(mesh.nodes[:, 1] - 0.5, mesh.nodes[:, 0] - 0.5)
    return with_void(mesh.nodes, torch.stack([0.3 + 0.06 * torch.sin((k + 1) * phi + k) for k in range(count)]))


def boundary(elements: Tensor) -> Tensor:
    """Nodes of the edges that belong to one element only."""
    edges = [tuple(element[list(side)].tolist()) for element in elements for side in SIDES]
    counts = Counter(frozenset(edge) for edge in edges)
    return torch.tensor(sorted({node for edge in edges if counts[frozenset(edge)] == 1 for node in edge}))


def ring(around: int, across: int, inner: float, outer: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """An O-mesh about (1/2, 1/2) from a circle to r = outer(phi), graded geometrically. -> nodes, elements"""
    phi = 2 * math.pi * torch.arange(2 * around, dtype=torch.float64) / (2 * around)
    share = torch.arange(2 * across + 1, dtype=torch.float64) / (2 * across)
    radius = inner * (outer(phi)[:, None] / inner) ** share  # (2 around, 2 across + 1)
    nodes = 0.5 + torch.stack((radius * torch.cos(phi)[:, None], radius * torch.sin(phi)[:, None]), -1)
    elements = []
    for i in range(0, 2 * around, 2):
        for j in range(0, 2 * across, 2):
            places = ((0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1), (1, 1))
            elements.append([(i + b) % (2 * around) * (2 * across + 1) + j + a for a, b in places])
    return nodes.flatten(0, 1), torch.tensor(elements)


def kirsch(points: Tensor, a: float, material: Linear) -> tuple[Tensor, Tensor]:
    """Displacement and stress (xx, yy, xy) around a hole under unit tension along y. (.., 2) -> (.., 2), (.., 3)"""
    along, across = points[..., 1], -points[..., 0]  # turned so that the tension is along the first
    r, t = torch.hypot(along, across), torch.atan2(across, along)
    mu = material.modulus / 2 / (1 + material.poisson_ratio)
    kappa = (3 - material.poisson_ratio) / (1 + material.poisson_ratio)
    c, s, q = torch.cos, torch.sin, a / r
    u = (kappa + 1) * c(t) / q + 2 * q * ((1 + kappa) * c(t) + c(3 * t)) - 2 * q**3 * c(3 * t)
    v = (kappa - 3) * s(t) / q + 2 * q * ((1 - kappa) * s(t) + s(3 * t)) - 2 * q**3 * s(3 * t)
    xx = 1 - q**2 * (1.5 * c(2 * t) + c(4 * t)) + 1.5 * q**4 * c(4 * t)
    yy = -(q**2) * (0.5 * c(2 * t) - c(4 * t)) - 1.5 * q**4 * c(4 * t)
    xy = -(q**2) * (0.5 * s(2 * t) + s(4 * t)) + 1.5 * q**4 * s(4 * t)
    scale = a / (8 * mu)
    return torch.stack((-scale * v, scale * u), -1), torch.stack((yy, xx, -xy), -1)


class TestElement:
    def test_shape_functions_are_one_at_their_node(self) -> None:
        nodes = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1], [0, -1], [1, 0], [0, 1], [-1, 0], [0, 0]]).double()
        values, _ = shape_functions(nodes)
        assert torch.equal(values, torch.eye(9, dtype=torch.float64))

    def test_gradients(self) -> None:
        local = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        values, gradients = shape_functions(local)
        for node in range(9):
            (found,) = torch.autograd.grad(values[:, node].sum(), local, retain_graph=True)
            torch.testing.assert_close(found, gradients[:, node])

    def test_gauss_points_in_the_published_order(self) -> None:
        nodes = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1], [0, -1], [1, 0], [0, 1], [-1, 0], [0, 0]]).double()
        solver = PlaneStress(torch.arange(9)[None], torch.tensor([0, 1, 4]), torch.tensor([[3, 2, 6]]), STEEL)
        g = math.sqrt(0.6)
        expected = [(x, y) for x in (0, -g, g) for y in (0, -g, g)]
        torch.testing.assert_close(solver.points(nodes[None])[0], torch.tensor(expected, dtype=torch.float64))


class TestMaterials:
    def test_rubber_is_the_derivative_of_its_energy(self) -> None:
        gradient = 0.2 * torch.randn(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gradient.requires_grad_()
        f = torch.eye(3, dtype=torch.float64).repeat(6, 1, 1)
        f[:, :2, :2] = f[:, :2, :2] + gradient
        thick = 1 / torch.linalg.det(f[:, :2, :2])
        f = torch.cat((torch.cat((f[:, :2, :2], torch.zeros(6, 2, 1)), 2), torch.zeros(6, 1, 3)), 1)
        f = f + thick[:, None, None] * torch.diag(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        c = f.mT @ f
        first = c.diagonal(dim1=1, dim2=2).sum(1)
        second = (first**2 - (c @ c).diagonal(dim1=1, dim2=2).sum(1)) / 2
        energy = (2.0 * (first - 3) + 0.7 * (second - 3)).sum()
        (expected,) = torch.autograd.grad(energy, gradient)
        nominal, true = RivlinSaunders(2.0, 0.7).stresses(gradient.detach())
        torch.testing.assert_close(nominal, expected)
        torch.testing.assert_close(true, expected @ (torch.eye(2, dtype=torch.float64) + gradient.detach()).mT)

    def test_rubber_is_linear_at_small_strain(self) -> None:
        gradient = torch.randn(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        linear, _ = Linear(RUBBER.modulus, 0.5).stresses(gradient)
        for stress in RUBBER.stresses(1e-6 * gradient):
            torch.testing.assert_close(stress / 1e-6, linear, rtol=0, atol=1e-4 * float(linear.abs().max()))

    def test_plane_stress_of_hooke(self) -> None:
        """Uniaxial stress: sigma = E e, with lateral strain -nu e."""
        gradient = torch.diag(torch.tensor([-0.3e-3, 1e-3], dtype=torch.float64))
        expected = torch.diag(torch.tensor([0.0, 0.2], dtype=torch.float64))
        torch.testing.assert_close(STEEL.stresses(gradient)[0], expected, rtol=1e-12, atol=1e-14)

    def test_von_mises(self) -> None:
        stress = torch.tensor([[3.0, 0.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0], [5.0, 1.0, 2.0]], dtype=torch.float64)
        principal = torch.linalg.eigvalsh(torch.stack((stress[:, [0, 2]], stress[:, [2, 1]]), 1))
        s1, s2 = principal.unbind(1)
        torch.testing.assert_close(von_mises(stress), (s1**2 - s1 * s2 + s2**2).sqrt())
        torch.testing.assert_close(von_mises(stress)[:3], torch.tensor([3.0, 2.0, 3**0.5], dtype=torch.float64))

    @pytest.mark.parametrize(
        ("kind", "constants"),
        [
            *((Linear, constants) for constants in ((0.0, 0.3), (1.0, 0.6), (1.0, -1.0), (math.nan, 0.3))),
            *((RivlinSaunders, constants) for constants in ((0.0, 1.0), (1.0, -1.0), (math.inf, 1.0))),
        ],
    )
    def test_bad_constants(self, kind: type[Material], constants: tuple[float, float]) -> None:
        with pytest.raises(SolverError, match="a material needs"):
            kind(*constants)


class TestPatch:
    @pytest.mark.parametrize("material", [STEEL, Linear(1.0, 0.5), RUBBER])
    def test_a_linear_field_is_exact_on_any_shape(self, material: Material) -> None:
        mesh = unit_cell()
        nodes, edge = voids(mesh), boundary(mesh.elements)
        slope = torch.tensor([[1e-3, 5e-4], [-2e-4, -7e-4]], dtype=torch.float64)
        solver = PlaneStress(mesh.elements, edge, mesh.top[:0], material)
        u = solver.solve(nodes, (0.0, 0.0), (nodes @ slope.T)[:, edge])
        torch.testing.assert_close(u, nodes @ slope.T, rtol=0, atol=1e-13)
        _, true = material.stresses(slope)
        expected = torch.stack((true[0, 0], true[1, 1], true[0, 1])).expand(3, 972, 3)
        torch.testing.assert_close(solver.stress(nodes, u), expected, rtol=0, atol=1e-9 * material.modulus)

    @pytest.mark.parametrize("material", [STEEL, RUBBER])
    def test_uniaxial_tension(self, material: Material) -> None:
        """A sheet without a void, free at its sides, pulled at the top: uniform stress of the right size."""
        stretch = 1.004
        if isinstance(material, RivlinSaunders):
            width, nominal = stretch**-0.5, 2 * (material.c1 + material.c2 / stretch) * (stretch - stretch**-2)
            true = nominal * stretch
        else:
            width, nominal = 1 - material.poisson_ratio * (stretch - 1), material.modulus * (stretch - 1)
            true = nominal
        nodes, elements = plate(3)
        expected = torch.stack(((width - 1) * (nodes[:, 0] - 0.5), (stretch - 1) * nodes[:, 1]), -1)
        bottom, top = nodes[:, 1] == 0, top_edges(nodes, elements)
        solver = PlaneStress(elements, bottom.nonzero().flatten(), top, material)
        u = solver.solve(nodes[None], (0.0, nominal), expected[bottom])
        torch.testing.assert_close(u[0], expected, rtol=0, atol=1e-11)
        stress = solver.stress(nodes[None], u)[0] / true
        torch.testing.assert_close(
            stress, torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).expand_as(stress), rtol=0, atol=1e-7
        )

    def test_elements_may_turn_either_way(self) -> None:
        mesh = unit_cell()
        nodes = voids(mesh, 1)
        other = mesh.elements[:, [0, 3, 2, 1, 7, 6, 5, 4, 8]]
        found = [PlaneStress(e, mesh.bottom, mesh.top, STEEL).solve(nodes, (0.0, 1.0)) for e in (mesh.elements, other)]
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-13)


def plate(count: int) -> tuple[Tensor, Tensor]:
    """The unit square, its elements sheared inside."""
    n = 2 * count + 1
    x, y = torch.meshgrid(*2 * [torch.arange(n, dtype=torch.float64) / (n - 1)], indexing="ij")
    bump = 0.1 * torch.sin(math.pi * x) * torch.sin(math.pi * y)
    inside = (x % 1 != 0) & (y % 1 != 0)
    nodes = torch.stack((x + torch.where(inside, bump, 0), y - torch.where(inside, bump, 0)), -1).flatten(0, 1)
    places = ((0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1), (1, 1))
    elements = [[(i + a) * n + j + b for a, b in places] for i in range(0, n - 1, 2) for j in range(0, n - 1, 2)]
    return nodes, torch.tensor(elements)


def top_edges(nodes: Tensor, elements: Tensor) -> Tensor:
    edges = [element[list(side)] for element in elements for side in SIDES]
    return torch.stack([edge for edge in edges if bool((nodes[edge, 1] > 1 - 1e-12).all())])


class TestBalance:
    @pytest.mark.parametrize("material", [Linear(1.0, 0.5), STEEL, RUBBER])
    @pytest.mark.parametrize("traction", [(0.0, 100.0), (30.0, -20.0)])
    def test_the_clamp_carries_the_load(self, material: Material, traction: tuple[float, float]) -> None:
        """Forces and moments, the latter about the positions under load."""
        mesh = unit_cell()
        nodes = voids(mesh)
        solver = PlaneStress(mesh.elements, mesh.bottom, mesh.top, material)
        u = solver.solve(nodes, traction)
        reaction = solver.reaction(nodes, u, traction)
        torch.testing.assert_close(
            reaction.sum(1), -torch.tensor([traction] * 3, dtype=torch.float64), rtol=1e-8, atol=1e-7
        )
        moment = (nodes[:, mesh.bottom, 0] * reaction[..., 1]).sum(1)
        moved = nodes + u if isinstance(material, RivlinSaunders) else nodes
        start, end, middle = moved[:, mesh.top].unbind(2)
        mean = (0.1 * (start + end + 4 * middle) / 6).sum(1)  # of the positions on the top, of length 1
        load = mean[:, 0] * traction[1] - mean[:, 1] * traction[0]
        torch.testing.assert_close(moment, -load, rtol=1e-7, atol=1e-6)

    def test_displacement_is_load_over_modulus(self) -> None:
        nodes, elements = plate(2)
        bottom, top = (nodes[:, 1] == 0).nonzero().flatten(), top_edges(nodes, elements)
        solver = PlaneStress(elements, bottom, top, STEEL)
        once, twice = (solver.solve(nodes[None], (0.0, load)) for load in (1.0, 2.0))
        torch.testing.assert_close(twice, 2 * once)
        stiffer = PlaneStress(elements, bottom, top, Linear(400.0, 0.3)).solve(nodes[None], (0.0, 2.0))
        torch.testing.assert_close(stiffer, once)


class TestKirsch:
    A = 0.1

    def solved(self, count: int) -> tuple[float, float, float]:
        """Errors of displacement and stress, and the largest stress, in an annulus that is exact at its rim."""
        nodes, elements = ring(4 * count, count, self.A, lambda phi: torch.full_like(phi, 0.4))
        exact, _ = kirsch(nodes - 0.5, self.A, STEEL)
        rim = (torch.hypot(*(nodes - 0.5).unbind(-1)) > 0.4 - 1e-12).nonzero().flatten()
        solver = PlaneStress(elements, rim, elements[:0, :3], STEEL)
        u = solver.solve(nodes[None], (0.0, 0.0), exact[rim])
        stress = solver.stress(nodes[None], u)[0]
        _, expected = kirsch(solver.points(nodes[None])[0] - 0.5, self.A, STEEL)
        size = (u[0] - exact).norm() / exact.norm()
        return (
            float(size),
            float((stress - expected).norm() / expected.norm()),
            float(at_first_corners(stress)[:, 1].max()),
        )

    def test_order_of_convergence(self) -> None:
        coarse, fine = self.solved(8), self.solved(16)
        assert math.log2(coarse[0] / fine[0]) > 3.5  # fourth order in the displacement of nodes
        assert math.log2(coarse[1] / fine[1]) == pytest.approx(2, abs=0.05)  # second in the stress
        assert fine[1] < 1.5e-3
        assert fine[2] == pytest.approx(3, rel=1e-3)

    def test_limit_of_a_small_void_in_the_cell(self) -> None:
        """The published load on a cell with a void of radius 0.02, its bottom free to narrow: 3 x 100."""
        a = 0.02
        nodes, elements = ring(48, 28, a, lambda phi: 0.5 / torch.maximum(phi.cos().abs(), phi.sin().abs()))
        material = Linear(1.0, 0.5)
        bottom, top = (nodes[:, 1] < 1e-12).nonzero().flatten(), top_edges(nodes, elements)
        held = torch.stack((-0.5 * 100 * (nodes[bottom, 0] - 0.5), torch.zeros(len(bottom)).double()), -1)
        solver = PlaneStress(elements, bottom, top, material)
        u = solver.solve(nodes[None], (0.0, 100.0), held)
        stress, points = solver.stress(nodes[None], u)[0], solver.points(nodes[None])[0] - 0.5
        _, expected = kirsch(points, a, material)
        near = torch.hypot(*points.unbind(-1)) < 3 * a
        assert float((stress - 100 * expected)[near].norm() / (100 * expected)[near].norm()) < 5e-3
        assert float(von_mises(at_first_corners(stress)).max()) == pytest.approx(300, rel=0.01)


def at_first_corners(stress: Tensor) -> Tensor:
    """Stresses at the first corner of each element, extrapolated from the Gauss points. (9 E, 3) -> (E, 3)"""
    x = [0.0, -math.sqrt(0.6), math.sqrt(0.6)]
    share = [math.prod((-1 - x[m]) / (x[k] - x[m]) for m in range(3) if m != k) for k in range(3)]
    one_way = torch.tensor(share, dtype=torch.float64)
    return torch.einsum("eijc,i,j->ec", stress.unflatten(0, (-1, 3, 3)), one_way, one_way)


class TestErrors:
    def test_shapes(self) -> None:
        mesh = unit_cell()
        with pytest.raises(ShapeError, match=r"expected elements \(E, 9\)"):
            PlaneStress(mesh.elements[:, :8], mesh.bottom, mesh.top, STEEL)
        solver = PlaneStress(mesh.elements, mesh.bottom, mesh.top, STEEL)
        for wrong in (mesh.nodes, mesh.nodes[None, :-1], mesh.nodes[None][:0], mesh.nodes[None] + 0j):
            with pytest.raises(ShapeError, match=r"expected nodes of shape \(b, 496, 2\)"):
                solver.solve(wrong, (0.0, 1.0))

    @pytest.mark.parametrize("fault", ["folded", "nan"])
    def test_a_broken_mesh_is_named(self, fault: str) -> None:
        mesh = unit_cell()
        nodes = voids(mesh)
        nodes[1, mesh.elements[5, 8]] = torch.nan if fault == "nan" else nodes[1, mesh.elements[5, 0]] + 0.3
        with pytest.raises(SolverError, match=r"sample 1 of the batch has no positive stiffness.*mend the mesh"):
            PlaneStress(mesh.elements, mesh.bottom, mesh.top, STEEL).solve(nodes, (0.0, 1.0))

    def test_too_few_nodes_held(self) -> None:
        nodes, elements = plate(1)
        with pytest.raises(SolverError, match="too few nodes are held"):
            PlaneStress(elements, torch.tensor([], dtype=torch.long), top_edges(nodes, elements), STEEL).solve(
                nodes[None], (0.0, 1.0)
            )

    def test_a_load_too_large(self) -> None:
        mesh = unit_cell()
        with pytest.raises(SolverError, match=r"fell only to .* in 8 corrections, 1e-09 is wanted; lower the load"):
            PlaneStress(mesh.elements, mesh.bottom, mesh.top, RUBBER).solve(voids(mesh), (0.0, 1e4))

    def test_memory(self) -> None:
        mesh = unit_cell()
        assert 1e6 < PlaneStress(mesh.elements, mesh.bottom, mesh.top, STEEL).bytes_per_sample() < 1e7
