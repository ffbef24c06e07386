"""Original files as datasets: which samples train, which test, on what grid. The files themselves: tests/problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.errors import SpecError
from hofno.problems import airfoil, airfoil_files, darcy, pipe, pressed
from hofno.problems.base import Arrays


def numbered(first: int, count: int, channels: int, shape: tuple[int, ...]) -> np.ndarray:
    """Samples that are their own number everywhere."""
    numbers = np.arange(first, first + count, dtype=np.float32).reshape(-1, *(1,) * (1 + len(shape)))
    return np.broadcast_to(numbers, (count, channels, *shape)).copy()


def test_darcy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def read(folder: Path, *sizes: int) -> dict[str, Arrays]:
        asked.append((folder, *sizes))
        resolution, *counts = sizes
        shape = (resolution, resolution)
        parts = zip(("train", "valid", "test"), counts, strict=True)
        return {name: Arrays(numbered(0, n, 1, shape), numbered(5, n, 1, shape)) for name, n in parts}

    monkeypatch.setattr(darcy, "read_published", read)
    found = hofno.read("darcy", "there", resolution=43, train=3, valid=1, test=2)
    assert asked == [(Path("there"), 43, 3, 1, 2)]
    assert found.origin == "original"
    assert (len(found.train), len(found.valid), len(found.test)) == (3, 1, 2)
    assert not found.grid.periodic
    assert found.grid.shape == (43, 43)


def test_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: Path, *counts: int) -> dict[str, Arrays]:
        shape = (129, 129)
        parts = zip(("train", "valid", "test"), counts, strict=True)
        return {name: Arrays(numbered(0, n, 2, shape), numbered(0, n, 1, shape)) for name, n in parts}

    monkeypatch.setattr(pipe, "read_published", read)
    found = hofno.read("pipe", "there", train=2, valid=1, test=1)
    assert (found.in_channels, found.out_channels, found.origin) == (2, 1, "original")
    assert found.grid.shape == (129, 129)
    assert found.symmetry == pipe.Pipe().symmetry  # pyright: ignore[reportCallIssue]


def test_airfoil_samples_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = airfoil.Airfoil().grid_geometry.shape  # pyright: ignore[reportCallIssue]
    whole = Arrays(numbered(0, 1203, 2, (1, 1)), numbered(0, 1203, 1, (1, 1)))
    monkeypatch.setattr(airfoil_files, "read_published", lambda folder: whole)
    found = hofno.read("airfoil", "there", valid=3)
    first_and_last = [(float(part.y[0, 0, 0, 0]), float(part.y[-1, 0, 0, 0])) for part in (found.train, found.test)]
    assert first_and_last == [(0, 999), (1000, 1199)]
    assert found.valid.y.flatten().tolist() == [1200, 1201, 1202]
    assert found.grid.shape == shape
    assert found.symmetry == airfoil.Airfoil().symmetry  # pyright: ignore[reportCallIssue]
    with pytest.raises(SpecError, match="hold 3 samples for valid; got valid=4"):
        hofno.read("airfoil", "there", valid=4)
    with pytest.raises(SpecError, match="hold 200 samples for test; got test=0"):
        hofno.read("airfoil", "there", valid=0, test=0)


def test_plasticity_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = numbered(0, 987 * 20, 4, (1, 1)).reshape(987, 20, 4, 1, 1)
    whole = pressed.Pressed(numbered(0, 987, 1, ())[:, :1].reshape(987, 1) + np.arange(2), frames.repeat(2, 3))
    parts = {name: pressed.Pressed(whole.die[rows], whole.frames[rows]) for name, rows in pressed._PUBLISHED.items()}
    monkeypatch.setattr(pressed, "read_published", lambda folder: parts)
    volume, single = (hofno.read("plasticity", "there", form=form, train=5) for form in ("volume", "frames"))
    assert [len(split) for split in (volume.train, volume.valid, volume.test)] == [5, 7, 80]
    assert [len(split) for split in (single.train, single.valid, single.test)] == [100, 140, 1600]
    assert (volume.test.together, single.test.together) == (1, 20)
    assert [len(each.symmetry.motions[1].matrix) for each in (volume, single) if each.symmetry] == [3, 2]
    assert torch.equal(volume.test.y[0, :, 0, 0].T, single.test.y[:20, :, 0, 0])
    aligned = hofno.read("plasticity", "there", form="frames", train=5, aligned=True)
    assert torch.equal(aligned.test.x[:, :1], single.test.x[:, :1].flip(2))
    assert torch.equal(aligned.test.y, single.test.y)
    assert aligned.stamp != single.stamp
    with pytest.raises(SpecError, match="aligned is true or false; got 1"):
        hofno.read("plasticity", "there", aligned=1)
    with pytest.raises(SpecError, match="hold 7 samples for valid; got valid=8"):
        hofno.read("plasticity", "there", valid=8)
    with pytest.raises(SpecError, match=r"plasticity\.form"):
        hofno.read("plasticity", "there", form="both")


def test_other_problems() -> None:
    with pytest.raises(SpecError, match="no reader of original files for 'poisson'"):
        hofno.read("poisson", "there")
    with pytest.raises(SpecError, match="did you mean 'train'"):
        hofno.read("pipe", "there", trian=3)


@pytest.mark.parametrize("path", [3, None, b"there"])
def test_a_path_that_is_none(path: Any) -> None:
    with pytest.raises(SpecError, match="path is the name of a file or folder, a str or a Path; got"):
        hofno.read("airfoil", path)
