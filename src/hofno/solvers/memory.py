"""How much memory a device has left, so that work is cut into pieces that fit before it starts."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def free_bytes(device: str | torch.device) -> int | None:
    """Bytes that can still be had on `device`; None where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return None


def gibibytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
