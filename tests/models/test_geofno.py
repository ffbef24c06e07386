"""Geo-FNO beyond what every model is held to: what its parts are, and that its latent grid is only a detour."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Grid, Mesh, Points, grid_coordinates
from hofno.models import GeoFNO, PointHO
from hofno.models.geofno import Deformation
from hofno.models.registry import check_geometry
from hofno.transforms import fourier
from reference import relative


def make(seed: int = 0, **changed: object) -> GeoFNO:
    torch.manual_seed(seed)
    arguments = {"width": 8, "depth": 2, **changed}
    return GeoFNO(2, 1, (3, 3), **arguments).double()  # pyright: ignore[reportArgumentType]


def cloud(count: int = 40) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 2, count, dtype=torch.float64), torch.rand(2, 2, count, dtype=torch.float64)


def test_at_the_points_of_the_latent_grid_it_is_a_network_on_that_grid() -> None:
    """Without a deformation: the lifted field cut to the kept modes, the blocks, cut again, beside the skip."""
    model = make(deformation=0, latent_points=(9, 9))
    shape = (9, 9)
    places = grid_coordinates(shape, "periodic")
    x = torch.randn(2, 2, *shape, dtype=torch.float64)
    found = model(x.flatten(2), places.flatten(0, 1).T.expand(2, -1, -1))
    v = model.lift(torch.cat((x.movedim(1, -1), places.expand(2, -1, -1, -1)), -1))

    def cut(u: Tensor) -> Tensor:
        return fourier.inverse(fourier.forward(u, (3, 3)), shape, (3, 3))

    latent = cut(v) + model.place(places)
    for block in model.blocks:
        latent = block(latent)
    expected = model.project(cut(latent) + model.skip(v)).movedim(-1, 1)
    assert relative(found.unflatten(2, shape), expected) < 1e-12


def test_a_finer_sampling_of_the_same_function_gives_the_same_function() -> None:
    """The points are a quadrature: with more of them the latent field converges."""
    model = make(deformation=8, domain_padding=0.3)
    probe = torch.rand(1, 2, 5, dtype=torch.float64)

    def answer(count: int) -> Tensor:
        axis = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)[None]
        model_probe = torch.cat((grid, probe), 2)
        x = torch.sin(2 * math.pi * model_probe)
        return model(x, model_probe)[..., -5:]

    fine, finer, finest = answer(16), answer(32), answer(64)
    assert relative(finer, finest) < relative(fine, finest) / 2 < 0.05


def test_decoders_differ() -> None:
    x, places = cloud()
    correct, original = make(), make(decoder="original")
    assert relative(original(x, places), correct(x, places)) > 1e-2


def test_the_deformation_starts_near_the_identity_and_moves() -> None:
    torch.manual_seed(0)
    deformation = Deformation(2, 16)
    x = torch.rand(1, 100, 2)
    assert 0 < float((deformation(x) - x).detach().abs().max()) < 0.02
    middle = torch.full((1, 3, 2), 0.5, requires_grad=True)
    (gradient,) = torch.autograd.grad(deformation(middle).sum(), middle)
    assert bool(gradient.isfinite().all()), "there is no direction at the centre"
    with torch.no_grad():
        last = deformation.network[-1]
        assert isinstance(last, nn.Linear)
        last.bias.fill_(0.5)
    assert torch.allclose(deformation(x), 1.5 * x, atol=0.02)


def test_positions_alone_can_be_the_input() -> None:
    torch.manual_seed(0)
    model = GeoFNO(0, 1, (3, 3), width=8, depth=1)
    places = torch.rand(2, 2, 30)
    out = model(torch.empty(2, 0, 30), places)
    assert out.shape == (2, 1, 30)
    assert relative(model(torch.empty(2, 0, 30), places.flip(1)), out) > 1e-3


def test_the_size_of_the_latent_grid() -> None:
    assert GeoFNO(1, 1, (12, 12)).grid == (40, 40), "as published"
    assert GeoFNO(1, 1, (3,), latent_points=(7,)).grid == (7,)
    with pytest.raises(ShapeError, match=r"modes\[0\]=6 is more than an axis of 8 points holds"):
        GeoFNO(1, 1, (6, 3), latent_points=(8, 8))
    with pytest.raises(ShapeError, match="asks for 2 spatial axes"):
        GeoFNO(1, 1, (3, 3), latent_points=(8,))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"deformation": -1}, "deformation must be at least 0"),
        ({"decoder": "v3"}, "decoder must be one of correct, original"),
        ({"backbone": "old"}, "backbone must be one of"),
        ({"domain_padding": -0.1}, "domain_padding is a fraction"),
    ],
)
def test_wrong_arguments(change: dict[str, object], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        GeoFNO(1, 1, (3, 3), **change)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("masked", [False, True])
def test_a_cloud_without_points(masked: bool) -> None:
    mask = torch.ones(2, 0, dtype=torch.bool) if masked else None
    with pytest.raises(ShapeError, match=r"at least one point in a cloud; got fields \(2, 2, 0\); leave it out"):
        make()(*cloud(0), mask)
    with pytest.raises(ShapeError, match=r"at least one point in a cloud; got fields \(2, 2, 0\); leave it out"):
        PointHO(2, 1, width=8, depth=1).double()(*cloud(0), mask)


def test_models_live_where_their_data_do() -> None:
    points = Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0))
    check_geometry("geofno", points)
    check_geometry("fno", Mesh(shape=(8, 8)))
    with pytest.raises(
        SpecError, match=r"'geofno' takes fields at points, and these are on a grid; use: .* fno, .*hofno"
    ):
        check_geometry("geofno", Grid(shape=(8, 8)))
    with pytest.raises(
        SpecError, match=r"'hofno' takes fields on a grid or on a mesh, and these are at points; use: .*geo"
    ):
        check_geometry("hofno", points)
