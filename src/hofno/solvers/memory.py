"""How much memory a device has left, so that work is cut into pieces that fit before it starts, and room on disk."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import torch

_FOLDER: ContextVar[Path | None] = ContextVar("folder of arrays on disk", default=None)


def free_bytes(device: str | torch.device) -> int | None:
    """Bytes that can still be had on `device`; None where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    known = [free for free in (_free_in_system(), _free_in_group()) if free is not None]
    return min(known, default=None)


def _free_in_system() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return None


def _free_in_group(process: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What containers and batch systems leave to this process: the smallest limit of its control groups (version 2).

    Files that are kept in memory count as used there and are dropped when memory is wanted, so they count as free.
    """
    free: list[int] = []
    try:
        lines = process.read_text().splitlines()
        place = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
    except (OSError, StopIteration):
        return None
    group = root / place
    for folder in (group, *group.parents):
        try:
            limit, used = int((folder / "memory.max").read_text()), int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            free.append(max(0, limit - used + int(stat["inactive_file"]) + int(stat["active_file"])))
        except (OSError, ValueError, KeyError):  # there is no limit here: the file is missing, or says "max"
            pass
        if folder == root:
            break
    return min(free, default=None)


@contextmanager
def arrays_on_disk(folder: Path | None) -> Iterator[None]:
    """Let `empty_array` make files in `folder` for the time being; None leaves its arrays in memory."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def empty_array(shape: Sequence[int]) -> np.ndarray:
    """Room for float32 numbers: in memory, or mapped from a .npy file where the data do not fit into memory."""
    folder = _FOLDER.get()
    if folder is None:
        return np.empty(tuple(shape), np.float32)
    return np.lib.format.open_memmap(folder / f"{secrets.token_hex(8)}.npy", "w+", np.float32, tuple(shape))


def temporary_array(shape: Sequence[int], path: Path) -> np.ndarray:
    """Room for float32 numbers in a file of its own, which goes when the array goes, or with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.lib.format.open_memmap(path, "w+", np.float32, tuple(shape))
    weakref.finalize(array, path.unlink, missing_ok=True)
    return array


def gibibytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
