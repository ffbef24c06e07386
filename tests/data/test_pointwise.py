"""Normalisers of published protocols: their statistics, round trips, and grids that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hofno.data.normalise import saved_normaliser
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import CheckpointError, DataError, ShapeError


@pytest.fixture
def u() -> Tensor:
    return torch.randn(70, 2, 4, 5, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 6) + 3


def test_pixel(u: Tensor) -> None:
    found = PointwiseNormaliser.fit(u, "pixel")
    torch.testing.assert_close(found.mean, u.mean(0))
    torch.testing.assert_close(found.std, u.std(0) + 1e-5, rtol=1e-6, atol=0)
    constant = PointwiseNormaliser.fit(torch.ones(3, 1, 2, 2), "pixel")
    assert float(constant.encode(torch.ones(1, 1, 2, 2)).abs().max()) == 0
    assert float(constant.std.max()) == pytest.approx(1e-5)


@pytest.mark.parametrize("per", ["pixel", "column"])
@pytest.mark.parametrize("unit", [1e-20, 1e-12, 1e-6])
def test_small_units(u: Tensor, per: Any, unit: float) -> None:
    """What is added is small beside the fields in any unit; values of ordinary size have the published number."""
    small, ordinary = PointwiseNormaliser.fit(u * unit, per), PointwiseNormaliser.fit(u, per)
    torch.testing.assert_close(small.encode(u * unit), ordinary.encode(u), rtol=1e-3, atol=1e-4)
    steady = PointwiseNormaliser.fit(1.0 + 1e-6 * u, "pixel")  # small deviations of ordinary values are no small units
    torch.testing.assert_close(steady.std, (1.0 + 1e-6 * u).double().std(0).float() + 1e-5, rtol=1e-5, atol=0)


@pytest.mark.parametrize("per", ["pixel", "column"])
def test_the_smallest_numbers(per: Any) -> None:
    """Of constant fields next to the smallest float32 numbers, what is added is none of these."""
    fields = torch.full((3, 1, 2, 2), 2e-38)
    found = PointwiseNormaliser.fit(fields, per)
    assert not found.encode(fields).any()
    assert torch.equal(found.decode(torch.zeros_like(fields)), fields)


def test_column(u: Tensor) -> None:
    """As mean and std over dimensions 0 and 1 of (n, h, w)."""
    found = PointwiseNormaliser.fit(u, "column")
    for channel in range(2):
        published = u[:, channel]
        torch.testing.assert_close(found.mean[channel], published.mean((0, 1), keepdim=True)[0])
        torch.testing.assert_close(found.std[channel], published.std((0, 1), keepdim=True)[0] + 1e-8)
    assert found.mean.shape == (2, 1, 5)


@pytest.mark.parametrize("per", ["pixel", "column"])
def test_round_trip(u: Tensor, per: Any) -> None:
    found = PointwiseNormaliser.fit(u, per)
    torch.testing.assert_close(found.decode(found.encode(u)), u)
    encoded = found.encode(u)
    torch.testing.assert_close(encoded.mean(), torch.zeros(()), rtol=0, atol=1e-5)
    again = saved_normaliser(found.to(torch.device("cpu")).tensors("targets"), "targets")
    assert isinstance(again, PointwiseNormaliser)
    assert torch.equal(again.encode(u), encoded)


def test_refusals(u: Tensor) -> None:
    with pytest.raises(ShapeError, match=r"samples of shape \(2, 4, 5\).*got \(2, 4, 6\)"):
        PointwiseNormaliser.fit(u, "pixel").encode(torch.zeros(1, 2, 4, 6))
    column = PointwiseNormaliser.fit(u, "column")
    assert column.encode(torch.zeros(1, 2, 9, 5)).shape == (1, 2, 9, 5)
    for wrong in ((1, 2, 4, 6), (1, 1, 4, 5), (2, 4, 5)):
        with pytest.raises(ShapeError, match="on the grid of the training data"):
            column.decode(torch.zeros(wrong))
    with pytest.raises(DataError, match="at least 2 values; got 1"):
        PointwiseNormaliser.fit(u[:1], "pixel")
    with pytest.raises(DataError, match="'pixel' or 'column'; got 'row'"):
        PointwiseNormaliser.fit(u, "row")  # pyright: ignore[reportArgumentType]
    with pytest.raises(CheckpointError, match=r"lack 'inputs\.mean'"):
        saved_normaliser({}, "inputs")
