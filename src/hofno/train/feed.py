"""How training samples reach the device.

    resident   the whole training set lies there, standardised, if it takes at most half of the free memory
    streamed   there is room for one batch. While a step runs, a thread gathers the samples of the next batch from their
               file or from memory, in the order in which they lie, into pinned memory; it is standardised on the device

Both give the same numbers to the same steps, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hofno.data.dataset import Dataset
from hofno.data.normalise import Normaliser
from hofno.data.ondisk import SHARE, bytes_of, fill, fits
from hofno.spec import TrainSpec
from hofno.train.tasks import Column, Task, columns, make_task, task_over


class Feed(Protocol):
    """Where a task's batches come from; `items` is how many there are of what they are made of."""

    task: Task
    items: int
    place: str
    streamed: bool

    def batches(self, order: Tensor, size: int, first: int) -> Iterator[Tensor]:
        """The task's indices of batch after batch of `order`, from number `first` on."""
        ...


def make_feed(data: Dataset, spec: TrainSpec, inputs: Normaliser, targets: Normaliser, device: torch.device) -> Feed:
    """All training samples on the device if they fit there, else one batch at a time."""
    needed = sum(bytes_of(column.values) for column in columns(data, inputs, targets))
    if fits(needed, device):
        return Resident(make_task(data, spec, inputs, targets, device), needed)
    return Streamed(data, spec, inputs, targets, device, needed)


class Resident:
    """Every sample lies on the device."""

    streamed = False

    def __init__(self, task: Task, needed: int) -> None:
        self.task, self.items = task, task.items
        self.place = f"training set of {_size(needed)} kept on {task.device} (at most {SHARE:.0%} of its free memory)"

    def batches(self, order: Tensor, size: int, first: int) -> Iterator[Tensor]:
        order = order.to(self.task.device)
        for start in range(first * size, len(order), size):
            yield order[start : start + size]


class Streamed:
    """Samples come to the device batch by batch, and lie there at places 0, 1, ..."""

    streamed = True

    def __init__(
        self,
        data: Dataset,
        spec: TrainSpec,
        inputs: Normaliser,
        targets: Normaliser,
        device: torch.device,
        needed: int,
    ) -> None:
        inputs, targets = inputs.to(device), targets.to(device)
        self.columns, self.device = columns(data, inputs, targets), device
        self.each, self.window, self.fields = 1, 0, 1
        if data.rollout is not None and spec.batch_of == "windows":
            history, self.fields = data.rollout.history, data.rollout.fields
            self.each = self.columns[0].values.shape[1] // self.fields - history  # windows of a trajectory
            self.window = (history + 1) * self.fields  # channels of one
        self.items = len(data.train) * self.each
        size = min(spec.batch_size, self.items)
        self.hosts = [[self._room(column, size, torch.device("cpu")) for column in self.columns] for _ in range(2)]
        self.parts = [self._room(column, size, device) for column in self.columns]
        self.free: list[torch.cuda.Event | None] = [None, None]
        self.task = task_over(data, spec, self.parts, inputs, targets)
        self.places = torch.arange(size, device=device)
        source = "disk" if data.train.on_disk else "memory"
        self.place = (
            f"training set of {_size(needed)} read from {source} (over {SHARE:.0%} of what is free on {device})"
        )
        self._read(0, np.arange(size))
        self._place(0, size)

    def batches(self, order: Tensor, size: int, first: int) -> Iterator[Tensor]:
        rows = [order[start : start + size].numpy() for start in range(first * size, len(order), size)]
        with ThreadPoolExecutor(1, "hofno-read") as reader:
            coming = reader.submit(self._read, 0, rows[0]) if rows else None
            for turn, chosen in enumerate(rows):
                assert coming is not None
                coming.result()
                self._place(turn % 2, len(chosen))
                if turn + 1 < len(rows):
                    coming = reader.submit(self._read, (turn + 1) % 2, rows[turn + 1])
                yield self.places[: len(chosen)]

    def _room(self, column: Column, size: int, device: torch.device) -> Tensor:
        """Room for a batch; of single windows, for the frames of each."""
        shape = (self._window(column) or column.values.shape[1], *column.values.shape[2:])
        pinned = device.type == "cpu" and self.device.type == "cuda"
        return torch.zeros(size, *shape, dtype=column.dtype, device=device, pin_memory=pinned)

    def _read(self, turn: int, items: np.ndarray) -> None:
        """Gather a batch into one of the two sets of host memory."""
        event = self.free[turn]
        if event is not None:
            event.synchronize()  # what was in it has reached the device
        first = items % self.each * self.fields
        for host, column in zip(self.hosts[turn], self.columns, strict=True):
            fill(host[: len(items)], column.values, items // self.each, first if self._window(column) else None)

    def _window(self, column: Column) -> int:
        """Channels that a batch takes of each sample; 0: all of them."""
        return self.window if column.in_time else 0

    def _place(self, turn: int, size: int) -> None:
        """Bring a gathered batch to the device and standardise it there."""
        for part, host, column in zip(self.parts, self.hosts[turn], self.columns, strict=True):
            part[:size].copy_(host[:size], non_blocking=True)
            part[:size] = column.encode(part[:size])
        if self.device.type == "cuda":
            event = self.free[turn] = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self.device))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
