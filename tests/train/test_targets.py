"""Targets that are zero: refused where a loss divides by them, named where an error does. Units change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hofno
from hofno import HOFNO, Dataset, GeoFNO, Run, fit, from_arrays, from_trajectories
from hofno.data import ondisk
from hofno.data.faint import faint, named, target_norms
from hofno.errors import DataError
from hofno.spec import TrainSpec
from hofno.train.losses import LOSSES, RELATIVE, in_own_units
from hofno.train.targets import check_targets


def fields(n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((n, 1, 16)).astype(np.float32)
    return x, np.cumsum(x, -1)


def small(data: Dataset, **settings: Any) -> Run:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = HOFNO(data.in_channels, data.out_channels, (4,), width=8, depth=1, order=2)
    return fit(model, data, **{"epochs": 2, "batch_size": 4, "device": "cpu", "progress": False, **settings})


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.integers(-60, 60))
def test_faint_is_relative(norms: list[float], power: int) -> None:
    values = torch.tensor([0.0, *norms], dtype=torch.float64)
    found = faint(values * 10.0**power)
    typical = float(values[1:].median())
    assert found.tolist() == [value <= 1e-6 * typical for value in values.tolist()]
    assert faint(torch.zeros(3)).all()


def test_names() -> None:
    assert named(torch.tensor([3])) == "3"
    assert named(torch.arange(12)) == "0, 1, 2, 3, 4 and 7 more"


@pytest.mark.parametrize("frames", [False, True])
def test_norms_come_in_pieces(frames: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    y = torch.randn(7, 3, 4, 5)
    monkeypatch.setattr(ondisk, "PIECE", 100)
    np.save(tmp_path / "y.npy", y.numpy())
    mapped = ondisk.FileArray.of(np.load(tmp_path / "y.npy", mmap_mode="r"))
    assert mapped is not None
    expected = y.double().flatten(2 if frames else 1).norm(dim=-1)
    for values in (y, mapped):
        torch.testing.assert_close(target_norms(values, fields=int(frames)), expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [0.0, 1e-9])
def test_a_zero_target_is_refused_by_losses_that_divide_by_it(loss: str, size: float) -> None:
    x, y = fields()
    y[7] *= size
    data = from_arrays(x, y, seed=None)
    if loss in RELATIVE:
        with pytest.raises(DataError, match=r"1 samples of data.train .* data.train.y\[7\]; drop them, or use loss="):
            small(data, loss=loss)
    else:
        small(data, loss=loss)


def test_a_zero_frame_is_refused() -> None:
    frames = np.random.default_rng(0).standard_normal((10, 6, 16))
    frames[2, 4] = 0
    data = from_trajectories(frames, history=2, seed=None)
    with pytest.raises(DataError, match=r"1 frames of data.train .* data.train.y\[2, 2\]"):
        small(data)
    frames[2, 4], frames[2, 0] = 1, 0  # an input alone
    small(from_trajectories(frames, history=2, seed=None), epochs=1)


def test_ragged_points_are_judged_by_the_points_there_are() -> None:
    rng = np.random.default_rng(0)
    places = [rng.random((2, count)) for count in rng.integers(5, 9, 20)]
    targets = [np.ones((1, part.shape[1])) for part in places]
    data = from_arrays(None, targets, places, seed=None)
    assert check_targets(data, TrainSpec()) is None  # pyright: ignore[reportCallIssue]
    targets[4][:] = 0
    with pytest.raises(DataError, match=r"data.train.y\[4\]"):
        fit(GeoFNO(0, 1, modes=(3, 3), width=4, depth=1), from_arrays(None, targets, places, seed=None))


def test_zero_targets_of_validation_and_test_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = fields(30)
    y[25] = y[28] = 0  # the second of validation and of test
    data = from_arrays(x, y, seed=None)
    run = small(data, progress=True)
    assert capsys.readouterr().out.count("targets of data.valid are (nearly) zero everywhere, samples 1:") == 1
    with pytest.warns(UserWarning, match="targets of sample 1 are .nearly. zero everywhere"):
        found = hofno.evaluate(run, data.test)
    assert found["rel_l2"] > 1e8, "the metric is what it is"
    assert hofno.evaluate(run, data.test[:1])["rel_l2"] < 10
    y[24:27] = 0
    with pytest.raises(DataError, match=r"all targets of data.valid are zero"):
        small(from_arrays(x, y, seed=None), loss="mse")


@pytest.mark.parametrize(("offset", "told"), [(0.0, 0), (5.0, 0), (300.0, 1)])
@pytest.mark.parametrize("normaliser", ["channel", "pixel"])
def test_targets_that_hardly_vary_are_told_of(
    capsys: pytest.CaptureFixture[str], offset: float, told: int, normaliser: str
) -> None:
    x, y = fields(30)
    small(from_arrays(x, offset + y, seed=None), progress=True, normaliser=normaliser)
    assert capsys.readouterr().out.count("of their mean, so that the mean alone has a relative error") == told


@given(st.integers(-110, 110), st.sampled_from(RELATIVE))
def test_relative_losses_have_no_unit(power: int, loss: str) -> None:
    """The same digits in any unit, and gradients too."""
    generator = torch.Generator().manual_seed(0)
    p, y = (torch.randn(3, 2, 6, generator=generator) for _ in range(2))
    mean, std = torch.tensor([[0.3], [-2.0]]), torch.tensor([[1.5], [0.7]])
    found: list[torch.Tensor] = []
    for unit in (1.0, 2.0**power):
        given = p.clone().requires_grad_()
        value = LOSSES[loss](given, y, *in_own_units(mean * unit, std * unit))
        value.backward()
        assert given.grad is not None
        found += [value.detach(), given.grad]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])
    assert float(found[0]) == float(LOSSES[loss](p, y, mean, std)), "ordinary units give what they always gave"


@pytest.mark.parametrize("normaliser", ["channel", "pixel"])
def test_training_in_any_unit(normaliser: str) -> None:
    x, y = fields()
    errors = []
    for unit_x, unit_y in ((1.0, 1.0), (2.0**-40, 2.0**-40), (1.0, 2.0**-66), (2.0**50, 2.0**83)):
        data = from_arrays(x * np.float32(unit_x), y * np.float32(unit_y))
        run = small(data, normaliser=normaliser)
        found = hofno.evaluate(run, data.test)
        errors.append(found["rel_l2"])
        wrong = (run.predict(data.test.x).double() - data.test.y.double()).square().mean()
        assert found["mse"] == pytest.approx(float(wrong), rel=1e-5, abs=0)
    assert errors == pytest.approx([errors[0]] * len(errors), rel=1e-3)
