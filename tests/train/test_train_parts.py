"""Schedules, Muon, losses and trackers."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno import HOFNO, Run
from hofno.errors import SpecError
from hofno.spec import TrainSpec
from hofno.train.losses import LOSSES
from hofno.train.optim import Optimisers, orthogonalise
from hofno.train.schedule import rate
from hofno.train.track import make_trackers

Trained = Callable[..., Run]
CPU = torch.device("cpu")


def spec(**settings: Any) -> TrainSpec:
    return TrainSpec(**settings)


class TestSchedule:
    def test_constant(self) -> None:
        assert [rate("constant", step, 10, 0.0, 0.0) for step in (0, 5, 9)] == [1.0, 1.0, 1.0]

    def test_cosine(self) -> None:
        assert rate("cosine", 0, 10, 0.0, 0.0) == 1.0
        assert rate("cosine", 5, 10, 0.0, 0.0) == pytest.approx(0.5)
        assert rate("cosine", 9, 10, 0.0, 0.0) == pytest.approx((1 + math.cos(0.9 * math.pi)) / 2)
        assert rate("cosine", 10, 10, 0.0, 0.1) == pytest.approx(0.1)
        assert rate("cosine", 5, 10, 0.0, 0.2) == pytest.approx(0.6)

    def test_warm_up_is_linear(self) -> None:
        values = [rate("constant", step, 100, 0.2, 0.0) for step in range(21)]
        assert values[:20] == pytest.approx([(step + 1) / 21 for step in range(20)])
        assert values[20] == 1.0
        assert rate("cosine", 20, 100, 0.2, 0.0) == 1.0
        assert rate("cosine", 60, 100, 0.2, 0.0) == pytest.approx(0.5)

    def test_onecycle(self) -> None:
        assert rate("onecycle", 0, 100, 0.0, 0.0) == pytest.approx(0.04)
        assert rate("onecycle", 15, 100, 0.0, 0.0) == pytest.approx(0.52)
        assert rate("onecycle", 30, 100, 0.0, 0.0) == pytest.approx(1.0)
        assert rate("onecycle", 65, 100, 0.0, 0.0) == pytest.approx(0.5)
        assert rate("onecycle", 50, 100, 0.5, 0.0) == pytest.approx(1.0)
        assert rate("onecycle", 100, 100, 0.0, 0.25) == pytest.approx(0.25)

    @given(
        kind=st.sampled_from(["constant", "cosine", "onecycle"]),
        total=st.integers(1, 500),
        warmup=st.floats(0, 0.99),
        final=st.floats(0, 1),
        data=st.data(),
    )
    def test_always_a_fraction(self, kind: str, total: int, warmup: float, final: float, data: st.DataObject) -> None:
        step = data.draw(st.integers(0, total - 1))
        assert 0.0 <= rate(kind, step, total, warmup, final) <= 1.0 + 1e-12

    def test_the_loop_follows_it(self, trained: Trained) -> None:
        history = trained(epochs=4, final_lr=0.1, warmup=0.25).history
        assert [row["rate"] for row in history] == [rate("cosine", row["step"] - 1, 12, 0.25, 0.1) for row in history]


class TestMuon:
    @pytest.mark.parametrize("shape", [(1, 8, 8), (2, 32, 8), (1, 8, 32), (3, 16, 8)])
    def test_orthogonalise(self, shape: tuple[int, ...]) -> None:
        found = orthogonalise(torch.randn(shape))
        values = torch.linalg.svdvals(found)
        assert found.shape == shape
        assert values.min() > 0.6
        assert values.max() < 1.3

    def test_it_keeps_the_singular_vectors(self) -> None:
        u, _, v = torch.linalg.svd(torch.randn(6, 6, dtype=torch.float64))
        matrix = (u * torch.linspace(1, 3, 6, dtype=torch.float64)) @ v
        found = u.mT @ orthogonalise(matrix.float()[None])[0].double() @ v.mT
        alignment = found.diagonal()
        off = found - alignment.diag()
        assert alignment.min() > 0.6
        assert off.abs().max() < 1e-4

    def test_only_matrices_of_the_blocks(self) -> None:
        model = HOFNO(2, 1, (4, 4), width=8, depth=2)
        optimisers = Optimisers(model, spec(optimiser="muon"), CPU)
        names = {p: name for name, p in model.named_parameters()}
        adamw, muon = ([names[p] for p in each.param_groups[0]["params"]] for each in optimisers.each)
        assert muon
        assert all(name.startswith("blocks.") and model.get_parameter(name).ndim == 2 for name in muon)
        assert {"lift.weight", "project.weight"} <= set(adamw)
        assert not any(name.startswith("blocks.") and model.get_parameter(name).ndim == 2 for name in adamw)
        assert sorted(adamw + muon) == sorted(names.values())

    def test_first_step_from_its_definition(self) -> None:
        """Momentum starts at 0: M = 0.05 g, Nesterov g + 0.95 (M - g), then the orthogonal factor; decay apart."""
        model = HOFNO(2, 1, (4, 4), width=8, depth=1)
        optimisers = Optimisers(model, spec(optimiser="muon", muon_lr=0.1, weight_decay=0.5), CPU)
        name = next(n for n, p in model.named_parameters() if "blocks." in n and p.ndim == 2)
        p = model.get_parameter(name)
        before = p.detach().clone()
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        assert p.grad is not None
        nesterov = torch.lerp(p.grad, 0.05 * p.grad, 0.95)
        scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
        expected = before * (1 - 0.1 * 0.5) - 0.1 * scale * orthogonalise(nesterov[None])[0]
        optimisers.set_rate(1.0)
        optimisers.step()
        torch.testing.assert_close(p.detach(), expected)

    @pytest.mark.parametrize("optimiser", ["adamw", "muon"])
    def test_state_round_trip(self, optimiser: str) -> None:
        def step(optimisers: Optimisers, model: HOFNO, seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimisers.set_rate(0.5)
            optimisers.step()

        model = HOFNO(2, 1, (4, 4), width=8, depth=2)
        first = Optimisers(model, spec(optimiser=optimiser), CPU)
        step(first, model, 1)
        other = HOFNO(2, 1, (4, 4), width=8, depth=2)
        other.load_state_dict(model.state_dict())
        second = Optimisers(other, spec(optimiser=optimiser), CPU)
        second.load_tensors({key: value.clone() for key, value in first.tensors().items()})
        step(first, model, 2)
        step(second, other, 2)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two)


class TestLosses:
    def test_zero_where_equal_and_positive_elsewhere(self) -> None:
        target, scale = torch.randn(3, 2, 5), (torch.zeros(2, 1), torch.ones(2, 1))
        target[..., [0, -1]] = 0.0  # where the published gradient loss does not look at predictions
        for loss in LOSSES.values():
            assert loss(target, target, *scale) == 0
            assert loss(target + 1, target, *scale) > 0

    def test_rel_l2_is_physical(self) -> None:
        """Twice the physical field is an error of 1, whatever the statistics."""
        mean, std = torch.tensor([[3.0], [-2.0]]), torch.tensor([[2.0], [5.0]])
        physical = torch.randn(4, 2, 7)
        encoded, doubled = (physical - mean) / std, (2 * physical - mean) / std
        assert float(LOSSES["rel_l2"](doubled, encoded, mean, std)) == pytest.approx(1.0, rel=1e-5)


class TestTrackers:
    def test_tensorboard_writes_an_event_file(self, trained: Trained, tmp_path: Path) -> None:
        pytest.importorskip("tensorboard", reason="the extra hofno[tracking] is not installed")
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tensorboard's own
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

            run = trained(out=tmp_path, track=("tensorboard",))
            events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        assert [event.step for event in events.Scalars("train_loss")] == [1, 2]
        assert events.Scalars("train_loss")[1].value == pytest.approx(run.history[1]["train_loss"])

    def test_tensorboard_forgets_what_came_after_the_checkpoint(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed in the fourth epoch, when the last checkpoint is that of the second."""
        pytest.importorskip("tensorboard", reason="the extra hofno[tracking] is not installed")
        import warnings

        from hofno.train import track

        def kill(self: track.TensorBoard, row: dict[str, Any]) -> None:
            if row["epoch"] == 4:
                raise KeyboardInterrupt
            written(self, row)

        settings: dict[str, Any] = {"out": tmp_path, "track": ("tensorboard",), "epochs": 5, "checkpoint_every": 2}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tensorboard's own
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

            written = track.TensorBoard.log
            monkeypatch.setattr(track.TensorBoard, "log", kill)
            with pytest.raises(KeyboardInterrupt):
                trained(**settings)
            monkeypatch.undo()
            run = trained(**settings, resume=True)
            events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
        for key in ("train_loss", "valid_rel_l2"):
            found = [(event.step, event.value) for event in events.Scalars(key)]
            assert [step for step, _ in found] == [1, 2, 3, 4, 5]
            assert [value for _, value in found] == pytest.approx([row[key] for row in run.history])

    def test_unknown(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="unknown tracker 'tensorbord'; there are: tensorboard, wandb"):
            make_trackers(("tensorbord",), tmp_path, "run", {})
        with pytest.raises(SpecError, match="give out="):
            make_trackers(("tensorboard",), None, "run", {})
        assert make_trackers((), None, "run", {}) == []

    @pytest.mark.parametrize("track", ["paper", ("paper",)])
    def test_checked_before_a_folder_is_made(
        self, trained: Trained, tmp_path: Path, track: str | tuple[str, ...]
    ) -> None:
        with pytest.raises(SpecError, match="unknown tracker 'paper'"):
            trained(out=tmp_path / "run", track=track)
        assert not (tmp_path / "run").exists()
        with pytest.raises(SpecError, match="give out="):
            trained(track="tensorboard")

    @pytest.mark.parametrize("name", ["wandb", "tensorboard"])
    def test_not_installed(self, name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def without(wanted: str, *rest: Any) -> Any:
            if name in wanted:
                raise ImportError(wanted)
            return real(wanted, *rest)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(SpecError, match=r"pip install 'hofno\[tracking\]'"):
            make_trackers((name,), tmp_path, "run", {})
        with pytest.raises(SpecError, match=r"pip install 'hofno\[tracking\]'"):
            trained(out=tmp_path / "run", track=name)
        assert not (tmp_path / "run").exists()
