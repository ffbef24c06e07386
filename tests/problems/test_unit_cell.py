"""The mesh of the unit cell: its topology, symmetry, area, and how it moves with the void."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from hofno.problems.unit_cell import RADIUS, unit_cell, with_void
from hofno.solvers.elasticity import Linear, PlaneStress

SIDES = ((0, 1, 4), (1, 2, 5), (2, 3, 6), (3, 0, 7))


def test_counts() -> None:
    mesh = unit_cell()
    assert mesh.nodes.shape == (496, 2)
    assert mesh.elements.shape == (108, 9)
    assert len(mesh.bottom) == 21
    assert mesh.top.shape == (10, 3)
    assert torch.equal(mesh.elements.unique(), torch.arange(496))


def test_elements_share_edges() -> None:
    """Every edge, its middle included, belongs to two elements or to the boundary: 4 x 10 and 24 on the void."""
    mesh = unit_cell()
    edges = Counter(frozenset(element[list(side)].tolist()) for element in mesh.elements for side in SIDES)
    assert set(edges.values()) == {1, 2}
    outer = [edge for edge, count in edges.items() if count == 1]
    rho = [torch.hypot(*(mesh.nodes[list(edge)] - 0.5).T) for edge in outer]
    on_void = [bool(((r - RADIUS).abs() < 1e-12).all()) for r in rho]
    assert (len(outer), sum(on_void)) == (64, 24)
    sides = [mesh.nodes[list(edge)] for edge, void in zip(outer, on_void, strict=True) if not void]
    assert all(bool(((n == 0).all(0) | (n == 1).all(0)).any()) for n in sides)


def test_top_is_covered_once() -> None:
    mesh = unit_cell()
    start, end, middle = mesh.nodes[mesh.top].unbind(1)
    assert bool((mesh.nodes[mesh.top, 1] == 1).all())
    assert sorted(start[:, 0].tolist()) == pytest.approx([k / 10 for k in range(10)])
    torch.testing.assert_close(end[:, 0] - start[:, 0], torch.full((10,), 0.1, dtype=torch.float64))
    torch.testing.assert_close(middle, (start + end) / 2)


def test_it_maps_onto_itself_when_turned() -> None:
    mesh = unit_cell()
    turned = torch.stack((1 - mesh.nodes[:, 1], mesh.nodes[:, 0]), -1)
    distance, image = torch.cdist(turned, mesh.nodes).min(1)
    assert float(distance.max()) < 1e-7
    assert len(image.unique()) == 496
    elements = {frozenset(element.tolist()) for element in mesh.elements}
    assert {frozenset(image[element].tolist()) for element in mesh.elements} == elements


def test_published_places() -> None:
    """Corners of the first, a middle and the last element, and centres, as in the published file."""
    mesh = unit_cell()
    places = {
        (0, 0): (0.7852477521347208, 0.7272569128382039),
        (0, 2): (0.9006455451103654, 0.6669796001362857),
        (0, 8): (0.8438959211845447, 0.698041877462343),
        (16, 2): (0.2401923786050955, 0.6499999995504065),
        (16, 6): (0.2619939975579484, 0.6826284282403869),
        (16, 8): (0.2466307243333191, 0.7189052616174604),
        (50, 8): (0.5352380058464909, 0.1754737507941983),
        (69, 0): (0.8999999999997368, 0.0),
        (107, 0): (0.7251164377784831, 0.8102081849982281),
        (107, 8): (0.7367480480100227, 0.8859011568171639),
    }
    for (element, node), place in places.items():
        assert mesh.nodes[mesh.elements[element, node]].tolist() == pytest.approx(place, abs=2e-9)


def test_published_order() -> None:
    """sum_i i (mean of the corners of element i), i = 1..108, of the published file: none changed places."""
    mesh = unit_cell()
    means = mesh.nodes[mesh.elements[:, :4]].mean(1)
    assert (torch.arange(1.0, 109.0).double() @ means).tolist() == pytest.approx([2936.6459528, 2951.7429294], abs=1e-5)


def test_area_and_moved_nodes() -> None:
    """The areas of the elements add up to the square less the void, whatever its shape."""
    mesh = unit_cell()
    phi = torch.atan2(mesh.nodes[:, 1] - 0.5, mesh.nodes[:, 0] - 0.5)
    radius = torch.stack((torch.full_like(phi, 0.3), torch.full_like(phi, 0.2), 0.3 + 0.05 * torch.cos(2 * phi)))
    nodes = with_void(mesh.nodes, radius)
    torch.testing.assert_close(nodes[0], mesh.nodes)
    solver = PlaneStress(mesh.elements, mesh.bottom, mesh.top, Linear(1.0, 0.3))
    areas = solver._geometry(nodes)[1]
    assert float(areas.min()) > 0
    voids = torch.tensor([0.09, 0.04, 0.09 + 0.05**2 / 2], dtype=torch.float64) * math.pi
    torch.testing.assert_close(areas.sum((1, 2)), 1 - voids, rtol=2e-5, atol=0)
    rho = torch.hypot(*(mesh.nodes - 0.5).T)
    still, void = rho >= 0.5, (rho - RADIUS).abs() < 1e-12
    assert torch.equal(nodes[:, still], mesh.nodes[still].expand(3, -1, -1))
    torch.testing.assert_close(torch.hypot(*(nodes - 0.5).unbind(-1))[:, void], radius[:, void])
    half = (rho - 0.4).abs().argmin()  # a node about half way moves about half as far
    moved = torch.hypot(*(nodes[1, half] - 0.5))
    assert float(moved - rho[half]) == pytest.approx(-0.1 * float(0.5 - rho[half]) / 0.2)
