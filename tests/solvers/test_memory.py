"""Free memory as the system and a container tell it, and room for arrays on disk."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from hofno.solvers import memory
from hofno.solvers.memory import _free_in_group, arrays_on_disk, empty_array, free_bytes, temporary_array


def group(folder: Path, limit: str, used: int, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\nactive_file 1\n")


def test_the_smallest_limit_counts(tmp_path: Path) -> None:
    process, root = tmp_path / "cgroup", tmp_path / "fs"
    process.write_text("1:name=systemd:/\n0::/job/step\n")
    group(root / "job" / "step", "max", 900, 0)
    assert _free_in_group(process, root) is None
    group(root / "job", "1000", 700, 99)
    assert _free_in_group(process, root) == 400
    group(root / "job" / "step", "500", 450, 9)
    assert _free_in_group(process, root) == 60
    group(root / "job" / "step", "500", 600, 9)
    assert _free_in_group(process, root) == 0
    process.write_text("4:memory:/old\n")
    assert _free_in_group(process, root) is None
    assert _free_in_group(tmp_path / "none", root) is None


def test_the_system_or_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for system, held, expected in ((100, 60, 60), (50, 60, 50), (None, 60, 60), (70, None, 70), (None, None, None)):
        monkeypatch.setattr(memory, "_free_in_system", lambda value=system: value)
        monkeypatch.setattr(memory, "_free_in_group", lambda value=held: value)
        assert free_bytes("cpu") == expected
    assert free_bytes("meta") is None


def test_arrays_on_disk(tmp_path: Path) -> None:
    assert not isinstance(empty_array((2, 3)), np.memmap)
    with arrays_on_disk(tmp_path):
        array = empty_array((2, 3))
    array[:] = 7
    array.flush()  # pyright: ignore[reportAttributeAccessIssue]
    (file,) = tmp_path.iterdir()
    np.testing.assert_array_equal(np.load(file), np.full((2, 3), 7, np.float32))
    assert not isinstance(empty_array((2, 3)), np.memmap)


def test_a_temporary_array_takes_its_file_along(tmp_path: Path) -> None:
    view = temporary_array((4, 2), tmp_path / "new" / "frames")[1:3]
    gc.collect()
    view[:] = 1
    assert (tmp_path / "new" / "frames").exists()
    del view
    gc.collect()
    assert not (tmp_path / "new" / "frames").exists()
