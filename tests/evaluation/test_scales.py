"""Errors by scale over a split: bands and mean spectra do not depend on batches, and are those of known waves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno import spec as specs
from hofno import stages, storage
from hofno.data.dataset import Dataset, Split
from hofno.evaluation.scales import ByScale, band_metrics, plain, plain_spectra
from hofno.evaluation.score import score
from hofno.evaluation.spectrum import power_kinds
from hofno.geometry import Grid, Mesh
from hofno.show import Silent
from hofno.spec import Spec
from hofno.surrogate import Surrogate

GRID = Grid(shape=(32, 32))


def waves(wavenumbers: list[int], sizes: list[float]) -> torch.Tensor:
    """One sample, (1, 1, 32, 32): cosines along the first axis."""
    x = 2 * math.pi * torch.arange(32, dtype=torch.float64) / 32
    field = sum(size * torch.cos(k * x) for k, size in zip(wavenumbers, sizes, strict=True))
    return torch.as_tensor(field)[None, None, :, None].expand(1, 1, 32, 32)


def test_a_wave_counts_in_its_own_band() -> None:
    truth = waves([2, 8, 14], [1.0, 0.5, 0.25])
    scales = ByScale(power_kinds(GRID))
    scales.add_bands(waves([2, 8, 14], [1.1, 0.4, 0.5]), truth)
    errors = band_metrics(scales.bands())
    assert errors == pytest.approx({"rel_l2_low": 0.1, "rel_l2_medium": 0.2, "rel_l2_high": 1.0})


def test_spectra_are_half_the_mean_square() -> None:
    truth = waves([2, 8], [1.0, 0.5])
    scales = ByScale(power_kinds(GRID))
    scales.add_spectra(waves([2], [1.0]), truth)
    found = scales.spectra()["power"]
    assert float(found["truth"].sum()) == pytest.approx(float(truth.square().mean()) / 2)
    assert float(found["truth"][8]) == pytest.approx(0.5**2 / 4)
    assert float(found["error"][8]) == pytest.approx(0.5**2 / 4)
    assert float(found["prediction"][8]) == pytest.approx(0.0, abs=1e-12)


@given(st.integers(1, 6))
def test_batches_do_not_matter(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    p, y = (torch.randn(6, 2, 12, 9, generator=generator) for _ in range(2))
    whole, parts = ByScale(power_kinds(Grid(shape=(12, 9)))), ByScale(power_kinds(Grid(shape=(12, 9))))
    for scales, step in ((whole, 6), (parts, size)):
        for start in range(0, 6, step):
            batch = slice(start, start + step)
            scales.add_bands(p[batch], y[batch])
            scales.add_spectra(p[batch], y[batch])
    for name, values in whole.bands().items():
        torch.testing.assert_close(parts.bands()[name], values)
    torch.testing.assert_close(parts.spectra(), whole.spectra())


def test_an_empty_band_is_left_out() -> None:
    scales = ByScale(power_kinds(GRID))
    scales.add_bands(waves([2, 14], [1.0, 1e-3]), waves([2], [1.0]))
    assert set(scales.bands()) == {"low"}


def test_a_sample_with_nothing_in_a_band_does_not_count_there() -> None:
    scales = ByScale(power_kinds(GRID))
    truth = torch.cat((waves([2, 14], [1.0, 1.0]), waves([2], [1.0])))
    scales.add_bands(1.1 * truth + waves([14], [1e-2]), truth)
    found = scales.bands()
    assert set(found) >= {"low", "high"}
    assert found["high"].isnan().tolist() == [False, True]
    assert band_metrics(found)["rel_l2_high"] == pytest.approx(float(found["high"][0]))
    assert band_metrics(found)["rel_l2_low"] == pytest.approx(0.1)


def test_no_number_becomes_none() -> None:
    assert plain(torch.tensor([1.0, math.nan, math.inf])) == [1.0, None, None]
    assert plain_spectra({"power": {"truth": torch.tensor([math.nan])}}) == {"power": {"truth": [None]}}


SMALL = {
    "data": {"problem": "poisson", "degree": 2, "resolution": 40, "train": 4, "valid": 2, "test": 3},
    "model": {"name": "hofno", "modes": [6, 6], "width": 4, "depth": 1},
    "train": {"epochs": 1, "batch_size": 2},
    "device": "cpu",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spec, Dataset, Path, Surrogate]:
    spec, path = specs.parse(SMALL), tmp_path_factory.mktemp("scales") / "run"
    data = stages.make_data(spec)
    return spec, data, path, stages.train_run(spec, data, path, resume=False, show=Silent()).surrogate


def test_a_run_on_a_grid_has_errors_by_scale(trained: tuple[Spec, Dataset, Path, Surrogate]) -> None:
    spec, data, path, surrogate = trained
    record, _ = stages.evaluate_run(spec, data, path, surrogate)
    scales = ByScale(power_kinds(data.grid))
    scales.add_bands(surrogate.predict_tensor(data.test.x), data.test.y)
    expected = {name: float(values.mean()) for name, values in scales.bands().items()}
    assert set(expected) == {"low", "medium", "high"}
    assert {name: record["metrics"][f"rel_l2_{name}"] for name in expected} == pytest.approx(expected, rel=1e-5)
    truth = torch.tensor(storage.read_json(path / "evaluation.json")["spectra"]["power"]["truth"])
    assert float(truth.sum()) == pytest.approx(float(data.test.y.square().mean()) / 2, rel=1e-5)


def test_samples_that_belong_together_are_one(trained: tuple[Spec, Dataset, Path, Surrogate]) -> None:
    """The error of a band is then over all fields of a block, as its rel_l2 is."""
    _, data, _, surrogate = trained
    x, y = data.test.x[:2], data.test.y[:2]
    scales = ByScale(power_kinds(Mesh(shape=(40, 40))))
    score(surrogate, Split(x, y, together=2), scales=scales)
    expected = ByScale(power_kinds(data.grid))
    expected.add_bands(surrogate.predict_tensor(x).flatten(0, 1)[None], y.flatten(0, 1)[None])
    torch.testing.assert_close(scales.bands(), expected.bands(), rtol=1e-5, atol=0)
    assert len(scales.bands()["low"]) == 1
