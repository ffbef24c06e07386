"""The newest sound checkpoint serves; what is pruned is never what is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hofno.errors import CheckpointError, HofnoError
from hofno.storage import newest_checkpoint, prune_checkpoints, save_folder, verify_folder
from hofno.storage.files import temporary_beside, this_host


def silent(line: str) -> None:
    raise AssertionError(f"nothing should be reported, got {line!r}")


def save_steps(folder: Path, *steps: str) -> None:
    for step in steps:
        save_folder(folder / f"step-{step}", {"w": step.encode()}, {"step": int(step)})


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_newest_is_by_number_not_by_clock_or_name(tmp_path: Path) -> None:
    save_steps(tmp_path, "100", "9", "020")
    for age, name in enumerate(["step-100", "step-020", "step-9"]):
        os.utime(tmp_path / name, (age * 1000, age * 1000))
    assert newest_checkpoint(tmp_path, silent) == tmp_path / "step-100"


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none", silent) is None
    assert newest_checkpoint(tmp_path, silent) is None
    prune_checkpoints(tmp_path / "none", keep=1)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="could not be read"):
        newest_checkpoint(tmp_path / "file", silent)


def test_other_names_are_not_checkpoints(tmp_path: Path) -> None:
    save_steps(tmp_path, "1")
    for name in (
        "step-2x",
        "xstep-3",
        "step--4",
        "step-",
        "step-\u0665",
        "step-" + "9" * 100,
        ".step-5.tmp-1-0",
    ):
        save_folder(tmp_path / name, {}, {})
    (tmp_path / "step-9").touch()
    assert newest_checkpoint(tmp_path, silent) == tmp_path / "step-1"


def test_an_incomplete_one_is_ignored_in_silence(tmp_path: Path) -> None:
    save_steps(tmp_path, "1", "2")
    (tmp_path / "step-2" / "manifest.json").unlink()
    assert newest_checkpoint(tmp_path, silent) == tmp_path / "step-1"


def test_a_corrupt_one_is_named_and_the_one_before_serves(tmp_path: Path) -> None:
    save_steps(tmp_path, "1", "2", "3")
    (tmp_path / "step-3" / "w").write_bytes(b"4")
    (tmp_path / "step-2" / "manifest.json").write_bytes(b"{")
    lines: list[str] = []
    assert newest_checkpoint(tmp_path, lines.append) == tmp_path / "step-1"
    assert len(lines) == 2
    assert lines[0].startswith("checkpoint step-3 is refused")
    assert "step-3/w is corrupt" in lines[0]
    assert lines[1].startswith("checkpoint step-2 is refused")
    (tmp_path / "step-1" / "w").unlink()
    assert newest_checkpoint(tmp_path, lines.append) is None


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_prune_keeps_the_newest(tmp_path: Path, keep: int) -> None:
    save_steps(tmp_path, "8", "9", "10", "11")
    prune_checkpoints(tmp_path, keep)
    assert sorted(os.listdir(tmp_path)) == sorted(["step-11", "step-10", "step-9", "step-8"][:keep])


def test_prune_does_not_count_damaged_ones(tmp_path: Path) -> None:
    save_steps(tmp_path, "1", "2", "3", "4")
    os.truncate(tmp_path / "step-4" / "w", 0)
    (tmp_path / "step-3" / "manifest.json").write_bytes(b"")
    prune_checkpoints(tmp_path, keep=1)
    assert os.listdir(tmp_path) == ["step-2"]
    assert verify_folder(tmp_path / "step-2") == {"step": 2}


def test_prune_deletes_nothing_while_nothing_is_complete(tmp_path: Path) -> None:
    save_steps(tmp_path, "1", "2")
    for name in ("step-1", "step-2"):
        (tmp_path / name / "w").unlink()
    prune_checkpoints(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["step-1", "step-2"]


def test_prune_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    save_steps(tmp_path, "5", "6")
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "thesis.tex").touch()
    (tmp_path / "best").mkdir()
    (tmp_path / "step-2").symlink_to("step-5")
    prune_checkpoints(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["best", "step-1", "step-2", "step-6"]


@pytest.mark.parametrize("keep", [0, -1])
def test_prune_always_keeps_one(tmp_path: Path, keep: int) -> None:
    with pytest.raises(HofnoError, match=f"at least 1 checkpoint, got keep={keep}"):
        prune_checkpoints(tmp_path, keep)


def test_stale_temporaries_go_and_living_ones_stay(
    tmp_path: Path, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    living = start_child("sys.stdin.read()")
    token = "0123456789abcdef"
    stale = [f".step-3.tmp-{dead_pid()}-{token}", f".spec.json.tmp-{dead_pid()}-{token}"]
    stale.append(f".step-9.tmp-{dead_pid()}-{this_host()}-{token}")
    stale.append(f".step-4.tmp-{os.getpid()}-{token}")  # an earlier process with the pid of this one
    kept = [
        f".step-5.tmp-{living.pid}-{token}",
        temporary_beside(Path("step-6")).name,
        f".step-8.tmp-{dead_pid()}-00c0ffee-{token}",  # of another host: its processes are not known here
        ".step-7.tmp-x",
        "a.tmp",
    ]
    for name in [*stale, *kept]:
        if "json" in name:
            (tmp_path / name).write_bytes(b"half")
        else:
            save_folder(tmp_path / name / "inner", {"w": b""}, {})
    prune_checkpoints(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
