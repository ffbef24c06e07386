"""Processes that train one network together, as `torchrun` starts them.

    torchrun --nproc-per-node=4 -m hofno train SPEC --out RUN        or a script that calls hofno.fit

Each process has the network and the data, takes its share of every batch, and all take the same step by the sum of
their gradients: what one process would do, up to rounding, unless a network keeps statistics of its batches. Those are
the first process's. `train.batch_size` is that of all of them together. Random numbers (stochastic depth, augmentation,
noise) are drawn by each process for its share. The first process shows progress and writes files.

Gradients go from GPU to GPU by NCCL. What processes agree upon goes over the host, by gloo.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.train.feed import Feed

Made = TypeVar("Made")
PATIENCE = timedelta(days=7)  # for what one process does while the others wait, such as making data


class TogetherError(SpecError):
    """What all processes find at once, and the first one tells."""


class Share(NamedTuple):
    """What a process takes of a batch; where that is nothing, a sample that does not count."""

    indices: Tensor
    counted: int  # samples that count
    batch: int  # samples of the whole batch

    @classmethod
    def whole(cls, indices: Tensor) -> Share:
        """All of a batch."""
        return cls(indices, len(indices), len(indices))


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; alone unless told otherwise."""

    rank: int = 0
    count: int = 1
    local: int = 0  # its number on this machine
    host: Any = None  # the group that numbers on the host go through

    @property
    def first(self) -> bool:
        return self.rank == 0

    def place(self, device: torch.device) -> torch.device:
        """The device of this process: on a machine with several GPUs each has its own."""
        if self.count == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise SpecError(
                f"{self.count} processes train together, each on a GPU of its own; got device {str(device)!r}; use "
                "'cuda' or 'auto'"
            )
        own = torch.device("cuda", self.local % torch.cuda.device_count())
        torch.cuda.set_device(own)
        return own

    def check_alike(self, what: str, text: str) -> None:
        """Refuse processes that differ in something, which the text tells."""
        if self.any(self.of_first(_number(text)) != _number(text)):
            raise TogetherError(
                f"the {self.count} processes that train together have different {what}; give all of them the same: "
                "draw random numbers from fixed seeds, and use folders that all of them see"
            )

    def check_shares(self, batch_size: int, items: int) -> None:
        """Refuse batches that cannot be shared out."""
        if batch_size % self.count != 0:
            raise TogetherError(
                f"train.batch_size={batch_size} is shared by {self.count} processes; make it a multiple of {self.count}"
            )
        if items < self.count:
            raise TogetherError(f"there are {items} training samples for {self.count} processes; start fewer of them")

    def by_first(self, work: Callable[[], Made]) -> Made | None:
        """What the first process makes of something the others wait for; where it fails, all do."""
        made, failed = None, None
        if self.first:
            try:
                made = work()
            except Exception as error:
                failed = error
        if self.any(failed is not None):
            raise failed or TogetherError("the first of the processes that train together failed; see what it said")
        return made

    def size(self, batch_size: int) -> int:
        """Samples of a full batch that this process takes."""
        return batch_size // self.count

    def shares(self, feed: Feed, order: Tensor, batch_size: int, first: int) -> Iterator[Share]:
        """The share of this process in batch after batch of `order`, from number `first` on."""
        own = order
        if self.count > 1:
            own = torch.cat([batch[self.rank :: self.count] for batch in order.split(batch_size)])
        starts = range(first * batch_size, len(order), batch_size)
        whole = [min(batch_size, len(order) - start) for start in starts]
        left = whole.pop() if whole and 0 < len(order) % batch_size <= self.rank else None  # too few for this process
        for batch, indices in zip(whole, feed.batches(own, self.size(batch_size), first), strict=True):
            yield Share(indices, len(indices), batch)
        if left is not None:
            yield Share(torch.zeros(1, dtype=torch.long, device=feed.task.device), 0, left)

    def seed(self, seed: int) -> int:
        """Where the random numbers of this process start; those of the first one are as if it were alone."""
        return seed if self.first else int(np.random.SeedSequence([seed, self.rank, 11]).generate_state(1)[0])

    def add(self, values: Tensor) -> Tensor:
        """Their sum over all processes, in place; on the device they are on."""
        if self.count > 1:
            dist.all_reduce(values, group=self._group(values))
        return values

    def total(self, value: float) -> float:
        """The sum of a number over all processes."""
        return float(self._on_host(value, dist.ReduceOp.SUM))

    def any(self, fact: bool) -> bool:
        """Whether something is so for one of the processes; all of them have the same answer."""
        return bool(self._on_host(float(fact), dist.ReduceOp.MAX))

    def of_first(self, value: float) -> float:
        """What the first process has."""
        return self.total(value if self.first else 0.0)

    def gather(self, state: Tensor) -> list[Tensor]:
        """Tensors of one shape on the host, of each process."""
        if self.count == 1:
            return [state]
        found = [torch.empty_like(state) for _ in range(self.count)]
        dist.all_gather(found, state, group=self.host)
        return found

    def same_weights(self, model: nn.Module, *, buffers_only: bool = False) -> None:
        """Give the weights and buffers of the first process to all."""
        if self.count == 1:
            return
        with torch.no_grad():
            for part in map(reals, model.buffers() if buffers_only else model.state_dict().values()):
                wide = part.dtype if part.is_floating_point() else torch.int64
                sent = part.detach().to(wide, copy=True).contiguous()  # a view may have less memory than numbers
                dist.broadcast(sent, 0, group=self._group(sent))
                if not torch.equal(sent, part.to(wide)):
                    part.copy_(sent)

    def _group(self, values: Tensor) -> Any:
        return None if values.is_cuda else self.host

    def _on_host(self, value: float, how: Any) -> float:
        if self.count == 1:
            return value
        found = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(found, how, group=self.host)
        return found.item()


def reals(values: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones, of which processes can tell each other; others as they are."""
    return torch.view_as_real(values) if values.is_complex() else values


def _number(text: str) -> float:
    """A whole number that float64 holds, in place of a text."""
    return float(int(hashlib.sha256(text.encode()).hexdigest()[:12], 16))


def are_several() -> bool:
    """Whether this process was started as one of several that train together."""
    if not dist.is_available():
        return False
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return dist.is_initialized() or (started and int(os.environ["WORLD_SIZE"]) > 1)


def join(device: torch.device) -> Ranks:
    """This process among those that `torchrun` started, or whose process group there is already."""
    if not are_several():
        return Ranks()
    if not dist.is_initialized():
        own = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # NCCL wants a GPU for each
        by_gpu = device.type == "cuda" and own and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if by_gpu else "gloo")
        atexit.register(_leave)
    if not _joined or not _is_there(_joined[0].host):
        local = os.environ.get("LOCAL_RANK")
        number = int(local) if local is not None else torch.cuda.current_device() if torch.cuda.is_available() else 0
        host = dist.new_group(backend="gloo", timeout=PATIENCE)
        _joined[:] = [Ranks(dist.get_rank(), dist.get_world_size(), number, host)]
    return _joined[0]


_joined: list[Ranks] = []
"""This process in the group there is; a group that is held beyond its end would stop the process as it leaves."""


def _is_there(group: Any) -> bool:
    """Whether a group has not ended, as all do where a program ends its own and begins others."""
    try:
        return dist.get_group_rank(group, dist.get_rank()) >= 0
    except ValueError:
        return False


def _leave() -> None:
    _joined.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
