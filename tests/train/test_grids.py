"""Training on coarser grids too: what a step learns from, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hofno import HOFNO, Dataset, evaluate, fit, fits, from_arrays, from_trajectories
from hofno import spec as specs
from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.geometry import Grid, Mesh, Points, Sphere
from hofno.spec import TrainSpec
from hofno.train.grids import check_coarser, every
from hofno.train.losses import rel_l2
from hofno.train.phases import Phase, coarse_epochs, phase_of, phases_of


class Gain(nn.Module):
    """One number for each point, which says on how many points it was used."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape[2:]))
        return self.gain * x


def pairs(points: tuple[int, ...], periodic: bool = True) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(12, 1, *points, generator=generator) for _ in range(2))
    return from_arrays(x, y, split=(8, 2, 2), seed=None, periodic=periodic)


def test_every_step_learns_from_each_grid() -> None:
    model = Gain()
    fit(model, pairs((12, 18)), epochs=1, batch_size=8, coarser=(2, 3), progress=False)
    checked = [(12, 18), (6, 9), (4, 6)]
    assert model.seen[:6] == [*checked, *checked]  # before training, and in its only step
    assert model.seen[6] == (12, 18)  # validation


def test_the_loss_is_the_mean_over_the_grids() -> None:
    data = pairs((8, 12))
    run = fit(Gain(), data, epochs=1, batch_size=8, coarser=(2, 4), progress=False)
    inputs, targets = run.surrogate.inputs, run.surrogate.targets
    x, y = inputs.encode(data.train.x), targets.encode(data.train.y)
    scale = targets.shaped(2)
    expected = [rel_l2(every(x, n), every(y, n), *scale).item() for n in (1, 2, 4)]
    assert run.history[0]["train_loss"] == pytest.approx(sum(expected) / 3, rel=1e-5)


def test_the_gradient_is_the_mean_over_the_grids() -> None:
    """AdamW does not see a factor, clipping does."""
    data, model = pairs((8, 12)), Gain()
    run = fit(model, data, epochs=1, batch_size=8, lr=1e-9, coarser=(2, 4), progress=False)
    x, y = run.surrogate.inputs.encode(data.train.x), run.surrogate.targets.encode(data.train.y)
    gain, scale = torch.ones(1, requires_grad=True), run.surrogate.targets.shaped(2)
    sum(rel_l2(gain * every(x, n), every(y, n), *scale) / 3 for n in (1, 2, 4)).backward()
    torch.testing.assert_close(model.gain.grad, gain.grad)


@pytest.mark.parametrize(("by", "coarse"), [(2, (6, 9)), (3, (4, 6)), ((1, 6), (12, 3))])
def test_most_epochs_can_be_on_the_coarser_grid(by: int | tuple[int, ...], coarse: tuple[int, ...]) -> None:
    model, whole = Gain(), (12, 18)
    fit(model, pairs(whole), epochs=5, batch_size=8, coarse_first=0.6, coarse_by=by, progress=False)
    assert model.seen[:2] == [whole, coarse]  # before training
    learnt, validated = model.seen[2:12:2], model.seen[3:12:2]
    assert learnt == [coarse] * 3 + [whole] * 2
    assert validated == [whole] * 5


@pytest.mark.parametrize("normaliser", ["channel", "pixel", "column"])
def test_the_loss_on_the_coarser_grid_is_of_its_points(normaliser: str) -> None:
    """In physical units too, by the statistics of the places that are left."""
    data = pairs((8, 12))
    run = fit(
        Gain(), data, epochs=2, batch_size=8, coarse_first=0.5, coarse_by=4, normaliser=normaliser, progress=False
    )
    inputs, targets = run.surrogate.inputs, run.surrogate.targets
    x, y = inputs.encode(data.train.x), targets.encode(data.train.y)
    p, y = (targets.decode(part)[..., ::4, ::4].flatten(1) for part in (x, y))
    assert run.history[0]["train_loss"] == pytest.approx(((p - y).norm(dim=1) / y.norm(dim=1)).mean().item(), rel=1e-5)


def test_phases_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.train.precision.REDUCED_ON", ("cpu",))
    cpu, settings = torch.device("cpu"), {"epochs": 10, "coarse_first": 0.8, "coarser": (3,), "precision": "mixed"}
    spec = TrainSpec.model_validate({**settings, "finish": 0.1})
    assert phases_of(spec, cpu) == [Phase("mixed", (2,)), Phase("mixed", (1, 3)), Phase("fp32", (1, 3))]
    assert [phase_of(spec, epoch, cpu).strides for epoch in (7, 8)] == [(2,), (1, 3)]
    assert phases_of(TrainSpec.model_validate({"epochs": 1, "coarse_first": 0.9}), cpu) == [Phase("fp32")]
    for epochs, share, coarse in ((3, 0.9, 2), (10, 0.04, 1), (100, 0.29, 29), (5, 0.0, 0)):
        assert coarse_epochs(TrainSpec.model_validate({"epochs": epochs, "coarse_first": share})) == coarse


def test_most_epochs_on_the_coarser_grid_teach_nearly_as_much() -> None:
    """Nearly what all epochs on the whole grid teach, and far more than as many of these as there are here."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 64, generator=generator)
    x = torch.fft.irfft(torch.fft.rfft(x) * (torch.arange(33) < 12), n=64)
    data = from_arrays(x, x.square() - 0.5 * x.roll(1, -1), split=(44, 8, 8), seed=None, periodic=True)

    def error(epochs: int, **settings: Any) -> float:
        torch.manual_seed(0)
        model = HOFNO(1, 1, modes=(15,), width=16, depth=1, order=2)
        run = fit(model, data, epochs=epochs, batch_size=4, lr=5e-3, progress=False, device="cpu", **settings)
        return evaluate(run, data.test)["rel_l2"]

    most = error(30, coarse_first=0.8)
    assert most < 1.35 * error(30)
    assert most < 0.4 * error(6)


@pytest.mark.parametrize("value", [1, [0, 2], "a", 2.5, [[2]], [2, "b"]])
def test_what_is_no_stride_is_told_as_one_thing(value: Any) -> None:
    message = (
        r"coarse_by: (i|I)nput should be a whole number from 2 on, or a list of one for each axis, such as \[2, 1\]"
    )
    with pytest.raises(SpecError, match=message):
        fit(Gain(), pairs((8,)), coarse_by=value)
    with pytest.raises(SpecError, match=message):
        specs.parse({"data": {"problem": "poisson"}, "model": {"name": "fno"}, "train": {"coarse_by": value}})


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 12)])
def test_a_model_that_does_not_keep_the_grid_is_told(shape: tuple[int, ...]) -> None:
    """One value would be broadcast against the coarser targets, and another grid end in a traceback."""

    class Fixed(Gain):
        def forward(self, x: Tensor) -> Tensor:
            whole = self.gain * x
            return whole if x.shape[2:] == (8, 12) else whole.new_ones(len(x), 1, *shape[-2:])

    with pytest.raises(ShapeError, match=r"coarse_by=2 the model gives \(1, .*\) and not \(1, 4, 6\); or leave out"):
        fit(Fixed(), pairs((8, 12)), epochs=2, coarse_first=0.5, progress=False)


@pytest.mark.parametrize("points", [(7,), (9, 13), (5, 9, 13)])
def test_first_and_last_point_of_a_grid_with_ends_stay(points: tuple[int, ...]) -> None:
    field = torch.arange(torch.Size(points).numel(), dtype=torch.float32).view(1, 1, *points)
    stride = 3 if len(points) == 1 else 4
    coarse = every(field, stride)
    assert coarse.shape[2:] == tuple((n - 1) // stride + 1 for n in points)
    assert coarse.flatten()[[0, -1]].tolist() == field.flatten()[[0, -1]].tolist()


def test_a_network_that_learnt_on_them_is_better_there() -> None:
    """Where a point is 1 the target is the mean of its neighbours: another one on every other grid."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(60, 1, 32, generator=generator) > 0.5).float()
    y = x * (x.roll(1, -1) + x.roll(-1, -1)) / 2
    data = from_arrays(x, y, split=(44, 8, 8), seed=None, periodic=True)
    errors = []
    for coarser in ((), (2,)):
        torch.manual_seed(0)
        model = HOFNO(1, 1, modes=(8,), width=16, depth=2, order=2)
        run = fit(model, data, epochs=20, batch_size=11, lr=5e-3, coarser=coarser, progress=False)
        predicted = torch.as_tensor(run.predict(every(data.test.x, 2)))
        target = every(data.test.y, 2)
        errors.append(((predicted - target).norm() / target.norm()).item())
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize("batch_of", ["trajectories", "windows"])
def test_teacher_forced_trajectories_learn_on_them(batch_of: str) -> None:
    frames, model = torch.randn(10, 4, 8, 12, generator=torch.Generator().manual_seed(0)), Gain()
    data = from_trajectories(frames, history=1, split=(6, 2, 2), seed=None, periodic=True)
    fit(model, data, epochs=1, batch_size=18, batch_of=batch_of, coarser=(2,), progress=False)
    assert model.seen[:4] == [(8, 12), (4, 6)] * 2


@pytest.mark.parametrize(
    ("grid", "settings", "message"),
    [
        (Grid(shape=(12, 18)), {"coarser": (5,)}, r"5 does not divide the steps of a grid of 12 x 18 .*of 2, 3, 6$"),
        (Grid(shape=(12, 18), periodic=False), {"coarser": (2,)}, r"\(11, 17\).*; leave it out: this grid has no such"),
        (Mesh(shape=(13, 19)), {"coarser": (4,)}, r"\(12, 18\).*of 2, 3, 6$"),
        (Grid(shape=(8,)), {"coarser": (2, 2)}, "names a grid twice"),
        (Grid(shape=(8,)), {"coarser": (2,), "normaliser": "pixel"}, "know only their own grid.*'channel'"),
        (Grid(shape=(8,)), {"coarser": (2,), "forcing": "free"}, "one grid.*use 'teacher'"),
        (Points(count=4, low=(0.0,), high=(1.0,)), {"coarser": (2,)}, "train.coarser is for grids"),
        (Sphere(shape=(8, 16)), {"coarser": (2,)}, "train.coarser is for grids"),
        (Sphere(shape=(8, 16)), {"coarse_first": 0.5}, "train.coarse_first is for grids"),
        (Grid(shape=(8,)), {"coarse_first": 0.5, "forcing": "free"}, "train.coarse_first use 'teacher'"),
        (Grid(shape=(12, 18)), {"coarse_first": 0.5, "coarse_by": 4}, r"coarse_by=4 does not.*take one of 2, 3, 6$"),
        (Grid(shape=(12, 18)), {"coarse_first": 0.5, "coarse_by": (2, 4)}, r"coarse_by=\[2, 4\] does not divide"),
        (
            Grid(shape=(4, 9)),
            {"coarse_first": 0.5},
            r"coarse_by=2 does .*; give each axis its own, such as \[2, 3\]$",
        ),
        (
            Mesh(shape=(12, 13)),
            {"coarse_first": 0.5},
            r"coarse_by=2 does .*; give each axis its own, such as \[1, 2\]$",
        ),
        (
            Mesh(shape=(12, 12)),
            {"coarse_first": 0.5},
            "coarse_by=2 does not.*; leave it out: this grid has no such",
        ),
        (
            Grid(shape=(8,)),
            {"coarse_first": 0.5, "coarse_by": 8},
            "leaves a single step .* of 8 points; take one of 2",
        ),
        (Mesh(shape=(9, 5)), {"coarser": (4,)}, "coarser=4 leaves a single step .* of 9 x 5 points; take some of 2$"),
        (Grid(shape=(9,)), {"coarse_first": 0.5}, r"coarse_by=2 does not divide.*; take one of 3$"),
        (Grid(shape=(12, 18)), {"coarse_first": 0.5, "coarse_by": (2,)}, r"this grid has 2 axes; .* such as \[2, 2\]$"),
        (Grid(shape=(8,)), {"coarse_first": 0.5, "coarse_by": (1,)}, "not all of them 1; this grid has 1 axis;"),
    ],
)
def test_what_is_refused(grid: Grid | Mesh | Points | Sphere, settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        check_coarser(TrainSpec.model_validate(settings), grid)
    assert "\n" not in str(caught.value)


def test_a_model_that_does_not_fit_the_coarser_grid_fails_before_training() -> None:
    with pytest.raises(HofnoError, match="modes"):
        fit(HOFNO(1, 1, modes=(8,), width=4, depth=1), pairs((16,)), epochs=1, coarser=(2,), progress=False)
    settings: dict[str, Any] = {"epochs": 2, "coarse_first": 0.5, "coarse_by": (2,), "progress": False}
    with pytest.raises(HofnoError, match=r"on the coarser grid of train.coarse_by=\[2\]: modes"):
        fit(HOFNO(1, 1, modes=(8,), width=4, depth=1), pairs((16,)), **settings)


def test_a_run_that_learnt_on_them_is_evaluated_on_any_grid() -> None:
    values = {"data": {"problem": "darcy", "resolution": 43}, "model": {"name": "hofno", "modes": [4, 4], "width": 8}}
    spec = specs.parse({**values, "train": {"coarser": [3]}})
    fits.check(spec)
    with pytest.raises(HofnoError, match=r"on the coarser grid of train.coarser=14: modes\[0\]=4 is more"):
        fits.check(specs.override(spec, {"train.coarser": [3, 14]}))  # before any data are made
    other = specs.override(spec, {"data.resolution": 36})
    with pytest.raises(SpecError, match="coarser=3 does not divide"):
        fits.check(other)
    fits.check(other, learns=False)
    first = specs.override(spec, {"train.coarser": [], "train.coarse_first": 0.5, "train.coarse_by": 3})
    fits.check(first)
    fits.check(specs.override(first, {"data.resolution": 36}), learns=False)
