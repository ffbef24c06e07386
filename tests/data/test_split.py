"""A split on its own: of arrays, sample by sample, and in a loader of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import hofno
from hofno import Split
from hofno.errors import DataError

X, Y, PLACES = (np.random.default_rng(0).random((6, channels, 5)) for channels in (2, 1, 3))


def test_arrays_become_float32() -> None:
    mask = np.arange(5) < 1 + np.arange(6)[:, None]
    split = Split(X, Y.astype(np.float32), PLACES, mask)
    assert split.coords is not None
    assert split.mask is not None
    assert {part.dtype for part in (split.x, split.y, split.coords)} == {torch.float32}
    np.testing.assert_array_equal(split.x, X.astype(np.float32))
    np.testing.assert_array_equal(split.mask, mask)
    assert Split(torch.from_numpy(X), torch.from_numpy(Y)).x.dtype == torch.float32
    with pytest.raises(DataError, match="x has 6 samples and y has 5"):
        Split(X, Y[:5])
    with pytest.raises(DataError, match="real and imaginary channels"):
        Split(torch.from_numpy(X).to(torch.complex64), Y)


def test_arrays_on_disk_stay_there(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    split = Split(np.load(tmp_path / "x.npy", mmap_mode="r"), Y)
    assert split.on_disk
    for found, expected in zip(split[3], (X[3], Y[3]), strict=True):
        np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_a_number_gives_one_sample() -> None:
    split = Split(X, Y)
    for number in (2, -1, np.int64(4), torch.tensor(3)):
        x, y = split[number]  # pyright: ignore[reportCallIssue, reportArgumentType, reportGeneralTypeIssues]
        assert torch.equal(x, split.x[number])
        assert torch.equal(y, split.y[number])
    assert len(list(split)) == 6  # pyright: ignore[reportArgumentType]
    for number in (6, -7):
        with pytest.raises(IndexError, match=f"there are 6 samples; got number {number}"):
            split[number]
    assert [part.shape for part in Split(X, Y, PLACES)[0]] == [(2, 5), (1, 5), (3, 5)]
    mask = np.arange(5) < 1 + np.arange(6)[:, None]
    assert torch.equal(Split(X, Y, PLACES, mask)[2][3], torch.arange(5) < 3)


def test_a_loader_of_pytorch() -> None:
    data = hofno.from_arrays(X, Y, seed=None, split=(4, 1, 1))
    train: Any = data.train
    batches = list(DataLoader(train, batch_size=3))
    assert [tuple(x.shape) for x, _ in batches] == [(3, 2, 5), (1, 2, 5)]
    assert torch.equal(torch.cat([y for _, y in batches]), data.train.y)
    shuffled = torch.cat([x for x, _ in DataLoader(train, batch_size=2, shuffle=True)])
    assert torch.equal(shuffled.flatten(1).sum(1).sort().values, data.train.x.flatten(1).sum(1).sort().values)
