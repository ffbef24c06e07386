"""All that a run needs to go on to the same bits: weights, optimiser, averages, random numbers, position, history.

A checkpoint is a folder `checkpoints/step-<n>` of safetensors and JSON with a manifest, see `hofno.storage`. The order
of the data is a function of seed and epoch, and the learning rate of the step, so neither needs to be stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hofno import storage
from hofno.errors import CheckpointError
from hofno.saved import load_weights
from hofno.train.optim import Optimisers
from hofno.train.ranks import Ranks
from hofno.versions import versions

KEEP = 2


@dataclass
class Position:
    """Where a run stands: the next batch of the next epoch, and what has been seen on the way."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class TrainState:
    """The live objects of a run."""

    model: nn.Module
    optimisers: Optimisers
    position: Position
    average: dict[str, Tensor] | None = None
    best_weights: dict[str, Tensor] | None = None


def environment(device: torch.device, ranks: Ranks) -> dict[str, Any]:
    """What makes bits differ between machines."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        **({"processes": ranks.count} if ranks.count > 1 else {}),
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's architecture and instruction set."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"CPU ({torch.backends.cpu.get_cpu_capability()}, {count})"


def save(state: TrainState, folder: Path, run_hash: str, device: torch.device, ranks: Ranks) -> Path:
    """Write a checkpoint and drop all but the newest ones; the first process does it, with random numbers of all."""
    path = folder / f"step-{state.position.step:09d}"
    random = _random_states(device, ranks)
    if not ranks.first:
        return path
    tensors = {f"model.{k}": v for k, v in state.model.state_dict().items()}
    tensors |= {f"optimiser.{k}": v for k, v in state.optimisers.tensors().items()}
    for prefix, weights in (("average", state.average), ("best", state.best_weights)):
        tensors |= {f"{prefix}.{k}": v for k, v in (weights or {}).items()}
    tensors |= random
    position = dict(vars(state.position))
    files = {
        "state.safetensors": storage.tensor_bytes(tensors),
        "position.json": (json.dumps(position, allow_nan=False) + "\n").encode(),
    }
    meta = {"kind": "checkpoint", "run_hash": run_hash, "environment": environment(device, ranks)}
    storage.save_folder(path, files, meta)
    storage.prune_checkpoints(folder, KEEP)
    return path


def _random_states(device: torch.device, ranks: Ranks) -> dict[str, Tensor]:
    """Where the random numbers of every process stand; those of the first have no number in their names."""
    found = {f"random.cpu{_numbered(i)}": state for i, state in enumerate(ranks.gather(torch.get_rng_state()))}
    if device.type == "cuda":
        states = ranks.gather(torch.cuda.get_rng_state(device))
        found |= {f"random.cuda{_numbered(i)}": state for i, state in enumerate(states)}
    return found


def _numbered(rank: int) -> str:
    return f".{rank}" if rank else ""


def restore(
    state: TrainState, folder: Path, run_hash: str, device: torch.device, report: Any, ranks: Ranks
) -> Path | None:
    """Continue from the newest sound checkpoint of a run, if there is one."""
    path = storage.newest_checkpoint(folder, report)
    if path is None:
        return None
    meta = storage.verify_folder(path)
    if meta.get("run_hash") != run_hash:
        raise CheckpointError(
            f"{path} belongs to another spec (hash {meta.get('run_hash')}, this run has {run_hash}); "
            "resume with the spec in the run folder, or start a new run"
        )
    then, now = meta.get("environment", {}), environment(device, ranks)
    changed = [key for key in dict.fromkeys((*now, *then)) if then.get(key) != now.get(key)]
    if changed:
        names = ", ".join(changed)
        report(f"note: {names} changed since the checkpoint, so the last bits may differ from an unbroken run")
    tensors = storage.read_tensors(path / "state.safetensors")

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    load_weights(state.model, part("model."), path)
    state.optimisers.load_tensors(part("optimiser."))
    for name, weights in (("average", state.average), ("best_weights", state.best_weights)):
        saved = part("average." if name == "average" else "best.")
        if saved and (weights is not None or name == "best_weights"):
            setattr(state, name, {k: v.to(device) for k, v in saved.items()})
    own = _numbered(ranks.rank)  # a process that the run did not have before goes on as one that starts
    if f"random.cpu{own}" in tensors:
        torch.set_rng_state(tensors[f"random.cpu{own}"])
    if device.type == "cuda" and f"random.cuda{own}" in tensors:
        torch.cuda.set_rng_state(tensors[f"random.cuda{own}"], device)
    state.position = read_position(path)
    return path


def checkpoint_folders(folder: Path) -> list[Path]:
    """Every folder that is called a checkpoint, sound or not."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def read_position(checkpoint: Path) -> Position:
    """Where the run of a checkpoint stood."""
    file = checkpoint / "position.json"
    try:
        return Position(**storage.read_json(file))
    except TypeError as error:
        raise CheckpointError(f"{file} does not say where a run stands ({error}); it is of another version") from None
