"""What the mean of the training targets scores, against its definition, and errors of fields in their units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from half import Half
from torch import Tensor

from hofno import Dataset, Split, Surrogate
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError
from hofno.evaluation import mean, score
from hofno.evaluation.mean import errors_of_mean, mean_target
from hofno.evaluation.whole import measure_test
from hofno.geometry import Geometry, Grid, Points
from hofno.problems.base import Rollout

GRID = Grid(shape=(4, 3), periodic=False)


def dataset(train: Split, test: Split, grid: Geometry = GRID, rollout: Rollout | None = None) -> Dataset:
    return Dataset(train=train, valid=test, test=test, grid=grid, origin="user", rollout=rollout)


def relative(p: np.ndarray, y: np.ndarray) -> float:
    """Mean over the first axis."""
    axes = tuple(range(1, y.ndim))
    return float((np.sqrt(((p - y) ** 2).sum(axes)) / np.sqrt((y**2).sum(axes))).mean())


def fields(n: int, channels: int = 2, seed: int = 0) -> Tensor:
    made = torch.randn(n, channels, 4, 3, generator=torch.Generator().manual_seed(seed))
    return made + torch.tensor([5.0, 0.5, 1.0, 1.0])[:channels].view(-1, 1, 1)


def test_a_field_at_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    y, test = fields(7), fields(5, seed=1)
    found = errors_of_mean(dataset(Split(y, y), Split(test, test)))
    guess, truth = y.numpy().mean(0, keepdims=True), test.numpy()
    assert found["rel_l2"] == pytest.approx(relative(guess, truth), rel=1e-5)
    assert found["mse"] == pytest.approx(float(((guess - truth) ** 2).mean()), rel=1e-5)
    for channel in range(2):
        part = slice(channel, channel + 1)
        assert found[f"rel_l2_field_{channel + 1}"] == pytest.approx(relative(guess[:, part], truth[:, part]), rel=1e-5)
        off = np.sqrt(((guess - truth)[:, part] ** 2).mean())
        assert found[f"rmse_field_{channel + 1}"] == pytest.approx(float(off), rel=1e-5)
    assert "mse_standardised" not in found
    monkeypatch.setattr(mean, "PIECE", 1)
    assert errors_of_mean(dataset(Split(y, y), Split(test, test))) == pytest.approx(found, rel=1e-6)


def test_blocks_have_a_mean_for_each_of_their_samples() -> None:
    y, test = fields(6), fields(4, seed=1)
    y[1::2] += 100
    test[1::2] += 100
    data = dataset(Split(y, y, together=2), Split(test, test, together=2))
    blocks, truth = y.numpy().reshape(3, 2, 2, 4, 3), test.numpy().reshape(2, 2, 2, 4, 3)
    assert mean_target(data).shape == (2, 2, 4, 3)
    assert errors_of_mean(data)["rel_l2"] == pytest.approx(relative(blocks.mean(0, keepdims=True), truth), rel=1e-5)
    for broken in ({"train": data.train[1:5]}, {"train": data.train[:3]}, {"test": data.test[1:3]}):
        with pytest.raises(DataError, match="some were taken out of their blocks"):
            errors_of_mean(replace(data, **broken))


def test_scattered_points_have_one_number_for_each_channel() -> None:
    generator = torch.Generator().manual_seed(0)
    y, places = torch.randn(6, 1, 9, generator=generator) + 3, torch.rand(6, 2, 9, generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 5, 7, 9, 6, 8])[:, None]
    y = y * mask[:, None]
    split = Split(y, y, places, mask)
    found = errors_of_mean(dataset(split, split, Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0))))
    there = mask.numpy()
    middle = y.numpy()[:, 0][there].mean()
    guess = (middle * there)[:, None]
    assert found["rel_l2"] == pytest.approx(relative(guess, y.numpy()), rel=1e-5)
    of_each = ((guess - y.numpy())[:, 0] ** 2).sum(1) / there.sum(1)
    assert found["mse"] == pytest.approx(float(of_each.mean()), rel=1e-5)
    both = Split(torch.cat((y, 2 * y), 1), torch.cat((y, 2 * y), 1), places, mask)
    twice = errors_of_mean(dataset(both, both, Points(count=9, low=(0.0, 0.0), high=(1.0, 1.0))))
    roots = [twice[f"rmse_field_{field}"] for field in (1, 2)]
    assert roots == pytest.approx([np.sqrt(of_each.mean()), 2 * np.sqrt(of_each.mean())], rel=1e-5)


def test_in_time_it_is_one_frame() -> None:
    frames, fields_each = fields(5, channels=4), 2
    test = fields(3, channels=4, seed=1)
    data = dataset(Split(frames[:, :2], frames), Split(test[:, :2], test), rollout=Rollout(1, 2, fields_each))
    middle = frames.numpy().reshape(5, 2, 2, 4, 3).mean((0, 1))
    guess = np.concatenate((middle, middle))[None]
    assert errors_of_mean(data)["rel_l2"] == pytest.approx(relative(guess, test.numpy()), rel=1e-5)


def test_root_mean_squares_are_in_the_units_of_each_field() -> None:
    x = fields(6)
    operator = Surrogate(Half(), *[ChannelNormaliser.identity(2)] * 2, GRID)
    expected = (0.5 * x).double().square().mean((0, 2, 3)).sqrt().tolist()
    assert list(score(operator, Split(x, x)).in_units().values()) == pytest.approx(expected, rel=1e-5)
    found = measure_test(operator, dataset(Split(x, x), Split(x, x))).metrics
    assert [found["rmse_field_1"], found["rmse_field_2"]] == pytest.approx(expected, rel=1e-5)
    one = Surrogate(Half(), *[ChannelNormaliser.identity(1)] * 2, GRID)
    assert score(one, Split(x[:, :1], x[:, :1])).in_units() == {}, "it is the root of mse"
