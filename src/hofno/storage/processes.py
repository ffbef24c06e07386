"""Is the process that wrote this still alive? A pid alone does not say: pids are used again.

A process is told apart by (boot, start time): `birth` is both, from /proc, or None where there is no /proc.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def is_alive(pid: int) -> bool:
    """Whether a process `pid` runs on this host; one that is dead and only not yet collected does not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it is alive and belongs to someone else
    fields = _status_fields(pid)
    return fields is None or fields[0] not in ("Z", "X")


def birth(pid: int) -> str | None:
    """Boot and start time of process `pid`, the same text for as long as it lives."""
    fields = _status_fields(pid)
    if fields is None:
        return None
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    return f"{boot}:{fields[19]}"


def _status_fields(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on; the name before them may hold spaces and brackets."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > 19 else None
