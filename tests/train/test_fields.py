"""Trajectories of several fields: every task against an explicit loop, statistics of each field, rollouts, symmetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hofno import FNO, Dataset, Run, fit, from_trajectories, load
from hofno.data import ondisk
from hofno.data.dataset import Split
from hofno.errors import DataError, ShapeError
from hofno.evaluation import score, score_rollout
from hofno.evaluation.metrics import mse, rel_l2
from hofno.problems.base import Rollout
from hofno.problems.symmetry import Channels, mirror
from hofno.spec import TrainSpec
from hofno.train.tasks import FreeRunning, SingleWindows, TeacherForced, normalisers

TWO = Rollout(history=3, horizon=6, fields=2)
WAYS: list[dict[str, Any]] = [{}, {"batch_of": "windows"}, {"forcing": "free"}]


def waves(samples: int = 12, times: int = 7, points: int = 16) -> np.ndarray:
    """Place and speed of a string, (n, times, 2, points): the second is a thousand times as large, around 5000."""
    rng = np.random.default_rng(0)
    x, t = 2 * np.pi * np.arange(points) / points, 0.3 * np.arange(times)[:, None]
    phases = rng.uniform(0, 6, (samples, 1, 1)), rng.uniform(0, 6, (samples, 1, 1))
    place = np.sin(x + phases[0]) * np.cos(t + phases[1])
    speed = -np.sin(x + phases[0]) * np.sin(t + phases[1])
    return np.stack((place, 5000 + 1000 * speed), 2).astype(np.float32)


def strings(frames: np.ndarray | None = None, **settings: Any) -> Dataset:
    chosen = {"history": 2, "horizon": 3, "periodic": True, "split": (8, 2, 2), "seed": None, **settings}
    return from_trajectories(waves() if frames is None else frames, fields=True, **chosen)


def run(data: Dataset, **settings: Any) -> Run:
    torch.manual_seed(0)
    model = FNO(data.in_channels, data.out_channels, (4,), width=8, depth=1)
    return fit(model, data, **{"epochs": 3, "batch_size": 4, "device": "cpu", "progress": False, **settings})


def mixed(x: Tensor) -> Tensor:
    """A model of three frames of two fields that mixes points, frames and fields."""
    return torch.cat(((x[:, :1] * x[:, 3:4]).roll(1, -1) + x[:, 4:5], x[:, 5:].roll(2, -1) * x[:, 1:2] - x[:, 2:3]), 1)


class TestTasks:
    frames = torch.randn(4, 7, 2, 6, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([2, 0])

    def test_windows(self) -> None:
        flat = self.frames.flatten(1, 2)
        found = TeacherForced(flat, TWO).predict(mixed, self.order)
        expected = [
            mixed(self.frames[s, t - 3 : t].flatten(0, 1)[None]) for s in self.order.tolist() for t in range(3, 7)
        ]
        assert torch.equal(found.prediction, torch.cat(expected))
        assert torch.equal(found.target, self.frames[self.order, 3:].flatten(0, 1))
        single = SingleWindows(flat, TWO)
        assert single.items == 4 * 4
        some = single.predict(mixed, torch.tensor([8, 9, 10, 11, 0, 1, 2, 3]))  # of samples 2 and 0
        assert torch.equal(some.prediction, found.prediction)
        assert torch.equal(some.target, found.target)

    def test_free_running(self) -> None:
        found = FreeRunning(self.frames.flatten(1, 2), TWO).predict(mixed, self.order)
        for row, sample in enumerate(self.order.tolist()):
            known = list(self.frames[sample, :3])
            for t in range(3, 7):
                known.append(mixed(torch.cat(known[-3:])[None])[0])
                assert torch.equal(found.prediction[4 * row + t - 3], known[-1])
                assert torch.equal(found.target[4 * row + t - 3], self.frames[sample, t])


def test_each_field_has_its_statistics() -> None:
    data = strings()
    inputs, targets = normalisers(data, TrainSpec())  # pyright: ignore
    known = waves()[:8, :5].astype(np.float64)
    for field in (0, 1):
        assert float(targets.mean[field]) == pytest.approx(known[:, :, field].mean(), rel=1e-5)
        assert float(targets.std[field]) == pytest.approx(known[:, :, field].std(ddof=1), rel=1e-5)
    assert torch.equal(inputs.mean, targets.mean.repeat(2))
    assert (data.in_channels, data.out_channels) == (4, 2)


@pytest.mark.parametrize("way", WAYS)
def test_one_field_is_the_same_with_its_axis_and_without(way: dict[str, Any]) -> None:
    alone = waves()[:, :, 0]
    settings = {"history": 2, "horizon": 3, "periodic": True, "split": (8, 2, 2)}
    runs = [
        run(from_trajectories(frames, fields=fields, **settings), **way)
        for frames, fields in ((alone, False), (alone[:, :, None], True))
    ]
    assert [row["train_loss"] for row in runs[0].history] == [row["train_loss"] for row in runs[1].history]


@pytest.mark.parametrize("way", WAYS)
def test_training_from_disk_gives_the_same_bits(
    way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "frames.npy", waves())
    resident = run(strings(), **way)
    monkeypatch.setattr("hofno.train.feed.fits", lambda *_: False)
    data = strings(np.load(tmp_path / "frames.npy", mmap_mode="r"))
    assert isinstance(data.train.parts.y, ondisk.FileArray)
    streamed = run(data, **way)
    for a, b in zip(resident.surrogate.model.parameters(), streamed.surrogate.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_rollouts_feed_all_fields_back(tmp_path: Path) -> None:
    data = strings()
    surrogate = run(data, epochs=150, loss="mse", lr=1e-2).surrogate
    surrogate.save(tmp_path / "model")
    surrogate = load(tmp_path / "model")
    x, y = data.test.x, data.test.y
    predicted = surrogate.predict(x, steps=5)
    state, expected = x, []
    for _ in range(5):
        expected.append(surrogate.predict(state, steps=1))
        state = torch.cat((state[:, 2:], expected[-1]), 1)
    assert torch.equal(predicted, torch.cat(expected, 1))
    assert surrogate.rollout == Rollout(2, 3, 2)
    found = score_rollout(surrogate, data.test, data.later)
    frames, true = (part.unflatten(1, (-1, 2)) for part in (predicted, torch.cat((y, data.later[:2]), 1)))  # pyright: ignore
    for t in range(3):
        torch.testing.assert_close(found.rel_l2_per_step[:, t], rel_l2(frames[:, t], true[:, t]))
    for t in (3, 4):
        torch.testing.assert_close(found.later_rel_l2[:, t - 3], rel_l2(frames[:, t], true[:, t]))
    assert found.power.shape == (2, 6)
    assert len(found.record()["spectra"]["power"]["truth"]) == 9
    scores = score(surrogate, data.test)
    std = surrogate.targets.std.repeat(3).view(-1, 1)
    torch.testing.assert_close(scores.mse_standardised, mse(predicted[:, :6] / std, y / std))
    assert float(scores.mse_standardised.mean()) < 0.05


@pytest.mark.parametrize("way", WAYS)
def test_symmetries_turn_each_field_as_it_turns(way: dict[str, Any]) -> None:
    """Turned by half a circle, strings run backwards, places change sign and speeds turn about 5000."""
    data = strings(symmetry=mirror(0, axes=1, targets=Channels(signs=(-1, -1), offsets=(0.0, 10000.0))))
    trained = run(data, augment=True, symmetric=True, **way)
    x = data.test.x
    flipped = x.flip(-1).unflatten(1, (-1, 2))
    flipped[:, :, 0], flipped[:, :, 1] = -flipped[:, :, 0], 10000 - flipped[:, :, 1]
    there = trained.predict(flipped.flatten(1, 2), steps=4).unflatten(1, (-1, 2)).flip(-1)
    here = trained.predict(x, steps=4).unflatten(1, (-1, 2))
    torch.testing.assert_close(there[:, :, 0], -here[:, :, 0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(there[:, :, 1], 10000 - here[:, :, 1], rtol=1e-5, atol=0.1)


def test_predict_takes_frames_with_an_axis_for_fields() -> None:
    trained, frames = run(strings()), waves()[:3, :2]
    found = trained.predict(frames, steps=4)
    assert found.shape == (3, 4, 2, 16)
    np.testing.assert_array_equal(found.reshape(3, 8, 16), trained.predict(frames.reshape(3, 4, 16), steps=4))
    with pytest.raises(ShapeError, match=r"are \(n, 2, 2, \*grid\); got shape \(2, 2, 16\); one sample is x\[None\]"):
        trained.predict(frames[0])
    with pytest.raises(ShapeError, match=r"got shape \(3, 3, 2, 16\); give the last frames, x\[:, -2:\]"):
        trained.predict(waves()[:3, :3])
    with pytest.raises(ShapeError, match=r"got shape \(3, 2, 3, 16\); give such frames"):
        trained.predict(waves()[:3, :3].swapaxes(1, 2))


def test_errors_of_each_field() -> None:
    data = strings()
    surrogate = run(data).surrogate
    metrics = score_rollout(surrogate, data.test).metrics()
    p, y = surrogate.predict_tensor(data.test.x, steps=3), data.test.y
    for field in (0, 1):
        expected = float(rel_l2(p[:, field::2], y[:, field::2]).mean())
        assert metrics[f"rel_l2_field_{field + 1}"] == pytest.approx(expected)
    assert metrics["rel_l2_field_1"] > 3 * metrics["rel_l2_field_2"]  # the latter is an offset, mostly


def test_a_field_may_be_zero_where_the_frame_is_not() -> None:
    frames = waves()
    frames[:, 3, 0] = 0
    run(strings(frames))
    frames[2, 3] = 0
    with pytest.raises(DataError, match=r"1 frames of data.train .* data.train.y\[2, 2:4\]"):
        run(strings(frames))


def test_targets_of_no_whole_frames_are_refused() -> None:
    data = strings()
    surrogate = run(data).surrogate
    cut = Split(data.test.x, data.test.y[:, :5])
    for measure in (score, score_rollout):
        with pytest.raises(ShapeError, match="frames of 2 fields, and the targets have 5 channels"):
            measure(surrogate, cut)


@pytest.mark.parametrize("fields", [1, 2, "yes"])
def test_the_number_of_fields_is_not_asked_for(fields: Any) -> None:
    with pytest.raises(DataError, match="true or false; got"):
        from_trajectories(waves(), fields=fields)


def test_frames_without_a_grid_are_refused() -> None:
    with pytest.raises(DataError, match=r"frames must be \(n, times, fields, \*grid\) with one to three grid axes"):
        from_trajectories(waves()[..., 0], fields=True)
