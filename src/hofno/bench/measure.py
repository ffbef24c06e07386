"""Times taken in turns, their spread, the conditions they were taken under, and the table they are shown in."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hofno.errors import HofnoError
from hofno.versions import versions


class ParityError(HofnoError):
    """Two forms do not compute the same function, so their times mean nothing."""


def relative_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


def bench_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def take_turns(functions: Sequence[Callable[[], object]], rounds: int, device: torch.device) -> list[list[float]]:
    """Seconds of every function in every round, after one round that does not count."""
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(rounds + 1):
        for function, times in zip(functions, seconds, strict=True):
            started = time.perf_counter()
            function()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn > 0:
                times.append(time.perf_counter() - started)
    return seconds


def timed(call: Callable[[], object], device: torch.device, rounds: int, seconds: float) -> list[float]:
    """Seconds of a call, round by round, after one call that does not count.

    A round has as many calls as take `seconds`, at least one, and the device is waited for at its end alone: what is
    asked of a GPU lies in wait for it, as in training.
    """
    call()
    once = _mean_seconds(call, 1, device)
    calls = max(1, math.ceil(seconds / max(once, 1e-9)))
    found = [once] if calls == 1 else []
    return found + [_mean_seconds(call, calls, device) for _ in range(rounds - len(found))]


def _mean_seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    begun = _clock(device)
    for _ in range(calls):
        call()
    return (_clock(device) - begun) / calls


def _clock(device: torch.device) -> float:
    """Seconds, when all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def compare(ours: list[float], plain: list[float]) -> dict[str, Any]:
    """Medians, spreads (quartiles), and the speed-up round by round."""
    speed_ups = [b / a for a, b in zip(ours, plain, strict=True)]
    return {
        "rounds": len(ours),
        "ours_seconds": statistics.median(ours),
        "ours_spread": quartiles(ours),
        "plain_seconds": statistics.median(plain),
        "plain_spread": quartiles(plain),
        "speed_up": statistics.median(speed_ups),
        "speed_up_spread": quartiles(speed_ups),
    }


def quartiles(values: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def conditions(device: torch.device | None = None) -> dict[str, Any]:
    """What was measured on: a device, the one that benches take unless given, and versions."""
    device = device or bench_device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": device.type,
        "device_name": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def timing(seconds: float, spread: list[float]) -> str:
    low, high = spread
    return f"{milliseconds(seconds)} ({milliseconds(low)}..{milliseconds(high)})"


def milliseconds(seconds: float) -> str:
    """Three digits at least, never an exponent."""
    return digits(1e3 * seconds)


def digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def show_table(headings: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
