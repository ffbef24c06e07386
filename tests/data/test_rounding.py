"""Numbers that float32 does not hold beside their mean are told where they come in, and nothing else is."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.data import rounding

E = np.random.default_rng(0).standard_normal((40, 1, 32))
PRESSURE = 101325.0


def told(x: Any, y: Any, *coords: Any, **settings: Any) -> str:
    """The one warning of `from_arrays`, or nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hofno.from_arrays(x, y, *coords, **settings)
    assert all(row.filename == __file__ for row in caught), "it names the caller"
    assert len(caught) < 2
    return str(caught[0].message) if caught else ""


@pytest.mark.parametrize(("deviation", "percent"), [(0.05, "4.6 %"), (0.01, "23 %"), (1e-5, "% of the")])
def test_what_float32_rounds_away_is_told(deviation: float, percent: str) -> None:
    found = told(E, PRESSURE + deviation * E)
    assert found.startswith("channel 0 of y has mean 101325 and deviation")
    assert percent in found
    assert found.endswith("subtract the mean first, in float64")
    assert told(E, deviation * E) == ""


def test_of_float32_numbers_too() -> None:
    found = told((PRESSURE + 0.05 * E).astype(np.float32), E)
    assert found.startswith("channel 0 of x has mean 101325 and deviation 0.0491")


@pytest.mark.parametrize(
    "quiet",
    [
        PRESSURE + 10.0 * E,
        np.full_like(E, PRESSURE),
        np.full_like(E, 0.1) + 1e-17 * np.sign(E),
        np.where(E > 0, np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))),
        np.where(np.arange(32) < 30, E, PRESSURE),  # single places that are constant
        1e-30 * E,
        np.zeros_like(E),
        E > 0,
    ],
)
def test_constants_and_ordinary_numbers_are_not_told(quiet: np.ndarray) -> None:
    assert told(quiet, E) == ""
    assert told(E, quiet) == ""


@pytest.mark.parametrize("unit", [1e-39, 1e-44, 1e-50, 1e-300])
def test_numbers_that_float32_loses_are_told(unit: float) -> None:
    """They would count as a constant, or be 0, and errors would have no meaning."""
    found = told(np.concatenate((E, unit * E), 1), E)
    assert found.startswith("channel 1 of x has numbers of about")
    assert found.endswith("float32 loses those below 1.2e-38; rescale them, by another unit")
    with pytest.warns(
        UserWarning, match=r"frames has numbers of about .*e-\d+, and float32 loses those below 1\.2e-38"
    ):
        hofno.from_trajectories(unit * E.cumsum(0).reshape(10, 4, 32))
    assert told(E, 1e-37 * E) == ""
    assert told(E, 0 * E + (np.arange(40) == 3)[:, None, None] * unit) != ""


def test_each_channel_has_its_mean() -> None:
    near = PRESSURE + 0.01 * E
    assert told(np.concatenate((E, near), 1), E).startswith("channel 1 of x has")
    assert told(E, np.concatenate((near, E, near), 1)).startswith("channel 0 of y (and 1 more channels) has")


def test_noise_of_float32_is_not_told_beside_other_channels() -> None:
    noise = np.where(E > 0, np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1)))
    assert told(np.concatenate((E, noise), 1), E) == ""


def test_places() -> None:
    places = np.random.default_rng(1).random((40, 2, 32))
    far = places * [[1.0], [0.01]] + [[0.0], [PRESSURE]]
    assert told(None, E, places) == ""
    assert told(None, E, far).startswith("channel 1 of coords has mean 101325")
    assert told(None, E, far[0]).startswith("channel 1 of coords has mean 101325")
    assert told(None, E.reshape(40, 1, 8, 4), far.reshape(40, 2, 8, 4)) == told(None, E, far)
    lists = [list(part) for part in (E, far)]
    assert told(None, *lists) == told(None, E, far)
    for shared in (far[0].tolist(), torch.from_numpy(far[0])):
        assert told(None, E, shared) == told(None, E, far[0])


def test_what_a_mask_leaves_out_does_not_count() -> None:
    mask = np.arange(32) < 20 + np.arange(40)[:, None] % 3
    places, near = np.random.default_rng(1).random((40, 2, 32)), PRESSURE + 0.01 * E
    for absent in (0.0, np.nan, 1e300):
        assert told(None, np.where(mask[:, None], near, absent), places, mask=mask).startswith("channel 0 of y has")
    assert told(None, np.where(mask[:, None], E, 1e300), places, mask=mask) == ""


def test_kinds_of_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = PRESSURE + 0.001 * E
    expected = told(E, near)
    np.save(tmp_path / "y.npy", near)
    for other in (torch.from_numpy(near), near.tolist(), np.load(tmp_path / "y.npy", mmap_mode="r")):
        assert told(E, other) == expected != ""
    monkeypatch.setattr(rounding, "PIECE", 4 * 32)
    assert told(E, near).startswith("channel 0 of y has mean 101325"), "some samples are enough"


def test_frames() -> None:
    frames = np.random.default_rng(1).standard_normal((10, 4, 2, 32))
    frames[:, :, 1] = PRESSURE + 0.01 * frames[:, :, 1]
    with pytest.warns(UserWarning, match=r"^channel 1 of frames has mean 101325 and deviation 0\.0"):
        hofno.from_trajectories(frames, fields=True)
    with pytest.warns(UserWarning, match=r"^frames has mean 101325 and deviation 0\.0"):
        hofno.from_trajectories(frames[:, :, 1])
    hofno.from_trajectories(frames[:, :, 0])


def test_a_pressure_is_learnt() -> None:
    """As it is with its mean subtracted, up to rounding."""
    x = np.random.default_rng(0).standard_normal((200, 1, 32))
    with pytest.warns(UserWarning, match="subtract the mean"):
        data = hofno.from_arrays(x, PRESSURE + 0.05 * x, seed=None)
    torch.manual_seed(0)
    model = hofno.HOFNO(1, 1, modes=(9,), width=16, depth=1, coordinates="none")
    run = hofno.fit(model, data, epochs=30, device="cpu", progress=False)
    wrong = (run.predict(x[-20:]) - (PRESSURE + 0.05 * x[-20:])) / 0.05
    assert np.sqrt((wrong**2).mean()) < 0.1
