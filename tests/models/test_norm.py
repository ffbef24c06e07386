"""HO-NORM and NORM: sizes, what one layer can be, surfaces; what all models are held to is in `test_audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import ShapeError, SpecError
from hofno.geometry import Grid, Points
from hofno.models import HONORM, NORM, parameter_counts
from hofno.models.registry import check_geometry
from hofno.problems.lumpy_torus import lumpy_torus
from hofno.transforms import manifold
from reference import relative
from triangulated import square, torus

TORUS = torus(6, 5)


def small(functions: int = 7, **arguments: Any) -> HONORM:
    torch.manual_seed(1)
    made = HONORM(2, 1, functions, **{"width": 6, "depth": 2, **arguments}).double()
    return made.place(TORUS).eval()


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_parameter_counts_follow_the_formula(order: int, weights: str) -> None:
    """Each layer: K C real numbers (depthwise) or K C^2 (dense) and m C^2 + m C of the factors; then the network."""
    width, depth, functions = 6, 3, 5
    layer = functions * (width if weights == "depthwise" else width**2) + order * width**2 + order * width
    mlp = (width * 2 * width + 2 * width) + (2 * width * width + width)
    ends = (2 + 3) * width + width + width + 1
    model = HONORM(2, 1, functions, width=width, depth=depth, order=order, weights=weights)
    expected = ends + depth * (layer + mlp + 2 * width)
    assert parameter_counts(model) == {"real": expected, "complex_once": expected}
    assert parameter_counts(model.place(TORUS)) == {"real": expected, "complex_once": expected}


@pytest.mark.parametrize("backbone", ["modern", "classic"])
@pytest.mark.parametrize("coordinates", ["cartesian", "none"])
@torch.no_grad()
def test_a_model_is_lift_blocks_projection(backbone: str, coordinates: Any) -> None:
    model, x = small(backbone=backbone, coordinates=coordinates), torch.randn(2, 2, 30, dtype=torch.float64)
    v = x.mT
    if coordinates != "none":
        v = torch.cat((v, model.basis.placed()[2].expand(2, -1, -1)), -1)
    v = model.lift(v)
    for block in model.blocks:
        v = block(v)
    torch.testing.assert_close(model(x), model.project(v).mT, rtol=1e-13, atol=1e-13)


@torch.no_grad()
def test_norm_is_honorm_of_order_one() -> None:
    torch.manual_seed(0)
    plain = NORM(2, 2, 4, width=6, depth=2, residual=True).place(TORUS)
    same = HONORM(2, 2, 4, width=6, depth=2, order=1, residual=True).place(TORUS)
    same.load_state_dict(plain.state_dict())
    x = torch.randn(2, 2, 30)
    assert torch.equal(plain(x), same(x))
    assert set(same.config) - set(plain.config) == {"order", "factors"}
    assert (hofno.NORM, hofno.HONORM) == (NORM, HONORM)


@torch.no_grad()
def test_one_layer_of_order_two_solves_the_equation_of_a_product() -> None:
    """-Laplace u + u = f_1 f_2, with lumped masses and all functions: weights that are the solution, not near it."""
    model = HONORM(2, 1, 30, width=2, depth=1, order=2, backbone="classic", coordinates="none").double().place(TORUS)
    block = model.blocks[0]
    for parameter in model.parameters():
        parameter.zero_()
    model.lift.weight.copy_(torch.eye(2))
    block.conv.factors.linear.weight[0, 0] = block.conv.factors.linear.weight[2, 1] = 1.0  # f_1, and f_2
    values = torch.tensor(manifold.basis(TORUS, 30)[0])
    block.conv.filter.weight[:, 0] = 1 / (1 + values)
    f = torch.randn(3, 2, 30, dtype=torch.float64)
    v = model.lift(f.mT)
    stiffness = torch.from_numpy(manifold.assembled(manifold.local_stiffness(TORUS), TORUS))
    mass = torch.diag(torch.from_numpy(manifold.masses(TORUS)))
    u = torch.linalg.solve(stiffness + mass, (mass @ f.prod(1).T)).T
    torch.testing.assert_close(block(v)[..., 0], u, rtol=0, atol=1e-10)


@torch.no_grad()
def test_without_coordinates_it_sees_the_surface_alone() -> None:
    """Numbers of vertices in another order, or the surface elsewhere in space: the same function."""
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    surface = lumpy_torus(8)
    order = np.random.default_rng(1).permutation(128)
    place_of = np.argsort(order)
    moved = hofno.Surface(vertices=(surface.vertices @ turn)[order], triangles=place_of[surface.triangles])
    x = torch.randn(2, 2, 128, dtype=torch.float64)
    for coordinates, same in (("none", True), ("cartesian", False)):
        found, functions = [], []
        for place in (surface, moved):
            torch.manual_seed(1)
            model = HONORM(2, 1, 9, width=6, depth=2, coordinates=coordinates).double().place(place)
            functions.append(model.basis.placed()[0])
            if place is moved:  # signs go by the first vertices, which are others
                functions[1] *= torch.sign((functions[1] * functions[0][order]).sum(0))
            found.append(model(x if place is surface else x[..., order]))
        assert (relative(found[1], found[0][..., order]) < 1e-8) == same


def test_the_functions_of_a_saved_network_come_back(tmp_path: Path) -> None:
    """Not computed again: with another sign of one of them, the network is what it was."""
    model = small().float()
    with torch.no_grad():
        model.basis.placed()[0][:, 3] *= -1
    x = torch.randn(3, 2, 30)
    one = ChannelNormaliser.identity
    made = hofno.Surrogate(model, one(2), one(1), TORUS)
    made.save(tmp_path / "model")
    loaded = hofno.load(tmp_path / "model")
    assert loaded.grid == TORUS
    assert torch.equal(loaded.predict(x), made.predict(x))
    assert isinstance(loaded.model, HONORM)
    assert loaded.model.basis.surface == TORUS
    assert repr(loaded) == "Surrogate(HONORM, 2 to 1 channels, surface of 30)"
    with pytest.raises(ShapeError, match="a surface of 30 vertices; got fields at 31"):
        loaded.predict(torch.randn(3, 2, 31))
    with pytest.raises(SpecError, match="trained on a surface; leave coords and mask out"):
        loaded.predict(x, torch.randn(3, 30))


def test_the_registry_knows_where_they_live() -> None:
    for name in ("norm", "honorm"):
        check_geometry(name, square(4))
        for other in (Grid(shape=(8,)), Points(count=9, low=(0.0,), high=(1.0,))):
            with pytest.raises(SpecError, match=f"'{name}' takes fields on a surface"):
                check_geometry(name, other)
    with pytest.raises(SpecError, match=r"'fno' takes .*, and these are on a surface; use: honorm, norm"):
        check_geometry("fno", square(4))


def test_what_it_cannot_be_or_take_is_refused() -> None:
    with pytest.raises(SpecError, match="on no surface yet"):
        NORM(1, 1, 3, width=4)(torch.zeros(1, 1, 30))
    with pytest.raises(ShapeError, match="1 to 30 basis functions; got functions=31"):
        NORM(1, 1, 31, width=4).place(TORUS)
    placed = NORM(1, 1, 3, width=4).place(TORUS)
    with pytest.raises(ShapeError, match="give fields with one axis, that of the vertices"):
        placed(torch.zeros(1, 1, 6, 5))
    with pytest.raises(ShapeError, match="expected 1 input channels on axis 1; got 4"):
        placed(torch.zeros(1, 4, 30))
    with pytest.raises(SpecError, match="is on another surface"):
        placed.place(torus(5, 6))
    for wrong in ({"coordinates": "periodic"}, {"backbone": "old"}, {"weights": "none"}):
        with pytest.raises(SpecError, match="must be one of"):
            NORM(1, 1, 3, **wrong)  # pyright: ignore[reportArgumentType]
