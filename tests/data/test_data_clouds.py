"""Fields at scattered points: arrays, masks and lists of samples, told apart from meshes, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno import from_arrays, generate, read
from hofno.data.dataset import Split
from hofno.errors import DataError, SpecError
from hofno.geometry import Mesh, Points
from hofno.problems import elasticity


def clouds(n: int = 10, points: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2, points)), rng.standard_normal((n, 1, points)), rng.random((n, 2, points))


def ragged(counts: list[int]) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    x, y = ([rng.standard_normal((rows, n)) for n in counts] for rows in (2, 1))
    return x, y, [rng.random((2, n)) for n in counts]


def test_points_keep_their_places_beside_the_fields() -> None:
    x, y, coords = clouds()
    data = from_arrays(x, y, coords, seed=None, split=(6, 2, 2))
    assert (data.in_channels, data.out_channels) == (2, 1)
    assert isinstance(data.grid, Points)
    assert data.train.mask is None
    np.testing.assert_array_equal(data.valid.coords, coords[6:8].astype(np.float32))
    inside = coords[:6].astype(np.float32)
    assert data.grid.low == tuple(inside.min((0, 2)).tolist()), "the box is around the training points"
    assert data.grid.high == tuple(inside.max((0, 2)).tolist())


def test_shared_places_and_places_as_the_only_input() -> None:
    _, y, coords = clouds()
    data = from_arrays(None, y, coords[0], seed=None)
    assert data.in_channels == 0
    assert data.train.x.shape == (8, 0, 7)
    assert data.test.coords is not None
    np.testing.assert_array_equal(data.test.coords[0], coords[0].astype(np.float32))


def test_the_shuffle_keeps_samples_together() -> None:
    x, y, coords = clouds()
    data = from_arrays(x, y, coords, seed=3)
    assert data.train.coords is not None
    for a, b, c in zip(data.train.x, data.train.y, data.train.coords, strict=True):
        index = int(np.argmax((x.astype(np.float32) == a.numpy()).all((1, 2))))
        np.testing.assert_array_equal(y[index].astype(np.float32), b.numpy())
        np.testing.assert_array_equal(coords[index].astype(np.float32), c.numpy())


@given(st.lists(st.integers(2, 9), min_size=4, max_size=8))
def test_samples_of_different_size_are_filled_up(counts: list[int]) -> None:
    x, y, coords = ragged(counts)
    data = from_arrays(x, y, coords, seed=None, split=(len(counts) - 2, 1, 1))
    assert isinstance(data.grid, Points)
    most = max(counts)
    for split, first in ((data.train, 0), (data.valid, len(counts) - 2), (data.test, len(counts) - 1)):
        assert split.coords is not None
        for row in range(len(split)):
            n = counts[first + row]
            for found, given_part in ((split.x, x), (split.y, y), (split.coords, coords)):
                np.testing.assert_array_equal(found[row, :, :n], given_part[first + row].astype(np.float32))
                assert not bool(found[row, :, n:].any())
            inside = [True] * most if split.mask is None else split.mask[row].tolist()
            assert inside == [index < n for index in range(most)]


def test_a_mask_hides_whatever_stands_there() -> None:
    x, y, coords = clouds()
    mask = np.arange(7) < np.arange(1, 11)[:, None]
    hidden = [np.where(mask[:, None], part, np.nan) for part in (x, y, coords)]
    data = from_arrays(*hidden, mask=mask, seed=None)
    assert data.train.mask is not None
    np.testing.assert_array_equal(data.train.mask, mask[:8])
    np.testing.assert_array_equal(data.train.x, np.where(mask[:, None], x, 0)[:8].astype(np.float32))
    assert from_arrays(x, y, coords, mask=np.ones((10, 7), bool)).train.mask is None, "all are there"
    line = from_arrays(x, y, coords[:, :1], mask=mask)
    assert isinstance(line.grid, Points), "a mask is for points, of one coordinate too"


def test_meshes_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    x, y, coords = rng.random((10, 1, 4, 5)), rng.random((10, 1, 4, 5)), rng.random((10, 2, 4, 5))
    data = from_arrays(x, y, coords)
    assert data.grid == Mesh(shape=(4, 5))
    assert data.in_channels == 3
    assert data.train.coords is None
    assert from_arrays(None, y, coords).in_channels == 2
    assert from_arrays(x[..., 0], y[..., 0], coords[:, :1, :, 0]).grid == Mesh(shape=(4,))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, y, c: {"x": x, "y": y, "coords": c[:, :, :-1]}, r"coords must be \(d, \*grid\) or \(n, d, \*grid\)"),
        (lambda x, y, c: {"x": x, "y": y, "coords": c, "periodic": True}, "periodic=True is for regular grids"),
        (lambda x, y, c: {"x": None, "y": y}, "x=None is for data with coords"),
        (lambda x, y, c: {"x": x, "y": y, "mask": np.ones((10, 7))}, "a mask is for data with coords"),
        (lambda x, y, c: {"x": x, "y": y, "coords": c, "mask": np.ones((10, 6))}, "the mask must be boolean"),
        (lambda x, y, c: {"x": x, "y": y, "coords": c, "mask": np.zeros((10, 7))}, "without a single point"),
        (lambda x, y, c: {"x": x, "y": y, "coords": c, "mask": np.full((10, 7), np.nan)}, "the mask holds NaN"),
        (lambda x, y, c: {"x": x, "y": y, "coords": np.full_like(c, np.inf)}, "coords holds 140 values"),
        (lambda x, y, c: {"x": x, "y": y, "coords": np.stack((c[:, 0], 0 * c[:, 0]), 1)}, "coordinate 1 is 0 at every"),
        (lambda x, y, c: {"x": x, "y": y, "coords": list(c)}, "and so must y be"),
        (lambda x, y, c: {"x": x, "y": y[0, 0], "coords": c}, r"y must be \(n, channels, \*grid\)"),
        (lambda x, y, c: {"x": x[:, :, :-1], "y": y, "coords": c}, "on one grid"),
    ],
)
def test_what_does_not_fit(change: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        from_arrays(**change(*clouds()))


def test_lists_that_do_not_fit() -> None:
    x, y, coords = ragged([3, 4, 5, 6])
    with pytest.raises(DataError, match="coords has 4 samples and y has 3"):
        from_arrays(x, y[:-1], coords)
    with pytest.raises(DataError, match="sample 1 has 4 points in coords and 3 in x"):
        from_arrays([x[0], x[1][:, 1:], *x[2:]], y, coords)
    with pytest.raises(DataError, match="sample 2 has no points; leave it out"):
        from_arrays(*([*part[:2], part[2][:, :0], part[3]] for part in (x, y, coords)))
    with pytest.raises(DataError, match=r"y\[2\] has 2 rows and y\[0\] has 1"):
        from_arrays(x, [*y[:2], np.ones((2, 5)), y[3]], coords)
    with pytest.raises(DataError, match="leave the mask out"):
        from_arrays(x, y, coords, mask=np.ones((4, 6)))


def test_arrays_of_arrays_are_lists() -> None:
    places = [np.random.default_rng(0).random((2, count)) for count in range(5, 15)]
    held = np.empty(10, object)
    held[:] = places
    with pytest.raises(DataError, match=r"y must be one array; got an array of 10 arrays; .* as lists: list\(y\)"):
        from_arrays(None, held, coords=held)
    assert from_arrays(None, list(held), coords=list(held)).train.mask is not None


def test_splits_are_checked() -> None:
    x, y, coords = (torch.from_numpy(part).float() for part in clouds())
    with pytest.raises(DataError, match="give their coords too"):
        Split(x, y, mask=torch.ones(10, 7, dtype=torch.bool))
    with pytest.raises(DataError, match="coordinates of a mesh are channels of x"):
        Split(x[..., None], y[..., None], coords)
    whole = Split(x, y, coords)
    assert [len(part) for part in whole.batches(4)] == [4, 4, 2]
    assert torch.equal(torch.cat([part.coords for part in whole.batches(4) if part.coords is not None]), coords)


def test_elasticity_is_stored_and_read_again(tmp_path: Any) -> None:
    options = {"train": 3, "valid": 1, "test": 1, "store": tmp_path, "device": "cpu"}
    made, again = generate("elasticity", **options), generate("elasticity", **options)
    assert made.in_channels == 0
    assert made.grid == Points(count=972, low=(0.0, 0.0), high=(1.0, 1.0))
    for split in ("train", "valid", "test"):
        for part in ("x", "y", "coords"):
            assert torch.equal(getattr(getattr(made, split), part), getattr(getattr(again, split), part))


def test_original_files_are_cut_as_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files themselves are read in the tests of the problem."""
    found = elasticity.Elasticity(train=4, valid=2, test=2).generate()  # pyright: ignore[reportCallIssue]
    monkeypatch.setattr(elasticity, "read_published", lambda folder: found)
    data = read("elasticity", tmp_path, train=3, valid=0, test=2)
    assert [len(split) for split in (data.train, data.valid, data.test)] == [3, 0, 2]
    assert (data.origin, data.grid.shape) == ("original", (972,))
    np.testing.assert_array_equal(data.train.coords, found["train"].coords[:3])  # pyright: ignore[reportOptionalSubscript]
    with pytest.raises(SpecError, match="the files hold 4 samples for train; got train=5"):
        read("elasticity", tmp_path, train=5, valid=0, test=1)
    with pytest.raises(SpecError, match="got test=0"):
        read("elasticity", tmp_path, train=1, valid=0, test=0)
