"""Training that begins with a trained operator goes on from what that operator is."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_train_resume import stop_after
from torch import Tensor, nn

import hofno
from hofno import HOFNO, Dataset, Run, fit, from_arrays, generate
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import CheckpointError, HofnoError, ShapeError, SpecError
from hofno.train.loop import Interrupted

Trained = Callable[..., Run]
QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "epochs": 1, "batch_size": 8}
STILL: dict[str, Any] = {**QUIET, "lr": 1e-30, "weight_decay": 0.0}
"""Settings by which weights stay as they are."""

SMALL: dict[str, Any] = {"degree": 2, "k_min": 2, "k_max": 4, "waves": 8, "valid": 4, "test": 6}


@pytest.fixture(scope="session")
def others() -> Dataset:
    """Other samples, on a finer grid and in other units than those of `data`."""
    found = generate("poisson", resolution=20, train=8, seed=5, **SMALL)
    x, y = (np.concatenate([getattr(split, name) for split in (found.train, found.valid)]) for name in ("x", "y"))
    return from_arrays(3 * x + 1, 5 * y - 2, periodic=True, split=(8, 2, 2), seed=None)


@pytest.mark.parametrize("as_what", ["run", "operator", "folder"])
def test_it_begins_as_the_operator(trained: Trained, others: Dataset, tmp_path: Path, as_what: str) -> None:
    run = trained(epochs=3)
    before = copy.deepcopy(run.surrogate)
    model = HOFNO(2, 1, (4, 4), width=8, depth=1, order=2)
    if as_what == "folder":
        found = fit(model, others, start=run.save(tmp_path / "saved"), **STILL)
        assert found.surrogate.model is model
    else:
        found = fit(run if as_what == "run" else run.surrogate, others, **STILL)
    x = others.test.x.numpy()
    np.testing.assert_array_equal(found.predict(x), before.predict(x))
    other = fit(HOFNO(2, 1, (4, 4), width=8, depth=1, order=2), others, **STILL)
    assert np.abs(other.predict(x) - before.predict(x)).max() > 0.1
    assert found.surrogate.grid == others.grid
    assert found.surrogate.experience is not None
    assert found.surrogate.stamp["start"]["data"]["problem"] == "poisson"


def test_the_operator_stays_as_it_is(trained: Trained, others: Dataset, weights_of: Callable[[Run], Tensor]) -> None:
    run = trained()
    before, statistics = weights_of(run).clone(), run.surrogate.inputs.mean.clone()
    found = fit(run, others, **QUIET)
    assert torch.equal(weights_of(run), before)
    assert torch.equal(run.surrogate.inputs.mean, statistics)
    assert not torch.equal(weights_of(found), before)
    assert torch.equal(found.surrogate.inputs.mean, statistics)


def test_what_was_learnt_helps_where_samples_are_few() -> None:
    many = generate("poisson", resolution=16, train=200, **SMALL)
    few = generate("poisson", resolution=20, train=8, seed=5, **SMALL)
    settings: dict[str, Any] = {"device": "cpu", "progress": False, "batch_size": 4, "optimiser": "muon", "lr": 8e-3}
    arguments: dict[str, Any] = {"width": 16, "depth": 1, "order": 2, "coordinates": "none"}
    known = fit(HOFNO(2, 1, (6, 6), **arguments), many, epochs=4, **settings)
    further = fit(known, few, epochs=4, **settings)
    anew = fit(HOFNO(2, 1, (6, 6), **arguments), few, epochs=4, **settings)
    errors = [hofno.evaluate(one, few.test)["rel_l2"] for one in (further, anew)]
    assert errors[0] < 0.5 * errors[1]


def test_an_operator_of_another_version_is_no_less_a_start(trained: Trained) -> None:
    operator = copy.deepcopy(trained().surrogate)
    operator.stamp["data"]["parameters"]["waves_once"] = 3
    fit(operator, generate("poisson", resolution=16, train=8, seed=5, **SMALL), **QUIET)


def test_resume_is_exact_and_wants_the_same_operator(
    trained: Trained, others: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = trained(), trained(epochs=1)
    settings = {**QUIET, "epochs": 3, "batch_size": 4}
    unbroken = fit(run, others, **settings)
    stop_after(monkeypatch, 3, signal.SIGINT)
    with pytest.raises(Interrupted):
        fit(run, others, out=tmp_path / "run", **settings)
    monkeypatch.undo()
    with pytest.raises(
        CheckpointError, match=r"started with other settings: start was [0-9a-f]{16} and is [0-9a-f]{16}"
    ):
        fit(other, others, out=tmp_path / "run", resume=True, **settings)
    with pytest.raises(CheckpointError, match=r"start was [0-9a-f]{16} and is"):
        fit(HOFNO(2, 1, (4, 4), width=8, depth=1), others, out=tmp_path / "run", resume=True, **settings)
    saved = run.save(tmp_path / "saved")  # the same operator, from elsewhere
    resumed = fit(hofno.load(saved), others, out=tmp_path / "run", resume=True, **settings)
    for name, value in unbroken.surrogate.model.state_dict().items():
        assert torch.equal(resumed.surrogate.model.state_dict()[name], value), name
    x = others.test.x.numpy()
    np.testing.assert_array_equal(hofno.load(tmp_path / "run").predict(x), unbroken.predict(x))


def test_stochastic_depth_may_be_another(trained: Trained, others: Dataset, tmp_path: Path) -> None:
    saved = trained(model={"depth": 2}).save(tmp_path / "saved")
    fit(HOFNO(2, 1, (4, 4), width=8, depth=2, drop_path=0.3), others, start=str(saved), **QUIET)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other modes": ({"modes": (5, 4)}, {}, r"model\.modes is \[5, 4\] and that of the operator to start with \[4, 4\]"),
    "other width": ({"width": 12}, {}, r"model\.width is 12 .* set model\.width=8"),
    "other padding": ({"domain_padding": 0.5}, {}, r"model\.domain_padding is 0\.5"),
    "inputs as they are": ({}, {"normalise_inputs": False}, "takes inputs by statistics of channels, and the settings"),
    "of pixels": ({}, {"normaliser": "pixel"}, "set train.normalise_inputs=true and train.normaliser='channel'"),
}


@pytest.mark.parametrize("case", CASES)
def test_settings_that_contradict_it_are_refused(trained: Trained, others: Dataset, tmp_path: Path, case: str) -> None:
    arguments, settings, message = CASES[case]
    saved = trained().save(tmp_path / "saved")
    model = HOFNO(2, 1, **{"modes": (4, 4), "width": 8, "depth": 1, "order": 2, **arguments})
    with pytest.raises(SpecError, match=message):
        fit(model, others, start=str(saved), **{**QUIET, **settings})


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({"normaliser": "pixel"}, True),
        ({"normaliser": "column"}, True),
        ({"normalise_targets": False}, True),
        ({"normaliser": "pixel"}, False),
    ],
)
def test_it_standardises_as_it_was_trained(
    trained: Trained, data: Dataset, settings: dict[str, Any], used: bool
) -> None:
    run = trained(**settings)
    if used:
        found = fit(run, data, **STILL, **settings)
        np.testing.assert_array_equal(found.predict(data.test.x.numpy()), run.predict(data.test.x.numpy()))
    else:
        with pytest.raises(SpecError, match="by statistics of each pixel, and the settings by statistics of channels"):
            fit(run, data, **STILL)


def test_statistics_of_places_belong_to_their_grid(trained: Trained, others: Dataset) -> None:
    with pytest.raises(ShapeError, match=r"its grid \(16, 16\), and these data lie on \(20, 20\)"):
        fit(trained(normaliser="pixel"), others, normaliser="pixel", **QUIET)


class Own(nn.Module):
    """A network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Conv2d(2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


def test_networks_of_the_users_own_go_on_too(data: Dataset, others: Dataset) -> None:
    run = fit(Own(), data, **QUIET)
    found = fit(run, others, **STILL)
    np.testing.assert_array_equal(found.predict(others.test.x.numpy()), run.predict(others.test.x.numpy()))


class Keeping(Own):
    """One that keeps more than float32 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(2, dtype=torch.bfloat16))
        self.noted = 3

    def get_extra_state(self) -> dict[str, int]:
        return {"noted": self.noted}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.noted = state["noted"]


def test_networks_may_keep_other_things_than_float32(data: Dataset, others: Dataset) -> None:
    run = fit(Keeping(), data, **QUIET)
    digests = []
    for noted in (3, 3, 4):
        run.surrogate.model.noted = noted  # pyright: ignore[reportAttributeAccessIssue]
        digests.append(fit(run, others, **STILL).surrogate.stamp["start"]["digest"])
    assert digests[0] == digests[1] != digests[2]


def test_what_is_no_start_is_refused(trained: Trained, data: Dataset, others: Dataset, tmp_path: Path) -> None:
    run = trained()
    joined = hofno.combine([run, trained(seed=1, model={"seed": 1})])
    with pytest.raises(SpecError, match="joins 2 networks"):
        fit(joined, others, **QUIET)
    with pytest.raises(SpecError, match="leave one of them out"):
        fit(run, others, start=str(run.save(tmp_path / "saved")), **QUIET)
    with pytest.raises(SpecError, match="is a HOFNO and the model a Own"):
        fit(Own(), others, start=str(tmp_path / "saved"), **QUIET)
    with pytest.raises(CheckpointError, match="no saved model at nowhere"):
        fit(Own(), others, start="nowhere", **QUIET)
    three = generate("poisson", resolution=16, train=8, seed=5, **{**SMALL, "degree": 3})
    with pytest.raises(ShapeError, match="takes 2 input channels and predicts 1; these data have 3 and 1"):
        fit(run, three, **QUIET)
    line = from_arrays(np.ones((8, 2, 9)), np.ones((8, 1, 9)) * np.arange(9), split=(4, 2, 2))
    with pytest.raises(ShapeError, match="of as many axes"):
        fit(run, line, **QUIET)
    with pytest.raises(HofnoError, match="fit trains a torch module"):
        fit("saved", others, **QUIET)  # pyright: ignore[reportArgumentType]
    frames = hofno.from_trajectories(np.random.default_rng(0).normal(size=(10, 5, 16, 16)), history=2)
    with pytest.raises(ShapeError, match="predicts targets in one pass, and these data ask for the next frame"):
        fit(run, frames, **QUIET)


def test_inputs_in_other_units_are_told(trained: Trained, data: Dataset, capfd: pytest.CaptureFixture[str]) -> None:
    run, told = trained(), "times farther from those that the operator to start with was trained on"
    fit(run, generate("poisson", resolution=20, train=8, seed=5, **SMALL), **{**QUIET, "progress": True})
    assert told not in capfd.readouterr().out
    x, y = (np.concatenate([getattr(split, name) for split in (data.train, data.valid)]) for name in ("x", "y"))
    fit(run, from_arrays(1e4 * x, y, periodic=True), **{**QUIET, "progress": True})
    assert told in capfd.readouterr().out


def test_at_points_the_box_of_the_operator_stays() -> None:
    rng = np.random.default_rng(0)

    def cloud(width: float) -> Dataset:
        places = rng.uniform(0, width, (12, 2, 30)).astype(np.float32)
        return from_arrays(None, np.sin(3 * places.sum(1, keepdims=True)), places, split=(8, 2, 2), seed=None)

    wide, narrow = cloud(2.0), cloud(1.0)
    run = fit(hofno.PointHO(0, 1, width=16, depth=1, tokens=4, heads=2), wide, **QUIET)
    found = fit(run, narrow, **STILL)
    assert found.surrogate.grid.low == run.surrogate.grid.low  # pyright: ignore[reportAttributeAccessIssue]
    places = narrow.test.coords
    assert places is not None
    np.testing.assert_array_equal(found.predict(None, places.numpy()), run.predict(None, places.numpy()))
    in_space = from_arrays(None, rng.normal(size=(12, 1, 30)), rng.uniform(size=(12, 3, 30)), split=(8, 2, 2))
    with pytest.raises(ShapeError, match="same kind of places, of as many axes"):
        fit(run, in_space, **QUIET)


def test_frames_go_on_from_frames() -> None:
    rng = np.random.default_rng(0)
    slow, fast = (hofno.from_trajectories(rng.normal(1, 2, size=(10, 5, 16)), history=2) for _ in range(2))
    run = fit(HOFNO(2, 1, (4,), width=8, depth=1), slow, **QUIET)
    found = fit(run, fast, **STILL)
    x = fast.test.x.numpy()
    np.testing.assert_array_equal(found.predict(x), run.predict(x))
    assert isinstance(found.surrogate.inputs, ChannelNormaliser)
    assert torch.equal(found.surrogate.inputs.mean, run.surrogate.inputs.mean)
