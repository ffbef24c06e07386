"""What solvers share on a GPU: the compilation of kernels, launches recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def side_by_side(work: Sequence[Callable[[], object]], device: torch.device) -> None:
    """Call each on a GPU in a thread of its own, for kernels to be compiled at the same time, and wait for all."""

    def one(part: Callable[[], object]) -> None:
        with torch.cuda.device(device), torch.no_grad():
            torch.cuda.synchronize()  # a thread has no context before its first call
            part()

    with ThreadPoolExecutor(len(work)) as pool:
        list(pool.map(one, work))
    torch.cuda.synchronize(device)  # what they launched must not run beside what comes next


class Replayed:
    """Calls `work` on `device`; on a GPU its second call is recorded in a CUDA graph, and from then on replayed.

    The first call runs as it is, since kernels are compiled and libraries set themselves up in it. `work` must read
    nothing back, and all that it leaves must be in tensors that exist before and stay where they are.
    """

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device, self._warm = work, device, False
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._device.type != "cuda":
            self._work()
            return
        with torch.cuda.device(self._device):
            if not self._warm:
                self._work()
                self._warm = True
                return
            if self._graph is None:
                torch.cuda.synchronize()
                self._graph = self._recorded()
            self._graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """A lack of memory on the way is told as such, not as a recording that failed."""
        graph = torch.cuda.CUDAGraph()
        lacking: torch.OutOfMemoryError | None = None
        try:
            with torch.cuda.graph(graph):
                try:
                    self._work()
                except torch.OutOfMemoryError as error:
                    lacking = error
                    raise
        except RuntimeError:
            if lacking is not None:
                raise lacking from None
            raise
        return graph
