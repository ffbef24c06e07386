"""A fixed sequence of launches, recorded in a CUDA graph once and replayed: the device does not wait for Python."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Replayed:
    """Calls `work` on `device`; on a GPU its second call is recorded, and from then on the record is replayed.

    The first call runs as it is, since kernels are compiled and libraries set themselves up in it. `work` must read
    nothing back, and all that it leaves must be in tensors that exist before and stay where they are.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device, self._calls = work, device, 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._device.type != "cuda":
            self._work()
            return
        with torch.cuda.device(self._device):
            if self._calls == 1:
                self._work()
                return
            if self._graph is None:
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._work()
                self._graph = graph
            self._graph.replay()
