"""Every setting of `TrainSpec` changes what training does, in the way its description says."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno import HOFNO, Dataset, Run, evaluate, fit, from_arrays
from hofno.errors import DivergedError, ShapeError, SpecError
from hofno.spec import TrainSpec
from hofno.train.loop import epoch_order
from hofno.train.precision import autocast, precision
from hofno.train.step import Step

Trained = Callable[..., Run]
WeightsOf = Callable[[Run], Tensor]

CHANGES: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 5,
    "loss": "mse",
    "optimiser": "muon",
    "lr": 1e-2,
    "weight_decay": 0.5,
    "schedule": "constant",
    "warmup": 0.5,
    "final_lr": 0.5,
    "clip": 1e-3,
    "ema": 0.5,
    "precision": "bf16",
    "normalise_inputs": False,
    "normalise_targets": False,
    "normaliser": "pixel",
    "coarser": (2,),
    "coarse_first": 0.5,
    "noise": 0.1,
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_setting_changes_the_weights(trained: Trained, weights_of: WeightsOf, key: str) -> None:
    assert TrainSpec.model_fields[key].default != CHANGES[key] or key in ("epochs", "batch_size")
    assert not torch.equal(weights_of(trained()), weights_of(trained(**{key: CHANGES[key]})))


def test_every_setting_is_covered() -> None:
    elsewhere = {"muon_lr", "compile", "cuda_graph", "validate_every", "checkpoint_every", "select"}
    elsewhere |= {"finish"}  # means nothing in fp32, see below
    elsewhere |= {"soap_lr"}  # tests/train/test_optim.py
    elsewhere |= {"coarse_by"}  # tests/train/test_grids.py
    elsewhere |= {"augment"}  # tests/train/test_augment.py
    elsewhere |= {"symmetric"}  # of predictions: tests/data/test_views.py
    elsewhere |= {"start"}  # tests/train/test_start.py
    elsewhere |= {"forcing", "batch_of"}  # of trajectories: tests/train/test_train_rollout.py
    assert set(CHANGES) | elsewhere == set(TrainSpec.model_fields)


def test_muon_lr_counts_only_with_muon(trained: Trained, weights_of: WeightsOf) -> None:
    muon = weights_of(trained(optimiser="muon"))
    assert not torch.equal(muon, weights_of(trained(optimiser="muon", muon_lr=0.1)))
    assert torch.equal(weights_of(trained()), weights_of(trained(muon_lr=0.1)))


@pytest.mark.parametrize("name", ["mse", "mae", "rmse", "rel_l2"])
def test_the_loss_is_what_it_is_called(data: Dataset, name: str) -> None:
    """The loss of the first step, from its definition in float64."""
    torch.manual_seed(0)
    model = HOFNO(2, 1, (4, 4), width=8, depth=1)
    with torch.no_grad():
        x, y = data.train.x, data.train.y
        mean, std = y.double().mean(), y.double().std()
        inputs = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
        error = model(inputs).double() - (y.double() - mean) / std
        physical = (error * std).flatten(1).norm(dim=1) / y.double().flatten(1).norm(dim=1)
    root = error.square().mean((1, 2, 3)).sqrt().mean()
    every = {"mse": error.square().mean(), "mae": error.abs().mean(), "rmse": root, "rel_l2": physical.mean()}
    run = fit(model, data, epochs=1, batch_size=20, loss=name, device="cpu", progress=False)
    assert run.history[0]["train_loss"] == pytest.approx(float(every[name]), rel=1e-4)


def test_the_last_small_batch_is_used(trained: Trained) -> None:
    assert trained(epochs=1, batch_size=8).history[-1]["step"] == 3
    assert trained(epochs=1, batch_size=20).history[-1]["step"] == 1


def test_training_learns(data: Dataset) -> None:
    torch.manual_seed(0)
    model = HOFNO(2, 1, (6, 6), width=12, depth=1, order=2, coordinates="none")
    run = fit(model, data, epochs=80, batch_size=5, lr=1e-2, device="cpu", progress=False)
    first, last = run.history[0]["train_loss"], run.history[-1]["train_loss"]
    assert last < 0.5 * first
    assert evaluate(run, data.train)["rel_l2"] < 0.6
    assert run.history[-1]["valid_rel_l2"] < run.history[0]["valid_rel_l2"]


def test_the_seed_makes_the_bits(trained: Trained, weights_of: WeightsOf) -> None:
    run = trained()
    assert run.surrogate.files()["model.safetensors"] == trained().surrogate.files()["model.safetensors"]
    assert not torch.equal(weights_of(run), weights_of(trained(seed=1)))
    assert not torch.equal(weights_of(run), weights_of(trained(model={"seed": 1})))


def test_training_leaves_the_callers_random_numbers_alone(trained: Trained) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained(model={"drop_path": 0.5})
    assert torch.equal(torch.rand(3), expected)


def test_the_test_split_is_never_touched(data: Dataset, trained: Trained, weights_of: WeightsOf) -> None:
    from dataclasses import replace

    from hofno import Split

    poisoned = replace(data, test=Split(data.test.x * torch.nan, data.test.y * torch.nan))
    torch.manual_seed(0)
    model = HOFNO(2, 1, (4, 4), width=8, depth=1, order=2)
    run = fit(model, poisoned, epochs=2, batch_size=8, device="cpu", progress=False)
    assert torch.equal(weights_of(run), weights_of(trained()))


def test_epoch_order() -> None:
    order = epoch_order(0, 0, 50)
    assert sorted(order.tolist()) == list(range(50))
    assert torch.equal(order, epoch_order(0, 0, 50))
    assert not torch.equal(order, epoch_order(0, 1, 50))
    assert not torch.equal(order, epoch_order(1, 0, 50))


def test_validate_every(trained: Trained) -> None:
    history = trained(epochs=5, validate_every=2).history
    assert [row["epoch"] for row in history if "valid_rel_l2" in row] == [2, 4, 5]


def test_checkpoint_every(trained: Trained, tmp_path: Path) -> None:
    trained(epochs=4, checkpoint_every=3, out=tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000000009", "step-000000012"]


def test_select_best_keeps_the_best_validated_weights(data: Dataset, trained: Trained) -> None:
    settings = {"epochs": 6, "lr": 0.3, "schedule": "constant", "batch_size": 4}
    best, last = trained(select="best", **settings), trained(**settings)
    values = [row["valid_rel_l2"] for row in best.history]
    assert min(values) < values[-1], "the last weights must not be the best ones for this test to mean anything"
    assert evaluate(best, data.valid)["rel_l2"] == pytest.approx(min(values), rel=1e-6)
    assert evaluate(last, data.valid)["rel_l2"] == pytest.approx(values[-1], rel=1e-6)


def test_ema_is_the_average_of_the_weights(trained: Trained, weights_of: WeightsOf, data: Dataset) -> None:
    """Two steps by hand: a <- a + (1 - d) (w - a), starting from the initial weights."""
    settings = {"batch_size": 20, "schedule": "constant", "lr": 1e-2}
    torch.manual_seed(0)
    start = torch.cat([p.detach().flatten() for p in HOFNO(2, 1, (4, 4), width=8, depth=1).parameters()])
    first, second = (weights_of(trained(epochs=epochs, **settings)) for epochs in (1, 2))
    average = start + 0.25 * (first - start)
    average = average + 0.25 * (second - average)
    run = trained(epochs=2, ema=0.75, **settings)
    torch.testing.assert_close(weights_of(run), average)
    assert run.history[-1]["valid_rel_l2"] == pytest.approx(evaluate(run, data.valid)["rel_l2"], rel=1e-6)


def test_clip_bounds_the_gradient(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    run = Step._run

    def watched(self: Step, indices: Tensor) -> None:
        run(self, indices)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norms.append(math.sqrt(sum(float(g.double().square().sum()) for g in gradients)))

    monkeypatch.setattr(Step, "_run", watched)
    trained(epochs=1)
    free = list(norms)
    norms.clear()
    trained(epochs=1, clip=0.01)
    assert max(free) > 0.02
    assert max(norms) <= 0.01 * (1 + 1e-4)


def test_compile_equals_eager(trained: Trained, weights_of: WeightsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is traced and differentiated as in a real run; HOFNO_SLOW=1 lets the C++ compiler have it too."""
    if "HOFNO_SLOW" not in os.environ:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    settings = {"epochs": 1, "batch_size": 10}
    eager = weights_of(trained(**settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = weights_of(trained(compile=True, **settings))
    torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-5)


def test_the_last_epochs_are_in_float32(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, str]] = []
    run = Step._run

    def watched(self: Step, indices: Tensor) -> None:
        forward = self.forward

        def look(x: Tensor) -> Tensor:
            seen.append((torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision()))
            return forward(x)

        self.forward = look
        run(self, indices)
        self.forward = forward

    monkeypatch.setattr(Step, "_run", watched)
    low, full = (True, "high"), (False, "highest")
    for finish, last in ((0.0, 0), (0.01, 1), (0.5, 2), (1.0, 4)):
        seen.clear()
        trained(epochs=4, batch_size=20, precision="bf16", finish=finish)
        assert seen == [low] * (4 - last) + [full] * last


def test_a_run_that_ends_below_float32_says_so(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    for settings, said in (
        ({"precision": "bf16"}, True),
        ({"precision": "bf16", "finish": 0.5}, False),
        ({}, False),
    ):
        trained(progress=True, epochs=1 if said else 2, **settings)
        assert ("used in float32: train.finish" in capsys.readouterr().out) is said


def test_inputs_that_look_the_same_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    """A field that all samples share, and on it one part in a hundred that tells them apart."""
    draw = torch.Generator().manual_seed(0)
    shared, own = torch.randn(1, 2, 8, 8, generator=draw), torch.randn(6, 2, 8, 8, generator=draw)
    for size, settings, said in (
        (0.01, {}, True),
        (0.1, {}, False),
        (0.01, {"normaliser": "pixel"}, False),
        (0.01, {"normalise_inputs": False}, False),
    ):
        data = from_arrays(shared + size * own, own[:, :1], split=(4, 1, 1))
        fit(HOFNO(2, 1, (2, 2), width=4, depth=1), data, epochs=1, batch_size=4, **settings)
        assert ("nearly the same" in capsys.readouterr().out) is said


def test_finish_counts_only_below_float32(trained: Trained, weights_of: WeightsOf) -> None:
    assert torch.equal(weights_of(trained(finish=0.5)), weights_of(trained()))
    low = weights_of(trained(precision="bf16"))
    assert not torch.equal(weights_of(trained(precision="bf16", finish=0.5)), low)
    assert torch.equal(weights_of(trained(precision="bf16", finish=1.0)), weights_of(trained()))


def test_a_cpu_computes_in_float32(trained: Trained, weights_of: WeightsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.train.precision.REDUCED_ON", ("cuda",))
    assert torch.equal(weights_of(trained(precision="mixed")), weights_of(trained()))


def test_validation_is_in_the_precision_of_predictions(trained: Trained, data: Dataset) -> None:
    run = trained(precision="bf16")
    assert run.history[-1]["valid_rel_l2"] == pytest.approx(evaluate(run, data.valid)["rel_l2"], rel=1e-6)


def test_cuda_graph_changes_nothing_on_the_cpu(trained: Trained, weights_of: WeightsOf) -> None:
    settings = {"epochs": 1, "batch_size": 10}
    assert torch.equal(weights_of(trained(cuda_graph=True, **settings)), weights_of(trained(**settings)))


@pytest.mark.parametrize(
    ("policy", "matmul", "transform", "cast"),
    [
        ("fp32", "highest", None, False),
        ("tf32", "high", None, False),
        ("mixed", "high", torch.float32, True),
        ("bf16", "high", torch.bfloat16, True),
    ],
)
def test_precision_policies(model: HOFNO, policy: str, matmul: str, transform: torch.dtype | None, cast: bool) -> None:
    before = torch.get_float32_matmul_precision()
    conv = model.blocks[0].conv
    with precision(policy, model):
        assert torch.get_float32_matmul_precision() == matmul
        assert torch.backends.cudnn.allow_tf32 == (matmul == "high")
        assert conv.transform_dtype == transform
        with autocast(policy, torch.device("cpu")):
            assert torch.is_autocast_enabled("cpu") == cast
    assert torch.get_float32_matmul_precision() == before
    assert torch.backends.cudnn.allow_tf32  # as PyTorch has it
    assert conv.transform_dtype is None
    with suppress(KeyError), precision(policy, model):
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
    assert conv.transform_dtype is None


@pytest.mark.parametrize("policy", ["tf32", "mixed", "bf16"])
def test_lower_precision_trains_nearly_the_same(trained: Trained, policy: str) -> None:
    exact, lower = trained(), trained(precision=policy)
    assert lower.history[-1]["train_loss"] == pytest.approx(exact.history[-1]["train_loss"], rel=0.05)
    assert all(p.dtype == torch.float32 for p in lower.surrogate.model.parameters())


def test_divergence(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"lower train\.lr, or set train\.clip$"):  # in fp32 already
        trained(lr=1e30, out=tmp_path)
    with pytest.raises(DivergedError, match=r"lower train\.lr, or lower train\.clip, or use train\.precision=fp32$"):
        trained(lr=1e30, clip=1.0, precision="bf16")


def test_weights_that_are_not_finite_are_never_saved(trained: Trained, tmp_path: Path) -> None:
    """The last step of an epoch can spoil the weights after its loss was still finite."""
    with pytest.raises(DivergedError, match="the weights are not finite in epoch 1 at step 1"):
        trained(lr=1e38, weight_decay=1e38, epochs=1, batch_size=20, out=tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "model.safetensors").exists()


def test_a_model_that_does_not_fit_the_data(data: Dataset) -> None:
    with pytest.raises(ShapeError, match="expected 3 input channels"):
        fit(HOFNO(3, 1, (4, 4), width=8), data, progress=False, device="cpu")
    with pytest.raises(ShapeError, match="out_channels=1"):
        fit(HOFNO(2, 2, (4, 4), width=8), data, progress=False, device="cpu")
    with pytest.raises(ShapeError, match=r"modes\[0\]=9 is more"):
        fit(HOFNO(2, 1, (9, 4), width=8), data, progress=False, device="cpu")


def test_fit_refuses_settings_it_does_not_know(data: Dataset, model: HOFNO) -> None:
    with pytest.raises(SpecError, match="did you mean 'epochs'"):
        fit(model, data, epoch=3)
    with pytest.raises(SpecError, match=r"epochs: .* got 0"):
        fit(model, data, epochs=0)
    with pytest.raises(SpecError, match="give out="):
        fit(model, data, resume=True)
