"""What the fused kernels share: the RMSNorm of a block of rows and its derivative, launch shapes, and argument checks.

With s = (mean_c x^2 + eps)^(-1/2) and u = x s, the normalised row is h = u * gain and
dx = s (du - u mean_c(u du)),  du = dh * gain,  dgain = sum_rows dh * u.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.errors import ShapeError
from hofno.layers.kernels import SUPPORTED_CHANNELS

INTERPRETER_PROGRAMS = 4
INTERPRETER_SHARED_BYTES = 232_448


@triton.jit
def inverse_rms(x, eps, CHANNELS: tl.constexpr):
    """(rows, C) -> (rows, 1): s = (mean_c x^2 + eps)^(-1/2)."""
    return tl.rsqrt(tl.sum(x * x, axis=1) / CHANNELS + eps)[:, None]


@triton.jit
def norm_input_grad(unit_grad, unit, scale, CHANNELS: tl.constexpr):
    """dx = s (du - u mean_c(u du)) of a block of rows."""
    projection = tl.sum(unit * unit_grad, axis=1) / CHANNELS
    return scale * (unit_grad - unit * projection[:, None])


@dataclass(frozen=True, kw_only=True)
class LaunchShape:
    """How one fused operation is cut into programs.

    `terms_per_pass` bounds how many weight gradients (one per factor, or one per chunk of hidden channels) the
    backward kernel accumulates in registers at once; the rest follow in further passes over the rows.
    `resident_weights` keeps the weights in shared memory throughout the backward pass, which runs `backward_programs`
    programs on each multiprocessor.
    """

    forward_rows: int
    forward_warps: int
    backward_rows: int
    backward_warps: int
    backward_programs: int
    terms_per_pass: int
    hidden_chunk: int
    resident_weights: bool


def launch_shape(
    operation: Literal["factors", "mlp"], channels: int, size: int, shared_bytes: int, precision: str
) -> LaunchShape:
    """Block sizes for an operation of `size` factors or `size` hidden channels; the one place to tune them.

    The backward pass holds channels^2 float32 gradients per factor and 2 channels * hidden_chunk per chunk of the MLP
    in registers, beside a few activations of backward_rows * channels; a multiprocessor has 65,536 registers. Its
    weights, in each layout they are used in, stay in `shared_bytes` of shared memory where they fit. "ieee" products
    run without tensor cores and hold their operands in registers too, so their blocks are smaller.
    """
    exact = precision == "ieee"
    backward_rows = 16 if exact else 32
    if operation == "factors":
        hidden_chunk, terms = channels, size
        gradients_per_term, layouts_per_term = channels * channels, 2
    else:
        hidden_chunk = min(size, 32 if exact else 64)
        terms = size // hidden_chunk
        gradients_per_term, layouts_per_term = 2 * channels * hidden_chunk, 3
    weight_bytes = 4 * terms * layouts_per_term * channels * hidden_chunk
    working_bytes = 4 * 4 * backward_rows * max(channels, hidden_chunk)
    # measured on an H200: two smaller programs where the gradients of up to three factors fit beside each other
    pair = operation == "factors" and size <= 3 and not exact
    return LaunchShape(
        forward_rows=16 if exact else 64,
        forward_warps=8 if exact else 4,
        backward_rows=backward_rows,
        backward_warps=8 if channels == 64 and not pair else 4,
        backward_programs=2 if pair else 1,
        terms_per_pass=min(terms, max(1, 20_480 // gradients_per_term)),
        hidden_chunk=hidden_chunk,
        resident_weights=weight_bytes + working_bytes <= shared_bytes,
    )


@lru_cache(maxsize=16)
def processors(device: torch.device) -> int:
    """How many programs run at once: the multiprocessors of a GPU, a few under the interpreter."""
    if device.type != "cuda":
        return INTERPRETER_PROGRAMS
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=16)
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory one program may use."""
    if device.type != "cuda":
        return INTERPRETER_SHARED_BYTES
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def dot_precision(x: Tensor) -> str:
    """Of `tl.dot`: "tf32" on a GPU whose user allows it (`torch.set_float32_matmul_precision`), "ieee" otherwise."""
    return "tf32" if x.is_cuda and torch.get_float32_matmul_precision() != "highest" else "ieee"


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Launch where the tensor lives, whichever GPU is current."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def blocks_of(total: int, block: int) -> int:
    """How many blocks cover `total` items."""
    return -(-total // block)


def check_rows(x: Tensor) -> tuple[int, int]:
    """(P, C) of channel-last activations, refused where the kernels would read them wrongly."""
    if x.dtype != torch.float32 or not x.is_contiguous() or x.numel() == 0:
        raise ShapeError(
            f"expected a contiguous, non-empty float32 tensor (..., C), got {tuple(x.shape)} {x.dtype}; "
            "use the plain version"
        )
    channels = x.shape[-1]
    if channels not in SUPPORTED_CHANNELS:
        raise ShapeError(
            f"expected {SUPPORTED_CHANNELS} channels on the last axis, got {channels}; use the plain version"
        )
    return x.numel() // channels, channels


def parameter(name: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor) -> Tensor:
    """The parameter, contiguous, once it is known to have this shape and to live with `x`."""
    if tuple(tensor.shape) != shape or tensor.dtype != torch.float32 or tensor.device != x.device:
        raise ShapeError(
            f"expected {name} of shape {shape}, float32 on {x.device}, got {tuple(tensor.shape)}, {tensor.dtype} "
            f"on {tensor.device}; match it to x"
        )
    return tensor.contiguous()
