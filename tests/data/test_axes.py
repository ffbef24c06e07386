"""Axes in another order than (n, channels, *grid), and files that are no arrays: told with what to do."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.problems import problem
from hofno.problems.axes import warn_of_channels_last
from hofno.spec import override, parse

GIVEN: dict[str, tuple[int, ...]] = {
    "x": (9, 2, 8, 8),
    "y": (9, 1, 8, 8),
    "x_last": (9, 8, 8, 2),
    "y_last": (9, 8, 8, 1),
    "line": (9, 8, 1),
    "few": (2, 1, 8, 8),
    "bare": (9, 8, 8),
    "stress": (9, 1, 12),
    "places_last": (9, 12, 2),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, shape in GIVEN.items():
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=shape))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"x": "x_last", "y": "y_last"}, "give numpy.moveaxis(x, -1, 1) and numpy.moveaxis(y, -1, 1)"),
        ({"x": "x", "y": "bare"}, "a single channel needs its axis: give y[:, None]"),
        ({"x": "line", "y": "line"}, "channels are the second axis: give numpy.moveaxis(y, -1, 1)"),
        ({"x": "few", "y": "few"}, "few.npy holds 2 samples, and each of training, validation and test needs one"),
        ({"y": "stress", "coords": "places_last"}, "the coordinates of a point come before it"),
    ],
)
def test_axes_of_files(files: Path, given: dict[str, str], told: str) -> None:
    with pytest.raises(SpecError, match=re.escape(told)):
        problem("arrays", {name: f"{file}.npy" for name, file in given.items()})


def test_axes_that_look_like_channels(files: Path) -> None:
    line = r"y \(9, 8, 8, 2\) is taken for 8 channels on 8 x 2 points; if its channels come last"
    with pytest.warns(UserWarning, match=line):
        problem("arrays", {"x": "x_last.npy", "y": "x_last.npy"})
    last = np.load("x_last.npy")
    with pytest.warns(UserWarning, match=line):
        hofno.from_arrays(last, last)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((9, 1, 32), (9, 3, 64, 4), (9, 2, 8, 8), (9, 1, 2), (9, 4, 16, 16, 16)):
            warn_of_channels_last("y", shape)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((5, 8, 8, 2), "give numpy.moveaxis(x, -1, 1)"),
        ((5, 3, 8, 8), "got shape (5, 3, 8, 8)"),
    ],
)
def test_axes_of_what_is_predicted(shape: tuple[int, ...], told: str) -> None:
    operator = trained(2)
    with pytest.raises(ShapeError, match=re.escape(told)):
        operator.predict(torch.zeros(shape))


@pytest.mark.parametrize(("shape", "fix"), [((8, 8), "x[None]"), ((5, 8, 8), "x[:, None]")])
def test_a_single_channel_without_its_axis(shape: tuple[int, ...], fix: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(f"a single channel needs its axis: give {fix}")):
        trained(1).predict(torch.zeros(shape))


def test_more_frames_than_a_model_in_time_takes() -> None:
    frames = np.random.default_rng(0).normal(size=(10, 6, 8))
    data = hofno.from_trajectories(frames, history=2)
    model = hofno.HOFNO(2, 1, modes=(3,), width=4, depth=1)
    run = hofno.fit(model, data, epochs=1, device="cpu", progress=False)
    with pytest.raises(ShapeError, match=re.escape("takes the last frames: give x[:, -2:]")):
        run.predict(frames)
    assert run.predict(frames[:, -2:]).shape == (10, 4, 8)


def trained(channels: int) -> Any:
    rng = np.random.default_rng(0)
    data = hofno.from_arrays(rng.normal(size=(10, channels, 8, 8)), rng.normal(size=(10, 1, 8, 8)))
    model = hofno.HOFNO(channels, 1, modes=(3, 3), width=4, depth=1)
    return hofno.fit(model, data, epochs=1, device="cpu", progress=False)


def test_places_of_points_in_another_order() -> None:
    rng = np.random.default_rng(0)
    places = rng.random((10, 2, 12))
    data = hofno.from_arrays(None, places[:, :1] ** 2, coords=places)
    model = hofno.PointHO(0, 1, width=4, depth=1, order=2, tokens=2, heads=1)
    run = hofno.fit(model, data, epochs=1, device="cpu", progress=False)
    with pytest.raises(ShapeError, match="the places are the only input: leave the fields x out"):
        run.predict(places, places)
    for few in ([], places[0, :, 0], 1.0):
        with pytest.raises(ShapeError, match=r"expected coords \(n, 2, N\), or \(2, N\) of one sample; got shape"):
            run.predict(None, few)
    with pytest.raises(ShapeError, match=re.escape("give numpy.moveaxis(coords, -1, -2)")):
        run.predict(None, np.moveaxis(places, 1, 2))


def test_files_that_hold_no_array_of_numbers(files: Path) -> None:
    np.savez(files / "both.npz", x=np.zeros((9, 1, 8)))
    np.save(files / "words.npy", np.array([1, "a"], dtype=object), allow_pickle=True)
    np.save(files / "waves.npy", np.zeros((9, 1, 8, 8), complex))
    for name, told in (
        ("both.npz", "is an archive, as of numpy.savez, and one array is needed; write it with numpy.save"),
        ("words.npy", "holds Python objects, not numbers"),
        ("waves.npy", "holds complex numbers, and fields are real; save real and imaginary parts as two channels"),
    ):
        with pytest.raises(HofnoError, match=told):
            problem("arrays", {"x": name, "y": "y.npy"})


@pytest.mark.parametrize(
    ("key", "meant"), [("epochs", "train.epochs"), ("modes", "model.modes"), ("sede", "seed"), ("lables", "label")]
)
def test_keys_outside_of_their_section(key: str, meant: str) -> None:
    spec = parse({"data": {"problem": "poisson"}, "model": {"name": "hofno", "modes": [4, 4]}})
    with pytest.raises(SpecError, match=f"unknown key '{key}'; did you mean '{meant}'"):
        override(spec, {key: 3})
