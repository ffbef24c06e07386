"""Metrics from their definitions, and scores of a trained operator in physical units."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hofno import Dataset, Run, Split, Surrogate, evaluate, fit
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError, ShapeError
from hofno.evaluation import score, score_rollout
from hofno.evaluation.metrics import mse, rel_l2
from hofno.geometry import Grid, Points
from hofno.problems.base import Rollout


class Scale(nn.Module):
    """u -> factor u: a model whose errors are known."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class AtPoints(Scale):
    """The same at points."""

    def forward(self, x: Tensor, coords: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.factor * x


def scaled(factor: float, std: tuple[float, ...] = (1.0, 1.0)) -> Surrogate:
    same = ChannelNormaliser(torch.zeros(2), torch.tensor(std))
    return Surrogate(Scale(factor), same, same, Grid(shape=(4, 3), periodic=True))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(0, 100))
def test_metrics_against_numpy(n: int, channels: int, points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, y = rng.standard_normal((2, n, channels, points, points))
    error = np.sqrt(((p - y) ** 2).sum((1, 2, 3)))
    np.testing.assert_allclose(
        rel_l2(torch.from_numpy(p), torch.from_numpy(y)), error / np.sqrt((y**2).sum((1, 2, 3))), rtol=1e-12
    )
    np.testing.assert_allclose(
        mse(torch.from_numpy(p), torch.from_numpy(y)), ((p - y) ** 2).mean((1, 2, 3)), rtol=1e-12
    )


def test_rel_l2_of_a_zero_target_is_finite_where_it_is_met() -> None:
    assert float(rel_l2(torch.zeros(1, 3), torch.zeros(1, 3))) == 0.0


def test_scores_of_a_known_model() -> None:
    x = torch.randn(40, 2, 4, 3)
    scores = score(scaled(0.5, (2.0, 10.0)), Split(x, x), batch_size=7)
    torch.testing.assert_close(scores.rel_l2, torch.full((40,), 0.5, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(scores.mse, (0.5 * x).double().square().mean((1, 2, 3)), rtol=1e-5, atol=0)
    standard = (0.5 * x / torch.tensor([2.0, 10.0]).view(2, 1, 1)).double().square().mean((1, 2, 3))
    torch.testing.assert_close(scores.mse_standardised, standard, rtol=1e-5, atol=0)
    assert scores.means()["mse"] == pytest.approx(float(scores.mse.mean()))


def test_evaluate() -> None:
    x = torch.randn(3, 2, 4, 3)
    found = evaluate(scaled(0.75), Split(x, x))
    assert found["rel_l2"] == pytest.approx(0.25, rel=1e-5)
    assert set(found) == {"rel_l2", "mse", "mse_standardised", "rel_l2_field_1", "rel_l2_field_2"}
    one = Surrogate(Scale(0.5), *[ChannelNormaliser.identity(1)] * 2, Grid(shape=(4, 3), periodic=True))
    assert set(evaluate(one, Split(x[:, :1], x[:, :1]))) == {"rel_l2", "mse", "mse_standardised"}


def test_the_mean_is_over_samples_not_over_energy() -> None:
    x = torch.ones(2, 2, 4, 3)
    y = torch.stack((x[0], 1000 * x[0]))
    found = evaluate(scaled(1.0), Split(x, y))
    assert found["rel_l2"] == pytest.approx((0.0 + 0.999) / 2, rel=1e-5)


@pytest.mark.parametrize("scale", [1e5, 1e12, 1e30])
def test_mse_has_a_unit_and_no_bound(scale: float) -> None:
    x = torch.randn(5, 2, 4, 3) * scale
    found = score(scaled(0.5, (scale, scale)), Split(x, x))
    torch.testing.assert_close(found.mse, (0.5 * x).double().square().mean((1, 2, 3)), rtol=1e-5, atol=0)
    assert found.means()["mse_standardised"] < 1


def test_errors_that_are_not_finite_are_numbers() -> None:
    x = torch.randn(5, 2, 4, 3)
    found = evaluate(scaled(float("nan")), Split(x, x))
    assert found == {"rel_l2": 1e9, "mse": 1e78, "mse_standardised": 1e9, "rel_l2_field_1": 1e9, "rel_l2_field_2": 1e9}
    assert evaluate(scaled(1e38), Split(x, x))["mse"] < 1e78, "no finite prediction is as far away"


def test_blocks_stay_whole() -> None:
    """Errors of samples that belong together are those of whole blocks, in a slice too."""
    x = torch.randn(8, 2, 4, 3)
    y = x * torch.tensor([1.0, 10.0] * 4).view(8, 1, 1, 1)
    made, split = scaled(0.5), Split(x, y, together=2)
    whole = score(made, split)
    assert len(whole.rel_l2) == 4
    for rows, blocks in (
        (slice(None), [0, 1, 2, 3]),
        (slice(2, 6), [1, 2]),
        (torch.tensor([6, 7, 0, 1]), [3, 0]),
        (torch.arange(8) < 4, [0, 1]),
    ):
        for some in (
            split[rows],
            *(
                []
                if isinstance(rows, slice)
                else [split.take(rows.nonzero().flatten() if rows.dtype == torch.bool else rows)]
            ),
        ):
            assert torch.equal(score(made, some).rel_l2, whole.rel_l2[blocks])
            assert torch.equal(score(made, some[:2]).rel_l2, whole.rel_l2[blocks[:1]])
    for rows in (slice(1), slice(1, 3), torch.tensor([1, 0]), torch.tensor([0, 2]), torch.tensor([0, 1, 2])):
        part = split[rows]
        assert len(made.predict(part.x)) == len(part)
        for broken in (part, part[:], part[: len(part) // 2 * 2]):
            with pytest.raises(
                DataError, match=r"those of 2 samples as one, .* take whole blocks, such as split\[:2\]"
            ):
                score(made, broken)


def test_arrays_of_blocks_are_scored_as_blocks() -> None:
    """As a split of the training data is, by what the operator knows of these."""
    x = torch.randn(8, 1, 4, 3)
    y = x * torch.tensor([1.0, 10.0] * 4).view(8, 1, 1, 1)
    split = Split(x, y, together=2)
    data = Dataset(split, split, split, Grid(shape=(4, 3), periodic=True), "own")
    run = fit(Scale(0.5), data, epochs=1, progress=False)
    assert evaluate(run, (x.numpy(), y.numpy())) == evaluate(run, split)
    assert evaluate(run, (x, y))["rel_l2"] != pytest.approx(evaluate(run, Split(x, y))["rel_l2"])
    with pytest.raises(ShapeError, match="blocks of 2 samples, as in training; got 3; give whole blocks"):
        evaluate(run, (x[:3], y[:3]))


class TestByField:
    """The error of each channel alone, which the one over all channels does not show."""

    def test_a_small_channel_is_not_hidden(self) -> None:
        x = torch.randn(7, 2, 4, 3)
        y = torch.stack((1000 * x[:, 0], 2 * x[:, 1]), 1)
        scores = score(scaled(1000.0), Split(x, y), batch_size=3)
        expected = torch.stack([rel_l2(1000 * x[:, field], y[:, field]) for field in (0, 1)], 1)
        torch.testing.assert_close(scores.by_field, expected)
        means = scores.means()
        assert means["rel_l2"] < 1.5
        assert means["rel_l2_field_1"] == 0
        assert means["rel_l2_field_2"] == pytest.approx(499)

    def test_targets_without_a_size_are_told_once(self) -> None:
        x = torch.randn(6, 2, 4, 3)
        y = x.clone()
        y[2], y[4, 1] = 0.0, 0.0  # all of a sample, and one field of another
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            score(scaled(0.5), Split(x, y))
        lines = [str(one.message) for one in told]
        assert len(lines) == 2
        assert lines[0].startswith("the targets of sample 2 are (nearly) zero")
        assert lines[1].startswith("field 2 of the targets of sample 4 is (nearly) zero everywhere: its relative error")
        y[3] = 0.0
        y = y[:, :1].expand(-1, 2, -1, -1)
        with pytest.warns(UserWarning, match=r"^the targets of samples 2, 3 are .*: their .*; drop the samples, or"):
            score(scaled(0.5), Split(x, y))
        with pytest.warns(UserWarning, match=r"^the targets of block 1 of 2 samples are .*; drop the block, or go"):
            score(scaled(0.5), Split(x, y, together=2))

    def test_of_blocks(self) -> None:
        x = torch.randn(8, 2, 4, 3)
        y = x * torch.tensor([1.0, 10.0] * 4).view(8, 1, 1, 1)
        found = score(scaled(0.5), Split(x, y, together=2))
        assert found.by_field.shape == (4, 2)
        for field in (0, 1):
            p, q = (part[:, field].unflatten(0, (4, 2)) for part in (0.5 * x, y))
            torch.testing.assert_close(found.by_field[:, field], rel_l2(p, q))

    def test_of_masked_points(self) -> None:
        x, coords = torch.randn(5, 2, 6), torch.rand(5, 3, 6)
        mask = torch.arange(6) < 2 + torch.arange(5)[:, None]
        box = Points(count=6, low=(0.0,) * 3, high=(1.0,) * 3)
        same = ChannelNormaliser.identity(2)
        made = Surrogate(AtPoints(0.5), same, same, box)
        x = x * mask[:, None]
        y = x * torch.tensor([1.0, 5.0]).view(2, 1)
        found = score(made, Split(x, y, coords, mask))
        torch.testing.assert_close(found.by_field.mean(0), torch.tensor([0.5, 0.9]).double())

    def test_of_frames(self) -> None:
        x = torch.randn(4, 2, 4, 3)
        made = replace(scaled(0.5), rollout=Rollout(1, 3, 2))
        y = torch.randn(4, 6, 4, 3)
        p = torch.cat([0.5**k * x for k in (1, 2, 3)], 1)
        found = score(made, Split(x, y)).by_field
        torch.testing.assert_close(found[:, 1], rel_l2(p[:, 1::2], y[:, 1::2]))
        torch.testing.assert_close(found, score_rollout(made, Split(x, y)).by_field)

    def test_a_field_that_is_zero_in_a_sample_is_named(self) -> None:
        x = torch.randn(4, 2, 4, 3)
        x[2, 1] = 0
        with pytest.warns(UserWarning, match=r"^field 2 of the targets of sample 2 is .* the mean rel_l2_field_2; "):
            score(scaled(0.5), Split(x, x))


def test_what_cannot_be_evaluated() -> None:
    x = torch.randn(3, 2, 4, 3)
    with pytest.raises(ShapeError, match="predicts 2 channels and the targets have 1"):
        evaluate(scaled(1.0), Split(x, x[:, :1]))
    with pytest.raises(ShapeError, match="evaluate takes what"):
        evaluate(Scale(1.0), Split(x, x))
    with pytest.raises(ShapeError, match=r"takes 2 channels and the inputs have 1 in shape \(3, 1, 4, 3\)"):
        evaluate(scaled(1.0), Split(x[:, :1], x))
    with pytest.raises(ShapeError, match="trained on a grid with 2 axes, and the inputs have 1"):
        evaluate(scaled(1.0), Split(x[..., 0], x[..., 0]))
    with pytest.raises(ShapeError, match="no sample to score; give at least one"):
        evaluate(scaled(1.0), Split(x[:0], x[:0]))
    with pytest.raises(ShapeError, match=r"a split is scored.*got tuple; make one: hofno.Split\(x, y\)"):
        score(scaled(1.0), (x, x))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match=r"score takes what hofno\.fit or hofno\.load returns; got Scale"):
        score(Scale(1.0), Split(x, x))


@pytest.mark.parametrize("which", ["x", "y"])
def test_data_that_are_no_numbers_are_not_taken_for_an_error(which: str) -> None:
    good = torch.randn(5, 2, 4, 3)
    bad = good.clone()
    bad[3, 0, 1, 2] = float("nan")
    with pytest.raises(DataError, match=f"{which} holds 1 values that are NaN or infinite, .* first in sample 3"):
        evaluate(scaled(1.0), Split(bad, good) if which == "x" else Split(good, bad))


def test_a_run_is_scored_as_its_operator_is() -> None:
    x = torch.randn(3, 2, 4, 3)
    run = Run(scaled(0.5), [], 0.0)
    assert torch.equal(score(run, Split(x, x)).rel_l2, score(run.surrogate, Split(x, x)).rel_l2)
