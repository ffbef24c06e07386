"""Outcomes: numbers of predicted and of true fields, their errors, and the bounds that validation samples give."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from half import Half
from hypothesis import given
from hypothesis import strategies as st

from hofno import Dataset, Split, Surrogate
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import ShapeError, SpecError
from hofno.evaluation import outcomes_of, predicted_outcomes
from hofno.geometry import Grid
from hofno.problems.outcomes import Outcome, force_on_wall, largest, mean


def half() -> Surrogate:
    same = ChannelNormaliser.identity(1)
    return Surrogate(Half(), same, same, Grid(shape=(4, 6), periodic=True))


def data_of(valid: int, test: int) -> Dataset:
    """u -> u, with the number of the sample as its largest value."""
    fields = np.random.default_rng(0).uniform(-1, 0, (5 + valid + test, 1, 4, 6)).astype(np.float32)
    fields[:, 0, 2, 3] = [*range(5), *range(1, valid + 1), *range(1, test + 1)]
    u = torch.from_numpy(fields)
    train, known, asked = (Split(part, part) for part in u.split((5, valid, test)))
    return Dataset(train, known, asked, Grid(shape=(4, 6), periodic=True), "user", {}, "")


def test_errors_bounds_and_counts_by_hand() -> None:
    """Half of the largest value is missed; of 19 validation errors 0.5 .. 9.5 the 18th is the bound."""
    found = outcomes_of(half(), data_of(19, 20), {"peak": largest(0, "m"), "own": lambda x, y: y[:, 0, 2, 3]})
    peak = found["peak"]
    assert peak.truth.tolist() == [float(n) for n in range(1, 21)]
    assert peak.prediction.tolist() == [n / 2 for n in range(1, 21)]
    record = peak.record()
    assert record["unit"] == "m"
    assert record["mean_error"] == pytest.approx(10.5 / 2)
    assert record["largest_error"] == 10.0
    assert record["bias"] == pytest.approx(-10.5 / 2)
    assert record["deviation_of_truth"] == pytest.approx(np.std(np.arange(1, 21), ddof=1))
    assert record["bound"] == 9.0
    assert record["kept"] == pytest.approx(18 / 20)
    assert found["own"].record() == {**record, "unit": ""}


def test_no_bound_by_few_validation_samples() -> None:
    found = outcomes_of(half(), data_of(8, 3), {"peak": largest()})["peak"]
    assert found.bound is None
    assert "bound" not in found.record()
    assert "kept" not in found.record()


def test_of_blocks_the_bound_is_for_the_largest_error_of_each() -> None:
    """Blocks of 2 samples: validation errors of blocks are 1, 2, .., 9 and the ninth of them is the bound."""
    data = data_of(18, 4)
    valid, test = (Split(part.x, part.y, together=2) for part in (data.valid, data.test))
    data = Dataset(data.train[:4], valid, test, data.grid, "user", {}, "")
    found = outcomes_of(half(), data, {"peak": largest()})["peak"]
    assert found.bound == 9.0
    assert len(found.errors) == 4
    assert found.record()["kept"] == 1.0
    few = Dataset(data.train, valid[:16], test, data.grid, "user", {}, "")
    assert outcomes_of(half(), few, {"peak": largest()})["peak"].bound is None, "16 samples are 8 blocks"


@pytest.mark.parametrize("how", [lambda x, y: y.amax(), lambda x, y: y[:, 0], lambda x, y: y.amax((1, 2))])
def test_what_is_no_number_for_each_sample_is_refused(how: object) -> None:
    with pytest.raises(ShapeError, match=r"outcome 'peak' must be one number for each of 3 samples.*reduce over"):
        outcomes_of(half(), data_of(1, 3), {"peak": how})  # pyright: ignore[reportArgumentType]


def test_predictions_that_are_no_numbers_are_large_errors() -> None:
    operator = half()
    with torch.no_grad():
        operator.model.get_parameter("factor").fill_(math.inf)
    record = outcomes_of(operator, data_of(1, 3), {"mean": mean()})["mean"].record()
    assert all(math.isfinite(value) for value in record.values() if not isinstance(value, str))
    assert record["mean_error"] > 1e70
    with torch.no_grad():
        operator.model.get_parameter("factor").fill_(-math.inf)
    assert outcomes_of(operator, data_of(1, 3), {"own": lambda x, y: y[:, 0, 2, 3]})["own"].record()["bias"] < -1e70


@given(st.integers(3, 40), st.floats(-5, 5), st.floats(0.1, 3))
def test_a_constant_pressure_pushes_a_closed_wall_nowhere_and_a_linear_one_by_its_area(
    count: int, level: float, radius: float
) -> None:
    """Counter-clockwise around a body, p = y: minus the area upwards, as buoyancy has it with depth for height."""
    angle = torch.linspace(0, 2 * math.pi, count + 1, dtype=torch.float64)
    nodes = radius * torch.stack((angle.cos(), angle.sin()))[None]
    nodes[..., -1] = nodes[..., 0]
    assert force_on_wall(nodes, torch.full((1, count + 1), level)).abs().max() < 1e-6 * (1 + abs(level) * radius)
    x, y = nodes[0]
    area = float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)
    lifted = force_on_wall(nodes, level + nodes[:, 1])[0]
    assert lifted.tolist() == pytest.approx([0.0, -area], abs=1e-6 * (1 + abs(level)) * (1 + radius**2))


def test_units_are_those_of_the_outcome() -> None:
    assert Outcome(lambda x, y: y.amax((1, 2, 3)), "mm").unit == "mm"
    assert mean(0, "s").unit == "s"


def test_outcomes_of_inputs_whose_truth_is_not_known() -> None:
    """Those of the test split are the same; arrays give arrays, and one sample gives a number."""
    data, asked = data_of(19, 20), {"peak": largest(0, "m"), "own": lambda x, y: x[:, 0, 2, 3] + y[:, 0, 2, 3]}
    found = predicted_outcomes(half(), data.test.x, asked, batch_size=3)
    assert torch.equal(found["peak"], outcomes_of(half(), data, asked)["peak"].prediction)
    assert found["own"].tolist() == [1.5 * n for n in range(1, 21)]
    arrays = predicted_outcomes(half(), data.test.x.numpy(), asked)
    assert isinstance(arrays["peak"], np.ndarray)
    assert predicted_outcomes(half(), data.test.x[4], asked) == {"peak": 2.5, "own": 7.5}


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'peak' must be a function of inputs and fields, .* got 3"):
        outcomes_of(half(), data_of(19, 20), {"peak": 3})  # pyright: ignore[reportArgumentType]
