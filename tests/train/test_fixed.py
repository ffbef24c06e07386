"""Fields of a trajectory that do not change in time: given to the model in every step as they are, never predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_train_resume import stop_after
from torch import Tensor, nn

import hofno
from hofno import FNO, Dataset, Run, Surrogate, fit, from_trajectories, load
from hofno.data import ondisk
from hofno.data.given import given as given_fields
from hofno.data.normalise import ChannelNormaliser
from hofno.data.passes import roll_out
from hofno.errors import DataError, ShapeError, SpecError
from hofno.evaluation import score_rollout
from hofno.evaluation.rollout import one_step
from hofno.geometry import Grid
from hofno.problems.base import Rollout
from hofno.problems.symmetry import Channels, Motion, Symmetry, mirror
from hofno.spec import TrainSpec
from hofno.train.loop import Interrupted
from hofno.train.step import noisy
from hofno.train.tasks import FreeRunning, SingleWindows, TeacherForced, normalisers

WAYS: list[dict[str, Any]] = [{}, {"batch_of": "windows"}, {"forcing": "free"}]
POINTS = 16


def heat(samples: int = 16, times: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """u_t = div(a grad u) on a ring: frames (n, times, points), and of each sample log a and where a is large.

    What the next frame is follows from the frame and a; from the frame alone it does not.
    """
    rng = np.random.default_rng(seed)
    x = np.arange(POINTS) / POINTS
    waves = rng.standard_normal((samples, 4, 1)) * np.sin(
        2 * np.pi * (np.arange(1, 5)[:, None] * x + rng.random((samples, 4, 1)))
    )
    u = 3 + waves.sum(1)
    a = np.exp(2 * rng.standard_normal((samples, 1)) + np.sin(2 * np.pi * (x + rng.random((samples, 1)))))
    a = 0.2 * a / (1 + a)  # stable
    frames = [u]
    for _ in range(times - 1):
        for _ in range(4):
            flow = a * (np.roll(u, -1, 1) - u)
            u = u + flow - np.roll(flow, 1, 1)
        frames.append(u)
    fixed = np.stack((np.log(a), a > 0.1), 1)
    return np.stack(frames, 1).astype(np.float32), fixed.astype(np.float32)


def rods(frames: Any = None, fixed: Any = None, **settings: Any) -> Dataset:
    known = heat()
    frames, fixed = known[0] if frames is None else frames, known[1] if fixed is None else fixed
    chosen = {"history": 2, "horizon": 3, "periodic": True, "split": (10, 4, 2), "seed": None, **settings}
    return from_trajectories(frames, fixed, **chosen)


def run(data: Dataset, **settings: Any) -> Run:
    torch.manual_seed(0)
    model = FNO(data.in_channels, data.out_channels, (4,), width=8, depth=1)
    return fit(model, data, **{"epochs": 3, "batch_size": 4, "device": "cpu", "progress": False, **settings})


class Noted(nn.Module):
    """Mixes two frames and two fixed fields in a known way, and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        a, b, older, newer = x.split(1, 1)
        return self.weight * newer.roll(1, -1) * a + (older - b).tanh()


def curved(x: Tensor) -> Tensor:
    """Of two frames of two fields and one fixed field."""
    return torch.cat((x[:, 3:4] * x[:, :1] + x[:, 2:3], (x[:, 4:] - x[:, 1:2]).roll(1, -1) / (1 + x[:, :1] ** 2)), 1)


class TestTasks:
    frames = torch.randn(4, 6, 2, 7, generator=torch.Generator().manual_seed(1))
    fixed = torch.randn(4, 1, 7, generator=torch.Generator().manual_seed(2))
    rollout, order = Rollout(2, 4, 2, 1), torch.tensor([3, 0])

    def test_windows(self) -> None:
        flat = self.frames.flatten(1, 2)
        found = TeacherForced(flat, self.rollout, fixed=self.fixed).predict(curved, self.order)
        expected = [
            curved(torch.cat((self.fixed[s], self.frames[s, t - 2 : t].flatten(0, 1)))[None])
            for s in self.order.tolist()
            for t in range(2, 6)
        ]
        assert torch.equal(found.prediction, torch.cat(expected))
        assert torch.equal(found.target, self.frames[self.order, 2:].flatten(0, 1))
        single = SingleWindows(flat, self.rollout, fixed=self.fixed)
        some = single.predict(curved, torch.tensor([12, 13, 14, 15, 0, 1, 2, 3]))  # of samples 3 and 0
        assert torch.equal(some.prediction, found.prediction)
        assert torch.equal(some.target, found.target)

    def test_free_running(self) -> None:
        found = FreeRunning(self.frames.flatten(1, 2), self.rollout, fixed=self.fixed).predict(curved, self.order)
        for row, sample in enumerate(self.order.tolist()):
            known = list(self.frames[sample, :2])
            for t in range(2, 6):
                known.append(curved(torch.cat((self.fixed[sample], *known[-2:]))[None])[0])
                assert torch.equal(found.prediction[4 * row + t - 2], known[-1])
        assert torch.equal(found.target, self.frames[self.order, 2:].flatten(0, 1))


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.integers(1, 4), st.integers(0, 99))
def test_a_rollout_hands_fixed_fields_on(history: int, fields: int, fixed: int, steps: int, seed: int) -> None:
    x = torch.randn(2, history * fields + fixed, 5, generator=torch.Generator().manual_seed(seed))
    seen: list[Tensor] = []

    def model(state: Tensor) -> Tensor:
        seen.append(state)
        return state[:, fixed : fixed + fields] - len(seen)

    predicted = roll_out(model, x, steps, fixed)
    every = torch.cat((x[:, fixed:], predicted), 1)
    for step, state in enumerate(seen):
        assert torch.equal(state[:, :fixed], x[:, :fixed])
        assert torch.equal(state[:, fixed:], every[:, step * fields : (step + history) * fields])


def test_they_reach_the_model_standardised_in_every_step() -> None:
    frames, fixed = heat()
    model = Noted()
    surrogate = fit(model, rods(), epochs=1, batch_size=4, device="cpu", progress=False).surrogate
    kept = fixed[:10].astype(np.float64)
    mean, std = kept.mean((0, 2)), kept.std((0, 2), ddof=1)
    np.testing.assert_allclose(surrogate.inputs.mean[:2], mean, rtol=1e-6)
    np.testing.assert_allclose(surrogate.inputs.std[:2], std, rtol=1e-6)
    assert len(surrogate.targets.mean) == 1
    model.seen.clear()
    predicted = surrogate.predict(frames[:3, :2], fixed=fixed[:3], steps=5)
    expected = (torch.from_numpy(fixed[:3]) - surrogate.inputs.mean[:2, None]) / surrogate.inputs.std[:2, None]
    assert len(model.seen) == 5
    for given_ in model.seen:
        assert torch.equal(given_[:, :2], expected)
    state = [frames[:3, 0], frames[:3, 1]]
    for step in range(5):
        a, b = ((fixed[:3, i] - mean[i]) / std[i] for i in (0, 1))
        m, s = float(surrogate.targets.mean), float(surrogate.targets.std)
        older, newer = ((part - m) / s for part in state[-2:])
        state.append(m + s * (model.weight.item() * np.roll(newer, 1, -1) * a + np.tanh(older - b)))
        np.testing.assert_allclose(predicted[:, step], state[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_they_reach_the_model_in_training(way: dict[str, Any]) -> None:
    model = Noted()
    fit(model, rods(), epochs=1, batch_size=4, device="cpu", progress=False, **way)
    inputs, _ = normalisers(rods(), TrainSpec(**way))
    assert isinstance(inputs, ChannelNormaliser)
    every = inputs.first(2).encode(torch.from_numpy(heat()[1]))
    rows = torch.cat([given_[:, :2] for given_ in model.seen[1:]])  # the first is a look at raw fields
    apart = (rows[:, None] - every[None]).flatten(2).abs().amax(2)  # from each of the samples
    assert float(apart.amin(1).max()) < 1e-5
    assert len(apart.argmin(1).unique()) == 14  # of training and validation


def test_statistics_may_be_left_out() -> None:
    plain = TrainSpec(normalise_inputs=False, normalise_targets=False)  # pyright: ignore[reportCallIssue]
    inputs, targets = normalisers(rods(), plain)
    assert torch.equal(inputs.mean, torch.zeros(4))
    assert torch.equal(inputs.std, torch.ones(4))
    assert torch.equal(targets.std, torch.ones(1))


def test_the_data_say_what_they_are() -> None:
    frames, fixed = heat()
    data = rods(start=3, horizon=2)
    assert data.rollout == Rollout(2, 2, 1, 2)
    assert (data.in_channels, data.out_channels) == (4, 1)
    assert np.array_equal(data.train.x, np.concatenate((fixed[:10], frames[:10, :2]), 1))
    assert np.array_equal(data.valid.x, np.concatenate((fixed[10:14], frames[10:14, 1:3]), 1))
    assert np.array_equal(data.test.x, np.concatenate((fixed[14:], frames[14:, 1:3]), 1))
    assert np.array_equal(data.test.y, frames[14:, 3:5])
    shuffled = from_trajectories(frames, torch.from_numpy(fixed).double(), split=(10, 4, 2), seed=3)
    for split in (shuffled.train, shuffled.valid, shuffled.test):
        for row in split.x.numpy():
            sample = int(np.flatnonzero((frames[:, 0] == row[2]).all(1))[0])
            assert np.array_equal(row[:2], fixed[sample])


def test_a_model_without_them_cannot_do_well() -> None:
    frames, fixed = heat(samples=60, times=8, seed=1)
    settings: dict[str, Any] = {"periodic": True, "split": (40, 10, 10)}
    errors = []
    for data in (from_trajectories(frames, fixed, **settings), from_trajectories(frames, **settings)):
        torch.manual_seed(0)
        model = FNO(data.in_channels, 1, (6,), width=16, depth=2, residual=True)
        trained = fit(model, data, epochs=40, batch_size=8, lr=1e-2, device="cpu", progress=False)
        errors.append(hofno.evaluate(trained, data.test)["mse_standardised"])
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize("way", WAYS)
def test_training_from_disk_gives_the_same_bits(
    way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, fixed = heat()
    for name, values in (("frames", frames), ("fixed", fixed)):
        np.save(tmp_path / f"{name}.npy", values)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("frames", "fixed")]
    resident = run(rods(), **way)
    monkeypatch.setattr("hofno.train.feed.fits", lambda *_: False)
    for given_ in (mapped, (frames, mapped[1]), (mapped[0], fixed)):
        data = rods(*given_)
        assert isinstance(data.train.parts.x, ondisk.JoinedArray)
        assert data.train.on_disk
        assert torch.equal(data.test.x, rods().test.x)
        streamed = run(data, **way)
        for name, content in resident.surrogate.files().items():
            assert name == "model.json" or content == streamed.surrogate.files()[name], name


def test_channels_of_joined_arrays() -> None:
    parts = [torch.randn(5, c, 3, generator=torch.Generator().manual_seed(c)) for c in (2, 1, 3)]
    whole, rows = torch.cat(parts, 1), torch.tensor([4, 1, 1])
    values = ondisk.JoinedArray(parts).take(rows)
    for start in range(6):
        for stop in range(start + 1, 7):
            assert torch.equal(ondisk.channels_of(values, start, stop)[:], whole[rows, start:stop])


@pytest.mark.parametrize("way", WAYS)
def test_resume_is_exact(way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = run(rods(), **way)
    stop_after(monkeypatch, 4)
    with pytest.raises(Interrupted):
        run(rods(), out=tmp_path, **way)
    monkeypatch.undo()
    other = heat()[1]
    other[3, 1, 2] += 1
    with pytest.raises(DataError, match=r"started with other data: train\.x was"):
        run(rods(fixed=other), out=tmp_path, resume=True, **way)
    resumed = run(rods(), out=tmp_path, resume=True, **way)
    assert resumed.surrogate.files()["model.safetensors"] == unbroken.surrogate.files()["model.safetensors"]


@pytest.mark.parametrize("way", WAYS)
def test_symmetries_move_them_too(way: dict[str, Any]) -> None:
    """The ring backwards: the second fixed field changes its sign, as the component of a vector along it."""
    data = rods(symmetry=mirror(0, axes=1, inputs=Channels(signs=(1, -1))))
    trained = run(data, augment=True, symmetric=True, **way)
    x, flipped = data.test.x, data.test.x.flip(-1)
    flipped[:, 1] = -flipped[:, 1]
    here, there = (trained.predict(part, steps=4) for part in (x, flipped))
    torch.testing.assert_close(there.flip(-1), here, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(trained.predict(x.flip(-1), steps=4).flip(-1), here, rtol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_augmented_samples_are_moved_as_one(way: dict[str, Any]) -> None:
    model = Noted()
    data = rods(symmetry=mirror(0, axes=1, inputs=Channels(signs=(1, -1), offsets=(0.0, 1.0))))
    fit(model, data, epochs=1, batch_size=4, augment=True, device="cpu", progress=False, **way)
    inputs, _ = normalisers(data, TrainSpec())  # pyright: ignore[reportCallIssue]
    seen = inputs.decode(torch.cat(model.seen[1:]))  # the first is a look at raw fields
    first, fixed = data.train.x[:, 3], data.train.x[:, :2]
    image = torch.stack((fixed[:, 0].flip(-1), 1 - fixed[:, 1].flip(-1)), 1)
    counts = [0, 0]
    for row in seen:
        for turned, (frame, kept) in enumerate(((first, fixed), (first.flip(-1), image))):
            same = (frame - row[3]).abs().amax(1) < 1e-4  # windows that begin with the first frame
            if bool(same.any()):
                counts[turned] += 1
                torch.testing.assert_close(row[:2], kept[same][0], rtol=1e-4, atol=1e-4)
    assert min(counts) > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_sign_of_all_is_taken_back_where_inputs_say_so(way: dict[str, Any]) -> None:
    """Heat is linear: frames may change their sign, and the coefficient stays."""
    kept = Motion(sign=-1, inputs=Channels(signs=(-1, -1)))
    data = rods(symmetry=Symmetry(motions=(Motion(), kept)))
    trained, x = run(data, augment=True, symmetric=True, **way), data.test.x
    here, there = (trained.predict(sign * x[:, 2:], fixed=x[:, :2], steps=4) for sign in (1, -1))
    torch.testing.assert_close(there, -here, rtol=1e-4, atol=1e-4)


def test_coarser_grids_too() -> None:
    data = rods()
    trained = run(data, coarser=(2,))
    x = data.test.x[..., ::2]
    assert trained.predict(x[:, 2:], fixed=x[:, :2], steps=3).shape == (2, 3, POINTS // 2)


@pytest.fixture(scope="module")
def trained() -> Run:
    return run(rods(), epochs=2)


def test_saved_and_loaded(trained: Run, tmp_path: Path) -> None:
    frames, fixed = heat(samples=3, seed=5)
    trained.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.rollout == Rollout(2, 3, 1, 2)
    expected = trained.predict(frames[:, :2], fixed=fixed, steps=7)
    assert expected.shape == (3, 7, POINTS)
    np.testing.assert_array_equal(again.predict(frames[:, :2], fixed=fixed, steps=7), expected)
    whole = np.concatenate((fixed, frames[:, :2]), 1)
    np.testing.assert_array_equal(again.predict(whole, steps=7), expected)
    np.testing.assert_allclose(again.predict(whole, steps=7, batch_size=2), expected, rtol=1e-5)
    np.testing.assert_allclose(again.predict(frames[1, :2], fixed=fixed[1], steps=7), expected[1], rtol=1e-5)
    shared = again.predict(frames[:, :2], fixed=fixed[0], steps=7)
    np.testing.assert_allclose(shared[0], expected[0], rtol=1e-5)
    assert not np.allclose(shared[1], expected[1])
    told = again.strangeness(frames[:, :2], fixed=fixed)
    np.testing.assert_allclose(told, trained.strangeness(whole))
    assert (again.strangeness(frames[:, :2], fixed=100 * fixed) > 3 * told).all()


def test_a_model_without_them_is_saved_as_before(tmp_path: Path) -> None:
    data = from_trajectories(heat()[0], history=2, split=(10, 4, 2))
    surrogate = run(data, epochs=1).surrogate
    description = json.loads(surrogate.files()["model.json"])
    assert description["rollout"] == {"history": 2, "horizon": 4, "fields": 1}
    surrogate.save(tmp_path / "old")
    assert load(tmp_path / "old").rollout == Rollout(2, 4)
    assert load(tmp_path / "old").predict(data.test.x).equal(surrogate.predict(data.test.x))


def test_several_fields_and_fixed_ones() -> None:
    frames, fixed = heat()
    data = rods(np.stack((frames, frames**2), 2), fields=True)
    assert (data.in_channels, data.out_channels) == (6, 2)
    stepper = run(data)
    several = np.stack((frames, frames**2), 2)[:, :2]
    found = stepper.predict(several, fixed=fixed, steps=3)
    assert found.shape == (16, 3, 2, POINTS)
    flat = stepper.predict(np.concatenate((fixed, several.reshape(16, 4, POINTS)), 1), steps=3)
    np.testing.assert_array_equal(found.reshape(16, 6, POINTS), flat)


def test_errors(trained: Run) -> None:
    frames, fixed = heat(samples=5, seed=6)
    data, surrogate = rods(), trained.surrogate
    x, y = frames[:, :2], frames[:, 2:5]
    expected = hofno.evaluate(trained, hofno.Split(np.concatenate((fixed, x), 1), y))
    assert hofno.evaluate(trained, (x, y, fixed)) == expected
    assert hofno.evaluate(trained, (np.concatenate((fixed, x), 1), y)) == expected
    found = score_rollout(surrogate, data.test, data.later)
    assert found.power.shape == (2, 6)
    taught = one_step(surrogate, data.test.x, data.test.y)
    assert data.trajectories is not None
    for t in range(3):
        before = data.trajectories[14:, t : t + 2]
        assert torch.equal(taught[:, t : t + 1], surrogate.predict(before, fixed=data.test.x[:, :2], steps=1))
    assert found.metrics()["rel_l2_low"] > 0


def test_residual_adds_the_last_frame_and_no_fixed_field() -> None:
    data = rods()
    model = FNO(data.in_channels, 1, (3,), width=4, depth=1, residual=True)
    nn.init.zeros_(model.project.weight)  # pyright: ignore[reportArgumentType]
    nn.init.zeros_(model.project.bias)  # pyright: ignore[reportArgumentType]
    stays = Surrogate.around(model, data)
    assert torch.equal(stays.predict(data.test.x, steps=3), data.test.x[:, -1:].expand(-1, 3, -1))


BAD = heat()[1].copy()
BAD[2, 0, 1] = np.nan
TURNED = Symmetry(motions=(Motion(), Motion(sign=-1)))


@pytest.mark.parametrize(
    ("fixed", "settings", "message"),
    [
        (heat()[1][:15], {}, r"fixed must be \(16, channels, 16\), .* got shape \(15, 2, 16\)"),
        (heat()[1][:, 0], {}, r"a single one needs its axis: fixed\[:, None\]"),
        (heat()[1][..., :8], {}, r"got shape \(16, 2, 8\); give such fields for every trajectory"),
        (heat()[1][:, :0], {}, r"got shape \(16, 0, 16\)"),
        (heat()[1][..., None], {}, r"got shape \(16, 2, 16, 1\)"),
        (BAD, {}, "fixed holds 1 values that are NaN or infinite, .* first in sample 2"),
        ("fixed.npy", {}, "fixed is an array or a tensor"),
        (None, {"symmetry": TURNED}, "a motion with sign=-1 turns fixed fields too"),
        (None, {"symmetry": mirror(0, axes=1, inputs=Channels(signs=(1, -1, 1)))}, "3 signs of inputs .* have 2"),
    ],
)
def test_fields_that_do_not_fit(fixed: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        rods(fixed=fixed, **settings)
    assert "\n" not in str(caught.value)


def test_rounding_is_told() -> None:
    with pytest.warns(UserWarning, match="channel 1 of fixed has mean"):
        rods(fixed=heat()[1].astype(np.float64) * np.array([1.0, 1e-3])[:, None] + np.array([0.0, 1e3])[:, None])


def test_one_fixed_field_is_told_as_one() -> None:
    with pytest.raises(ShapeError, match=r"the first is a fixed field: give fixed=\.\., or an x that holds it$"):
        given_fields(np.ones((3, 1, 8)), None, None, None, Grid(shape=(8,)), 2, Rollout(1, 2, 1, 1))


def test_what_predict_is_not_given(trained: Run) -> None:
    frames, fixed = heat(samples=3)
    x = frames[:, :2]
    with pytest.raises(ShapeError, match=r"the first 2 are fixed fields: give fixed=\.\., or an x that holds them"):
        trained.predict(x)
    with pytest.raises(ShapeError, match=r"expected frames \(n, 2, \*grid\) and fixed \(n, 2, \*grid\)"):
        trained.predict(x, fixed=fixed[:, :1])
    with pytest.raises(ShapeError, match=r"expected frames \(n, 2, \*grid\)"):
        trained.predict(np.concatenate((fixed, x), 1), fixed=fixed)
    with pytest.raises(ShapeError, match=r"got \(3, 5, .*; it takes the last frames: give x\[:, -2:\]"):
        trained.predict(frames[:, :5], fixed=fixed)
    with pytest.raises(ShapeError, match=r"fixed must be \(c, \*grid\) or \(n, c, \*grid\) on the grid of x"):
        trained.predict(x, fixed=fixed[:2])
    with pytest.raises(DataError, match="fixed holds"):
        trained.predict(x, fixed=np.full_like(fixed, np.inf))
    with pytest.raises(ShapeError, match=r"2 fixed fields come before the frames: give \(x, y, fixed\)"):
        hofno.evaluate(trained, (x, frames[:, 2:5]))
    without = run(from_trajectories(frames, split=(1, 1, 1)), epochs=1)
    with pytest.raises(SpecError, match="trained without fixed fields; leave fixed out"):
        without.predict(frames[:, :1], fixed=fixed)


def test_a_model_of_ones_own_loop() -> None:
    frames, fixed = heat()
    wrapped = Surrogate.around(Noted(), rods())
    assert wrapped.grid == Grid(shape=(POINTS,), periodic=True)
    assert wrapped.predict(frames[:, :2], fixed=fixed).shape == (16, 3, POINTS)


@pytest.mark.parametrize("task", [TeacherForced, SingleWindows, FreeRunning])
def test_noise_is_for_frames_alone(task: type[TeacherForced | SingleWindows | FreeRunning]) -> None:
    frames, fixed = (torch.from_numpy(part) for part in heat(samples=3))
    made, model, exact = task(frames, Rollout(2, 4, fixed=2), fixed=fixed), Noted(), Noted()
    for asked, forward in ((model, noisy(model, 0.1, made.fixed)), (exact, exact)):
        torch.manual_seed(0)
        made.predict(forward, torch.tensor([2, 0]))
        assert len(asked.seen) > 0
    (given, expected) = model.seen[0], exact.seen[0]
    assert torch.equal(given[:, :2], expected[:, :2])
    assert float((given - expected)[:, 2:].std()) == pytest.approx(0.1, rel=0.3)


def test_training_with_noise_gives_fixed_fields_as_they_are() -> None:
    same, model = np.repeat(heat()[1][:1], 16, 0), Noted()
    trained = fit(model, rods(fixed=same), noise=0.5, epochs=1, batch_size=4, device="cpu", progress=False)
    inputs = trained.surrogate.inputs
    assert isinstance(inputs, ChannelNormaliser)
    known = inputs.first(2).encode(torch.from_numpy(same[:1]))
    _, *encoded = model.seen  # the first look is at raw fields
    assert all(torch.equal(x[:, :2], known.expand(len(x), -1, -1)) for x in encoded)


def test_strange_fixed_fields_are_noticed() -> None:
    data = rods()
    trained, x = run(data), data.test.x
    usual, strange = trained.strangeness(x), trained.strangeness(x[:, 2:], fixed=20 * x[:, :2])
    assert float(usual.max()) < 2
    assert float(strange.min()) > 5
