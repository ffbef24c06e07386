"""Metrics from their definitions, and scores of a trained operator in physical units."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hofno import Split, Surrogate, evaluate
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError, ShapeError
from hofno.evaluation.metrics import mse, rel_l2
from hofno.evaluation.score import score
from hofno.geometry import Grid


class Scale(nn.Module):
    """u -> factor u: a model whose errors are known."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
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
    assert set(found) == {"rel_l2", "mse", "mse_standardised"}


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
    assert found == {"rel_l2": 1e9, "mse": 1e78, "mse_standardised": 1e9}
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


def test_what_cannot_be_evaluated() -> None:
    x = torch.randn(3, 2, 4, 3)
    with pytest.raises(ShapeError, match="predicts 2 channels and the targets have 1"):
        evaluate(scaled(1.0), Split(x, x[:, :1]))
    with pytest.raises(ShapeError, match="evaluate takes what"):
        evaluate(Scale(1.0), Split(x, x))
