"""One process per run folder: the file `lock` names its owner, and a dead owner loses it.

    lock = {pid, host, started, birth}    birth = (boot, start time) of the process, since pids are reused

Processes that want the lock take turns (flock on the folder) while they read and replace it, so two that find
the same stale lock cannot both take it over.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hofno.errors import HofnoError
from hofno.storage.files import one_line, remove_file, write_failure, write_synced
from hofno.storage.processes import birth, is_alive

LOCK = "lock"
_LARGEST_LOCK = 4096  # bytes
_PAUSE = 0.05  # seconds between two tries


class InUseError(HofnoError):
    """Another process owns what was asked for."""


class RunLock:
    """`with RunLock(run_folder): ...` owns the folder; leaving the block, by an exception too, frees it.

    Another `name` in the folder is another lock: of one file, for example. An owner is waited for as long as
    `patience` seconds.
    """

    def __init__(self, path: Path, name: str = LOCK, patience: float = 0.0) -> None:
        self.path = path
        self.lock = path / name
        self.patience = patience
        self._held = path if name == LOCK else self.lock
        self._content = b""
        self._pid = 0

    def __enter__(self) -> Self:
        last_try = time.monotonic() + self.patience
        while True:
            try:
                return self._take()
            except InUseError:
                if time.monotonic() >= last_try:
                    raise
            time.sleep(_PAUSE)

    def _take(self) -> Self:
        pid = os.getpid()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        owner = {"pid": pid, "host": socket.gethostname(), "started": started, "birth": birth(pid)}
        content = json.dumps(owner).encode() + b"\n"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _turn(self.path):
                self.refuse_living_owner()
                self.lock.unlink(missing_ok=True)
                self._create(content)
        except OSError as error:
            raise write_failure(self.lock, len(content), error) from error
        self._content, self._pid = content, pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid != os.getpid():
            return  # a forked child leaves the block; the lock is its parent's
        with suppress(OSError), _turn(self.path):
            if self.lock.read_bytes() == self._content:
                self.lock.unlink()

    def _create(self, content: bytes) -> None:
        try:
            write_synced(self.lock, content)
        except FileExistsError as error:
            raise InUseError(
                f"{self._held} is in use by a process that took it at this moment; wait for it or stop it"
            ) from error
        except BaseException:
            remove_file(self.lock)
            raise

    def refuse_living_owner(self) -> None:
        """Raise if a process owns the lock, saying which; nothing is taken."""
        owner = self._owner()
        if owner is None:
            return
        pid, host, started = owner["pid"], one_line(owner["host"], 80), one_line(owner["started"], 40)
        if owner["host"] != socket.gethostname():
            raise InUseError(
                f"{self._held} is in use by process {pid} on host {host} since {started}; "
                f"if that process is over, delete {self.lock} and run again"
            )
        if not is_alive(pid):
            return
        if owner.get("birth") not in (None, birth(pid)):
            return  # another process has the number now
        raise InUseError(f"{self._held} is in use by process {pid} since {started}; wait for it or stop it")

    def _owner(self) -> dict[str, Any] | None:
        """Who holds the lock; None when nobody does or when the content names nobody."""
        try:
            with self.lock.open("rb") as file:
                owner = json.loads(file.read(_LARGEST_LOCK))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return None
        if not isinstance(owner, dict) or not isinstance(owner.get("pid"), int) or owner["pid"] < 1:
            return None
        if not isinstance(owner.get("host"), str) or not isinstance(owner.get("started"), str):
            return None
        return owner


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold the folder for the blink of an eye; where it cannot be held, exclusive creation still decides."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
