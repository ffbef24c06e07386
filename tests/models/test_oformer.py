"""OFormer beyond what every model is held to: queries, positions, size, arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import Case

from hofno.errors import SpecError
from hofno.geometry import Points, grid_coordinates
from hofno.models import build
from hofno.models.oformer import Decoder, OFormer
from hofno.models.registry import check_geometry
from reference import relative


def make(**changed: Any) -> OFormer:
    model = Case("oformer", "grid", 2, "modern").make(**changed).double()
    assert isinstance(model, OFormer)
    return model


@pytest.mark.parametrize("coordinates", ["endpoint", "periodic"])
def test_a_grid_is_a_cloud_of_its_points(coordinates: Any) -> None:
    model = make(coordinates=coordinates)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    places = grid_coordinates((4, 5), coordinates).flatten(0, 1).T.expand(2, -1, -1)
    assert torch.allclose(model(x).flatten(2), model(x.flatten(2), places))


def test_positions_alone_can_be_the_input() -> None:
    model = make(in_channels=0)
    places, nothing = torch.rand(2, 2, 30, dtype=torch.float64), torch.empty(2, 0, 30, dtype=torch.float64)
    assert relative(model(nothing, places.flip(1)), model(nothing, places)) > 1e-3


def test_the_input_goes_through_the_attention_of_the_decoder_alone() -> None:
    """What a point itself was given has no way of its own to the answer there."""
    model = make()
    decoder = model.blocks[-1]
    assert isinstance(decoder, Decoder)
    places = torch.rand(1, 2, 12, dtype=torch.float64)
    first, second = torch.randn(2, 1, 2, 12, dtype=torch.float64)
    assert relative(model(second, places), model(first, places)) > 1e-3
    torch.nn.init.zeros_(decoder.attention.out.weight)
    assert model(second, places).equal(model(first, places))


def test_frequencies_are_drawn_once_and_kept() -> None:
    model, wider = make(latent=64, bandwidth=3.0), make(latent=64, bandwidth=6.0)
    frequencies = model.get_buffer("blocks.2.frequencies")
    assert frequencies.shape == (2, 32)
    assert float(frequencies.std()) == pytest.approx(2 * torch.pi * 3.0, rel=0.3)
    assert torch.allclose(wider.get_buffer("blocks.2.frequencies"), 2.0 * frequencies)
    assert "blocks.2.frequencies" in model.state_dict()
    assert "blocks.2.frequencies" not in dict(model.named_parameters())


def test_channels_are_turned_less_from_block_to_block() -> None:
    reaches = [block.attention.reach for block in make(depth=4, reach=32.0).blocks]  # pyright: ignore
    assert reaches == [32.0, 8.0, 1.0, 1.0, 32.0]


def test_every_point_hears_of_every_other() -> None:
    model = make()
    x, places = torch.randn(1, 2, 12, dtype=torch.float64), torch.rand(1, 2, 12, dtype=torch.float64)
    changed = x.clone()
    changed[..., 0] += 0.5
    assert float((model(changed, places) - model(x, places)).detach().abs().min()) > 1e-8


def test_number_of_parameters() -> None:
    """As published for Darcy's equation, 2.56 million."""
    with torch.device("meta"):
        model = build("oformer", {"in_channels": 1, "out_channels": 1})
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(2.56e6, rel=0.015)


def test_where_it_lives() -> None:
    check_geometry("oformer", Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 3}, "turned in pairs, at least one for each of 2 axes; got 3"),
        ({"latent": 2}, "turned in pairs, at least one for each of 2 axes; got 2"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"coordinates": "none"}, "is built on positions; use coordinates='endpoint'"),
        ({"reach": -1.0}, "reach is at least 0, gain and bandwidth above 0"),
        ({"gain": 0.0}, "reach is at least 0, gain and bandwidth above 0"),
        ({"bandwidth": 0.0}, "reach is at least 0, gain and bandwidth above 0"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)
