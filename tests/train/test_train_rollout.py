"""Training on trajectories: every task against an explicit loop, exact resume, and one normalisation."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno import HOFNO, Dataset, Run, evaluate, fit, generate, load
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import ShapeError, SpecError
from hofno.problems.base import Rollout
from hofno.spec import TrainSpec
from hofno.train.loop import Interrupted
from hofno.train.losses import LOSSES
from hofno.train.step import Step
from hofno.train.tasks import FreeRunning, Pairs, SingleWindows, TeacherForced, make_task, normalisers

WAYS: dict[str, dict[str, Any]] = {
    "teacher": {},
    "windows": {"batch_of": "windows"},
    "free": {"forcing": "free"},
}


@pytest.fixture(scope="module")
def flow() -> Dataset:
    small = {"viscosity": 1e-3, "resolution": 8, "solver_resolution": 16, "frames": 8, "step": 0.1}
    return generate("navier_stokes", samples=9, valid=2, test=2, history=2, start=3, horizon=3, device="cpu", **small)


def run(flow: Dataset, **settings: Any) -> Run:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = HOFNO(flow.in_channels, 1, (3, 3), width=6, depth=1, order=2)
    chosen = {"epochs": 2, "batch_size": 3, "device": "cpu", "progress": False, **settings}
    return fit(model, flow, **chosen)


def weights(run: Run) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.surrogate.model.parameters()])


def curved(x: Tensor) -> Tensor:
    """A model of three frames that mixes points and frames."""
    return (x[:, :1] * x[:, 1:2]).roll(1, -1) + 0.5 * x[:, 2:].roll(1, -2)


THREE = Rollout(history=3, horizon=6)


class TestTasks:
    frames = torch.randn(5, 9, 4, 6, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4])

    def test_teacher_forced(self) -> None:
        task = TeacherForced(self.frames, THREE)
        assert task.items == 5
        found, target, _ = task.predict(curved, self.order)
        expected, wanted = [], []
        for sample in self.order.tolist():
            for t in range(3, 9):
                expected.append(curved(self.frames[sample : sample + 1, t - 3 : t]))
                wanted.append(self.frames[sample, t][None, None])
        assert torch.equal(found, torch.cat(expected))
        assert torch.equal(target, torch.cat(wanted))

    def test_single_windows_are_all_windows_once(self) -> None:
        task = SingleWindows(self.frames, THREE)
        assert task.items == 5 * 6
        every = TeacherForced(self.frames, THREE).predict(curved, torch.arange(5))
        found = task.predict(curved, torch.arange(30))
        assert torch.equal(found.prediction, every.prediction)
        assert torch.equal(found.target, every.target)
        some = task.predict(curved, torch.tensor([29, 7]))
        assert torch.equal(some[0], every[0][[29, 7]])
        assert torch.equal(some[1], every[1][[29, 7]])

    def test_free_running(self) -> None:
        found, target, _ = FreeRunning(self.frames, THREE).predict(curved, self.order)
        for row, sample in enumerate(self.order.tolist()):
            known = [self.frames[sample, t] for t in range(3)]
            for t in range(3, 9):
                known.append(curved(torch.stack(known[-3:])[None])[0, 0])
                assert torch.equal(found[6 * row + t - 3, 0], known[-1])
                assert torch.equal(target[6 * row + t - 3, 0], self.frames[sample, t])

    def test_free_running_has_the_gradient_of_the_whole_rollout(self) -> None:
        frames = self.frames[:2, :6].double()
        scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        task = FreeRunning(frames, THREE)

        def loss(s: Tensor) -> Tensor:
            found, target, _ = task.predict(lambda x: s * curved(x), torch.arange(2))
            return (found - target).square().mean()

        (slope,) = torch.autograd.grad(loss(scale), scale)
        with torch.no_grad():
            ahead, behind = loss(scale + 1e-2), loss(scale - 1e-2)
        assert float(slope) == pytest.approx(float(ahead - behind) / 2e-2, rel=1e-2)

    def test_the_loss_is_the_published_sum_over_steps_up_to_a_factor(self) -> None:
        """Relative errors of all steps, summed over the steps and averaged over the trajectories, over their number."""
        found, target, _ = TeacherForced(self.frames, THREE).predict(curved, self.order)
        mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
        published = 0.0
        for t in range(6):
            error = (found - target)[t::6].flatten(1).norm(dim=1) / target[t::6].flatten(1).norm(dim=1)
            published += float(error.mean())
        assert float(LOSSES["rel_l2"](found, target, mean, std)) == pytest.approx(published / 6, rel=1e-6)

    def test_each_way_has_its_task(self, flow: Dataset) -> None:
        one = ChannelNormaliser.identity(1)
        kinds = {"teacher": TeacherForced, "windows": SingleWindows, "free": FreeRunning}
        for way, kind in kinds.items():
            task = make_task(flow, TrainSpec(**WAYS[way]), one, one, torch.device("cpu"))  # pyright: ignore
            assert isinstance(task, kind)
        whole = torch.cat((flow.train.x, flow.train.y), 1)
        teacher = make_task(flow, TrainSpec(), one, one, torch.device("cpu"))  # pyright: ignore
        assert isinstance(teacher, TeacherForced)
        assert torch.equal(teacher.frames, whole)
        assert teacher.frames.untyped_storage().data_ptr() != flow.train.x.untyped_storage().data_ptr()


def test_one_mean_and_one_deviation_for_all_frames(flow: Dataset) -> None:
    inputs, targets = normalisers(flow, TrainSpec())  # pyright: ignore
    whole = torch.cat((flow.train.x, flow.train.y), 1).double()
    assert targets.mean.tolist() == pytest.approx([float(whole.mean())], abs=1e-7)
    assert targets.std.tolist() == pytest.approx([float(whole.std())], rel=1e-6)
    assert inputs.mean.tolist() == 2 * targets.mean.tolist()
    assert inputs.std.tolist() == 2 * targets.std.tolist()
    before = flow.train.x.clone()
    run(flow, epochs=1)
    assert torch.equal(flow.train.x, before), "training leaves the data alone"


def test_every_way_trains_differently(flow: Dataset) -> None:
    found = [weights(run(flow, **settings)) for settings in WAYS.values()]
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns(flow: Dataset, way: str) -> None:
    trained = run(flow, epochs=40, lr=1e-2, **WAYS[way])
    assert trained.history[-1]["train_loss"] < 0.35 * trained.history[0]["train_loss"]
    assert trained.history[-1]["valid_rel_l2"] == pytest.approx(evaluate(trained, flow.valid)["rel_l2"])


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_resume_is_exact(flow: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, steps: int) -> None:
    unbroken = run(flow, **WAYS[way])
    step, count = Step._run, [0]

    def counted(self: Step, indices: Tensor) -> None:
        step(self, indices)
        count[0] += 1
        if count[0] == steps:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Step, "_run", counted)
    with pytest.raises(Interrupted):
        run(flow, out=tmp_path, **WAYS[way])
    monkeypatch.undo()
    resumed = run(flow, out=tmp_path, resume=True, **WAYS[way])
    assert resumed.surrogate.files()["model.safetensors"] == unbroken.surrogate.files()["model.safetensors"]
    assert torch.equal(load(tmp_path).predict(flow.test.x), unbroken.predict(flow.test.x))


def test_epochs_count_windows(flow: Dataset) -> None:
    assert run(flow, epochs=1).history[-1]["step"] == 3  # 7 trajectories in batches of 3
    assert run(flow, epochs=1, batch_of="windows").history[-1]["step"] == 10  # 28 windows


def test_without_validation_samples(flow: Dataset) -> None:
    data = replace(flow, valid=flow.valid[:0])
    assert "valid_rel_l2" not in run(data).history[-1]
    with pytest.raises(SpecError, match="needs validation samples"):
        run(data, select="best")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"forcing": "free", "batch_of": "windows"}, "use train.batch_of='trajectories'"),
        ({"normalise_inputs": False}, "set train.normalise_inputs and train.normalise_targets alike"),
        ({"forcing": "strict"}, "forcing"),
    ],
)
def test_settings_that_contradict_each_other(flow: Dataset, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        run(flow, **settings)


@pytest.mark.parametrize("way", [{"forcing": "free"}, {"batch_of": "windows"}])
def test_pairs_have_no_windows(data: Dataset, trained: Callable[..., Run], way: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="is for trajectories, and these data are pairs"):
        trained(**way)
    assert isinstance(
        make_task(data, TrainSpec(), *normalisers(data, TrainSpec()), torch.device("cpu")),  # pyright: ignore
        Pairs,
    )


def test_a_model_of_the_wrong_width(flow: Dataset) -> None:
    with pytest.raises(ShapeError, match="set out_channels=1"):
        fit(HOFNO(2, 3, (3, 3), width=4, depth=1), flow, epochs=1, progress=False)
    with pytest.raises(ShapeError, match="expected 1 input channels"):
        fit(HOFNO(1, 1, (3, 3), width=4, depth=1), flow, epochs=1, progress=False)


def test_not_normalised(flow: Dataset) -> None:
    made = run(flow, normalise_inputs=False, normalise_targets=False)
    assert made.surrogate.targets.std.tolist() == [1.0]
    assert not torch.equal(weights(made), weights(run(flow)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", WAYS)
def test_captured_steps_are_the_eager_ones(flow: Dataset, way: str) -> None:
    found = [weights(run(flow, device="cuda", cuda_graph=graph, **WAYS[way])) for graph in (False, True)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
