"""The classic block in a few kernels, forward and backward.

    rows in      s = F_w prod_i (A_i x + a_i)          `classic_in`
    columns      t = F_h^-1 R F_h s                    library products around `classic_modes`, or `columns`
    rows out     y = gelu(W x + b + F_w^-1 t)          `classic_out`

x, the spectrum F_h s (or what it is made of) and t are kept for the backward pass; everything between is computed
again there. Derivatives of derivatives come from the plain form, and so do gradients in full float32: three products
for each one are more than the registers hold, and the descriptors of tiles that were kept elsewhere for want of them
pointed beyond shared memory (Triton 3.6, 64 channels, order 2, an H200).

Products take their operands in float32 (TF32 where that is allowed), under bfloat16 autocast too: the time of so few
channels is that of memory, and what Triton 3.6 made of these kernels in bfloat16 read beyond shared memory on an H200.
"""

# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hofno.layers.kernels import classic_block_plain, classic_in, classic_out, columns, dot_precision, on_padding
from hofno.layers.kernels._common import on_device_of, parameter
from hofno.layers.kernels.classic_modes import mix, mix_grads
from hofno.layers.kernels.classic_rows import new_shares, row_tile, summed
from hofno.layers.kernels.transforms import Matrices, Transforms, transforms_of
from hofno.layers.parts import plain_backward
from hofno.layers.precision import full_precision
from hofno.transforms.fourier import left_product


def _columns(
    s: Tensor, transforms: Transforms, filter_: Tensor, offset: Tensor | None, precision: str
) -> tuple[Tensor, Tensor]:
    """F_h^-1 R F_h s of s (b, n1, 2M, C), and what the backward pass wants: of a dense R the spectrum, offset added."""
    if filter_.dim() == 4:
        return columns.forward(s, transforms.columns, filter_, offset)
    batch, (kept, m), channels = s.shape[0], filter_.shape[:2], s.shape[-1]
    transform, inverse = transforms.leading
    with full_precision(s):
        spectrum = left_product(transform, s.view(batch, -1, m * channels)).view(batch, 2, kept, m, channels)
        spectrum = spectrum if offset is None else spectrum.add_(offset)
        out = left_product(inverse, mix(spectrum, filter_, precision).view(batch, 2 * kept, m * channels))
    return out.view_as(s), spectrum


def _columns_grads(
    wanted: Tensor, transforms: Transforms, filter_: Tensor, offset: Tensor | None, out_grad: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of s, of the filter and of the offset, from what the forward pass has kept."""
    if filter_.dim() == 4:
        return columns.backward(wanted, transforms.columns, filter_, offset, out_grad)
    batch, _, kept, m, channels = wanted.shape
    transform, inverse = transforms.leading
    with full_precision(wanted):
        grad = left_product(inverse.T, out_grad.view(batch, -1, m * channels)).view_as(wanted)
        spectrum_grad, filter_grad = mix_grads(wanted, filter_, grad, precision)
        s_grad = left_product(transform.T, spectrum_grad.view(batch, 2 * kept, m * channels))
    return s_grad.view_as(out_grad), filter_grad, None if offset is None else spectrum_grad.sum(0)


class FusedClassicBlock(torch.autograd.Function):
    """Autograd of `hofno.layers.kernels.classic_block`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        filter_: Tensor,
        outside: Tensor | None,  # (2, K, M)
        skip: Tensor,
        skip_bias: Tensor,
        matrices: Matrices,
        gelu: bool,
    ) -> Tensor:
        transforms, channels = transforms_of(matrices, row_tile(x.shape[2], matrices[0].shape[0])), x.shape[-1]
        mixing = (channels, channels) if filter_.dim() == 5 else (channels,)
        order = max(1, bias.numel() // channels)
        inputs = (x, weight, bias, filter_, outside, skip, skip_bias)
        weight = parameter("factors.weight", weight, (order * channels, channels), x)
        bias = parameter("factors.bias", bias, (order * channels,), x)
        filter_ = parameter("filter", filter_, (*transforms.kept_modes, *mixing, 2), x)
        skip = parameter("skip.weight", skip, (channels, channels), x)
        skip_bias = parameter("skip.bias", skip_bias, (channels,), x)
        precision = dot_precision(x)
        with on_device_of(x):
            s = classic_in.forward(x, weight, bias, transforms, precision)
            offset = on_padding.spectrum(outside, bias, x.shape[-1])
            s, wanted = _columns(s, transforms, filter_, offset, precision)
            y = classic_out.forward(x, s, skip, skip_bias, transforms, gelu, precision)
        ctx.save_for_backward(*inputs, offset, wanted, s)
        ctx.transforms, ctx.matrices, ctx.gelu, ctx.precision = transforms, matrices, gelu, precision
        return y

    @staticmethod
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, offset, wanted, s = ctx.saved_tensors
        if torch.is_grad_enabled() or ctx.precision == "tf32x3":
            formula = partial(classic_block_plain, matrices=ctx.matrices, gelu=ctx.gelu)
            return *plain_backward(formula, tuple(inputs), y_grad), None, None
        x, weight, bias, filter_, outside, skip, skip_bias = inputs
        weight, bias, filter_, skip, skip_bias, y_grad = (
            t.contiguous() for t in (weight, bias, filter_, skip, skip_bias, y_grad)
        )
        transforms, channels, precision = ctx.transforms, x.shape[-1], ctx.precision
        maps = 1 + weight.shape[0] // channels
        whole, shares = new_shares(x, maps, transforms.tile)
        with on_device_of(x):
            x_grad, out_grad = classic_out.backward(
                x, s, skip, skip_bias, transforms, y_grad, shares.of(0, 1), ctx.gelu, precision
            )
            s_grad, filter_grad, offset_grad = _columns_grads(wanted, transforms, filter_, offset, out_grad, precision)
            classic_in.backward_(x, weight, bias, transforms, s_grad, x_grad, shares.of(1, maps), precision)
            weights, biases = summed(whole, channels)
            on_padding.add_bias_grad_(biases[channels:], outside, bias, offset_grad)
        first = (x_grad, weights[channels:], biases[channels:], filter_grad, None)
        return *first, weights[:channels], biases[:channels], None, None
