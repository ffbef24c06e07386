"""Independent jobs side by side: on the CPU each on one thread, on another device one after the other.

Samples that do not need each other are better spread over the cores whole than cut up inside every small operation:
cores never wait for each other, and numbers do not depend on how many there are.

Ctrl-C reaches the main thread alone, which then waits for the jobs that run. Long ones call `go_on` in their loops, and
so end as soon as no one waits for them any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")

_this = threading.local()


class AbandonedError(Exception):
    """A job ends before it is done, since no one waits for its result."""


def go_on() -> None:
    """End the job that this thread runs if its result is not wanted any more; elsewhere nothing happens."""
    abandoned: threading.Event | None = getattr(_this, "abandoned", None)
    if abandoned is not None and abandoned.is_set():
        raise AbandonedError


def _begin(abandoned: threading.Event) -> None:
    torch.set_num_threads(1)
    _this.abandoned = abandoned


def in_order(
    work: Callable[[Job], Result], jobs: Sequence[Job], device: str | torch.device, threads: int
) -> Generator[Result, None, None]:
    """Results of `jobs` in their order, `threads` at a time if `device` is the CPU.

    Close it, or take all of it: until then, Python threads that begin elsewhere also use one thread each.
    """
    if torch.device(device).type != "cpu":
        yield from map(work, jobs)
        return
    before, workers, abandoned = torch.get_num_threads(), max(1, min(threads, len(jobs))), threading.Event()
    try:
        with ThreadPoolExecutor(workers, initializer=_begin, initargs=(abandoned,)) as pool:
            try:
                yield from pool.map(work, jobs)  # cancels what is left when it fails or is closed
            finally:
                abandoned.set()
    finally:
        torch.set_num_threads(before)  # threads that begin later take the last setting that anyone made
