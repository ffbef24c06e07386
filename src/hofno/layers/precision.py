"""Where bfloat16 stops: autocast is for what stands inside the blocks, their factors and MLPs.

Fields come into a model and go out of it as they are, and Fourier transforms have a precision of their own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A context in which nothing on the device of `like` is cast: products take their operands as they are given."""
    if like.device.type == "meta":  # shapes alone, and autocast knows no such device
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)
