"""Trajectories as data: how they are split, kept in parts, gone on with, and read from the original files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import hofno
from hofno import Dataset, Rollout, generate, read, storage
from hofno.data.store import data_folder
from hofno.errors import DataError, HofnoError, SpecError
from hofno.problems import navier_stokes, problem
from hofno.problems.navier_stokes import NavierStokes, NavierStokesFlow
from hofno.solvers.vorticity import VorticitySolver

SMALL: dict[str, Any] = {
    **{"viscosity": 1e-3, "resolution": 8, "solver_resolution": 16, "frames": 7, "step": 0.1},
    **{"samples": 6, "valid": 2, "history": 2},
}


def small(store: Path | None = None, **changes: Any) -> Dataset:
    return generate("navier_stokes", store=store, device="cpu", **{**SMALL, **changes})


def frames_of(data: Dataset) -> torch.Tensor:
    assert data.trajectories is not None
    return data.trajectories


class TestSplits:
    def test_they_are_the_frames_they_say(self) -> None:
        data = small(start=3, horizon=2)
        flow = NavierStokesFlow(
            samples=8, viscosity=1e-3, resolution=8, solver_resolution=16, frames=7, step=0.1
        ).trajectories()
        assert np.array_equal(frames_of(data).numpy(), flow[:6])
        expected = {
            "train": (flow[:5, :2], flow[:5, 2:5]),  # every frame up to the end of the horizon
            "test": (flow[5:6, 1:3], flow[5:6, 3:5]),
            "valid": (flow[6:8, 1:3], flow[6:8, 3:5]),
        }
        for name, (x, y) in expected.items():
            split = getattr(data, name)
            assert np.array_equal(split.x.numpy(), x), name
            assert np.array_equal(split.y.numpy(), y), name
        assert data.later is not None
        assert np.array_equal(data.later.numpy(), flow[5:6, 5:])
        assert data.rollout == Rollout(2, 2)
        assert (data.in_channels, data.out_channels, data.origin) == (2, 1, "generated")

    def test_nothing_is_copied(self) -> None:
        data = small()
        frames_of(data).fill_(7.0)
        for part in (data.train.x, data.train.y, data.test.x, data.test.y):
            assert bool((part == 7.0).all())

    @pytest.mark.parametrize(
        ("given", "found"),
        [
            ({}, (1000, 100, 200, 1200)),
            ({"samples": 1200}, (1000, 100, 200, 1200)),
            ({"samples": 10000}, (9800, 100, 200, 10000)),
            ({"samples": 12}, (10, 1, 2, 12)),
            ({"samples": 2}, (1, 1, 1, 2)),
            ({"samples": 30, "test": 10}, (20, 2, 10, 30)),
            ({"samples": 30, "train": 10, "valid": 7}, (10, 7, 20, 30)),
            ({"train": 40, "test": 8}, (40, 4, 8, 48)),
        ],
    )
    def test_counts_follow_from_each_other(self, given: dict[str, int], found: tuple[int, ...]) -> None:
        made = problem("navier_stokes", given).parameters()
        assert tuple(made[key] for key in ("train", "valid", "test", "samples")) == found

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"samples": 1}, "at least 2 samples"),
            ({"samples": 9, "train": 9, "test": 3}, "give two of the three"),
            ({"history": 20}, "give more frames or less history"),
            ({"history": 5, "start": 3}, "history <= start"),
            ({"start": 12, "horizon": 9}, "start \\+ horizon <= frames"),
            ({"samples": "many"}, r"navier_stokes\.samples: .*; got 'many'"),
            ({"viscosity": -1}, "greater than 0"),
            ({"resolution": 60}, "multiple of resolution"),
            ({"frmes": 3}, "did you mean 'frames'"),
            ({"horizon": -1}, r"navier_stokes\.horizon"),
        ],
    )
    def test_what_cannot_be_is_told_in_one_line(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError, match=words) as caught:
            generate("navier_stokes", **given)
        assert "\n" not in str(caught.value)

    def test_an_unknown_device(self) -> None:
        with pytest.raises(SpecError, match="unknown device"):
            generate("navier_stokes", device="abacus", **SMALL)


class TestStore:
    def test_the_second_call_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = small(tmp_path)

        def refuse(*_: object) -> None:
            raise AssertionError("solved twice")

        monkeypatch.setattr(VorticitySolver, "advance_modes_", refuse)
        assert torch.equal(frames_of(first), frames_of(small(tmp_path)))
        with pytest.raises(AssertionError, match="solved twice"):
            small(tmp_path, seed=1)

    def test_protocols_share_a_flow_and_more_samples_extend_it(self, tmp_path: Path) -> None:
        first = small(tmp_path)
        for change in ({"history": 1, "start": 3}, {"horizon": 2}, {"samples": 12}, {"valid": 5}):
            again = small(tmp_path, **change)
            assert torch.equal(frames_of(again)[:6], frames_of(first))
        assert len(list(tmp_path.iterdir())) == 1
        assert torch.equal(frames_of(small(tmp_path, samples=12)), frames_of(small(samples=12)))

    def test_an_interrupted_generation_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(navier_stokes._GROUP, "cpu", (2**18, 4))

        def stop(stage: str, done: int, total: int) -> None:
            if done > 5 * 7:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            generate("navier_stokes", store=tmp_path, progress=stop, device="cpu", **SMALL)
        (folder,) = tmp_path.iterdir()
        assert [part.name for part in folder.glob("part-*")] == ["part-000000-000004"]
        assert torch.equal(frames_of(small(tmp_path)), frames_of(small()))

    def test_finished_parts_are_read_while_another_process_holds_the_folder(self, tmp_path: Path) -> None:
        small(tmp_path)
        with storage.RunLock(data_folder("navier_stokes", SMALL, tmp_path)):
            assert len(small(tmp_path).train) == 5

    @pytest.mark.parametrize("damage", ["flip", "missing"])
    def test_damaged_parts_are_refused(self, tmp_path: Path, damage: str) -> None:
        small(tmp_path)
        (file,) = tmp_path.glob("*/part-*/frames.safetensors")
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content) if damage == "flip" else file.unlink()
        with pytest.raises(DataError, match=r"delete .* to make it again"):
            small(tmp_path)

    def test_memory_is_what_the_trajectories_take(self) -> None:
        made = problem("navier_stokes", SMALL)
        assert isinstance(made, NavierStokes)
        assert made.memory_bytes() == 4 * 8 * 7 * 8 * 8


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve samples of six frames on 5 x 5 points, of mean 0, as MATLAB 7.3 stores them."""
    path = tmp_path_factory.mktemp("mat") / "flow.mat"
    u = np.random.default_rng(0).normal(size=(12, 5, 5, 6)).astype(np.float32)
    u -= u.mean((1, 2), keepdims=True)
    with h5py.File(path, "w", userblock_size=512) as made:
        made["u"] = u.transpose()
    return path


class TestRead:
    def test_it_is_split_as_published(self, file: Path) -> None:
        data = read("navier_stokes", file, history=2, valid=0)
        assert (len(data.train), len(data.valid), len(data.test)) == (10, 0, 2)
        assert data.origin == "original"
        assert data.trajectories is not None
        assert tuple(data.trajectories.shape) == (12, 6, 5, 5)
        assert torch.equal(data.test.x, data.trajectories[10:, :2])
        assert torch.equal(data.test.y, data.trajectories[10:, 2:])
        assert data.grid.periodic

    def test_validation_samples_are_not_trained_on(self, file: Path) -> None:
        data = hofno.read("navier_stokes", file, history=1, start=3, horizon=2, valid=3, train=5)
        assert (len(data.train), len(data.valid), len(data.test)) == (5, 3, 2)
        assert data.trajectories is not None
        assert torch.equal(data.valid.y, data.trajectories[7:10, 3:5])
        assert torch.equal(data.train.y, data.trajectories[:5, 1:5])

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"train": 10, "valid": 1, "test": 2}, "holds 12 samples; .* lower one of them"),
            ({"test": 0}, "at least one to train and one to test"),
            ({"history": 6}, "holds 6 frames"),
            ({"history": 0, "start": 2}, "1 <= history"),
            ({"histroy": 2}, "did you mean 'history'"),
            ({"valid": 0.5}, "valid is a whole number"),
        ],
    )
    def test_what_the_file_does_not_hold(self, file: Path, options: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError, match=words):
            read("navier_stokes", file, **options)

    def test_other_problems_and_files(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="no reader of original files for 'poisson'"):
            read("poisson", tmp_path / "x.mat")
        (tmp_path / "x.mat").write_bytes(b"nothing")
        with pytest.raises(HofnoError, match="no MATLAB file"):
            read("navier_stokes", tmp_path / "x.mat")
        with pytest.raises(HofnoError, match="check the path"):
            read("navier_stokes", tmp_path / "y.mat")
