"""Independent jobs side by side: on the CPU each on one thread, on another device one after the other.

Samples that do not need each other are better spread over the cores whole than cut up inside every small operation:
cores never wait for each other, and numbers do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Job], Result], jobs: Sequence[Job], device: str | torch.device, threads: int
) -> Generator[Result, None, None]:
    """Results of `jobs` in their order, `threads` at a time if `device` is the CPU.

    Close it, or take all of it: until then, Python threads that begin elsewhere also use one thread each.
    """
    if torch.device(device).type != "cpu":
        yield from map(work, jobs)
        return
    before, workers = torch.get_num_threads(), max(1, min(threads, len(jobs)))
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, jobs)  # cancels what is left when it fails or is closed
    finally:
        torch.set_num_threads(before)  # threads that begin later take the last setting that anyone made
