"""One living owner per run folder: refused while it lives, taken over once it is dead."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hofno.errors import CheckpointError, HofnoError
from hofno.storage import InUseError, RunLock, lock
from hofno.storage.processes import birth, is_alive

Start = Callable[..., subprocess.Popen[str]]

HOLD = """
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def owner_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "lock").read_text())


def write_owner(run: Path, **changes: object) -> None:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": "then", "birth": birth(os.getpid())}
    (run / "lock").write_text(json.dumps({**owner, **changes}))


def hold(start_child: Start, run: Path) -> subprocess.Popen[str]:
    child = start_child(HOLD, run)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_the_owner_is_written_and_the_lock_given_back(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    with RunLock(run):
        owner = owner_of(run)
        assert owner["pid"] == os.getpid()
        assert owner["host"] == socket.gethostname()
        assert owner["started"].endswith("+00:00")
    assert os.listdir(run) == []
    with RunLock(run):
        assert os.listdir(run) == ["lock"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_exceptions_give_it_back(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), RunLock(tmp_path):
        raise error
    assert os.listdir(tmp_path) == []


def test_refused_while_the_owner_lives(tmp_path: Path, start_child: Start) -> None:
    child = hold(start_child, tmp_path)
    started = owner_of(tmp_path)["started"]
    with pytest.raises(HofnoError) as caught:
        RunLock(tmp_path).__enter__()
    assert str(caught.value) == (f"{tmp_path} is in use by process {child.pid} since {started}; wait for it or stop it")
    assert owner_of(tmp_path)["pid"] == child.pid
    child.communicate("")
    assert child.returncode == 0
    with RunLock(tmp_path):
        pass


def test_an_owner_is_waited_for_if_asked_to(tmp_path: Path, start_child: Start) -> None:
    child = hold(start_child, tmp_path)
    begun = time.monotonic()
    with pytest.raises(InUseError), RunLock(tmp_path, patience=0.3):
        pass
    assert 0.3 <= time.monotonic() - begun < 10
    release = threading.Timer(0.2, child.communicate, [""])
    release.start()
    with RunLock(tmp_path, patience=60.0):
        assert owner_of(tmp_path)["pid"] == os.getpid()
    release.join()


def test_looking_takes_nothing(tmp_path: Path, start_child: Start) -> None:
    RunLock(tmp_path / "new").refuse_living_owner()
    assert os.listdir(tmp_path) == []
    child = hold(start_child, tmp_path)
    with pytest.raises(InUseError, match=f"in use by process {child.pid}"):
        RunLock(tmp_path).refuse_living_owner()


def test_locks_of_other_names_are_other_locks(tmp_path: Path) -> None:
    with RunLock(tmp_path), RunLock(tmp_path, ".all.json.lock"):
        assert sorted(os.listdir(tmp_path)) == [".all.json.lock", "lock"]
        with pytest.raises(InUseError, match=r"\.all\.json\.lock is in use"), RunLock(tmp_path, ".all.json.lock"):
            pass
    assert os.listdir(tmp_path) == []


def test_refused_to_the_same_process_twice(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        with pytest.raises(HofnoError, match=f"in use by process {os.getpid()}"):
            RunLock(tmp_path).__enter__()
        assert owner_of(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("collected", [True, False])
def test_taken_over_after_kill_9(tmp_path: Path, start_child: Start, collected: bool) -> None:
    child = hold(start_child, tmp_path)
    child.send_signal(signal.SIGKILL)
    if collected:
        child.wait()
    else:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the process table
    with RunLock(tmp_path):
        assert owner_of(tmp_path)["pid"] == os.getpid()
    assert os.listdir(tmp_path) == []


def test_a_reused_pid_is_not_the_owner(tmp_path: Path) -> None:
    write_owner(tmp_path, birth="another boot:1")
    with RunLock(tmp_path):
        assert owner_of(tmp_path)["birth"] == birth(os.getpid())


def test_without_a_start_time_the_pid_decides(tmp_path: Path) -> None:
    write_owner(tmp_path, birth=None)
    with pytest.raises(HofnoError, match="in use by process"):
        RunLock(tmp_path).__enter__()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"1", b'{"pid": 1}', b"[" * 100_000])
def test_unreadable_content_is_taken_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    with RunLock(tmp_path):
        assert owner_of(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("pid", [0, -1, "7", None, 2**80])
def test_impossible_owners_are_taken_over(tmp_path: Path, pid: object) -> None:
    write_owner(tmp_path, pid=pid)
    with RunLock(tmp_path):
        assert owner_of(tmp_path)["pid"] == os.getpid()


def test_another_host_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write_owner(tmp_path, pid=7, host="else\nwhere")
    with pytest.raises(HofnoError) as caught:
        RunLock(tmp_path).__enter__()
    assert str(caught.value) == (
        f"{tmp_path} is in use by process 7 on host else where since then; "
        f"if that process is over, delete {tmp_path / 'lock'} and run again"
    )
    (tmp_path / "lock").unlink()
    with RunLock(tmp_path):
        pass


def test_a_lock_that_others_took_is_not_removed(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        write_owner(tmp_path, started="by hand")
    assert owner_of(tmp_path)["started"] == "by hand"


def test_a_vanished_folder_is_no_error(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run"):
        (tmp_path / "run" / "lock").unlink()
        (tmp_path / "run").rmdir()


def test_a_forked_child_does_not_give_it_back(tmp_path: Path, start_child: Start) -> None:
    code = """
import os
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print((Path(sys.argv[1]) / "lock").exists())
"""
    assert start_child(code, tmp_path).communicate()[0] == "True\n"
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"lock .* could not be written"):
        RunLock(tmp_path / "file").__enter__()


def test_a_lock_created_at_the_same_moment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder cannot be held, exclusive creation decides between two that found it free."""
    write_owner(tmp_path)
    monkeypatch.setattr(RunLock, "refuse_living_owner", lambda self: None)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok: None)
    with pytest.raises(HofnoError, match="took it at this moment"):
        RunLock(tmp_path).__enter__()
    assert owner_of(tmp_path)["started"] == "then"


def test_a_failed_write_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "injected")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CheckpointError, match="No space left on device; free some space"):
        RunLock(tmp_path).__enter__()
    assert os.listdir(tmp_path) == []


def test_of_many_that_find_a_stale_lock_one_takes_it(tmp_path: Path, start_child: Start) -> None:
    """Each child pauses between its verdict and its act; without turns some would act on an old verdict."""
    code = """
import random, time
verdict = RunLock.refuse_living_owner
RunLock.refuse_living_owner = lambda self: (verdict(self), time.sleep(random.uniform(0, 0.1)))
sys.stdin.readline()
try:
    with RunLock(Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except ValueError:
    print("refused", flush=True)
"""
    for _ in range(3):
        write_owner(tmp_path, birth="another boot:1")
        children = [start_child(code, tmp_path) for _ in range(4)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        answers = []
        for child in children:
            assert child.stdout is not None
            answers.append(child.stdout.readline())
        for child in children:
            child.communicate("\n")
        assert sorted(answers) == ["held\n", *["refused\n"] * 3]


def test_a_process_is_known_by_its_birth(start_child: Start) -> None:
    child = start_child("sys.stdin.read()")
    assert is_alive(child.pid)
    assert birth(child.pid) == birth(child.pid) != birth(os.getpid())
    child.communicate("")
    assert not is_alive(child.pid)
    assert birth(child.pid) is None
    assert is_alive(1)
    assert lock.birth(2**22 + 1) is None
