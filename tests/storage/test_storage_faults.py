"""The promises under fire: kill -9 at random moments, and a disk that is full at every possible call."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hofno.errors import CheckpointError
from hofno.storage import (
    RunLock,
    newest_checkpoint,
    prune_checkpoints,
    save_folder,
    update_folder,
    verify_folder,
    write_bytes,
)

Start = Callable[..., subprocess.Popen[str]]

KILLS = 20
SAVE_IN_A_LOOP = """
import hashlib
run, step = Path(sys.argv[1]), int(sys.argv[2])
with RunLock(run):
    print("ready", flush=True)
    while True:
        step += 1
        seed = str(step).encode()
        files = {"a.bin": hashlib.sha256(seed).digest() * 3000, "b.bin": seed * 5000}
        save_folder(run / f"step-{step}", files, {"step": step})
        save_folder(run / "model", files, {"step": step})
        print(step, flush=True)
        prune_checkpoints(run, 2)
"""


def check_content(folder: Path) -> int:
    """The step that the folder says it is, after every file has been compared with that step."""
    step = verify_folder(folder)["step"]
    seed = str(step).encode()
    assert (folder / "a.bin").read_bytes() == hashlib.sha256(seed).digest() * 3000
    assert (folder / "b.bin").read_bytes() == seed * 5000
    return step


def test_kill_9_never_costs_a_finished_save(tmp_path: Path, start_child: Start) -> None:
    chance = random.Random(0)
    step = model_step = left_behind = 0
    reports: list[str] = []
    for _ in range(KILLS):
        child = start_child(SAVE_IN_A_LOOP, tmp_path, step)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        seen = "".join(child.stdout.readline() for _ in range(chance.randrange(3)))
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        output = seen + child.stdout.read()
        assert child.wait() == -signal.SIGKILL
        finished = [int(line) for line in output.split()] or [0]

        left_behind += any(name.startswith(".") for name in os.listdir(tmp_path))
        newest = newest_checkpoint(tmp_path, reports.append)
        if newest is not None:
            assert check_content(newest) >= max(step, finished[-1])
            assert newest.name == f"step-{check_content(newest)}"
            step = check_content(newest)
        if (tmp_path / "model").exists() or finished[-1]:
            assert check_content(tmp_path / "model") >= max(model_step, finished[-1])
            model_step = check_content(tmp_path / "model")
        else:
            assert model_step == 0
    assert reports == []
    assert step >= KILLS // 2  # the children did save
    assert left_behind > 0  # and some died in the middle of it
    with RunLock(tmp_path):
        prune_checkpoints(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["model", f"step-{step}"]


class FullDisk:
    """os.write and os.fsync that work `calls` times and then report a full disk; long writes go in parts."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.write, self.fsync = os.write, os.fsync
        self.refused = False

    def _spend(self) -> bool:
        self.left -= 1
        self.refused |= self.left < 0
        return self.left >= 0

    def limited_write(self, descriptor: int, data: Any) -> int:
        if not self._spend():
            raise OSError(errno.ENOSPC, "injected")
        return self.write(descriptor, data[: max(1, len(data) // 2)] if len(data) > 60 else data)

    def limited_fsync(self, descriptor: int) -> None:
        if not self._spend():
            raise OSError(errno.ENOSPC, "injected")
        self.fsync(descriptor)


OLD = {"a": b"old a" * 50, "b": b"old b"}
NEW = {"a": b"new a" * 60, "b": b"new b", "c": b""}


def save_file(path: Path, content: dict[str, bytes]) -> None:
    write_bytes(path / "a", content["a"])


def save_by_folder(path: Path, content: dict[str, bytes]) -> None:
    save_folder(path, content, {})


def save_by_update(path: Path, content: dict[str, bytes]) -> None:
    update_folder(path, content, {})


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("save", [save_file, save_by_folder, save_by_update])
def test_a_disk_full_at_any_call_leaves_old_or_new(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    save: Callable[[Path, dict[str, bytes]], None],
    existing: bool,
) -> None:
    def state(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    save(tmp_path / "expected" / "x", NEW)
    new = state(tmp_path / "expected")
    states: list[str] = []
    refusals: list[str] = []
    for calls in range(99):
        place = tmp_path / f"full-{calls}"
        place.mkdir()
        if existing:
            save(place / "x", OLD)
        old = state(place)
        disk = FullDisk(calls)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", disk.limited_write)
            patch.setattr(os, "fsync", disk.limited_fsync)
            try:
                save(place / "x", NEW)
            except CheckpointError as error:
                refusals.append(str(error))
        states.append("old" if state(place) == old else "new" if state(place) == new else "mixed")
        assert disk.refused == (len(refusals) == calls + 1)
        if not disk.refused:
            break
    assert len(refusals) >= 3
    assert states == ["old"] * (len(refusals) - 1) + ["new", "new"]  # the last call syncs the new name itself
    for message in refusals:
        assert "bytes) could not be written: No space left on device; free some space and run again" in message
        assert "\n" not in message
    assert all("what was saved before is kept" in message for message in refusals[:-1])
    assert list(tmp_path.rglob(".*")) == []


FILL_A_SMALL_DISK = """
import os, shutil, subprocess
mount = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], check=True)
print("mounted", flush=True)
small, large = {"a": b"a" * 300_000, "b": b"b" * 300_000}, {"a": b"A" * 900_000, "b": b"B" * 900_000}

def refused(action):
    try:
        action()
    except ValueError as error:
        text = str(error)
        assert "No space left on device; free some space and run again" in text and chr(10) not in text, text
        return
    raise AssertionError("a full disk was not noticed")

def intact(folder, step):
    assert verify_folder(folder) == {"step": step}
    assert {name: (folder / name).read_bytes() for name in small} == small
    assert sorted(os.listdir(folder)) == ["a", "b", "manifest.json"]

save_folder(mount / "step-1", small, {"step": 1})
assert disk_has_room(mount, 1_000_000) and not disk_has_room(mount, 1_800_000)
refused(lambda: save_folder(mount / "step-2", large, {"step": 2}))
refused(lambda: save_folder(mount / "step-1", large, {"step": 2}))
refused(lambda: update_folder(mount / "step-1", large, {"step": 2}))
refused(lambda: write_bytes(mount / "step-1" / "a", b"x" * 1_900_000))
assert os.listdir(mount) == ["step-1"]
intact(mount / "step-1", 1)
assert newest_checkpoint(mount, print) == mount / "step-1"
(mount / "ballast").write_bytes(b"x" * 300_000)
refused(lambda: save_folder(mount / "step-2", large, {"step": 2}))
(mount / "ballast").unlink()
save_folder(mount / "step-2", small, {"step": 2})
intact(mount / "step-2", 2)
print("passed", flush=True)
"""


def test_a_disk_that_is_really_full(tmp_path: Path, start_child: Start) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a file system of 2 MB needs root and unshare")
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("unshare -m is not permitted here")
    child = start_child(FILL_A_SMALL_DISK, tmp_path, command=("unshare", "-m"))
    output, errors = child.communicate()
    if "mounted" not in output:
        pytest.skip("tmpfs cannot be mounted here")
    assert output == "mounted\npassed\n", errors
    assert os.listdir(tmp_path) == []
