"""The modern block in six kernels: three forward, three backward, and the weight gradients.

    rows in      s = F_w product(RMSNorm x)            `rows_in`
    columns      t = F_h^-1 (w * F_h s)                `columns`
    rows out     v = x + F_w^-1 t,  y = v + MLP(v)     `rows_out`

x, s' spectrum and t are kept for the backward pass; everything between is computed again there.
"""

# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hofno.layers.kernels import columns, rows_in, rows_out
from hofno.layers.kernels._common import (
    Tile,
    dot_precision,
    on_device_of,
    operand_type,
    parameter,
    power_of_two,
    tile_of,
)
from hofno.layers.kernels.outer import linear_grads, scaled_linear_grads


class Transforms(NamedTuple):
    """Matrices of the truncated transform of one grid and mode set, and the tile the rows are taken in."""

    tile: Tile
    kept: int  # real numbers for each image row: 2 M
    rows_in: Tensor  # F_w of a tile, (modes, points)
    rows_in_transposed: Tensor
    rows_out: Tensor  # F_w^-1 of a tile, (points, modes)
    rows_out_transposed: Tensor
    columns: Tensor  # F_h, (2 K, 2 n1)
    columns_transposed: Tensor
    columns_inverse: Tensor  # F_h^-1, (2 n1, 2 K)
    columns_inverse_transposed: Tensor


POINTS = 64  # of a tile: measured on an H200
_transforms: dict[tuple[int, ...], Transforms] = {}


def transforms_of(matrices: tuple[Tensor, Tensor, Tensor, Tensor]) -> Transforms:
    """`tile_transforms` of these matrices, made once; the caller keeps the matrices."""
    key = tuple(id(m) for m in matrices)
    if key not in _transforms:
        with torch.inference_mode(False), torch.no_grad():
            _transforms[key] = tile_transforms(*matrices)
    return _transforms[key]


def tile_transforms(last: Tensor, last_inverse: Tensor, leading: Tensor, leading_inverse: Tensor) -> Transforms:
    """From the matrices of one image row, (2M, n2) and (n2, 2M), those of a tile of rows, filled up by zeros."""
    tile = tile_of(last.shape[1], POINTS)
    kept = last.shape[0]
    modes = max(16, power_of_two(tile.rows * kept))
    forward = last.new_zeros(modes, tile.points)
    backward = last.new_zeros(tile.points, modes)
    for row in range(tile.rows):
        here, there = slice(row * kept, (row + 1) * kept), slice(row * tile.width, (row + 1) * tile.width)
        forward[here, there] = last
        backward[there, here] = last_inverse
    return Transforms(
        tile,
        kept,
        forward,
        forward.T.contiguous(),
        backward,
        backward.T.contiguous(),
        leading.contiguous(),
        leading.T.contiguous(),
        leading_inverse.contiguous(),
        leading_inverse.T.contiguous(),
    )


class ModernBlock(torch.autograd.Function):
    """Autograd of `hofno.layers.kernels.modern_block`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain1: Tensor,
        weight: Tensor,
        bias: Tensor,
        filter_: Tensor,
        gain2: Tensor,
        up: Tensor,
        up_bias: Tensor,
        down: Tensor,
        down_bias: Tensor,
        transforms: Transforms,
        eps: float,
    ) -> Tensor:
        channels, hidden = x.shape[-1], up_bias.numel()
        order = bias.numel() // channels
        gain1 = parameter("norm1", gain1, (channels,), x)
        weight = parameter("factors.weight", weight, (order * channels, channels), x)
        bias = parameter("factors.bias", bias, (order * channels,), x)
        kept = (transforms.columns.shape[0] // 2, transforms.kept // 2)
        filter_ = parameter("filter", filter_, (*kept, channels, 2), x)
        gain2 = parameter("norm2", gain2, (channels,), x)
        up = parameter("up.weight", up, (hidden, channels), x)
        up_bias = parameter("up.bias", up_bias, (hidden,), x)
        down = parameter("down.weight", down, (channels, hidden), x)
        down_bias = parameter("down.bias", down_bias, (channels,), x)
        operand, precision = operand_type(x), dot_precision(x)
        weight, up, down = weight.to(operand), up.to(operand), down.to(operand)
        t = transforms
        with on_device_of(x):
            s = rows_in.forward(x, gain1, weight, bias, t.rows_in, t.tile, t.kept, eps, precision)
            s, spectrum = columns.forward(s, t.columns, t.columns_inverse, filter_, precision)
            y = rows_out.forward(x, s, t.rows_out, gain2, up, up_bias, down, down_bias, t.tile, eps, precision)
        ctx.save_for_backward(x, spectrum, s, gain1, weight, bias, filter_, gain2, up, up_bias, down)
        ctx.transforms, ctx.eps, ctx.precision = transforms, eps, precision
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, spectrum, s, gain1, weight, bias, filter_, gain2, up, up_bias, down = ctx.saved_tensors
        t, eps, precision = ctx.transforms, ctx.eps, ctx.precision
        y_grad = y_grad.contiguous()
        with on_device_of(x):
            out = rows_out.backward(
                x, s, t.rows_out, t.rows_out_transposed, gain2, up, up_bias, down, y_grad, t.tile, eps, precision
            )
            up_grad, up_bias_grad, gain2_grad = scaled_linear_grads(out.u, out.unit, gain2, up, precision)
            down_grad, down_bias_grad = linear_grads(out.y, out.active, precision)
            s_grad, filter_grad = columns.backward(
                spectrum, t.columns_transposed, t.columns_inverse_transposed, filter_, out.spectrum, precision
            )
            x_grad, unit, factor_grad = rows_in.backward(
                x, gain1, weight, bias, t.rows_in_transposed, s_grad, out.v, t.tile, t.kept, eps, precision
            )
            weight_grad, bias_grad, gain1_grad = scaled_linear_grads(factor_grad, unit, gain1, weight, precision)
        gradients = (x_grad, gain1_grad, weight_grad, bias_grad, filter_grad, gain2_grad, up_grad, up_bias_grad)
        return *gradients, down_grad, down_bias_grad, None, None
