"""Trained operators on other grids: the same functions, the same errors where the grid resolves them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hofno import Split, Surrogate, generate
from hofno.data.normalise import ChannelNormaliser
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import ShapeError
from hofno.evaluation.resolution import refuse_fixed_grid, score_on, strided
from hofno.geometry import Grid

SMALL = {"solver_resolution": 17, "train": 1, "valid": 1, "test": 3}


class Half(nn.Module):
    """u -> u / 2 on any grid; remembers how many samples came at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return self.factor * x


def half(shape: tuple[int, int] = (8, 8)) -> Surrogate:
    same = ChannelNormaliser.identity(1)
    return Surrogate(Half(), same, same, Grid(shape=shape, periodic=True))


@pytest.mark.parametrize("resolution", [3, 5, 9, 17])
def test_strided_samples_are_those_that_the_problem_makes(resolution: int) -> None:
    fine = generate("darcy", resolution=17, **SMALL)
    own = generate("darcy", resolution=resolution, **{**SMALL, "train": 2})  # training samples change no test sample
    assert isinstance(fine.grid, Grid)
    found = strided(fine.test, fine.grid, resolution)
    assert torch.equal(found.x, own.test.x)
    assert torch.equal(found.y, own.test.y)


def test_strided_periodic_samples() -> None:
    u = torch.arange(24.0).view(1, 1, 4, 6)
    found = strided(Split(u, u), Grid(shape=(4, 6), periodic=True), 2)
    assert found.x.tolist() == [[[[0.0, 3.0], [12.0, 15.0]]]]


def test_errors_and_batches_on_a_finer_grid() -> None:
    surrogate = half()
    for side, sizes in ((8, [32, 8]), (16, [8] * 5), (64, [1] * 40), (4, [32, 8])):
        x = torch.randn(40, 1, side, side)
        scores = score_on(surrogate, Split(x, x))
        torch.testing.assert_close(scores.rel_l2, torch.full((40,), 0.5, dtype=torch.float64))
        assert isinstance(surrogate.model, Half)
        assert surrogate.model.sizes == sizes
        surrogate.model.sizes.clear()


@pytest.mark.parametrize("per", ["pixel", "column"])
@pytest.mark.parametrize("which", ["inputs", "targets"])
def test_statistics_of_places_stay_on_their_grid(per: str, which: str) -> None:
    surrogate = half()
    setattr(surrogate, which, PointwiseNormaliser.fit(torch.randn(4, 1, 8, 8), per))  # pyright: ignore
    refuse_fixed_grid(surrogate, (8, 8))
    x = torch.randn(2, 1, 16, 16)
    with pytest.raises(ShapeError, match=r"its grid \(8, 8\); got a grid \(16, 16\); .* train.normaliser='channel'"):
        score_on(surrogate, Split(x, x))
