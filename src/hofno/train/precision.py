"""Precision policies: one name for how each part of a spectral model computes.

    fp32    everything in float32
    tf32    float32 storage, matrix products with TensorFloat-32 inputs (on GPUs that have it)
    mixed   factors and MLPs in bfloat16, transforms in float32 storage with TF32 products, float32 residual stream
    bf16    as mixed, and the transforms in bfloat16 too

Weights, optimiser state and loss are float32 in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from hofno.layers.spectral import HigherOrderSpectralConv


@contextmanager
def precision(policy: str, model: nn.Module) -> Iterator[None]:
    """Set matrix precision and the transforms' type for the duration of a run, and put them back after."""
    before = torch.get_float32_matmul_precision()
    convs = [m for m in model.modules() if isinstance(m, HigherOrderSpectralConv)]
    torch.set_float32_matmul_precision("highest" if policy == "fp32" else "high")
    for conv in convs:
        conv.transform_dtype = {"mixed": torch.float32, "bf16": torch.bfloat16}.get(policy)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for conv in convs:
            conv.transform_dtype = None


def autocast(policy: str, device: torch.device):
    """The autocast context of the forward pass."""
    if policy in ("mixed", "bf16"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()
