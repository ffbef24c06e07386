"""A run goes on with the data it was started with, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno import HOFNO, Dataset, fit, from_arrays, storage
from hofno.data.dataset import Split, values_of
from hofno.data.ondisk import Values
from hofno.errors import DataError, ShapeError
from hofno.geometry import Grid
from hofno.problems.symmetry import mirror, square
from hofno.train import same_data


@pytest.fixture
def fields() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 1, 8, 8, generator=generator), torch.randn(12, 1, 8, 8, generator=generator)


def go(data: Dataset, out: Path, **settings: Any) -> None:
    torch.manual_seed(0)
    model = HOFNO(data.in_channels, 1, (3, 3), width=4, depth=1)
    fit(model, data, out=out, epochs=1, batch_size=4, device="cpu", progress=False, **settings)


def other_target(data: Dataset) -> Dataset:
    y = data.train.y.clone()
    y[3, 0, 2, 2] += 1e-3
    return replace(data, train=Split(data.train.x, y))


def other_validation(data: Dataset) -> Dataset:
    return replace(data, valid=data.train[:1])


def other_symmetry(data: Dataset) -> Dataset:
    return replace(data, symmetry=square())


def fewer_samples(data: Dataset) -> Dataset:
    return replace(data, train=data.train[:-1])


def other_geometry(data: Dataset) -> Dataset:
    return replace(data, grid=Grid(shape=(8, 8), periodic=True))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (other_target, r"train\.y was float32 \(10, 1, 8, 8\) \w{16} and is float32 \(10, 1, 8, 8\) \w{16}"),
        (other_validation, r"valid\.x was float32"),
        (fewer_samples, r"train\.x was float32 \(10, .* and is float32 \(9,"),
        (other_symmetry, r"symmetry was \w{16} and is \w{16}"),
        (other_geometry, "geometry was .*False.* and is .*True"),
    ],
)
def test_other_data_are_refused(
    fields: tuple[Tensor, Tensor], tmp_path: Path, change: Callable[[Dataset], Dataset], part: str
) -> None:
    data = from_arrays(*fields, symmetry=mirror(0))
    go(data, tmp_path)
    with pytest.raises(DataError, match=f"was started with other data: {part}") as caught:
        go(change(data), tmp_path, resume=True)
    assert "\n" not in str(caught.value)
    go(data, tmp_path, resume=True)


def test_another_shuffle_is_other_data(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    go(from_arrays(*fields, seed=0), tmp_path)
    with pytest.raises(DataError, match="other data"):
        go(from_arrays(*fields, seed=1), tmp_path, resume=True)


def test_the_test_split_may_change(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    data = from_arrays(*fields)
    go(data, tmp_path)
    go(replace(data, test=data.train), tmp_path, resume=True)


def test_a_run_without_a_note_gets_one(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    data = from_arrays(*fields)
    go(data, tmp_path)
    (tmp_path / same_data.FILE).unlink()
    go(data, tmp_path, resume=True)
    with pytest.raises(DataError, match="other data"):
        go(other_target(data), tmp_path, resume=True)


def test_a_note_from_before_symmetries_were_noted(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    data = from_arrays(*fields, symmetry=square())
    go(data, tmp_path)
    noted = storage.read_json(tmp_path / same_data.FILE)
    del noted["symmetry"]
    storage.write_json(tmp_path / same_data.FILE, noted)
    go(data, tmp_path, resume=True)


def test_a_run_that_never_began_binds_nobody(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    data = from_arrays(*fields)
    with pytest.raises(ShapeError):
        fit(HOFNO(3, 1, (3, 3), width=4, depth=1), data, out=tmp_path, device="cpu", progress=False)
    go(other_target(data), tmp_path)


def test_points_and_masks_count() -> None:
    coords = [torch.rand(2, count) for count in (5, 7, 6, 7)]
    y = [torch.randn(1, part.shape[1]) for part in coords]
    data = from_arrays(None, y, coords, split=(2, 1, 1), seed=None)
    found = same_data.describe_data(data)
    assert {"train.x", "train.y", "train.coords", "train.mask", "valid.coords"} <= set(found)
    assert data.train.coords is not None
    moved = replace(data, train=Split(data.train.x, data.train.y, data.train.coords + 1e-3, data.train.mask))
    assert same_data.describe_data(moved)["train.coords"] != found["train.coords"]


def test_the_same_numbers_on_disk_are_the_same_data(fields: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", fields[1].numpy())
    mapped = values_of(np.load(tmp_path / "y.npy", mmap_mode="r"))
    assert not isinstance(mapped, Tensor)
    assert same_data.describe_values(mapped) == same_data.describe_values(fields[1])


@given(st.integers(0, 9), st.integers(0, 3), st.integers(2, 12))
def test_large_arrays_are_told_by_samples_spread_over_them(samples: int, channels: int, budget: int) -> None:
    """The first and the last sample are always among them, and no more are read than the budget allows."""
    values = torch.arange(samples * channels, dtype=torch.float32).view(samples, channels, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(same_data, "BUDGET", budget * 4 * max(1, channels))
        whole = same_data.describe_values(values)
        seen = 0
        for row in range(samples if channels else 0):
            changed = values.clone()
            changed[row] += 1
            differs = same_data.describe_values(changed) != whole
            seen += differs
            assert differs or row not in (0, samples - 1)
        assert seen == (min(samples, budget) if channels else 0)


def test_numbers_are_hashed_once(
    fields: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = same_data.describe_values, []

    def counting(values: Values) -> str:
        seen.append(values)
        return plain(values)

    monkeypatch.setattr(same_data, "describe_values", counting)
    go(from_arrays(*fields), tmp_path / "run")
    assert len(seen) == 4  # inputs and targets of two splits
    stamp = storage.read_json(tmp_path / "run" / "model.json")["stamp"]
    assert stamp["contents"] == storage.read_json(tmp_path / "run" / same_data.FILE)
