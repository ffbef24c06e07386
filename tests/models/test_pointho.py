"""The higher-order point operator beyond what every model is held to: what it is told, sampling, gradients."""

from __future__ import annotations

import pytest
import torch

from hofno.errors import SpecError
from hofno.geometry import Points
from hofno.models.pointho import PointHO
from hofno.models.registry import check_geometry
from reference import relative


def make(**changed: object) -> PointHO:
    torch.manual_seed(0)
    arguments = {"width": 8, "depth": 2, "tokens": 4, "heads": 2, **changed}
    return PointHO(2, 1, **arguments).double()  # pyright: ignore[reportArgumentType]


def test_positions_alone_can_be_the_input() -> None:
    torch.manual_seed(0)
    model = PointHO(0, 1, width=8, depth=1)
    places = torch.rand(2, 2, 30)
    out = model(torch.empty(2, 0, 30), places)
    assert out.shape == (2, 1, 30)
    assert relative(model(torch.empty(2, 0, 30), places.flip(1)), out) > 1e-3


def test_what_the_lift_is_told() -> None:
    places = torch.rand(2, 5, 2, dtype=torch.float64)
    assert make(octaves=0, scales=()).places(places).equal(2 * places - 1)
    told = make(octaves=2, scales=(0.1,)).places(places)
    assert told.shape == (2, 5, 2 + 8 + 3)
    assert torch.allclose(told[..., 2], torch.sin(torch.pi * places[..., 0]))
    assert torch.allclose(told[..., 9], torch.cos(2 * torch.pi * places[..., 1]))


def test_every_point_hears_of_every_other() -> None:
    model = make(scales=())
    x, places = torch.randn(1, 2, 12, dtype=torch.float64), torch.rand(1, 2, 12, dtype=torch.float64)
    moved = places.clone()
    moved[..., 0] += 0.1
    change = (model(x, moved) - model(x, places)).abs()
    assert float(change.detach().min()) > 1e-9


def test_a_finer_sampling_of_the_same_function_gives_the_same_function() -> None:
    model = make(scales=(0.15,))
    probe = torch.rand(1, 2, 5, dtype=torch.float64)

    def answer(count: int) -> torch.Tensor:
        axis = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)[None]
        places = torch.cat((grid, probe), 2)
        return model(torch.sin(6 * places), places)[..., -5:]

    fine, finer, finest = answer(8), answer(16), answer(32)
    assert relative(finer, finest) < relative(fine, finest) / 2 < 0.05


def test_gradients_reach_fields_and_places() -> None:
    model = make(width=4, depth=1, tokens=2, scales=(0.3,))
    x = torch.randn(1, 2, 5, dtype=torch.float64, requires_grad=True)
    places = torch.rand(1, 2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, (x, places))
    mask = torch.tensor([[True, True, False, True, True]])
    assert torch.autograd.gradcheck(lambda x, places: model(x, places, mask), (x, places))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"octaves": -1}, "octaves must be at least 0"),
        ({"dims": 0}, "dims must be at least 1"),
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"scales": (0.1, 0.0)}, "scales are lengths above 0"),
    ],
)
def test_wrong_arguments(change: dict[str, object], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)


def test_it_lives_at_points() -> None:
    check_geometry("pointho", Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0)))
