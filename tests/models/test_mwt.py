"""MWT beyond what every model is held to: sizes of grids, reach, numbers of parameters, arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import Case

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Points
from hofno.models import build, parameter_counts
from hofno.models.mwt import MWT
from hofno.models.registry import check_geometry


def make(**changed: Any) -> MWT:
    model = Case("mwt", "grid", 2, "modern").make(**changed).double()
    assert isinstance(model, MWT)
    return model


@pytest.mark.parametrize("points", [(8, 12), (8, 11), (9, 12), (11, 9), (7, 31)])
def test_grids_of_any_size(points: tuple[int, int]) -> None:
    """One axis or both may need extending; the answer has the size of the question."""
    assert make()(torch.randn(1, 2, *points, dtype=torch.float64)).shape == (1, 2, *points)


@torch.no_grad()
def test_what_is_appended_is_zero_and_cut_off() -> None:
    model = make(coordinates="none")
    torch.nn.init.zeros_(model.lift.bias)
    x = torch.randn(1, 2, 9, 10, dtype=torch.float64)
    padded = torch.nn.functional.pad(x, (0, 2, 0, 3))  # 12 x 12 points, where zeros are lifted to zeros
    assert torch.allclose(model(padded)[..., :9, :10], model(x), atol=1e-12)


def test_every_point_hears_of_every_other() -> None:
    model = make(levels=3)
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    changed = x.clone()
    changed[..., 0, 0] += 0.5
    assert float((model(changed) - model(x)).detach().abs().min()) > 1e-10


def test_cells_joined_once_more_are_no_more_parameters() -> None:
    count = [sum(p.numel() for p in make(levels=levels).parameters()) for levels in (1, 2, 3)]
    assert len(set(count)) == 1


def test_numbers_of_parameters() -> None:
    """Published for Darcy's equation: 9.8 million, with 24 wavenumbers on the first axis where there are 23 here."""
    with torch.device("meta"):
        arguments = {"in_channels": 1, "out_channels": 1, "modes": (12, 12)}
        published, proper = build("mwt", {**arguments, "details": "diagonal"}), build("mwt", arguments)
    spectral = 4 * 2 * 23 * 12 * 64**2
    found = parameter_counts(published)["real"]
    assert found + spectral / 23 == pytest.approx(9.8e6, rel=0.005)
    assert 2 * (found - parameter_counts(published)["complex_once"]) == spectral
    assert parameter_counts(proper)["real"] == pytest.approx(3 * found, rel=0.02)


def test_where_it_lives() -> None:
    with pytest.raises(SpecError, match="'mwt' takes fields on a grid or on a mesh"):
        check_geometry("mwt", Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"order": 0}, "order must be at least 1"),
        ({"levels": 0}, "levels must be at least 1"),
        ({"details": "none"}, "details must be one of all, diagonal; got 'none'"),
        ({"modes": (2, 2, 2, 2)}, "modes must have 1, 2 or 3 entries"),
        ({"coordinates": "polar"}, "coordinates must be one of|coordinates"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make(**change)


def test_modes_that_the_grid_does_not_hold() -> None:
    with pytest.raises(ShapeError, match=r"modes\[0\]=9 .*lower modes, or use a finer grid"):
        make(modes=(9, 2))(torch.randn(1, 2, 9, 9, dtype=torch.float64))
