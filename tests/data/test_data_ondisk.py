"""Arrays on disk: the same samples as in memory, whatever the layout of the file, and only those that are asked for."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hofno import from_arrays, generate, storage
from hofno.data import ondisk, store
from hofno.data.moments import moments
from hofno.data.normalise import ChannelNormaliser
from hofno.data.npy import npy_on_disk
from hofno.data.ondisk import FileArray, JoinedArray, fill, in_memory, pieces_of
from hofno.errors import DataError, SpecError
from hofno.problems import flows
from hofno.storage.files import this_host


@pytest.fixture
def nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ondisk, "SHARE", 0.0)


def mapped(path: Path, values: np.ndarray, mode: Any = "r") -> np.ndarray:
    np.save(path, values)
    return np.load(path, mmap_mode=mode)


def samples(n: int = 12) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("one_by_one", [False, True])
class TestFileArray:
    @pytest.fixture(autouse=True)
    def _way(self, one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Samples that lie in one piece are read one by one if they are large, else through a map."""
        monkeypatch.setattr(ondisk, "LARGE_SAMPLE", 1 if one_by_one else 10**9)

    @pytest.mark.parametrize("kind", ["float32", "float64", ">f4", "int16", "uint8", "bool", "float16"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_kinds_of_numbers(self, tmp_path: Path, kind: str, order: Any) -> None:
        values = np.asarray(8 * samples(), order=order).astype(kind, order="K")
        np.save(tmp_path / "a.npy", values)
        expected = torch.from_numpy(np.ascontiguousarray(values, np.float32))
        for found in (npy_on_disk(tmp_path / "a.npy"), FileArray.of(np.load(tmp_path / "a.npy", mmap_mode="r"))):
            assert found is not None
            assert found.shape == values.shape
            assert torch.equal(found[:], expected)
            assert torch.equal(found[torch.tensor([7, 0, 7, 3])], expected[[7, 0, 7, 3]])
            assert torch.equal(found[-5:-1], expected[-5:-1])
            assert torch.equal(found.channels(1, 3)[2:4], expected[2:4, 1:3])
            rows = torch.tensor([5, 1, 9])
            assert torch.equal(found.take(rows).take(torch.tensor([2, 0]))[:], expected[[9, 5]])

    @pytest.mark.parametrize(
        "view",
        [
            lambda a: a[3:9],
            lambda a: a[::-2],
            lambda a: a[:, 1:, ::2, ::-1],
            lambda a: a.transpose(0, 2, 3, 1),
            lambda a: a[:, None, 0],
            lambda a: np.asarray(a)[2:],
        ],
    )
    def test_views(self, tmp_path: Path, view: Any) -> None:
        whole = view(mapped(tmp_path / "a.npy", samples()))
        found = FileArray.of(whole)
        assert found is not None
        np.testing.assert_array_equal(found[:], whole)
        np.testing.assert_array_equal(found[torch.tensor([2, 0, 1])], whole[[2, 0, 1]])

    def test_an_offset_past_a_page(self, tmp_path: Path) -> None:
        (tmp_path / "raw").write_bytes(bytes(5000) + samples().tobytes())
        found = FileArray.of(np.memmap(tmp_path / "raw", np.float32, "r", 5000, (12, 3, 4, 5)))
        assert found is not None
        np.testing.assert_array_equal(found[:], samples())

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        array = mapped(tmp_path / "a.npy", samples())
        for other in (
            samples(),
            array + 1,
            array[[1, 2]],
            [1.0],
            torch.zeros(3),
            mapped(tmp_path / "b.npy", array, "c"),
        ):
            assert FileArray.of(other) is None

    def test_a_file_that_was_cut(self, tmp_path: Path) -> None:
        found = npy_on_disk_after(tmp_path / "a.npy")
        (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-8])
        with pytest.raises(DataError, match="it was cut since it was opened"):
            found[:1]
        (tmp_path / "a.npy").unlink()
        with pytest.raises(DataError, match="could not be read: No such file"):
            found[:1]

    def test_all_of_it_is_refused_where_it_has_no_room(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = npy_on_disk_after(tmp_path / "a.npy")
        assert len(in_memory(found)) == 12
        monkeypatch.setattr(ondisk, "free_bytes", lambda device: 100)
        with pytest.raises(DataError, match=r"12 samples on disk need .* take some of them"):
            in_memory(found)


def npy_on_disk_after(path: Path) -> FileArray:
    np.save(path, samples())
    return npy_on_disk(path)


@given(
    rows=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    first=st.integers(0, 4),
    length=st.integers(1, 3),
    on_disk=st.booleans(),
)
def test_windows_of_joined_channels(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], first: int, length: int, on_disk: bool
) -> None:
    """Channels from `first` on, across the seam of two arrays."""
    values = np.random.default_rng(1).standard_normal((8, 7, 3)).astype(np.float32)
    parts: list[Any] = [torch.from_numpy(values[:, :4]), torch.from_numpy(values[:, 4:])]
    if on_disk:
        parts[1] = FileArray.of(mapped(tmp_path_factory.mktemp("seam") / "a.npy", values))
        parts[1] = parts[1].channels(4, 7)
    whole = JoinedArray(parts)
    np.testing.assert_array_equal(whole[torch.tensor(rows)], values[rows])
    out = torch.empty(len(rows), length, 3)
    fill(out, whole, np.array(rows), np.full(len(rows), first))
    np.testing.assert_array_equal(out, values[rows, first : first + length])
    np.testing.assert_array_equal(whole.take(torch.tensor(rows))[:], values[rows])


class TestStatistics:
    def test_pieces_are_the_same_wherever_the_numbers_lie(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ondisk, "PIECE", 130)
        found = npy_on_disk_after(tmp_path / "a.npy")
        here = torch.from_numpy(samples())
        assert [len(piece) for piece in pieces_of(found)] == [len(piece) for piece in pieces_of(here)] == [2] * 6
        one, two = ChannelNormaliser.fit(found), ChannelNormaliser.fit(here)
        assert torch.equal(one.mean, two.mean)
        assert torch.equal(one.std, two.std)

    @given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.floats(-1e6, 1e6), st.integers(0, 99))
    def test_moments(self, lengths: list[int], far: float, seed: int) -> None:
        values = far + np.random.default_rng(seed).standard_normal((sum(lengths), 2, 3))
        pieces = torch.from_numpy(values).split(lengths)
        count, mean, square = moments(pieces, kept=[1])
        assert count == 3 * sum(lengths)
        np.testing.assert_allclose(mean[0, :, 0], values.mean((0, 2)), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(square[0, :, 0], values.var((0, 2)) * count, rtol=1e-8)


class TestFromArrays:
    def arrays(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        return mapped(folder / "x.npy", samples()), mapped(folder / "y.npy", samples()[:, :1].astype(np.float64) ** 2)

    @pytest.mark.parametrize("seed", [None, 3])
    def test_the_same_splits(self, tmp_path: Path, nothing_fits: None, seed: int | None) -> None:
        x, y = self.arrays(tmp_path)
        left, held = (
            from_arrays(x, y, seed=seed, split=(6, 3, 2)),
            from_arrays(x.copy(), y.copy(), seed=seed, split=(6, 3, 2)),
        )
        for name in ("train", "valid", "test"):
            one, two = getattr(left, name), getattr(held, name)
            assert one.on_disk
            assert not two.on_disk
            assert one.nbytes == two.nbytes
            assert torch.equal(one.x, two.x)
            assert torch.equal(one.y, two.y)
            for few, same in zip(one.batches(2), two.batches(2), strict=True):
                assert torch.equal(few.x, same.x)

    def test_what_fits_is_read(self, tmp_path: Path) -> None:
        data = from_arrays(*self.arrays(tmp_path))
        assert not data.train.on_disk
        data.train.x.zero_()
        assert float(data.train.x.abs().sum()) == 0.0

    @pytest.mark.parametrize("shared", [False, True])
    def test_a_mesh_joins_its_coordinates(self, tmp_path: Path, nothing_fits: None, shared: bool) -> None:
        x, y = self.arrays(tmp_path)
        places = mapped(tmp_path / "c.npy", np.random.default_rng(2).random((2, 4, 5) if shared else (12, 2, 4, 5)))
        left, held = from_arrays(x, y, places), from_arrays(x.copy(), y.copy(), places.copy())
        assert left.in_channels == held.in_channels == 5
        assert left.train.on_disk
        assert torch.equal(left.train.x, held.train.x)
        assert left.grid == held.grid

    @pytest.mark.parametrize("masked", [False, True])
    def test_points(self, tmp_path: Path, nothing_fits: None, masked: bool) -> None:
        x, y = (part.reshape(12, -1, 20) for part in self.arrays(tmp_path))
        places = mapped(tmp_path / "c.npy", np.random.default_rng(2).random((12, 2, 20)))
        mask = np.random.default_rng(3).random((12, 20)) < 0.7 if masked else None
        left, held = from_arrays(x, y, places, mask=mask), from_arrays(x.copy(), y.copy(), places.copy(), mask=mask)
        assert left.train.on_disk is not masked  # a mask is applied to all samples, which are read for it
        assert left.grid == held.grid
        for part in ("x", "y", "coords"):
            assert torch.equal(getattr(left.train, part), getattr(held.train, part))

    def test_bad_numbers_are_found(self, tmp_path: Path, nothing_fits: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ondisk, "PIECE", 100)
        x, y = samples(), samples()[:, :1]
        x[7, 1, 2, 3] = np.nan
        x[9] = np.inf
        with pytest.raises(DataError, match=r"x holds 61 values .* in 2 of 12 samples, first in sample 7"):
            from_arrays(mapped(tmp_path / "x.npy", x), y)


def test_the_store_leaves_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"degree": 2, "resolution": 16, "k_min": 2, "k_max": 4, "waves": 8, "train": 6, "valid": 2, "test": 3}
    made = generate("poisson", store=tmp_path, **small)
    monkeypatch.setattr(ondisk, "SHARE", 0.0)
    left = generate("poisson", store=tmp_path, **small)
    for name in ("train", "valid", "test"):
        assert getattr(left, name).on_disk
        assert not getattr(made, name).on_disk
        assert torch.equal(getattr(left, name).x, getattr(made, name).x)
        assert torch.equal(getattr(left, name).y, getattr(made, name).y)
    assert (left.in_channels, left.out_channels) == (2, 1)
    assert left.stamp == made.stamp


class TestMadeOnDisk:
    SMALL: ClassVar[dict[str, Any]] = {"resolution": 9, "solver_resolution": 17, "train": 6, "valid": 2, "test": 3}

    def short_of_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ondisk, "SHARE", 0.0)
        monkeypatch.setattr(store, "free_bytes", lambda device: 1000)

    @pytest.mark.parametrize("problem", ["darcy", "poisson"])
    def test_pairs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
        """Data that do not fit into memory are made in files, and nothing but the stored folder is left of these."""
        waves = {"resolution": 16, "k_min": 2, "k_max": 4, "train": 6, "valid": 2, "test": 3}
        small = self.SMALL if problem == "darcy" else waves
        expected = generate(problem, **small)
        self.short_of_memory(monkeypatch)
        for host in ("", f"{this_host()}-"):
            (tmp_path / f".{problem}.tmp-999999999-{host}{'0' * 16}").mkdir()
        for _ in ("made", "read"):
            found = generate(problem, store=tmp_path, **small)
            for name in ("train", "valid", "test"):
                assert getattr(found, name).on_disk
                assert torch.equal(getattr(found, name).x, getattr(expected, name).x)
                assert torch.equal(getattr(found, name).y, getattr(expected, name).y)
            (folder,) = tmp_path.iterdir()
            assert len(list(folder.iterdir())) == 7

    def test_a_disk_that_is_too_small(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.short_of_memory(monkeypatch)
        monkeypatch.setattr(storage, "disk_has_room", lambda path, needed: False)
        with pytest.raises(SpecError, match=r"more memory than is free, or 0\.0 GiB on the disk of .* free some space"):
            generate("darcy", store=tmp_path, **self.SMALL)
        with pytest.raises(SpecError, match="or give a store to make them on disk"):
            generate("darcy", **self.SMALL)

    def test_trajectories(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        small: dict[str, Any] = {"viscosity": 1e-2, "resolution": 8, "solver_resolution": 8, "frames": 6, "step": 0.1}
        small |= {"samples": 9, "valid": 2, "test": 2, "history": 2, "start": 3, "horizon": 2, "device": "cpu"}
        expected = generate("navier_stokes", **small)
        monkeypatch.setattr(flows.Flow, "_group", lambda self, solver: 16)
        monkeypatch.setattr(flows, "free_bytes", lambda device: 1000)
        for _ in ("made", "read"):
            found = generate("navier_stokes", store=tmp_path, **small)
            for name in ("train", "valid", "test"):
                assert getattr(found, name).on_disk
                assert torch.equal(getattr(found, name).x, getattr(expected, name).x)
                assert torch.equal(getattr(found, name).y, getattr(expected, name).y)
            assert found.trajectories is not None
            assert found.later is not None
            assert expected.trajectories is not None
            assert expected.later is not None
            assert torch.equal(found.trajectories[2:5], expected.trajectories[2:5])
            assert torch.equal(found.later[:], expected.later[:])
            assert len(list(tmp_path.iterdir())) == 2  # the parts, and the file of this dataset
            del found
            gc.collect()
            assert len(list(tmp_path.iterdir())) == 1
