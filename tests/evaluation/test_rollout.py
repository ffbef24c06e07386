"""Scores of rollouts against explicit loops over samples and steps, and what becomes of models that run away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hofno import FNO, Rollout, Run, Split, Surrogate, evaluate, load
from hofno.data.normalise import ChannelNormaliser
from hofno.data.spread import relative_spread
from hofno.errors import ShapeError, SpecError
from hofno.evaluation import score, score_rollout
from hofno.evaluation.metrics import UNBOUNDED, UNBOUNDED_SQUARE
from hofno.evaluation.rollout import Rolled
from hofno.evaluation.spread import Spreads
from hofno.geometry import Grid
from hofno.problems.symmetry import mirror


class Times(nn.Module):
    """The next frame is a multiple of the last one, moved by a point, plus some of the first."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x[:, -1:].roll(1, -1) + 0.1 * x[:, :1]


def surrogate(factor: float, mean: float = 0.3, std: float = 2.0) -> Surrogate:
    one = ChannelNormaliser(torch.tensor([mean]), torch.tensor([std]))
    return Surrogate(Times(factor), one.repeated(2), one, Grid(shape=(6, 6), periodic=True), rollout=Rollout(2, 4))


@pytest.fixture
def split() -> Split:
    generator = torch.Generator().manual_seed(0)
    return Split(torch.randn(5, 2, 6, 6, generator=generator), torch.randn(5, 4, 6, 6, generator=generator))


def slow_rollout(x: np.ndarray, factor: float, steps: int) -> list[np.ndarray]:
    """One sample, in physical units, frame after frame."""
    known = list(x)
    for _ in range(steps):
        last, first = (known[-1] - 0.3) / 2.0, (known[-2] - 0.3) / 2.0
        known.append((factor * np.roll(last, 1, -1) + 0.1 * first) * 2.0 + 0.3)
    return known[2:]


def test_predictions_are_fed_back(split: Split) -> None:
    found = surrogate(0.8).predict(split.x.numpy(), steps=7)
    assert found.shape == (5, 7, 6, 6)
    for sample in range(5):
        np.testing.assert_allclose(found[sample], slow_rollout(split.x[sample].numpy(), 0.8, 7), atol=1e-5)
    made = surrogate(0.8)
    assert torch.equal(made.predict(split.x), made.predict(split.x, steps=4)), "the horizon unless given"
    assert made.predict(split.x[0]).shape == (4, 6, 6)
    assert torch.equal(made.predict(split.x, batch_size=2), made.predict(split.x))


def test_scores_equal_loops(split: Split) -> None:
    later = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    scores = score_rollout(surrogate(0.8), split, later, batch_size=2)
    truth = torch.cat((split.y, later), 1).double().numpy()
    for sample in range(5):
        rolled = np.array(slow_rollout(split.x[sample].double().numpy(), 0.8, 8))
        true = torch.cat((split.x[sample], split.y[sample])).double().numpy()
        taught = np.array([slow_rollout(true[t : t + 2], 0.8, 1)[0] for t in range(4)])
        for t in range(4):
            error = np.linalg.norm(rolled[t] - truth[sample, t]) / np.linalg.norm(truth[sample, t])
            assert float(scores.rel_l2_per_step[sample, t]) == pytest.approx(error, rel=1e-5)
        for t in range(3):
            error = np.linalg.norm(rolled[4 + t] - truth[sample, 4 + t]) / np.linalg.norm(truth[sample, 4 + t])
            assert float(scores.later_rel_l2[sample, t]) == pytest.approx(error, rel=1e-5)
        one = [np.linalg.norm(taught[t] - true[t + 2]) / np.linalg.norm(true[t + 2]) for t in range(4)]
        assert float(scores.one_step_rel_l2[sample]) == pytest.approx(np.mean(one), rel=1e-5)
        assert float(scores.one_step_mse[sample]) == pytest.approx(((taught - true[2:]) ** 2).mean(), rel=1e-5)
        np.testing.assert_allclose(scores.power[sample], (rolled**2).mean((1, 2)) / 2, rtol=1e-5)
        np.testing.assert_allclose(scores.true_power[sample], (truth[sample] ** 2).mean((1, 2)) / 2, rtol=1e-5)
    metrics = scores.metrics()
    assert metrics["rollout"] == pytest.approx(float(scores.rel_l2_per_step.mean()))
    assert set(metrics) == {"rollout", "one_step_rel_l2", "one_step_mse", "rel_l2_low"}
    json.dumps(scores.record(), allow_nan=False)


@pytest.mark.parametrize("several", [False, True])
def test_one_rollout_gives_errors_of_all_kinds(split: Split, several: bool) -> None:
    one = ChannelNormaliser.identity(1)
    made = Surrogate(FNO(2, 1, (2, 2), width=4, depth=1), one.repeated(2), one, Grid(shape=(6, 6), periodic=True))
    made.rollout = Rollout(2, 4)
    made.symmetry = mirror(0) if several else None
    later = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    expected = score(made, split, 2), score_rollout(made, split, later, vorticity=True, batch_size=2)
    apart = relative_spread(*made.spread_tensor(split.x, 2, 4), 1) if several else None
    calls: list[int] = []
    made.model.register_forward_hook(lambda *_: calls.append(1))
    rolled, spreads = Rolled(made, later, vorticity=True, batch_size=2), Spreads() if several else None
    found = score(made, split, 2, spreads=spreads, rolled=rolled), rolled.scores()
    for before, now in zip(map(vars, expected), map(vars, found), strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0)
    views = 2 if several else 1
    assert len(calls) == 3 * views * (8 + 4 + 4 * several)  # batches of frames: to twice the horizon, one step, apart
    if spreads is not None:
        assert torch.equal(spreads.all(), apart)  # pyright: ignore[reportArgumentType]


def test_rel_l2_is_of_all_frames_together(split: Split) -> None:
    made = surrogate(0.8)
    p = made.predict(split.x).double()
    expected = (p - split.y).flatten(1).norm(dim=1) / split.y.double().flatten(1).norm(dim=1)
    assert evaluate(made, split)["rel_l2"] == pytest.approx(float(expected.mean()))


def test_spectra_are_of_the_last_frame(split: Split) -> None:
    scores = score_rollout(surrogate(0.8), split, vorticity=True, batch_size=2)
    assert set(scores.spectra) == {"power", "energy"}
    last = split.y[:, -1].double()
    assert float(scores.spectra["power"]["truth"].sum()) == pytest.approx(float(0.5 * last.square().mean()))
    wrong = surrogate(0.8).predict(split.x)[:, -1].double() - last
    assert float(scores.spectra["power"]["error"].sum()) == pytest.approx(float(0.5 * wrong.square().mean()), rel=1e-5)
    assert set(score_rollout(surrogate(0.8), split).spectra) == {"power"}


@pytest.mark.parametrize(("factor", "finite", "bounded"), [(0.5, 1.0, 1.0), (3.0, 1.0, 0.0), (1e30, 0.0, 0.0)])
def test_models_that_run_away(split: Split, factor: float, finite: float, bounded: float) -> None:
    scores = score_rollout(surrogate(factor, mean=0.0, std=1.0), split)
    past = scores.record()["past"]
    assert (past["steps"], past["finite"], past["bounded"]) == (8, finite, bounded)
    json.dumps(scores.record(), allow_nan=False)
    told = evaluate(surrogate(factor, mean=0.0, std=1.0), split)
    for name, value in {**told, **scores.metrics()}.items():
        assert 0 < value <= (UNBOUNDED_SQUARE if name in ("mse", "one_step_mse") else UNBOUNDED)


def test_frames_that_are_zero_are_named(split: Split) -> None:
    y = split.y.clone()
    y[3, 1] = 0
    with pytest.warns(UserWarning, match="true frames of sample 3 are .nearly. zero everywhere"):
        score_rollout(surrogate(0.8), Split(split.x, y))
    with pytest.raises(SpecError, match="batch_size counts samples"):
        score_rollout(surrogate(0.8), split, batch_size=0)


def test_saved_and_loaded(split: Split, tmp_path: Path) -> None:
    one = ChannelNormaliser.identity(1)
    made = Surrogate(FNO(2, 1, (2, 2), width=4, depth=1), one.repeated(2), one, Grid(shape=(6, 6), periodic=True))
    plain = json.loads(made.files()["model.json"])
    assert "rollout" not in plain, "files of steady problems are as they were"
    made.rollout = Rollout(2, 4)
    found = load(made.save(tmp_path / "model"))
    assert found.rollout == Rollout(2, 4)
    assert torch.equal(found.predict(split.x, steps=6), made.predict(split.x, steps=6))
    torch.set_default_dtype(torch.float64)  # as programs that compute in it do
    try:
        assert torch.equal(load(tmp_path / "model").predict(split.x, steps=6), made.predict(split.x, steps=6))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    made.rollout = None
    assert load(made.save(tmp_path / "other")).rollout is None


def test_errors(split: Split) -> None:
    made = surrogate(0.8)
    with pytest.raises(SpecError, match="at least one is needed"):
        made.predict(split.x, steps=0)
    for steps in (2.0, "2"):
        with pytest.raises(SpecError, match=f"steps counts predicted frames; got {steps!r}"):
            made.predict(split.x, steps=steps)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match=r"expected \(n, 2, \*grid\)"):
        made.predict(split.y)
    with pytest.raises(ShapeError, match=r"no frame to score: the targets have shape .*; give at least one"):
        evaluate(made, (split.x, split.y[:, :0]))
    made.rollout = None
    with pytest.raises(SpecError, match="not trained on trajectories"):
        made.predict(split.x, steps=2)
    with pytest.raises(ShapeError, match="not trained on trajectories"):
        score_rollout(made, split)


def test_a_run_is_scored_as_its_operator_is(split: Split) -> None:
    run = Run(surrogate(0.8), [], 0.0)
    assert score_rollout(run, split).metrics() == score_rollout(run.surrogate, split).metrics()


def test_nothing_is_later(split: Split) -> None:
    record: dict[str, Any] = score_rollout(surrogate(0.5), split).record()
    assert record["later_rel_l2"] == []
    assert len(record["rel_l2_per_step"]) == 4
