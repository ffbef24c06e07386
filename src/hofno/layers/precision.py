"""Where bfloat16 stops: autocast is for what stands inside the blocks, their factors and MLPs.

Fields come into a model and go out of it as they are, and Fourier transforms have a precision of their own.
Convolutions of float32 fields take the precision of matrix products; PyTorch alone would round them to TF32 on a GPU
even where products are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A context in which nothing on the device of `like` is cast: products take their operands as they are given."""
    if like.device.type == "meta":  # shapes alone, and autocast knows no such device
        return nullcontext()
    return torch.autocast(like.device.type, enabled=False)


@contextmanager
def convolutions_like_products() -> Iterator[None]:
    """A context in which convolutions are rounded to TF32 where matrix products are, and not otherwise."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.get_float32_matmul_precision() != "highest"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def like_weights(x: Tensor, module: nn.Module) -> Tensor:
    """In the precision of a module's weights, which under autocast is float32, and is what a cast model goes on in."""
    return x.to(next(module.parameters()).dtype)


def wide(x: Tensor) -> Tensor:
    """At least float32, for sums over many points and for angles."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
