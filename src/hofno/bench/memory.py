"""Peak memory of two training steps of one network, and how long the second takes.

GPU: what PyTorch allocated at most, less what it held before the network was built.

CPU: a process remembers only the highest mark it ever reached, so every network gets a process of its own. It imports
and takes two steps of a tiny network first, so that libraries are loaded; the peak is how much the mark grows after
that. Systems that keep no such mark give none.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from hofno.bench.models import training_step
from hofno.bench.plain import ModelShape
from hofno.bench.subjects import build, fields
from hofno.errors import HofnoError

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Probe:
    """Bytes at the peak (None where the system does not say) and seconds of a training step; `fits` is False where
    memory ran out."""

    peak_bytes: int | None
    seconds: float
    fits: bool = True


OUT_OF_MEMORY = Probe(None, float("nan"), fits=False)


def probe(key: str, shape: ModelShape, points: int, batch: int, device: torch.device) -> Probe:
    """Measure one subject by itself."""
    if device.type == "cuda":
        return _probe_on_gpu(key, shape, points, batch, device)
    return _probe_in_child(key, shape, points, batch)


def two_steps(key: str, shape: ModelShape, points: int, batch: int, device: torch.device) -> float:
    """Seconds of the second of two steps; only then does the optimiser hold its state."""
    step = training_step(build(key, shape, device), *fields(shape, points, batch, device))
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
    return seconds


def held_before(device: torch.device) -> int | None:
    """Bytes that stay allocated on a GPU once what is done with is gone, from where its peak counts anew."""
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _probe_on_gpu(key: str, shape: ModelShape, points: int, batch: int, device: torch.device) -> Probe:
    before = held_before(device)
    try:
        seconds = two_steps(key, shape, points, batch, device)
    except torch.OutOfMemoryError:
        return OUT_OF_MEMORY
    return Probe(torch.cuda.max_memory_allocated(device) - (before or 0), seconds)


def _probe_in_child(key: str, shape: ModelShape, points: int, batch: int) -> Probe:
    task = {"key": key, "shape": asdict(shape), "points": points, "batch": batch, "threads": torch.get_num_threads()}
    command = [sys.executable, "-m", "hofno.bench.memory", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -9 or "not enough memory" in done.stderr or "can't allocate memory" in done.stderr:
        return OUT_OF_MEMORY
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise HofnoError(
            f"expected a training step of {key} on {points} x {points} points; its process failed: {reason}"
        )
    return Probe(**json.loads(done.stdout.splitlines()[-1]))


def high_water_mark() -> int | None:
    """The most bytes this process ever held, where the system says.

    Linux hands `ru_maxrss` of a process on to its children, so there the mark is read from /proc.
    """
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def grown(before: int | None, after: int | None) -> int | None:
    """By how much a mark has grown, where there is one: Linux sums it over cores, late, and it may seem to fall."""
    return None if before is None or after is None else max(0, after - before)


def measure_here(task: str) -> dict[str, float | None]:
    """What the process of its own does, and prints."""
    given = json.loads(task)
    torch.set_num_threads(given["threads"])
    shape = ModelShape(**given["shape"] | {"modes": tuple(given["shape"]["modes"])})
    device = torch.device("cpu")
    two_steps(given["key"], replace(shape, modes=(2, 2), width=4, depth=1), 8, 1, device)
    before = high_water_mark()
    seconds = two_steps(given["key"], shape, given["points"], given["batch"], device)
    return {"peak_bytes": grown(before, high_water_mark()), "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1])))
