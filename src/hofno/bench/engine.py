"""The training step as training takes it: in each precision, captured in a CUDA graph or not, beside the plain form.

Every way takes the same weights and fields through `hofno.train.step.Step` with AdamW. Before it is timed, its output
is compared with that of the plain form in float32. On a CPU there is one precision and nothing to capture, and every
way has a process of its own (see `hofno.bench.models.run_models`).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hofno.bench.measure import (
    ParityError,
    bench_device,
    conditions,
    digits,
    quartiles,
    relative_difference,
    show_table,
    take_turns,
    timing,
)
from hofno.bench.memory import held_before
from hofno.bench.models import pair
from hofno.bench.plain import ModelShape
from hofno.solvers.memory import free_bytes
from hofno.spec import TrainSpec
from hofno.storage import write_json
from hofno.train.activations import saved_bytes
from hofno.train.optim import Optimisers
from hofno.train.phases import Phase
from hofno.train.precision import autocast, precision
from hofno.train.ranks import Share
from hofno.train.step import Step
from hofno.train.tasks import Pairs
from hofno.workers import alone

LARGEST_ERROR = {"fp32": 1e-4, "tf32": 1e-2, "mixed": 1e-1, "bf16": 2e-1}  # of the output, by precision


@dataclass(frozen=True)
class Way:
    """One way to take a step: ours or the plain form, by a policy of `hofno.train.precision`."""

    form: str
    policy: str
    graph: bool = False
    compiled: bool = False

    @property
    def label(self) -> str:
        marks = [mark for mark, used in (("compiled", self.compiled), ("CUDA graph", self.graph)) if used]
        return ", ".join([self.policy, *marks])


def ways(kind: str) -> list[Way]:
    """What is measured on a device of this kind; the first is what the others are compared with."""
    if kind != "cuda":
        return [Way("plain", "fp32"), Way("hofno", "fp32")]
    ours = [Way("hofno", policy, graph=True) for policy in ("fp32", "tf32", "bf16", "mixed")]
    others = [Way("hofno", "mixed"), Way("hofno", "mixed", graph=True, compiled=True)]
    return [Way("plain", "fp32"), Way("plain", "tf32"), Way("plain", "tf32", graph=True), *ours, *others]


def bench_way(shape: ModelShape, way: Way, batch: int, rounds: int) -> dict[str, Any]:
    """Seconds of a step, round by round, its peak of memory (None on a CPU) and how far its output is off."""
    device = bench_device()
    held = held_before(device)
    ours, plain, x, y = pair(shape, batch, device)
    with torch.no_grad(), precision("fp32", plain):
        exact = plain(x[:1])
    model = ours if way.form == "hofno" else plain
    del ours, plain
    error = _output_error(model, way.policy, x[:1], exact)
    if not error < LARGEST_ERROR[way.policy]:
        raise ParityError(
            f"{way.form} in {way.policy} must give the plain form's output to {LARGEST_ERROR[way.policy]:g}; it "
            f"differs by {error:.1e}; nothing was timed"
        )
    del exact
    needed = 5 * len(x) * saved_bytes(model, tuple(x.shape[1:])) // 4 if device.type == "cpu" else 0  # and gradients
    if needed > (free_bytes("cpu") or math.inf):  # a system that is short of memory ends any process, not only this one
        raise torch.OutOfMemoryError
    held_before(device)
    spec = TrainSpec(batch_size=len(x), cuda_graph=way.graph, compile=way.compiled)  # pyright: ignore[reportCallIssue]
    scale = torch.zeros((), device=device), torch.ones((), device=device)
    step = Step(model, Optimisers(model, spec, device), None, Pairs(x, y), scale, spec)
    everything = Share.whole(torch.arange(len(x), device=device))
    with precision(way.policy, model):
        step.use(Phase(way.policy))
        (seconds,) = take_turns([lambda: step(everything)], rounds, device)
    peak = None if held is None else torch.cuda.max_memory_allocated(device) - held
    return {**asdict(way), "seconds": seconds, "peak_bytes": peak, "output_error": error}


def _output_error(model: nn.Module, policy: str, x: Tensor, exact: Tensor) -> float:
    with torch.no_grad(), precision(policy, model), autocast(policy, x.device):
        return relative_difference(model(x).float(), exact)


def _task(task: tuple[dict[str, Any], dict[str, Any], int, int, int]) -> dict[str, Any]:
    shape, way, batch, rounds, threads = task
    torch.set_num_threads(threads)
    try:
        return bench_way(ModelShape(**shape), Way(**way), batch, rounds)
    except torch.OutOfMemoryError:
        return {**way, "left_out": "no memory"}


def run_engine(shapes: dict[str, ModelShape], batch: int, rounds: int, json_path: Path | None) -> dict[str, Any]:
    """Measure the training step of these networks every way and show it."""
    state = conditions()
    results: dict[str, dict[str, Any]] = {}
    rows: list[tuple[str, ...]] = []
    for name, shape in shapes.items():
        found: list[dict[str, Any]] = []
        for way in ways(state["device"]):
            task = asdict(shape), asdict(way), batch, rounds, state["threads"]
            one = _task(task) if state["device"] == "cuda" else alone(_task, task)
            if "seconds" in one:
                one |= {"median": statistics.median(one["seconds"]), "spread": quartiles(one["seconds"])}
            found.append(one)
            rows.append((name, way.form, way.label, *_cells(one, found[0])))
        results[name] = {"shape": asdict(shape), "batch": batch * shape.samples, "ways": found}
    headings = ("shape", "form", "precision", "step, ms", "speed-up", "peak, GiB", "output off by")
    show_table(headings, rows, f"Training steps, median (quartiles) on {state['device']}, {state['threads']} threads")
    record = {"what": "engine", **state, "results": results}
    if json_path is not None:
        write_json(json_path, record)
    return record


def _cells(one: dict[str, Any], first: dict[str, Any]) -> tuple[str, str, str, str]:
    """Time, speed-up over the first way, memory and difference, as text."""
    if "seconds" not in one:
        return one["left_out"], "", "", ""
    faster = f"{first['median'] / one['median']:.2f}x" if "median" in first else ""
    peak = "" if one["peak_bytes"] is None else digits(one["peak_bytes"] / 2**30)
    return timing(one["median"], one["spread"]), faster, peak, f"{one['output_error']:.0e}"
