"""The modern block of many channels: library matrix products, and between them one pass over memory each.

    u, s = unit(x)         q = u (W g1)^T        t = F_w prod(q + b)          `wide_points`, `wide_rows`
    t' = F_h^-1 (w * F_h t)                                                   `columns`
    v = x + F_w^-1 t'      u', s' = unit(v)      a = gelu(u' (W_up g2)^T + b_up)
    y = v + a W_down^T + b_down

Where branches are scaled, t' is by one number for each sample, and a W_down^T + b_down by another. The gains g1, g2 of
the norms go into the weights. With operands in bfloat16 spectra have 16 bits too (`Transforms.halved`). Kept for the
backward pass: u, q, what F_h t is made of, u', one number for each point and norm, and the hidden activations before
and after the gelu, unless these are computed again (`wide_hidden`).
"""

# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hofno.layers.kernels import columns, dot_precision, on_padding, wide_hidden, wide_points, wide_rows
from hofno.layers.kernels._common import block_parameters, on_device_of, operand_type
from hofno.layers.kernels.aside import Aside
from hofno.layers.kernels.bias_gelu import gelu, gelu_grad_
from hofno.layers.kernels.sums import unfold
from hofno.layers.kernels.transforms import Transforms
from hofno.layers.kernels.weight_grads import folded_grads, weight_grads
from hofno.layers.kernels.wide_weights import operands

HALVED_ORDER = 2  # up to which products of factors stay well within the range of float16


class WideBlock(torch.autograd.Function):
    """Autograd of `hofno.layers.kernels.modern_block` for many channels."""

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
        branches: Tensor | None,  # (2, b)
        transforms: Transforms,
        eps: float,
    ) -> Tensor:
        channels = x.shape[-1]
        gain1, weight, bias, filter_, gain2, up, up_bias, down, down_bias = block_parameters(
            x, gain1, weight, bias, filter_, gain2, up, up_bias, down, down_bias, transforms.kept_modes
        )
        operand, precision = operand_type(x), dot_precision(x)
        order = bias.numel() // channels
        t = transforms.halved if operand == torch.bfloat16 and order <= HALVED_ORDER else transforms
        rows = x.view(-1, channels)
        again = wide_hidden.takes(operand, channels, len(up), x.device)
        with on_device_of(x):
            aside = Aside(x)
            with aside.work():
                w, w_up, w_down = operands(weight, gain1, up, gain2, down, again, operand)
                offset = on_padding.spectrum(outside, bias, channels)
            unit1, scale1 = wide_points.unit_rows(rows, eps, operand)
            aside.join()
            q = unit1 @ w.T
            s = wide_rows.product_in(q, bias, order, t.rows_in, t.tile, t.kept, precision)
            s = s.view(x.shape[0], x.shape[1], t.kept, channels)
            s, pairs = columns.forward(s, t.columns, filter_, offset, None if branches is None else branches[0])
            later = again or branches is not None  # the bias is added with what the MLP gives
            y, unit2, scale2 = wide_rows.residual_out(
                *(rows, s, t.rows_out, None if later else down_bias),
                *(t.tile, t.kept, eps, operand, precision),
            )
            hidden = active = None
            if again:
                scale = None if branches is None else branches[1]
                y = wide_hidden.add_mlp(y, unit2, w_up, up_bias, w_down, down_bias, scale)
            else:
                hidden = unit2 @ w_up.T
                active = gelu(hidden, up_bias)
                if branches is None:
                    y = add_product_(y, active, w_down.T)
                else:
                    mapped = product(active, w_down.T).add_(down_bias).view_as(x)
                    y.view_as(x).addcmul_(mapped, branches[1].view(-1, 1, 1, 1))
        ctx.save_for_backward(
            *(gain1, weight, gain2, up, branches, outside, offset),
            *(unit1, scale1, q, pairs, unit2, scale2, hidden, active, w, bias, filter_, w_up, up_bias, w_down),
        )
        ctx.transforms, ctx.precision, ctx.shape = t, precision, x.shape
        return y.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        gain1, weight, gain2, up, branches, outside, offset, *kept = ctx.saved_tensors
        unit1, scale1, q, pairs, unit2, scale2, hidden, active, w, bias, filter_, w_up, up_bias, w_down = kept
        t, precision, shape = ctx.transforms, ctx.precision, ctx.shape
        channels, order = shape[-1], bias.numel() // shape[-1]
        scale = None if branches is None else branches[1]
        rows_grad = y_grad.contiguous().view(-1, channels)
        with on_device_of(y_grad):
            aside = Aside(y_grad)  # what it reads is kept by name, until the join
            if again := active is None:
                grads = wide_hidden.add_mlp_grad(rows_grad, unit2, w_up, up_bias, w_down, scale)
                with aside.work():
                    down_grad, down_bias_grad = weight_grads(grads.low, grads.active)
                    up_grad, up_bias_grad, gain2_grad = folded_grads(grads.hidden, unit2, up, gain2)
                unit_grad = grads.unit
            else:
                mapped_grad = rows_grad if scale is None else _scaled(rows_grad.view(shape), scale).view(-1, channels)
                low, down_bias_grad = wide_points.cast_and_sum(mapped_grad, q.dtype)
                hidden_grad = low @ w_down
                up_bias_grad = gelu_grad_(hidden, up_bias, hidden_grad)
                with aside.work():
                    down_grad = product(low.T, active)
                    up_grad, gain2_grad = unfold(product(hidden_grad.T, unit2), up, gain2)
                unit_grad = hidden_grad @ w_up
            v_grad, s_grad = wide_rows.residual_out_grad(
                unit2, scale2, unit_grad, rows_grad, t.rows_out_transposed, t.tile, t.kept, precision
            )
            s_grad = s_grad.view(shape[0], shape[1], t.kept, channels)
            first = None if branches is None else branches[0]
            s_grad, filter_grad, offset_grad = columns.backward(pairs, t.columns, filter_, offset, s_grad, first)
            q_grad, summed = wide_rows.product_in_grad(
                q, bias, order, t.rows_in_transposed, s_grad, t.tile, t.kept, precision, summed=not again
            )
            with aside.work():
                if summed is None:
                    weight_grad, bias_grad, gain1_grad = folded_grads(q_grad, unit1, weight, gain1)
                else:
                    bias_grad, (weight_grad, gain1_grad) = summed, unfold(product(q_grad.T, unit1), weight, gain1)
                on_padding.add_bias_grad_(bias_grad, outside, bias, offset_grad)
            x_grad = wide_points.unit_rows_grad(unit1, scale1, q_grad @ w, v_grad)
            aside.join()
        convolved = (x_grad.view(shape), gain1_grad, weight_grad, bias_grad, filter_grad, None)
        return *convolved, gain2_grad, up_grad, up_bias_grad, down_grad, down_bias_grad, None, None, None


def _scaled(fields: Tensor, numbers: Tensor) -> Tensor:
    """Each sample by a number of its own, (b, ..) and (b,)."""
    return fields * numbers.view(-1, *(1,) * (fields.ndim - 1))


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, from operands of any type."""
    if a.dtype == torch.float32:
        return a @ b
    return torch.mm(a, b, out_dtype=torch.float32)


def add_product_(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total + a b in float32, from operands of any type, in the place of `total`."""
    if a.dtype == torch.float32:
        return total.addmm_(a, b)
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
