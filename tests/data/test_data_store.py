"""Generated data on disk: made once, read and verified afterwards, never half there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hofno import Dataset, generate, storage
from hofno.data.store import data_folder, generate_again, store_folder
from hofno.errors import DataError, SpecError
from hofno.problems.poisson import Poisson

SMALL: dict[str, Any] = {
    **{"degree": 2, "resolution": 16, "k_min": 2, "k_max": 4, "waves": 8},
    **{"train": 6, "valid": 2, "test": 3},
}


def small(store: Path | None = None, **changes: Any) -> Dataset:
    return generate("poisson", store=store, **{**SMALL, **changes})


def splits(data: Dataset) -> list[torch.Tensor]:
    return [getattr(getattr(data, name), part) for name in ("train", "valid", "test") for part in "xy"]


def test_the_second_call_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small(tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("generated twice")

    monkeypatch.setattr(Poisson, "generate", refuse)
    second = small(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(splits(first), splits(second), strict=True))
    assert first.stamp == second.stamp
    assert second.stamp["parameters"]["resolution"] == 16
    with pytest.raises(AssertionError, match="generated twice"):
        small(tmp_path, seed=1)


def test_the_store_changes_nothing(tmp_path: Path) -> None:
    assert all(torch.equal(a, b) for a, b in zip(splits(small(tmp_path)), splits(small()), strict=True))


def test_read_data_may_be_changed_in_place(tmp_path: Path) -> None:
    small(tmp_path)
    data = small(tmp_path)
    data.train.x.zero_()
    assert float(small(tmp_path).train.x.abs().sum()) > 0


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "no manifest"])
def test_damaged_data_are_refused(tmp_path: Path, damage: str) -> None:
    small(tmp_path)
    (folder,) = tmp_path.iterdir()
    file = folder / "train.x.npy"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-8])
    elif damage == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "missing":
        file.unlink()
    else:
        (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=f"delete {folder} to make them again"):
        small(tmp_path)
    assert len(generate_again("poisson", SMALL, tmp_path).train) == 6
    assert len(small(tmp_path).train) == 6


def test_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New data take the place of the old ones at the end: an interruption, or a refusal, costs nothing."""
    generate_again("poisson", SMALL, tmp_path)
    folder = data_folder("poisson", SMALL, tmp_path)
    before = {file.name: (file.read_bytes(), file.stat().st_ino) for file in folder.iterdir()}

    def stop(stage: str, done: int, total: int) -> None:
        assert {file.name: (file.read_bytes(), file.stat().st_ino) for file in folder.iterdir()} == before
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_again("poisson", SMALL, tmp_path, progress=stop)
    assert list(tmp_path.iterdir()) == [folder]
    made = generate_again("poisson", SMALL, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(splits(made), splits(small(tmp_path)), strict=True))
    assert all((folder / name).stat().st_ino != number for name, (_, number) in before.items())
    monkeypatch.setattr("hofno.data.store.free_bytes", lambda device: 1000)
    monkeypatch.setattr(storage, "disk_has_room", lambda path, needed: False)
    with pytest.raises(SpecError, match="on the disk of"):
        generate_again("poisson", SMALL, tmp_path)
    assert folder.is_dir()


def test_interrupted_generation_leaves_nothing(tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate("poisson", store=tmp_path, progress=stop, **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_to_the_end() -> None:
    told: list[tuple[str, int, int]] = []
    generate("poisson", progress=lambda *step: told.append(step), **SMALL)
    assert told[-1] == ("generate", 11, 11)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_data_that_do_not_fit_in_memory_are_refused_at_once() -> None:
    with pytest.raises(SpecError, match="GiB of memory"):
        small(train=10**9)


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOFNO_DATA", str(tmp_path))
    assert store_folder() == tmp_path
    monkeypatch.delenv("HOFNO_DATA")
    assert store_folder() == Path(".hofno/data")


def test_unknown_problem_and_parameter() -> None:
    with pytest.raises(SpecError, match="did you mean 'poisson'"):
        generate("poison")
    with pytest.raises(SpecError, match="has no parameter 'resolutoin'; did you mean 'resolution'"):
        generate("poisson", resolutoin=16)
    with pytest.raises(SpecError, match=r"poisson\.train: .*greater than or equal to 1; got 0"):
        small(train=0)
