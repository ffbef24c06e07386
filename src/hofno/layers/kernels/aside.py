"""Work that nothing waits for yet, beside the rest: the forks and joins of a recorded graph.

What a small step takes on a GPU is the length of its longest chain of kernels, one after another. Gradients of weights
are at the end of no chain, nor is what is made of weights alone. While a CUDA graph is recorded such work goes to a
second stream, from where the graph knows that it may run at any time between fork and join. Elsewhere nothing changes:
without a graph a small step takes what its launches take on the host, and forks would only add to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor


class Aside:
    """Forks off the current stream of the device of `x`, and joins it.

    Between a fork and the join the caller keeps every tensor that is read aside: memory that is given up would be
    used again at once.
    """

    def __init__(self, x: Tensor) -> None:
        self.stream = _second(x.device.index) if x.is_cuda and torch.cuda.is_current_stream_capturing() else None

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is done inside comes after all that was done before, and has to be joined before it is used outside."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """What follows comes after all that was done aside."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


@lru_cache
def _second(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)
