"""The modern block of few channels: kernels along image rows, library products along its columns.

    rows in      s = F_w product(RMSNorm x)            `rows_in`
    columns      t = F_h^-1 (w * F_h s)                `columns`
    rows out     v = x + F_w^-1 t,  y = v + MLP(v)     `rows_out`

x, what F_h s is made of, and t are kept for the backward pass; everything between is computed again there.
"""

# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hofno.layers.kernels import columns, dot_precision, on_padding, rows_in, rows_out
from hofno.layers.kernels._common import block_parameters, on_device_of, operand_type
from hofno.layers.kernels.aside import Aside
from hofno.layers.kernels.outer import linear_grads, scaled_linear_grads
from hofno.layers.kernels.transforms import Transforms


class NarrowBlock(torch.autograd.Function):
    """Autograd of `hofno.layers.kernels.modern_block` for few channels."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain1: Tensor,
        weight: Tensor,
        bias: Tensor,
        filter_: Tensor,
        outside: Tensor | None,  # (2, K, M)
        gain2: Tensor,
        up: Tensor,
        up_bias: Tensor,
        down: Tensor,
        down_bias: Tensor,
        transforms: Transforms,
        eps: float,
    ) -> Tensor:
        gain1, weight, bias, filter_, gain2, up, up_bias, down, down_bias = block_parameters(
            x, gain1, weight, bias, filter_, gain2, up, up_bias, down, down_bias, transforms.kept_modes
        )
        operand, precision = operand_type(x), dot_precision(x)
        weight, up, down = weight.to(operand), up.to(operand), down.to(operand)
        t = transforms
        with on_device_of(x):
            offset = on_padding.spectrum(outside, bias, x.shape[-1])
            s = rows_in.forward(x, gain1, weight, bias, t.rows_in, t.tile, t.kept, eps, precision)
            s, pairs = columns.forward(s, t.columns, filter_, offset)
            y = rows_out.forward(x, s, t.rows_out, gain2, up, up_bias, down, down_bias, t.tile, eps, precision)
        ctx.save_for_backward(x, pairs, outside, offset, s, gain1, weight, bias, filter_, gain2, up, up_bias, down)
        ctx.transforms, ctx.eps, ctx.precision = transforms, eps, precision
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, pairs, outside, offset, s, gain1, weight, bias, filter_, gain2, up, up_bias, down = ctx.saved_tensors
        t, eps, precision = ctx.transforms, ctx.eps, ctx.precision
        y_grad = y_grad.contiguous()
        with on_device_of(x):
            aside = Aside(x)
            out = rows_out.backward(
                x, s, t.rows_out, t.rows_out_transposed, gain2, up, up_bias, down, y_grad, t.tile, eps, precision
            )
            with aside.work():
                up_grad, up_bias_grad, gain2_grad = scaled_linear_grads(out.u, out.unit, gain2, up, precision)
                down_grad, down_bias_grad = linear_grads(out.y, out.active, precision)
            s_grad, filter_grad, offset_grad = columns.backward(pairs, t.columns, filter_, offset, out.spectrum)
            x_grad, unit, factor_grad = rows_in.backward(
                x, gain1, weight, bias, t.rows_in_transposed, s_grad, out.v, t.tile, t.kept, eps, precision
            )
            weight_grad, bias_grad, gain1_grad = scaled_linear_grads(factor_grad, unit, gain1, weight, precision)
            on_padding.add_bias_grad_(bias_grad, outside, bias, offset_grad)
            aside.join()
        first = (x_grad, gain1_grad, weight_grad, bias_grad, filter_grad, None)
        return *first, gain2_grad, up_grad, up_bias_grad, down_grad, down_bias_grad, None, None
