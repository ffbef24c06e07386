"""Whether Triton kernels are used at all, by networks, optimisers and solvers alike.

They are where tensors live on a GPU and Triton is installed. With HOFNO_KERNELS=off in the environment everything runs
in plain PyTorch, more slowly, on a CPU too: the way out where a GPU or a compiler makes kernels fail.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

from torch import Tensor

from hofno.errors import SpecError

SWITCH = "HOFNO_KERNELS"


@lru_cache(maxsize=1)
def triton_is_installed() -> bool:
    """Whether the kernels can be imported at all."""
    return find_spec("triton") is not None


def kernels_run_on(tensor: Tensor) -> bool:
    """Whether kernels run where a tensor lives: on a GPU, or in Triton's interpreter on a CPU, which is for tests."""
    there = tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    return there and triton_is_installed() and kernels_are_wanted()


def kernels_are_wanted() -> bool:
    """Whether the environment does not forbid them."""
    switch = os.environ.get(SWITCH, "on")
    if switch not in ("on", "off"):
        raise SpecError(f"{SWITCH} must be on or off; got {switch!r}; off runs everything in plain PyTorch")
    return switch == "on"
