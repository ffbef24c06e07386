"""HO-SFNO and SFNO: sizes, symmetries, resolutions; what all models are held to is in `test_audit`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import hofno
from hofno.errors import ShapeError, SpecError
from hofno.geometry import NODES, Grid, Mesh, Nodes, Points, Sphere, sphere_coordinates
from hofno.models import HOSFNO, SFNO, parameter_counts
from hofno.models.registry import check_geometry
from hofno.transforms import sphere
from reference import relative
from spherical import evaluated, places, polynomials, rotation


def smooth(rows: int, columns: int, nodes: Nodes, turn: Tensor | None = None) -> Tensor:
    """Two fields of degree 2 and moderate size, turned if asked for. (1, 2, rows, columns)"""
    x = places(rows, columns, nodes)
    return 0.3 * polynomials(x if turn is None else x @ turn.T, 2, 2).movedim(-1, 0)[None]


def small(**arguments: Any) -> HOSFNO:
    torch.manual_seed(1)
    return HOSFNO(2, 1, 4, **{"width": 6, "depth": 2, **arguments}).double().eval()


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_parameter_counts_follow_the_formula(order: int, weights: str) -> None:
    """Each layer: L C real numbers (depthwise) or L C^2 (dense) and m C^2 + m C of the factors; then the network."""
    width, depth, degrees = 6, 3, 5
    layer = degrees * (width if weights == "depthwise" else width**2) + order * width**2 + order * width
    mlp = (width * 2 * width + 2 * width) + (2 * width * width + width)
    ends = (2 + 3) * width + width + width + 1
    model = HOSFNO(2, 1, degrees, width=width, depth=depth, order=order, weights=weights)
    expected = ends + depth * (layer + mlp + 2 * width)
    assert parameter_counts(model) == {"real": expected, "complex_once": expected}


@pytest.mark.parametrize("backbone", ["modern", "classic"])
@pytest.mark.parametrize("coordinates", ["cartesian", "latitude", "none"])
@torch.no_grad()
def test_a_model_is_lift_blocks_projection(backbone: str, coordinates: Any) -> None:
    model, x = small(backbone=backbone, coordinates=coordinates), torch.randn(2, 2, 5, 8, dtype=torch.float64)
    v = x.permute(0, 2, 3, 1)
    if coordinates != "none":
        positions = sphere_coordinates((5, 8), "equiangular", coordinates)
        v = torch.cat((v, positions[None].expand(2, -1, -1, -1)), -1)
    v = model.lift(v)
    for block in model.blocks:
        v = block(v)
    torch.testing.assert_close(model(x), model.project(v).permute(0, 3, 1, 2), rtol=1e-13, atol=1e-13)


@torch.no_grad()
def test_sfno_is_hosfno_of_order_one() -> None:
    torch.manual_seed(0)
    plain = SFNO(2, 2, 4, width=6, depth=2, residual=True)
    same = HOSFNO(2, 2, 4, width=6, depth=2, order=1, residual=True)
    same.load_state_dict(plain.state_dict())
    x = torch.randn(2, 2, 5, 8)
    assert torch.equal(plain(x), same(x))
    assert set(same.config) - set(plain.config) == {"order", "factors"}
    assert (hofno.SFNO, hofno.HOSFNO) == (SFNO, HOSFNO)


@pytest.mark.parametrize("backbone", ["modern", "classic"])
@torch.no_grad()
def test_a_trained_operator_is_one_function_on_every_grid(backbone: str) -> None:
    """Rows of either kind, coarse and fine: the smooth output converges fast to one function."""

    def coefficients(nodes: Nodes, rows: int, columns: int) -> Tensor:
        model = small(nodes=nodes, backbone=backbone)
        return sphere.forward(model(smooth(rows, columns, nodes)).movedim(1, -1), 4, nodes)

    exact = coefficients("gauss", 40, 81)
    assert relative(coefficients("gauss", 8, 16), exact) < 5e-2
    for nodes in NODES:
        assert relative(coefficients(nodes, 24, 47), exact) < 1e-5


@pytest.mark.parametrize(("coordinates", "keeps"), [("none", True), ("latitude", True), ("cartesian", False)])
@torch.no_grad()
def test_turns_about_the_polar_axis(coordinates: Any, keeps: bool) -> None:
    model, x = small(coordinates=coordinates), torch.randn(1, 2, 6, 9, dtype=torch.float64)
    assert torch.allclose(model(x.roll(2, 3)), model(x).roll(2, 3), rtol=0, atol=1e-12) == keeps


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize(("coordinates", "keeps"), [("none", True), ("latitude", False)])
@pytest.mark.parametrize(("backbone", "rows", "bound"), [("classic", 16, 1e-9), ("modern", 48, 1e-4)])
@torch.no_grad()
def test_rotations(backbone: str, rows: int, bound: float, coordinates: Any, keeps: bool, nodes: Nodes) -> None:
    """The output's degrees below 4, up to what the grid does not resolve: a norm is less smooth than a gelu."""
    model, turn, columns = small(coordinates=coordinates, nodes=nodes, backbone=backbone), rotation(), 2 * rows - 1

    def low(x: Tensor) -> Tensor:
        return sphere.forward(model(x).movedim(1, -1), 4, nodes)

    x = places(8, 15, nodes)
    expected = evaluated(low(smooth(rows, columns, nodes))[0], x @ turn.T)
    found = evaluated(low(smooth(rows, columns, nodes, turn))[0], x)
    assert (relative(found, expected) < bound) == keeps


def test_the_registry_knows_where_spherical_models_live() -> None:
    ball = Sphere(shape=(8, 16))
    for name in ("sfno", "hosfno", "fno", "unet", "transolver"):
        check_geometry(name, ball)
    check_geometry("sfno", Grid(shape=(8, 16)))
    with pytest.raises(SpecError, match=r"'geofno' takes fields at points, and these are on a sphere; use: .*hosfno"):
        check_geometry("geofno", ball)
    for other in (Mesh(shape=(8, 16)), Points(count=9, low=(0.0,), high=(1.0,))):
        with pytest.raises(SpecError, match="'sfno' takes fields on a sphere or on a grid"):
            check_geometry("sfno", other)


def test_what_it_cannot_be_or_take_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"degrees=9 .* lower degrees, or use a finer grid"):
        SFNO(1, 1, 9, width=4)(torch.zeros(1, 1, 8, 32))
    with pytest.raises(ShapeError, match="give fields with an axis of latitudes and one of longitudes"):
        SFNO(1, 1, 3, width=4)(torch.zeros(1, 1, 16))
    with pytest.raises(SpecError, match="residual adds the last 2 inputs"):
        SFNO(1, 2, 3, residual=True)
    for wrong in ({"nodes": "cubed"}, {"coordinates": "periodic"}, {"backbone": "old"}, {"weights": "none"}):
        with pytest.raises(SpecError, match="must be one of"):
            SFNO(1, 1, 3, **wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match="drop_path"):
        SFNO(1, 1, 3, drop_path=1.0)
