"""HOFNO against the plain form of the same network: parity first, then both in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.bench.measure import (
    ParityError,
    bench_device,
    compare,
    conditions,
    relative_difference,
    show_table,
    take_turns,
    timing,
)
from hofno.bench.plain import ModelShape, PlainNetwork, plain_layout
from hofno.storage import write_json
from hofno.workers import alone

LARGEST_OUTPUT_ERROR = 1e-4
LARGEST_GRADIENT_ERROR = 1e-3

SHAPES = {
    "darcy": ModelShape(
        points=85, modes=(32, 16), width=128, depth=8, order=2, expansion=4, in_channels=1, domain_padding=2 / 3
    ),
    "ns": ModelShape(points=64, modes=(16, 16), width=256, depth=8, order=2, expansion=4, in_channels=10),
    "small": ModelShape(  # an FNO
        points=64, modes=(16, 16), width=32, depth=4, order=1, expansion=2, in_channels=1, weights="dense", samples=16
    ),
}


def parity(ours: nn.Module, plain: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Relative difference of the outputs, and the largest one of a gradient; refuses a pair that is not the same."""
    outputs = [model(x) for model in (ours, plain)]
    for output in outputs:
        F.mse_loss(output, y).backward()
    mine = plain_layout({name: p.grad for name, p in ours.named_parameters() if p.grad is not None})
    theirs = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    output_error = relative_difference(outputs[0].detach(), outputs[1].detach())
    gradient_error = max(relative_difference(mine[name], grad) for name, grad in theirs.items())
    if not (output_error < LARGEST_OUTPUT_ERROR and gradient_error < LARGEST_GRADIENT_ERROR):
        raise ParityError(
            f"the two forms must agree to {LARGEST_OUTPUT_ERROR:g} in the output and {LARGEST_GRADIENT_ERROR:g} in the "
            f"gradients; they differ by {output_error:.1e} and {gradient_error:.1e}; nothing was timed"
        )
    return output_error, gradient_error


def forward_pass(model: nn.Module, x: Tensor) -> Callable[[], None]:
    def run() -> None:
        model.eval()
        with torch.no_grad():
            model(x)

    return run


def training_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Forward, backward and AdamW, fused but for complex parameters, which the fused one does not take."""
    parameters = list(model.parameters())
    optimisers = [torch.optim.AdamW([p for p in parameters if not p.is_complex()], lr=1e-4, fused=True)]
    if rest := [p for p in parameters if p.is_complex()]:
        optimisers.append(torch.optim.AdamW(rest, lr=1e-4))

    def run() -> None:
        model.train()
        for optimiser in optimisers:
            optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        for optimiser in optimisers:
            optimiser.step()

    return run


def pair(shape: ModelShape, batch: int, device: torch.device) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """Both forms with the same weights, and a batch of fields and targets."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours, plain = shape.build().to(device), PlainNetwork(shape).to(device)
        plain.load_state_dict(plain_layout(dict(ours.state_dict())))
        count = batch * shape.samples
        x = torch.randn(count, shape.in_channels, shape.points, shape.points, device=device)
        y = torch.randn(count, 1, shape.points, shape.points, device=device)
    return ours, plain, x, y


def bench_forward(shape: ModelShape, batch: int, rounds: int) -> dict[str, Any]:
    """The forward pass of both forms at one shape, once their outputs are known to agree."""
    device = bench_device()
    ours, plain, x, _ = pair(shape, batch, device)
    with torch.no_grad():
        output_error = relative_difference(ours(x), plain(x))
    if not output_error < LARGEST_OUTPUT_ERROR:
        raise ParityError(
            f"the two forms must agree to {LARGEST_OUTPUT_ERROR:g} in the output; they differ by {output_error:.1e}; "
            "nothing was timed"
        )
    return compare(*take_turns([forward_pass(model, x) for model in (ours, plain)], rounds, device))


def bench_step(shape: ModelShape, batch: int, rounds: tuple[int, int]) -> dict[str, Any]:
    """Parity, then the training step of both forms at one shape, then the forward pass again."""
    device = bench_device()
    ours, plain, x, y = pair(shape, batch, device)
    output_error, gradient_error = parity(ours, plain, x, y)
    step = take_turns([training_step(model, x, y) for model in (ours, plain)], rounds[1], device)
    forward = take_turns([forward_pass(model, x) for model in (ours, plain)], rounds[0], device)
    return {
        "shape": asdict(shape),
        "batch": len(x),
        "output_error": output_error,
        "gradient_error": gradient_error,
        "step": compare(*step),
        "forward_after_training": compare(*forward),
    }


def _forward_task(task: tuple[dict[str, Any], int, int, int]) -> dict[str, Any]:
    shape, batch, rounds, threads = task
    torch.set_num_threads(threads)
    return bench_forward(ModelShape(**shape), batch, rounds)


def _step_task(task: tuple[dict[str, Any], int, tuple[int, int], int]) -> dict[str, Any]:
    shape, batch, rounds, threads = task
    torch.set_num_threads(threads)
    return bench_step(ModelShape(**shape), batch, rounds)


def run_models(
    shapes: dict[str, ModelShape], batch: int, rounds: tuple[int, int], json_path: Path | None
) -> dict[str, Any]:
    """Measure these networks and show them.

    On a CPU a process that has trained keeps the memory it was given, and allocations after that are cheaper, which
    favours the form that allocates more. So every shape has a process of its own for the forward pass, as in a program
    that only predicts, and another for the training step, with the forward pass again after it.
    """
    state = conditions()
    results: dict[str, dict[str, Any]] = {}
    for name, shape in shapes.items():
        forward = alone(_forward_task, (asdict(shape), batch, rounds[0], state["threads"]))
        step = alone(_step_task, (asdict(shape), batch, rounds, state["threads"]))
        results[name] = {**step, "forward": forward}
    named = {"forward": "forward", "step": "training step", "forward_after_training": "forward, after training"}
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        for part, what in named.items():
            r = result[part]
            rows.append(
                (
                    name,
                    what,
                    timing(r["plain_seconds"], r["plain_spread"]),
                    timing(r["ours_seconds"], r["ours_spread"]),
                    "{:.2f}x ({:.2f}..{:.2f})".format(r["speed_up"], *r["speed_up_spread"]),
                )
            )
    headings = ("shape", "what", "plain FFT, ms", "hofno, ms", "speed-up")
    show_table(headings, rows, f"Median (quartiles) on {state['device']}, {state['threads']} threads, float32")
    for name, result in results.items():
        errors = f"{result['output_error']:.0e} in the output, {result['gradient_error']:.0e} in the gradients"
        print(f"{name}: batch {result['batch']}; parity {errors}")
    record = {"what": "model", **state, "results": results}
    if json_path is not None:
        write_json(json_path, record)
    return record
