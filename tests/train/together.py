"""Run by torchrun in two processes, see test_ranks.py: python together.py FOLDER. Writes what it found to FOLDER."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import hofno
from hofno.data.dataset import Dataset
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import HofnoError
from hofno.train.loop import Interrupted
from hofno.train.ranks import Share, join
from hofno.train.step import Step

SETTINGS = {"epochs": 3, "batch_size": 4, "lr": 2e-3, "clip": 0.5, "ema": 0.9, "progress": False}
SAMPLES = 13  # three full batches and one sample, of which the second process has none


def dataset(seed: int = 0, samples: int = SAMPLES) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples + 4, 1, 16, 16, generator=generator)
    return hofno.from_arrays(x, x.cumsum(-1), periodic=True, split=(samples, 2, 2))


def network(seed: int = 0, drop_path: float = 0.0) -> hofno.HOFNO:
    torch.manual_seed(seed)
    return hofno.HOFNO(1, 1, modes=(4, 4), width=8, depth=2, order=2, drop_path=drop_path)


def weights(run: hofno.train.loop.Run) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.surrogate.model.parameters()])


def interrupted_after(steps: int, rank: int, out: Path) -> str:
    """Train, with a request to stop that one process alone is given; what it says."""
    plain, seen = Step.__call__, 0

    def counting(self: Step, share: Share) -> None:
        nonlocal seen
        plain(self, share)
        seen += 1
        if seen == steps and dist.get_rank() == rank:
            os.kill(os.getpid(), signal.SIGTERM)

    Step.__call__ = counting  # pyright: ignore[reportAttributeAccessIssue]
    try:
        hofno.fit(network(drop_path=0.3), dataset(), out=out, **SETTINGS)
    except Interrupted as error:
        return str(error)
    finally:
        Step.__call__ = plain  # pyright: ignore[reportAttributeAccessIssue]
    return "not interrupted"


def refusal(data: Dataset, model: torch.nn.Module | hofno.Surrogate | None = None, **settings: Any) -> str:
    try:
        hofno.fit(model or network(), data, **{**SETTINGS, **settings})
    except HofnoError as error:
        return str(error)
    return "nothing was refused"


class Buffers(torch.nn.Module):
    """Buffers of all kinds, most of them others in each process."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 1)
        self.register_buffer("expanded", torch.arange(4.0)[:, None].expand(4, 8))  # cannot be written, nor need be
        self.register_buffer("strided", (torch.arange(12.0) + 100 * rank)[::2])
        self.register_buffer("short", torch.arange(3, dtype=torch.int16) + rank)
        self.register_buffer("fact", torch.tensor([rank == 0]))
        self.register_buffer("complex", torch.full((3,), complex(1 + rank, 2 - rank), dtype=torch.cfloat))


class Either(torch.nn.Module):
    """One of two convolutions at random, so that processes have gradients of different ones."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.each = torch.nn.ModuleList(torch.nn.Conv2d(1, 1, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.each[int(torch.rand(()) < 0.5)](x)


class Normed(torch.nn.Module):
    """Keeps statistics of its batches, of which each process sees others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.each = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2), torch.nn.Conv2d(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.each(x)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = join(torch.device("cpu"))
    found = {"count": ranks.count}
    # each process has made its own first weights: those of the first count
    run = hofno.fit(network(seed=ranks.rank), dataset(), out=folder / "plain", **SETTINGS)
    found["same"] = all(torch.equal(each, weights(run)) for each in ranks.gather(weights(run)))
    whole = hofno.fit(network(drop_path=0.3), dataset(), out=folder / "whole", **SETTINGS)
    states = ranks.gather(torch.tensor([ranks.seed(0)]))
    found["seeds"] = [int(state) for state in states]
    for rank in (0, 1):
        out = folder / f"broken{rank}"
        found[f"interrupted{rank}"] = interrupted_after(6, rank, out)
        again = hofno.fit(network(drop_path=0.3), dataset(), out=out, resume=True, **SETTINGS)
        found[f"bits{rank}"] = not ranks.any(not torch.equal(weights(again), weights(whole)))
    buffers = Buffers(ranks.rank)
    ranks.same_weights(buffers)
    wanted = Buffers(0).state_dict()
    alike = [torch.equal(part, wanted[name]) for name, part in buffers.state_dict().items() if "conv" not in name]
    found["buffers"] = not ranks.any(not all(alike))
    either = hofno.fit(Either(), dataset(), **SETTINGS)
    found["either"] = all(torch.equal(each, weights(either)) for each in ranks.gather(weights(either)))
    normed = hofno.fit(Normed(), dataset(), **{**SETTINGS, "ema": 0.0}).surrogate.model.state_dict()
    found["statistics"] = all(
        torch.equal(each, part) for part in normed.values() if part.ndim for each in ranks.gather(part)
    )
    found["taken folder"] = refusal(dataset(), out=folder / "plain")
    seen = folder / ("whole" if ranks.first else "new")  # the second process does not see the run
    found["other folder"] = refusal(dataset(), network(drop_path=0.3), out=seen, resume=True)
    found["other model"] = refusal(dataset(), hofno.HOFNO(1, 1, modes=(4, 4), width=8 + ranks.rank, depth=1))
    found["other data"] = refusal(dataset(seed=ranks.rank))
    further = hofno.fit(run, dataset(seed=5), **SETTINGS)
    found["further"] = all(torch.equal(each, weights(further)) for each in ranks.gather(weights(further)))
    statistics = run.surrogate.inputs
    moved = ChannelNormaliser(statistics.mean + ranks.rank, statistics.std)
    found["other start"] = refusal(dataset(), replace(run.surrogate, inputs=moved))
    found["odd batch"] = refusal(dataset(), batch_size=3)
    found["few samples"] = refusal(dataset(samples=1))
    if ranks.first:
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
