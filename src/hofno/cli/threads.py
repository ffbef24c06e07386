"""How many CPU threads a command uses: as many as PyTorch would, a number, or what is faster right now.

Threads that share their work wait for the slowest of them. Where other programs keep the cores busy that wait can make
two threads many times slower than one, so `auto` tries both for a moment. Numbers may differ in their last bits between
numbers of threads, therefore nothing is chosen unless it is asked for.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Annotated

import typer

from hofno.errors import SpecError

ROUNDS = 9
GAIN = 0.9
"""Several threads are taken if they need less than this part of the time of one."""

Threads = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="CPU threads; auto takes a single one if other programs keep the cores busy.",
        show_default=False,
    ),
]


def settle_threads(wanted: str | None) -> None:
    """Set the number of threads of this process and of those it starts."""
    if wanted is None:
        return
    import torch

    if wanted == "auto":
        count = torch.get_num_threads()
        if count > 1 and "OMP_NUM_THREADS" not in os.environ and not several_pay():
            typer.echo(f"other programs keep the cores busy: one thread is faster than {count} here, so one is used")
            count = 1
    elif wanted.isdecimal() and int(wanted) > 0:
        count = int(wanted)
    else:
        raise SpecError(f"--threads is a number of at least 1, or auto; got {wanted!r}")
    torch.set_num_threads(count)
    os.environ["OMP_NUM_THREADS"] = str(count)


def several_pay() -> bool:
    """Whether a step of work like training's is faster with all threads than with one."""
    import torch

    count = torch.get_num_threads()
    a, b = torch.ones(4096, 64), torch.ones(64, 128)
    seconds: dict[int, list[float]] = {1: [], count: []}
    try:
        for _ in range(ROUNDS):
            for threads, times in seconds.items():
                torch.set_num_threads(threads)
                started = time.perf_counter()
                for _ in range(5):
                    torch.nn.functional.gelu(a @ b).sum(0)
                times.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(count)
    # the mean, since waiting comes in few, long pieces; the first round is for warming up
    return statistics.fmean(seconds[count][1:]) < GAIN * statistics.fmean(seconds[1][1:])
