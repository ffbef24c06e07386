"""Precision policies: one name for how each part of a spectral model computes.

    fp32    everything in float32; our fused kernels multiply by three TF32 products, right to 2^-22
    tf32    float32 storage, products and convolutions with TensorFloat-32 inputs (on GPUs that have it)
    mixed   factors and MLPs in bfloat16, transforms in float32 storage with TF32 products, float32 residual stream. In
            our fused blocks of 128 and more channels and order up to 2, spectra lie in float16, which has the digits of
            TF32, and their gradients in bfloat16
    bf16    as mixed, and the transforms of the layers of HO-FNO, FNO and what is built of them in bfloat16 too

Weights, optimiser state and loss are float32 in all of them; what stands before and after the blocks of a model, its
lift and its projection, takes TF32 at worst, since fields come in and go out there. All this is for GPUs: a CPU
computes in float32, whatever the policy, since most gain nothing from less.

Rounding of weights and operands is part of the function that is trained, and training makes up for it: a network that
is trained in less than float32 is best in that precision and can be much worse in float32 (two Navier-Stokes networks
of mixed precision: relative L2 of a rollout 0.022 and 0.022, in float32 0.030 and 0.040). Predictions and validation
are in float32, so a run that is to be used there ends there: `train.finish` says for how many of the epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from hofno.layers.precision import convolutions_like_products
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.spec import TrainSpec

REDUCED_ON = ("cuda",)  # kinds of device that follow a policy


def policy_of(spec: TrainSpec, epoch: int, device: torch.device) -> str:
    """The policy of an epoch, counted from 0."""
    if device.type not in REDUCED_ON:
        return "fp32"
    last = min(spec.epochs, max(1, round(spec.finish * spec.epochs))) if spec.finish > 0 else 0
    return "fp32" if epoch >= spec.epochs - last else spec.precision


def policies_of(spec: TrainSpec, device: torch.device) -> list[str]:
    """The policies of a run, each once, in the order they come."""
    return list(dict.fromkeys(policy_of(spec, epoch, device) for epoch in range(spec.epochs)))


@contextmanager
def precision(policy: str, model: nn.Module) -> Iterator[None]:
    """Set the precision of products and convolutions and the transforms' type for some steps, and put them back."""
    before = torch.get_float32_matmul_precision()
    convs = [m for m in model.modules() if isinstance(m, HigherOrderSpectralConv)]
    torch.set_float32_matmul_precision("highest" if policy == "fp32" else "high")
    for conv in convs:
        conv.transform_dtype = {"mixed": torch.float32, "bf16": torch.bfloat16}.get(policy)
    try:
        with convolutions_like_products():
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
