"""Fused kernels of the narrow higher-order block, each beside the plain PyTorch function it equals.

A block of width C <= 64 does so little arithmetic per number that its speed is the speed of memory. Each function here
reads its activations once, keeps what lies between in registers, and recomputes it in the backward pass:

- `norm_factors_product`:  z = p_1 * ... * p_m,  p_i = W_i h + b_i,  h = RMSNorm(x)
- `norm_mlp_residual`:     y = x + W_down gelu(W_up h + b_up) + b_down
- `mode_filter`:           one complex number per mode and channel times the spectrum

The `_plain` versions define the values and run everywhere; the fused ones take what `supported` accepts. Triton is
imported by the first fused call, never by importing this package.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

SUPPORTED_CHANNELS = (16, 32, 64)
SUPPORTED_HIDDEN = (16, 32, 64, 128, 256)
LARGEST_ORDER = 8


@lru_cache(maxsize=1)
def triton_is_installed() -> bool:
    """Whether the fused kernels can be imported at all."""
    return find_spec("triton") is not None


def supported(x: Tensor, order: int, hidden: int) -> bool:
    """Whether the fused kernels take channel-last activations `x` of a block of this order and hidden MLP width.

    On a CPU tensor the answer is yes only under Triton's interpreter (`TRITON_INTERPRET=1`), which is for tests.
    """
    return (
        triton_is_installed()
        and (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1")
        and x.dtype == torch.float32
        and x.dim() >= 1
        and x.numel() > 0
        and x.is_contiguous()
        and x.shape[-1] in SUPPORTED_CHANNELS
        and hidden in SUPPORTED_HIDDEN
        and 1 <= order <= LARGEST_ORDER
        and not torch.is_autocast_enabled(x.device.type)
    )


def filter_supported(spectrum: Tensor) -> bool:
    """Whether the fused mode filter takes this spectrum; any shape does, in float32 on a GPU."""
    return (
        triton_is_installed()
        and (spectrum.is_cuda or os.environ.get("TRITON_INTERPRET") == "1")
        and spectrum.dtype == torch.float32
        and spectrum.numel() > 0
        and spectrum.is_contiguous()
    )


def rms_norm_plain(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """h = x / sqrt(mean_c(x^2) + eps) * gain, over the last axis."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain


def norm_factors_product(x: Tensor, gain: Tensor, weight: Tensor, bias: Tensor, order: int, eps: float) -> Tensor:
    """z = prod_i (W_i h + b_i) of the normalised input, fused.

    Shapes: x (..., C), gain (C,), weight (order*C, C) with the factors stacked as `nn.Linear` stores them,
    bias (order*C,); z has the shape of x. Only x and the parameters are kept for the backward pass.
    """
    from hofno.layers.kernels.norm_factors import NormFactorsProduct

    return NormFactorsProduct.apply(x, gain, weight, bias, order, eps)


def norm_factors_product_plain(x: Tensor, gain: Tensor, weight: Tensor, bias: Tensor, order: int, eps: float) -> Tensor:
    """What `norm_factors_product` computes, in plain PyTorch and any dtype."""
    stacked = functional.linear(rms_norm_plain(x, gain, eps), weight, bias)  # (..., order*C)
    first, *others = stacked.chunk(order, dim=-1)
    product = first
    for factor in others:
        product = product * factor
    return product


def norm_mlp_residual(
    x: Tensor,
    gain: Tensor,
    up_weight: Tensor,
    up_bias: Tensor,
    down_weight: Tensor,
    down_bias: Tensor,
    eps: float,
) -> Tensor:
    """y = x + W_down gelu(W_up h + b_up) + b_down of the normalised input, with the exact gelu, fused.

    Shapes: x (..., C), gain (C,), up_weight (H, C), up_bias (H,), down_weight (C, H), down_bias (C,); y has the shape
    of x. Only x and the parameters are kept for the backward pass.
    """
    from hofno.layers.kernels.norm_mlp import NormMlpResidual

    return NormMlpResidual.apply(x, gain, up_weight, up_bias, down_weight, down_bias, eps)


def norm_mlp_residual_plain(
    x: Tensor,
    gain: Tensor,
    up_weight: Tensor,
    up_bias: Tensor,
    down_weight: Tensor,
    down_bias: Tensor,
    eps: float,
) -> Tensor:
    """What `norm_mlp_residual` computes, in plain PyTorch and any dtype."""
    hidden = functional.gelu(functional.linear(rms_norm_plain(x, gain, eps), up_weight, up_bias))  # (..., H)
    return x + functional.linear(hidden, down_weight, down_bias)


def mode_filter(spectrum: Tensor, weight: Tensor) -> Tensor:
    """Multiply every mode and channel by its own complex number, fused.

    Shapes: spectrum (B, 2, K, C) with axis 1 = (real, imaginary), weight (K, C, 2); the result is laid out as spectrum.
    """
    from hofno.layers.kernels.mode_product import ModeFilter

    return ModeFilter.apply(spectrum, weight)


def mode_filter_plain(spectrum: Tensor, weight: Tensor) -> Tensor:
    """What `mode_filter` computes, in plain PyTorch, any dtype and any number of mode axes."""
    real, imaginary = spectrum.unbind(dim=1)  # (B, K.., C) each
    weight_real, weight_imaginary = weight.unbind(dim=-1)  # (K.., C) each
    return torch.stack(
        (
            real * weight_real - imaginary * weight_imaginary,
            real * weight_imaginary + imaginary * weight_real,
        ),
        dim=1,
    )
