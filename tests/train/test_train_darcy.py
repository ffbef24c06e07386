"""A Darcy run from spec to saved operator: the published loss and normalisers, and the data through the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hofno
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import ShapeError, SpecError

PARAMETERS: dict[str, Any] = {"resolution": 9, "solver_resolution": 17, "train": 6, "valid": 2, "test": 2}


@pytest.fixture(scope="module")
def data() -> hofno.Dataset:
    return hofno.generate("darcy", **PARAMETERS)


def small() -> hofno.HOFNO:
    torch.manual_seed(0)
    return hofno.HOFNO(1, 1, modes=(3, 3), width=4, depth=1, order=2, domain_padding=0.5)


@pytest.mark.parametrize("normaliser", ["channel", "pixel", "column"])
def test_every_normaliser_trains_and_is_saved(data: hofno.Dataset, normaliser: str, tmp_path: Path) -> None:
    run = hofno.fit(small(), data, epochs=3, batch_size=3, loss="rel_l2_gradient", normaliser=normaliser)
    assert run.history[-1]["train_loss"] < run.history[0]["train_loss"]
    found = run.surrogate.targets.mean.shape
    assert tuple(found) == {"channel": (1,), "pixel": (1, 9, 9), "column": (1, 1, 9)}[normaliser]
    loaded = hofno.load(run.save(tmp_path / "model"))
    assert torch.equal(loaded.predict(data.test.x), run.predict(data.test.x))
    assert hofno.evaluate(loaded, data.test) == hofno.evaluate(run, data.test)


def test_statistics_of_pixels_stay_on_their_grid(data: hofno.Dataset) -> None:
    run = hofno.fit(small(), data, epochs=1, batch_size=3, normaliser="pixel")
    with pytest.raises(ShapeError, match="on the grid of the training data"):
        run.predict(torch.ones(1, 1, 17, 17))
    assert isinstance(hofno.fit(small(), data, epochs=1).surrogate.inputs, ChannelNormaliser)


def test_frames_have_the_statistics_of_a_channel() -> None:
    flow = hofno.generate(
        "navier_stokes",
        viscosity=1e-2,
        train=2,
        valid=1,
        test=1,
        resolution=8,
        solver_resolution=8,
        frames=3,
        history=1,
    )
    torch.manual_seed(0)
    model = hofno.HOFNO(1, 1, modes=(2, 2), width=4, depth=1, order=2)
    with pytest.raises(SpecError, match="normaliser='channel'; got 'pixel'"):
        hofno.fit(model, flow, epochs=1, normaliser="pixel")


def test_stored_data_are_the_generated_ones(data: hofno.Dataset, tmp_path: Path) -> None:
    made = hofno.generate("darcy", store=tmp_path, **PARAMETERS)
    again = hofno.generate("darcy", store=tmp_path, **PARAMETERS)
    for split in ("train", "valid", "test"):
        for found in (made, again):
            assert torch.equal(getattr(found, split).x, getattr(data, split).x)
            assert torch.equal(getattr(found, split).y, getattr(data, split).y)
    assert not data.grid.periodic
