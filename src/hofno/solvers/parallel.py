"""Independent jobs side by side: on the CPU each on one thread, on another device one after the other.

Samples that do not need each other are better spread over the cores whole than cut up inside every small operation:
cores never wait for each other, and numbers do not depend on how many there are.

Ctrl-C reaches the main thread alone, which then waits for the jobs that run. Long ones call `go_on` in their loops, and
so end as soon as no one waits for them any more. Who waits may look at them every now and then, to tell how far they
are.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")

PAUSE = 0.5
"""Seconds between two looks at jobs that run."""

_this = threading.local()


class AbandonedError(Exception):
    """A job ends before it is done, since no one waits for its result."""


def go_on() -> None:
    """End the job that this thread runs if its result is not wanted any more; elsewhere nothing happens.

    Where jobs run in the thread that waits for them, it takes its looks here.
    """
    abandoned: threading.Event | None = getattr(_this, "abandoned", None)
    if abandoned is not None and abandoned.is_set():
        raise AbandonedError
    look: Callable[[], None] | None = getattr(_this, "look", None)
    if look is not None:
        look()


def _begin(abandoned: threading.Event) -> None:
    torch.set_num_threads(1)
    _this.abandoned = abandoned


def _now_and_then(look: Callable[[], None]) -> Callable[[], None]:
    """What calls `look` when PAUSE has passed since the last time."""
    last = time.monotonic()

    def called() -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            look()
            last = time.monotonic()

    return called


def in_order(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    device: str | torch.device,
    threads: int,
    look: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Results of `jobs` in their order, `threads` at a time if `device` is the CPU.

    `look` is called every now and then while jobs run, always by the thread that waits for their results. Close it, or
    take all of it: until then, Python threads that begin elsewhere also use one thread each.
    """
    if torch.device(device).type != "cpu":
        _this.look = None if look is None else _now_and_then(look)
        try:
            yield from map(work, jobs)
        finally:
            _this.look = None
        return
    before, workers, abandoned = torch.get_num_threads(), max(1, min(threads, len(jobs))), threading.Event()
    try:
        with ThreadPoolExecutor(workers, initializer=_begin, initargs=(abandoned,)) as pool:
            try:
                waiting = deque(pool.submit(work, job) for job in jobs)
                while waiting:
                    while look is not None and wait([waiting[0]], PAUSE).not_done:
                        look()
                    yield waiting.popleft().result()
            finally:
                abandoned.set()
                pool.shutdown(wait=False, cancel_futures=True)
    finally:
        torch.set_num_threads(before)  # threads that begin later take the last setting that anyone made
