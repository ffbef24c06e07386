"""Samples solved in groups: how many fit into memory, and the loop that fills the splits with them.

Libraries may round a sample differently in another batch, so groups have a fixed size: sample i lies at place i % g of
group i // g, and a group that is not full is filled up by the caller.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
import torch

from hofno.errors import SolverError
from hofno.problems.base import Arrays, Problem, Progress
from hofno.solvers.memory import empty_array, free_bytes, gibibytes
from hofno.solvers.parallel import in_order

Solve = Callable[[int, int, int, int], tuple[np.ndarray, np.ndarray]]
"""solve(stream, start, stop, group): x and y of samples start..stop-1 of a split, the first of a group."""


def groups_in_memory(
    device: str | torch.device, most: int, bytes_each: int, too_little: Callable[[int], SolverError]
) -> tuple[int, int]:
    """Samples that are solved together, a power of two up to `most`, and groups at a time; fewer where memory is short.

    `too_little(free)` is the error for a memory that does not hold one sample.
    """
    group = 2 ** int(math.log2(max(1, most)))
    threads = torch.get_num_threads() if torch.device(device).type == "cpu" else 1
    free = free_bytes(device)
    if free is None:
        return group, threads
    if bytes_each > free:
        raise too_little(free)
    while group > 1 and group * bytes_each > 0.8 * free:
        group //= 2
    return group, max(1, min(threads, int(0.8 * free / (group * bytes_each))))


def too_little_memory(size: str, bytes_each: int, device: str | torch.device, free: int, lower: str) -> SolverError:
    """The error for a memory that does not hold one sample of this size; `lower` names what makes it smaller."""
    sample = f"one sample {size}".rstrip()
    return SolverError(
        f"{sample} needs {gibibytes(bytes_each)} on {device} and {gibibytes(free)} are free; free some memory, lower "
        f"{lower} or choose another device"
    )


def solve_in_groups(
    problem: Problem,
    shape: tuple[int, ...],
    solve: Solve,
    device: str | torch.device,
    groups: tuple[int, int],
    too_little: Callable[[int], SolverError],
    progress: Progress,
) -> dict[str, Arrays]:
    """The splits of a problem on a grid of this shape; memory that runs out after all makes smaller groups."""
    sizes = {"train": problem.train, "valid": problem.valid, "test": problem.test}
    group, threads = groups
    done, total = 0, sum(sizes.values())
    splits: dict[str, Arrays] = {}
    for stream, (name, count) in enumerate(sizes.items()):
        x, y = (empty_array((count, channels, *shape)) for channels in problem.channels)
        start = 0
        while start < count:
            jobs = [(stream, first, min(first + group, count), group) for first in range(start, count, group)]
            solved = in_order(lambda job: solve(*job), jobs, device, threads)
            try:
                with contextlib.closing(solved):
                    for (_, _, stop, _), (fields, targets) in zip(jobs, solved, strict=True):
                        x[start:stop], y[start:stop] = fields, targets
                        progress("generate", done + stop, total)
                        start = stop
            except torch.OutOfMemoryError:
                if group == 1:
                    raise too_little(free_bytes(device) or 0) from None
                group //= 2
            except SolverError as error:
                raise SolverError(f"{name} samples from {start} on: {error}") from None
        done += count
        splits[name] = Arrays(x, y)
    return splits
