"""Ours against neuraloperator and the plain form, over resolution and batch, on the same data in one run.

Rivals must do equal work before they are timed: the plain form gives our outputs (on every grid) and gradients, the
spectral convolution of neuraloperator is ours when ours has its weights (on every grid), and real parameters agree to a
few per cent. Where the rest of the blocks differ is said in `hofno.bench.neuralop` and below the table.

Cases come in order of their size. A subject is left out of a case when a training step there, by its last time and in
proportion to the points, would take longer than a limit, or when memory ran out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hofno.bench.measure import (
    ParityError,
    bench_device,
    conditions,
    quartiles,
    relative_difference,
    take_turns,
)
from hofno.bench.memory import probe
from hofno.bench.models import LARGEST_OUTPUT_ERROR, forward_pass, parity, training_step
from hofno.bench.neuralop import convolution_parity, neuraloperator
from hofno.bench.peers_table import notes, show_result
from hofno.bench.plain import ModelShape
from hofno.bench.subjects import (
    Subject,
    build,
    check_parameters,
    fields,
    float32_products,
    real_parameters,
    subjects,
)
from hofno.storage import write_json

NO_MEMORY = "no memory"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Grids at one batch, batches on one grid, and how long to measure: seconds of a step at most, rounds, and the
    seconds that the rounds of one case should take together."""

    resolutions: tuple[int, ...] = (32, 64, 128, 256)
    batches: tuple[int, ...] = (1, 2, 4, 8)
    step_limit: float = 5.0
    rounds: tuple[int, int] = (3, 15)
    case_seconds: float = 10.0


@dataclass(frozen=True)
class Case:
    points: int
    batch: int
    sweeps: tuple[str, ...]

    @property
    def size(self) -> int:
        return self.batch * self.points**2


def cases(shape: ModelShape, batch: int, sweep: Sweep) -> list[Case]:
    """Grids that hold the modes, at this batch, and batches on the grid of the shape, made even; smallest first."""
    base = shape.points - shape.points % 2
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for points in sweep.resolutions:
        if points % 2 == 0 and points >= 2 * max(shape.modes):
            found[points, batch] = ("resolution",)
    for count in sweep.batches:
        found[base, count] = (*found.get((base, count), ()), "batch")
    return sorted((Case(*at, sweeps) for at, sweeps in found.items()), key=lambda case: (case.size, case.points))


def compare_shape(shape: ModelShape, batch: int, sweep: Sweep, say: Callable[[str], object]) -> dict[str, Any]:
    """Parity and every case of one network, without domain padding; `say` is told what is under way."""
    shape, device = replace(shape, domain_padding=0.0), bench_device()
    compared, planned = subjects(shape), cases(shape, batch, sweep)
    networks = {subject.key: build(subject.key, shape, device) for subject in compared}
    parameters = {key: real_parameters(network) for key, network in networks.items()}
    check_parameters(parameters, compared)
    with float32_products(tf32=False):
        smallest = fields(shape, planned[0].points, planned[0].batch, device)
        output_error, gradient_error = parity(networks["hofno"], networks["plain"], *smallest)
    del networks
    measured: list[dict[str, Any]] = []
    rates: dict[str, float] = {}  # seconds of a step over size, where it was last taken
    for number, case in enumerate(planned, 1):
        say(f"{case.points} x {case.points} points, batch {case.batch} ({number} of {len(planned)})")
        measured.append(compare_case(case, shape, rates, sweep))
    return {
        "shape": asdict(shape),
        "subjects": {
            s.key: {"label": s.label, "rival": s.rival, "real_parameters": parameters[s.key]} for s in compared
        },
        "output_error": output_error,
        "gradient_error": gradient_error,
        "cases": measured,
    }


def compare_case(case: Case, shape: ModelShape, rates: dict[str, float], sweep: Sweep) -> dict[str, Any]:
    """One grid and batch: who is left out, parity, then the others in turns. Brings `rates` up to date."""
    device, compared = bench_device(), subjects(shape)
    tf32 = device.type == "cuda"
    left_out: dict[str, str] = {}
    peaks: dict[str, int | None] = {}
    for key in (subject.key for subject in compared):
        if rates.get(key, 0.0) * case.size > sweep.step_limit:
            left_out[key] = NO_MEMORY if math.isinf(rates[key]) else f"> {sweep.step_limit:g} s"
            continue
        with float32_products(tf32):
            found = probe(key, shape, case.points, case.batch, device)
        peaks[key], rates[key] = found.peak_bytes, found.seconds / case.size
        if not found.fits:
            left_out[key], rates[key] = NO_MEMORY, math.inf
    running = {s.key: build(s.key, shape, device) for s in compared if s.key not in left_out}
    x, y = fields(shape, case.points, case.batch, device)
    with float32_products(tf32=False):
        errors = case_parity(case, running, shape, x)
    expected = sum(rates[key] * case.size for key in running)
    rounds = min(max(sweep.rounds[0], int(sweep.case_seconds / max(expected, 1e-9))), sweep.rounds[1])
    with float32_products(tf32):
        forward = take_turns([forward_pass(network, x) for network in running.values()], rounds, device)
        step = take_turns([training_step(network, x, y) for network in running.values()], rounds, device)
    times = {key: {"forward": f, "step": s} for key, f, s in zip(running, forward, step, strict=True)}
    for key, found in times.items():
        rates[key] = statistics.median(found["step"]) / case.size
    return {
        **asdict(case),
        "rounds": rounds,
        "parity": errors,
        "left_out": left_out,
        "subjects": {key: summary(found, peaks[key]) for key, found in times.items()},
        "ratios": ratios(compared, times, peaks),
    }


def case_parity(case: Case, running: dict[str, nn.Module], shape: ModelShape, x: torch.Tensor) -> dict[str, float]:
    """Equal work on this grid; a rival that is left out is not asked."""
    errors: dict[str, float] = {}
    if {"hofno", "plain"} <= set(running):
        with torch.no_grad():
            ours, plain = (running[key](x[:1]) for key in ("hofno", "plain"))
        errors["plain_output"] = relative_difference(ours, plain)
        if not errors["plain_output"] < LARGEST_OUTPUT_ERROR:
            raise ParityError(
                f"the two forms must agree to {LARGEST_OUTPUT_ERROR:g} on {case.points} x {case.points} points; they "
                f"differ by {errors['plain_output']:.1e}; nothing was timed"
            )
    if "neuraloperator" in running:
        errors["convolution"] = convolution_parity(running["neuraloperator"], shape, case.points)
    return errors


def summary(times: dict[str, list[float]], peak: int | None) -> dict[str, Any]:
    parts = {f"{part}_seconds": statistics.median(values) for part, values in times.items()}
    spreads = {f"{part}_spread": quartiles(values) for part, values in times.items()}
    return {**parts, **spreads, "peak_bytes": peak}


def ratios(
    compared: list[Subject], times: dict[str, dict[str, list[float]]], peaks: dict[str, int | None]
) -> dict[str, dict[str, list[float]]]:
    """Rival over ours, round by round: median and quartiles; of memory just the ratio."""
    found: dict[str, dict[str, list[float]]] = {}
    for subject in compared:
        key, rival = subject.key, subject.rival
        if rival is None or key not in times or rival not in times:
            continue
        found[key] = {}
        for part in ("forward", "step"):
            rounds = [b / a for a, b in zip(times[rival][part], times[key][part], strict=True)]
            found[key][part] = [statistics.median(rounds), *quartiles(rounds)]
        theirs, ours = peaks[key], peaks[rival]
        if theirs is not None and ours:
            found[key]["peak"] = [theirs / ours]
    return found


def run_peers(shapes: dict[str, ModelShape], batch: int, sweep: Sweep, json_path: Path | None) -> dict[str, Any]:
    """Measure these networks and their rivals and show them."""
    from rich.console import Console

    package = neuraloperator()
    state = conditions()
    state["versions"]["neuraloperator"] = str(package.__version__)
    state["products"] = "tf32" if state["device"] == "cuda" else "float32"
    results: dict[str, Any] = {}
    for name, shape in shapes.items():
        with Console(stderr=True).status(name) as status:
            results[name] = compare_shape(shape, batch, sweep, lambda text, name=name: status.update(f"{name}: {text}"))
        results[name]["notes"] = notes(shape, sweep.step_limit, state["device"])
        show_result(name, results[name], state)
    record = {"what": "peers", **state, "sweep": asdict(sweep), "results": results}
    if json_path is not None:
        write_json(json_path, record)
    return record
