"""Plasticity: the law of the dies, frames and their order, seeds, groups, halved steps, and the reader."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from few_frames import few_frames
from pydantic import ValidationError
from scipy.interpolate import CubicSpline

import hofno
from hofno.data.dataset import split_of
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError, SolverError, SpecError
from hofno.evaluation.score import score
from hofno.geometry import Grid
from hofno.problems import press
from hofno.problems import pressed as pressed_module
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.dies import KNOTS
from hofno.problems.plasticity import CARD, Plasticity
from hofno.problems.pressed import FILE, Pressed, published_normaliser, read_published, reference_nodes
from hofno.solvers import parallel
from hofno.solvers.plasticity import Blocks
from hofno.surrogate import Surrogate

SMALL: dict[str, Any] = {"train": 3, "valid": 2, "test": 1, "coarsen": 10, "refine": 1}


def small(**changes: Any) -> Plasticity:
    return Plasticity(**{**SMALL, **changes})


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three frames only."""
    few_frames(monkeypatch, 3)


def same(one: Arrays, other: Arrays) -> bool:
    return np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


class TestDies:
    def test_the_recovered_law(self) -> None:
        """Ends at 7.6 above the lowest control point, one of which touches; the others by the recovered quantiles."""
        heights = np.stack([Plasticity().die_heights("train", sample) for sample in range(400)])
        spline = CubicSpline(KNOTS, heights.T)(np.linspace(0, 50, 2001))
        np.testing.assert_allclose(spline.min(0), 0, atol=1e-9)
        low = heights.min(1)
        assert low.max() < 0.05
        np.testing.assert_allclose(heights[:, [0, -1]] - low[:, None], 7.6)
        others = np.sort(heights[:, 1:-1] - low[:, None], 1)[:, 1:].ravel()
        assert others.mean() == pytest.approx(4.96, abs=0.15)
        assert others.std() == pytest.approx(1.57, abs=0.1)
        found = np.quantile(others, (0.05, 0.25, 0.5, 0.75, 0.95))
        np.testing.assert_allclose(found, (2.3, 3.75, 5.2, 6.3, 7.2), atol=0.25)
        assert 1.39 < others.min() < others.max() < 7.71
        assert len(np.unique(heights[:, 1:-1].argmin(1))) == 7
        assert np.quantile(spline.max(0), 15 / 16) == pytest.approx(10.8, abs=0.5)  # largest of 16 published ones

    def test_classes_of_sharpness(self) -> None:
        """By the curvature at the lowest point, from the spline itself; all classes are drawn."""
        places, found = np.linspace(0, 50, 20001), set()
        for sample in range(60):
            heights = Plasticity().die_heights("train", sample)
            spline = CubicSpline(KNOTS, heights)
            curvature = spline(places[spline(places).argmin()], 2)
            limit = press.class_of(heights)
            below = max((other for other in press.SHARPNESS if other < limit), default=0.0)
            assert below - 0.01 < curvature < limit + 0.01
            found.add(limit)
        assert found == set(press.SHARPNESS)

    def test_streams(self) -> None:
        given = small()
        assert np.array_equal(given.die_heights("train", 3), small(train=9).die_heights("train", 3))
        others = [small(seed=1).die_heights("train", 3), given.die_heights("test", 3), given.die_heights("train", 4)]
        assert not any(np.array_equal(given.die_heights("train", 3), other) for other in others)


@pytest.mark.usefixtures("brief")
class TestGenerate:
    def test_frames(self) -> None:
        """Frames are what the solver gives, from the right and from the top, in published coordinates."""
        given = small()
        pressed, account = given.simulate_samples([("train", 2), ("test", 0)])
        assert (pressed.die.shape, pressed.frames.shape) == ((2, 11), (2, 3, 4, 11, 4))
        assert {pressed.die.dtype, pressed.frames.dtype} == {np.dtype(np.float32)}
        reference = reference_nodes()[:, ::10, ::10]
        np.testing.assert_allclose(pressed.frames[:, 0, :2], np.broadcast_to(reference, (2, 2, 11, 4)), atol=1e-5)
        assert not pressed.frames[:, 0, 2:].any()
        assert np.abs(pressed.frames[:, :, :2] - pressed.frames[:, :, 2:] - reference).max() < 1e-5
        heights = given.die_heights("train", 2)
        blocks = given.blocks(np.repeat(heights[:, None], 8, 1))
        for frame in (1, 2):
            blocks.advance(0.1, given.frame_steps(frame, press.class_of(heights)))
            x, y = blocks.x[..., 0].numpy()
            expected = np.stack((x - 49.65, y - 0.1))[:, ::-1, ::-1].transpose(0, 2, 1)
            np.testing.assert_allclose(pressed.frames[0, frame, :2], expected, rtol=0, atol=1e-5)
        assert np.abs(pressed.frames[:, 1:, 3, :, -1]).max() == 0  # the base is the last row
        spline = CubicSpline(KNOTS, heights)(np.linspace(0, 50, 11)) + 14.9
        np.testing.assert_allclose(pressed.die[0], spline, rtol=1e-6)
        assert np.abs(account.imbalance).max() < 0.02
        assert account.penetration.max() < 1e-3
        assert account.halvings.tolist() == [0, 0]

    def test_the_order_of_the_die(self) -> None:
        wanted = [("train", 2)]
        published, aligned = (small(aligned=way).simulate_samples(wanted)[0] for way in (False, True))
        assert np.array_equal(published.die[:, ::-1], aligned.die)
        assert np.array_equal(published.frames, aligned.frames)
        touched = published.frames[0, -1, 3, :, 0].argmin()  # from the right
        assert abs(int(aligned.die[0].argmin()) - int(touched)) <= 1

    def test_splits(self) -> None:
        splits = small().generate(ignore_progress)
        assert [(a.x.shape, a.y.shape) for a in splits.values()] == [
            ((n, 1, 11, 4, 3), (n, 4, 11, 4, 3)) for n in (3, 2, 1)
        ]
        assert small().memory_bytes() == sum(a.x.nbytes + a.y.nbytes for a in splits.values())
        pressed, _ = small().simulate_samples([("valid", 1)])
        assert same(pressed.grid(), Arrays(splits["valid"].x[1:], splits["valid"].y[1:]))

    def test_the_same_bytes_and_more_samples_extend(self) -> None:
        """Wherever a sample is solved, it is the same; with groups of eight, and on any number of threads."""
        base, before = small().generate(ignore_progress), torch.get_num_threads()
        try:
            for threads in (1, 3):
                torch.set_num_threads(threads)
                longer = small(train=11, valid=3, test=4).generate(ignore_progress)
                for name, arrays in base.items():
                    count = len(arrays.x)
                    assert same(arrays, Arrays(longer[name].x[:count], longer[name].y[:count]))
                assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)

    def test_every_parameter_changes_the_numbers(self) -> None:
        base = small().simulate_samples([("train", 2)])[0]
        changes: tuple[dict[str, Any], ...] = ({"seed": 1}, {"poisson_ratio": 0.2}, {"refine": 2}, {"hourglass": 1.0})
        for change in changes:
            assert not np.array_equal(small(**change).simulate_samples([("train", 2)])[0].frames, base.frames), change
        finer = small(refine=2).simulate_samples([("train", 2)])[0]
        assert finer.frames.shape == base.frames.shape

    def test_bad_blocks_mean_shorter_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(press, "SHARPNESS", (0.5,))
        wanted = [("train", k) for k in range(3)]
        whole, whole_account = small().simulate_samples(wanted)
        assert np.abs(whole.frames[2, :, 2:]).max() > 0.01  # the die has met a node
        stable = Blocks.stable_step

        def picky(self: Blocks) -> torch.Tensor:
            """The third block of the first round has turned over."""
            found = stable(self)
            if self.steps in (small().frame_steps(1, 0.5), sum(small().frame_steps(f, 0.5) for f in (1, 2))):
                found[2] = 0
            return found

        monkeypatch.setattr(Blocks, "stable_step", picky)
        seen: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(parallel, "PAUSE", 1e3)  # no one looks while a group runs
            pressed, account = small().simulate_samples(wanted, progress=lambda stage, done, total: seen.append(done))
        assert account.halvings.tolist() == [0, 0, 1]
        assert whole_account.halvings.tolist() == [0, 0, 0]
        assert seen == [2, 3]
        assert np.array_equal(pressed.frames[:2], whole.frames[:2])
        difference = np.linalg.norm(pressed.frames[2, :, 2:] - whole.frames[2, :, 2:])
        assert 0 < difference < 1e-2 * np.linalg.norm(whole.frames[2, :, 2:])
        monkeypatch.setattr(Blocks, "stable_step", stable)
        monkeypatch.setattr(press, "_MOST_IMBALANCE", -1.0)
        monkeypatch.setattr(press, "_HALVINGS", 1)
        with pytest.raises(
            SolverError, match=r"3 blocks did not balance their energy with steps halved 1 times \(train 0"
        ):
            small().simulate_samples(wanted)

    def test_progress_and_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(press, "SHARPNESS", (0.5,))
        seen: list[tuple[str, int, int]] = []
        with monkeypatch.context() as patch:  # one group after the other, at none of which anyone looks while it runs
            patch.setattr(press, "in_order", lambda work, jobs, *_: (work(job) for job in jobs))
            small(train=7, valid=2).generate(lambda *args: seen.append(args))
        assert seen == [("generate", 8, 10), ("generate", 10, 10)]
        each = 8 * (60 + 4 * 3) * 11 * 4
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        for blocks, found in ((100, (8, 3)), (21, (8, 2)), (9, (8, 1))):
            monkeypatch.setattr(press, "free_bytes", lambda device, n=blocks: n * each)
            assert small().press().group("cpu", 50) == found
        monkeypatch.setattr(press, "free_bytes", lambda device: 200 * each)
        assert small().press().group("cuda", 1000) == (128, 1)
        monkeypatch.setattr(press, "free_bytes", lambda device: 7 * each)
        with pytest.raises(SolverError, match="8 blocks need"):
            small().generate(ignore_progress)
        monkeypatch.setattr(press, "free_bytes", lambda device: None)
        assert small().press().group("cuda", 1000) == (512, 1)

    def test_an_interruption_leaves_no_thread_behind(self) -> None:
        def stop(stage: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        before = threading.active_count(), torch.get_num_threads()
        with pytest.raises(KeyboardInterrupt):
            small(train=30).generate(stop)
        assert (threading.active_count(), torch.get_num_threads()) == before

    def test_bad_requests(self) -> None:
        for wrong in ([], [("training", 0)], [("train", -1)]):
            with pytest.raises(DataError, match="expected pairs"):
                small().simulate_samples(wrong)


class TestDescription:
    def test_description(self) -> None:
        given = Plasticity()
        assert (given.train, given.test, given.channels) == (900, 80, (1, 4))
        assert (given.grid_geometry.shape, given.grid_geometry.periodic) == ((101, 31, 20), False)
        assert all(word in CARD for word in ("Equation", "Cost", "Known flaws", "What is known to differ"))
        for sharpness in press.SHARPNESS:
            steps = [given.frame_steps(frame, sharpness) for frame in range(1, 20)]
            assert steps == sorted(steps)
        assert given.frame_steps(9, 0.4) < given.frame_steps(9, 0.6) < Plasticity(refine=4).frame_steps(9, 0.6)

    def test_bad_parameters(self) -> None:
        for change in (
            {"poisson_ratio": 0.6},
            {"coarsen": 3},
            {"refine": 3},
            {"hourglass": 0.0},
            {"train": 0},
            {"hardening": 1.0},
        ):
            with pytest.raises(ValidationError):
                small(**change)

    def test_by_time(self) -> None:
        pressed = Pressed(
            np.arange(6, dtype=np.float32).reshape(2, 3), np.random.default_rng(0).random((2, 5, 4, 3, 2), np.float32)
        )
        frames = pressed.by_time()
        assert (frames.x.shape, frames.y.shape) == ((10, 2, 3, 2), (10, 4, 3, 2))
        assert frames.x[7, 0, :, 1].tolist() == [3, 4, 5]
        assert (frames.x[7, 1] == 0.5).all()
        assert frames.x[9, 1, 0, 0] == 1
        assert np.array_equal(frames.y[7], pressed.frames[1, 2])
        assert np.array_equal(pressed.grid().y[1, ..., 2], pressed.frames[1, 2])
        assert np.array_equal(pressed.grid().x[1, 0, :, 0, 4], pressed.die[1])

    def test_frames_of_a_block_are_scored_together(self) -> None:
        """The relative error of a block is the same in both forms, and not the mean over its frames."""
        rng = np.random.default_rng(1)
        frames = rng.random((3, 4, 4, 5, 6), np.float32) * np.arange(1, 5, dtype=np.float32)[:, None, None, None]
        whole = Pressed(rng.random((3, 5), np.float32), frames)
        errors = []
        for form, together in (("volume", 1), ("frames", 4)):
            split = split_of(whole.arrays(form), together)
            model = hofno.HOFNO(split.x.shape[1], 4, modes=(2,) * (split.y.ndim - 2), width=4, depth=1)
            for p in model.parameters():
                torch.nn.init.zeros_(p)
            same = [ChannelNormaliser.identity(n) for n in (split.x.shape[1], 4)]
            same[1] = ChannelNormaliser(torch.full((4,), 0.5), torch.ones(4))  # predicts 0.5 everywhere
            operator = Surrogate(model, *same, Grid(shape=tuple(split.y.shape[2:]), periodic=False))
            errors.append(score(operator, split, batch_size=2).rel_l2)
        torch.testing.assert_close(errors[0], errors[1])
        assert errors[0].shape == (3,)

    def test_forms(self, brief: None) -> None:
        volume, frames = (hofno.generate("plasticity", form=form, **SMALL) for form in ("volume", "frames"))
        assert frames.test.x.shape == (3, 2, 11, 4)
        assert frames.in_channels == 2
        assert torch.equal(volume.test.y[0].movedim(-1, 0), frames.test.y)
        assert frames.test.together == 3
        with pytest.raises(SpecError, match="form"):
            hofno.generate("plasticity", form="both")

    def test_normaliser(self) -> None:
        die = np.random.default_rng(0).normal(20, 3, (50, 101)).astype(np.float32)
        shift, scale = published_normaliser(die)
        encoded = (die - shift) / scale
        assert encoded.mean() == pytest.approx(0, abs=1e-5)
        assert encoded.std(ddof=1) == pytest.approx(1, abs=1e-5)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """The original file in small: 987 samples of 6 x 4 nodes and 2 frames."""
    for name, value in (("COLUMNS", 5), ("ROWS", 3), ("FRAMES", 2)):
        monkeypatch.setattr(pressed_module, name, value)
    rng = np.random.default_rng(0)
    moved = rng.normal(size=(987, 6, 4, 2, 2))
    nodes = reference_nodes().transpose(1, 2, 0)[:, :, None] + moved
    return rng.normal(20, 3, (987, 6)), np.concatenate((nodes, moved), -1)


class TestReader:
    def test_names_keys_axes_and_splits(self, tiny: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
        die, output = tiny
        scipy.io.savemat(tmp_path / FILE, {"input": die, "output": output})
        for path in (tmp_path, tmp_path / FILE):
            splits = read_published(path)
            assert [(name, len(part.die)) for name, part in splits.items()] == [
                ("train", 900),
                ("valid", 7),
                ("test", 80),
            ]
        assert np.array_equal(splits["test"].die[-1], die[-1].astype(np.float32))
        assert np.array_equal(splits["train"].die[0], die[0].astype(np.float32))
        frames = splits["valid"].frames
        assert frames.shape == (7, 2, 4, 6, 4)
        assert frames[2, 1, 3, 4, 0] == np.float32(output[902, 4, 0, 1, 3])

    def test_reference_nodes(self) -> None:
        x, y = reference_nodes()
        np.testing.assert_allclose(x[:, 0], 0.35 - 0.5 * np.arange(101), atol=1e-5)
        np.testing.assert_allclose(y[0], 14.9 - 0.5 * np.arange(31), atol=1e-5)

    def test_bad_files(self, tiny: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
        def refused(message: str) -> None:
            with pytest.raises(DataError, match=message) as caught:
                read_published(tmp_path)
            assert "\n" not in str(caught.value)

        die, output = tiny
        path = tmp_path / FILE
        refused("check the path")
        scipy.io.savemat(path, {"input": die})
        refused("expected a variable 'output'")
        scipy.io.savemat(path, {"input": die, "output": output[:900]})
        refused("it is not the published file: get it again")
        scipy.io.savemat(path, {"input": die, "output": output[..., ::-1].copy()})
        refused("not the undeformed nodes")
        scipy.io.savemat(path, {"input": die, "output": np.where(output > 2, math.nan, output)})
        refused("not finite")
        scipy.io.savemat(path, {"input": die, "output": output})
        path.write_bytes(path.read_bytes()[:5000])
        refused("get it again")
