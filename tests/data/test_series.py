"""Trajectories of the user's own: split, learnt, rolled out; what does not fit is refused in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.errors import DataError
from hofno.geometry import Grid
from hofno.problems.symmetry import square

FRAMES = np.random.default_rng(0).random((10, 6, 8, 8), np.float32)


def test_frames_are_split_by_trajectory() -> None:
    data = hofno.from_trajectories(FRAMES, history=2, horizon=3, split=(6, 2, 2), seed=None)
    assert data.rollout == hofno.Rollout(2, 3)
    assert (data.in_channels, data.out_channels) == (2, 1)
    assert np.array_equal(data.train.y, FRAMES[:6, 2:5])
    assert np.array_equal(data.valid.x, FRAMES[6:8, :2])
    assert np.array_equal(data.test.y, FRAMES[8:, 2:5])
    assert data.later is not None
    assert np.array_equal(data.later[:], FRAMES[8:, 5:])


def test_scores_may_start_later_and_a_grid_may_be_periodic() -> None:
    data = hofno.from_trajectories(FRAMES, history=2, start=4, periodic=True, split=(6, 2, 2), seed=None)
    assert np.array_equal(data.test.x, FRAMES[8:, 2:4])
    assert np.array_equal(data.test.y, FRAMES[8:, 4:])
    assert data.grid == Grid(shape=(8, 8), periodic=True)
    assert data.symmetry is None
    assert hofno.from_trajectories(FRAMES, symmetry=square()).symmetry == square()


def test_a_shuffle_keeps_every_trajectory() -> None:
    data = hofno.from_trajectories(FRAMES, history=1, split=(0.6, 0.2, 0.2))
    found = np.concatenate([np.concatenate((split.x, split.y), 1) for split in (data.train, data.valid, data.test)])
    assert not np.array_equal(found, FRAMES)
    assert np.array_equal(np.sort(found[:, 0, 0, 0]), np.sort(FRAMES[:, 0, 0, 0]))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_they_are_learnt_and_rolled_out(axes: int) -> None:
    frames = np.random.default_rng(1).random((5, 4, *(6,) * axes))
    data = hofno.from_trajectories(frames, periodic=True, split=(3, 1, 1))
    model = hofno.HOFNO(1, 1, modes=(2,) * axes, width=4, depth=1)
    run = hofno.fit(model, data, epochs=1, progress=False)
    assert run.predict(data.test.x, steps=7).shape == (1, 7, *(6,) * axes)
    assert hofno.evaluate(run, data.test)["rel_l2"] > 0


@pytest.mark.parametrize("shape", [(2, 16, 20), (5, 16), (3, 16, 16)])
def test_a_short_first_axis_may_be_one_of_fields(shape: tuple[int, ...]) -> None:
    frames = np.random.default_rng(1).random((12, 9, *shape))
    told = rf"grid of {' x '.join(map(str, shape))} points; if their third axis holds {shape[0]} quant.* fields=True"
    with pytest.warns(UserWarning, match=told):
        hofno.from_trajectories(frames)
    assert hofno.from_trajectories(frames, fields=True).rollout == hofno.Rollout(1, 8, shape[0])


@pytest.mark.parametrize("shape", [(2, 5, 5), (8, 64, 64), (6, 16), (16, 2), (4,)])
def test_other_grids_are_taken_as_they_are(shape: tuple[int, ...]) -> None:
    frames = np.random.default_rng(1).random((5, 2, *shape))
    assert hofno.from_trajectories(frames, split=(3, 1, 1)).grid.shape == shape


def test_a_mapped_file_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.data.ondisk.SHARE", 0.0)
    np.save(tmp_path / "frames.npy", FRAMES)
    mapped = np.load(tmp_path / "frames.npy", mmap_mode="r")
    data = hofno.from_trajectories(mapped, history=2, split=(6, 2, 2), seed=None)
    assert data.train.on_disk
    assert np.array_equal(data.train.y, FRAMES[:6, 2:])


@pytest.mark.parametrize("kind", [np.float32, np.float64, ">f4", np.int16])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("fields", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_shuffled_files_stay_where_they_are(
    seed: int | None, fields: bool, fixed: bool, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    given = [(1000 * rng.standard_normal((10, 6, *([2] if fields else []), 9))).astype(kind)]
    given += [(1000 * rng.standard_normal((10, 3, 9))).astype(kind)] if fixed else []
    mapped = []
    for index, values in enumerate(given):
        np.save(tmp_path / f"{index}.npy", values)
        mapped.append(np.load(tmp_path / f"{index}.npy", mmap_mode="r"))
    settings = {"fields": fields, "history": 2, "start": 3, "horizon": 2, "split": (5, 3, 2), "seed": seed}
    expected = hofno.from_trajectories(*(values.astype(np.float32) for values in given), **settings)
    small = hofno.from_trajectories(*mapped, **settings)
    monkeypatch.setattr("hofno.data.ondisk.SHARE", 0.0)
    large = hofno.from_trajectories(*mapped, **settings)
    assert large.train.on_disk
    for data in (small, large):
        for name in ("train", "valid", "test"):
            found, wanted = getattr(data, name), getattr(expected, name)
            assert torch.equal(found.x, wanted.x)
            assert torch.equal(found.y, wanted.y)
        for name in ("later", "trajectories"):
            assert torch.equal(getattr(data, name)[:].float(), getattr(expected, name))


def test_fields_may_be_a_truth_of_numpy() -> None:
    frames = np.random.default_rng(0).standard_normal((10, 6, 2, 9))
    found = hofno.from_trajectories(frames, fields=np.True_)  # pyright: ignore[reportArgumentType]
    assert found.rollout == hofno.from_trajectories(frames, fields=True).rollout


@pytest.mark.parametrize(
    ("frames", "settings", "message"),
    [
        (FRAMES[0, 0], {}, "one to three grid axes"),
        (FRAMES, {"history": 0}, "1 <= history"),
        (FRAMES, {"history": 6}, "there are 6 frames"),
        (FRAMES, {"history": 2, "start": 1}, "1 <= history <= start"),
        (FRAMES, {"horizon": 6}, "start \\+ horizon"),
        (np.where(FRAMES > 0.9, np.nan, FRAMES), {}, "NaN"),
        (FRAMES, {"symmetry": square}, "symmetry is a Symmetry"),
        (FRAMES[:, :, 0], {"symmetry": square()}, "of 2 axes"),
        (FRAMES, {"split": (9, 1, 1)}, "no more than 10"),
        (FRAMES, {"history": 2.0}, r"history counts frames; got 2\.0; give a whole number"),
        (FRAMES, {"horizon": "2"}, "horizon counts frames; got '2'"),
        (FRAMES, {"history": True}, "history counts frames; got True"),
    ],
)
def test_what_does_not_fit_is_refused(frames: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        hofno.from_trajectories(frames, **settings)
    assert "\n" not in str(caught.value)


def test_a_model_of_ones_own_loop_is_saved_and_evaluated(tmp_path: Path) -> None:
    x = torch.randn(6, 1, 8, generator=torch.Generator().manual_seed(0))
    data = hofno.from_arrays(x, 2 * x, split=(4, 1, 1))
    model = hofno.HOFNO(1, 1, modes=(3,), width=4, depth=1)
    wrapped = hofno.Surrogate.around(model, data)
    wrapped.save(tmp_path / "mine")
    with torch.no_grad():
        torch.testing.assert_close(hofno.load(tmp_path / "mine").predict(x), model(x))
    assert hofno.evaluate(wrapped, data.test)["rel_l2"] > 0
    for shown in (wrapped, data, data.train):
        assert len(repr(shown)) < 120
    assert "1 to 1 channels" in repr(data)


def test_frames_that_are_partly_masked_are_refused(tmp_path: Path) -> None:
    """Below the mask are fillings, of land for example; mapped from a file too."""
    np.save(tmp_path / "frames.npy", FRAMES)
    mapped = np.load(tmp_path / "frames.npy", mmap_mode="r")
    for frames in (FRAMES, mapped):
        with pytest.raises(DataError, match=r"frames is a masked array .* such as frames\.filled\(0\)"):
            hofno.from_trajectories(np.ma.masked_greater(frames, 0.9))
        with pytest.raises(DataError, match="fixed is a masked array"):
            hofno.from_trajectories(frames, np.ma.masked_greater(frames[:, :1], 0.9))
        hofno.from_trajectories(np.ma.masked_greater(frames, 1e9))


def test_channels_that_come_last_are_told() -> None:
    with pytest.raises(DataError, match="moveaxis"):
        hofno.from_arrays(np.ones((8, 16, 16, 1)), np.ones((8, 16, 16, 1)))


def test_numbers_of_numpy_are_saved_as_those_of_python(tmp_path: Path) -> None:
    """A run that was trained with them could not be saved at its end."""
    one = np.int64(1)
    data = hofno.from_trajectories(FRAMES, history=one, start=one, horizon=np.int32(2), seed=np.uint8(3))  # pyright: ignore[reportArgumentType]
    same = hofno.from_trajectories(FRAMES, history=1, start=1, horizon=2, seed=3)
    assert torch.equal(data.train.x, same.train.x)
    model = hofno.HOFNO(one, one, modes=(np.int64(2),) * 2, width=np.int64(4), depth=one)  # pyright: ignore[reportArgumentType]
    run = hofno.fit(model, data, epochs=1, out=tmp_path / "run", progress=False, device="cpu")
    assert torch.equal(hofno.load(tmp_path / "run").predict(data.test.x), run.predict(data.test.x))
    again = hofno.HOFNO(1, 1, modes=(2, 2), width=4, depth=1)
    found = hofno.fit(again, same, epochs=1, out=tmp_path / "run", resume=True, progress=False, device="cpu")
    assert torch.equal(found.predict(data.test.x), run.predict(data.test.x))
