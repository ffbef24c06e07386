r"""The m factors of a higher-order spectral convolution and their product, z = (A_1 v)(A_2 v)...(A_m v).

Pointwise factors act on channels alone, p_i = A_i v + b_i, with A_i

    dense                   any C x C matrix
    identity                the identity, so z = v^m
    diagonal                a number for each channel
    low-rank(r)             U_i V_i with r columns
    diagonal+low-rank(r)    the sum of the two
    shared                  one dense matrix for all factors: z = (A v + b)^m, the tied class of the paper

`spectral` factors are Fourier multipliers of their own, p_i = F^-1[ R_i(k) F[A_i v + b_i] ], so that each factor can be
a derivative or an inverse Laplacian of the input; `hofno.layers.spectral` evaluates them.
"""

from __future__ import annotations

import re
from functools import partial, reduce
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.parts import RMSNorm, UnitRows, differentiated, lean, plain_backward, scratch, tile_rows, tiles

KINDS = ("dense", "identity", "diagonal", "low-rank(r)", "diagonal+low-rank(r)", "shared", "spectral")


class FactorKind(NamedTuple):
    name: str
    rank: int


def parse_factors(text: str) -> FactorKind:
    """Read `dense`, `low-rank(64)`, `diagonal + low-rank(8)`, ..."""
    cleaned = text.lower().replace(" ", "").replace("_", "-")
    match = re.fullmatch(r"(dense|identity|diagonal|shared|spectral)|(diagonal\+)?low-rank\((\d+)\)", cleaned)
    if match is None:
        raise SpecError(f"factors must be one of {', '.join(KINDS)} with r a whole number; got {text!r}")
    if match[1]:
        return FactorKind(match[1], 0)
    rank = int(match[3])
    if rank < 1:
        raise SpecError(f"the rank in factors={text!r} must be at least 1")
    return FactorKind("diagonal+low-rank" if match[2] else "low-rank", rank)


def product(stacked: Tensor, order: int) -> Tensor:
    """Product of the `order` equal chunks of the last axis."""
    return reduce(torch.mul, stacked.chunk(order, dim=-1))


def _dense(v: Tensor, weight: Tensor, bias: Tensor, gain: Tensor | None, order: int, eps: float) -> Tensor:
    """Product of the dense factors of v, or where a gain is given of norm v."""
    h = v if gain is None else F.rms_norm(v, (v.shape[-1],), gain, eps)
    return product(F.linear(h, weight, bias), order)


class _TiledProduct(torch.autograd.Function):
    """`_dense` of (rows, c) in tiles of rows, see `hofno.layers.parts`; in training the factors are kept."""

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, weight: Tensor, bias: Tensor, gain: Tensor | None, order: int, eps: float, keep: bool
    ) -> Tensor:
        rows, stacked = v.shape[0], weight.shape[0]
        step = tile_rows(stacked)
        units = UnitRows(v, gain, eps, step)
        folded = units.fold(weight)
        kept = v.new_empty(rows, stacked) if keep else scratch(v, step, stacked)
        z = v.new_empty(rows, stacked // order)
        for part in tiles(rows, step):
            p = kept[part] if keep else kept[: part.stop - part.start]
            first, second, *others = units.linear(part, folded, bias, out=p).chunk(order, dim=-1)
            torch.mul(first, second, out=z[part])
            for other in others:
                z[part].mul_(other)
        if keep:
            ctx.save_for_backward(v, weight, bias, gain, units.inverse, kept)
            ctx.order, ctx.eps = order, eps
        return z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, weight, bias, gain, inverse, kept = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            formula = partial(_dense, order=ctx.order, eps=ctx.eps)
            return *plain_backward(formula, (v, weight, bias, gain), grad), None, None, None
        step = tile_rows(kept.shape[1])
        units = UnitRows(v, gain, ctx.eps, step, inverse)
        folded = units.fold(weight)
        d_v, d_weight, d_bias = torch.empty_like(v), torch.zeros_like(weight), torch.zeros_like(bias)
        d_kept = scratch(v, step, kept.shape[1])
        for part in tiles(v.shape[0], step):
            d, unit = d_kept[: part.stop - part.start], units[part]
            _all_but_one(grad[part], kept[part].chunk(ctx.order, dim=-1), d.chunk(ctx.order, dim=-1))
            d_weight.addmm_(d.T, unit)
            d_bias.add_(d.sum(0))
            torch.mm(d, folded, out=d_v[part])
            units.backward_(d_v[part], unit, part)
        d_weight, d_gain = units.unfold(d_weight, weight)
        return d_v, d_weight, d_bias, d_gain, None, None, None


def _all_but_one(grad: Tensor, factors: tuple[Tensor, ...], out: tuple[Tensor, ...]) -> None:
    """out_i = grad times all factors but the i-th, without a division."""
    after = list(accumulate(reversed(factors[1:]), torch.mul))[::-1]  # the product of all factors after the i-th
    before = grad
    for i, later in enumerate(after):
        torch.mul(before, later, out=out[i])
        before = torch.mul(before, factors[i], out=out[i + 1] if i == len(after) - 1 else None)


class PointwiseFactors(nn.Module):
    """Base: `forward` gives the product at every point, `at_zero` its constant value where the input is zero."""

    order: int

    def at_zero(self) -> Tensor | None:
        """The product for a zero input, (c,), or None where it is zero."""
        raise NotImplementedError


class DenseFactors(PointwiseFactors):
    def __init__(self, width: int, order: int) -> None:
        super().__init__()
        self.order = order
        self.linear = nn.Linear(width, order * width)

    def forward(self, v: Tensor, norm: RMSNorm | None = None) -> Tensor:
        """The product for v, or for norm(v); where this `fuses`, hooks of `norm` do not fire."""
        if self.fuses(v, norm):
            gain, eps = (None, 0.0) if norm is None else (norm.weight, norm.eps)
            inputs = (v.reshape(-1, v.shape[-1]), self.linear.weight, self.linear.bias, gain)
            return _TiledProduct.apply(*inputs, self.order, eps, differentiated(*inputs)).view(v.shape)
        return product(self.linear(v if norm is None else norm(v)), self.order)

    def fuses(self, v: Tensor, norm: RMSNorm | None = None) -> bool:
        """Whether norm, factors and product of v run as one, in tiles."""
        weights = (self.linear.weight, self.linear.bias, *(() if norm is None else (norm.weight,)))
        return self.order > 1 and lean(v, *weights)

    def at_zero(self) -> Tensor:
        return product(self.linear.bias, self.order)


class IdentityFactors(PointwiseFactors):
    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, v: Tensor) -> Tensor:
        return v**self.order if self.order > 1 else v

    def at_zero(self) -> None:
        return None


class SharedFactors(PointwiseFactors):
    def __init__(self, width: int, order: int) -> None:
        super().__init__()
        self.order = order
        self.linear = nn.Linear(width, width)

    def forward(self, v: Tensor) -> Tensor:
        return self.linear(v) ** self.order

    def at_zero(self) -> Tensor:
        return self.linear.bias**self.order


class StructuredFactors(PointwiseFactors):
    """Diagonal (rank 0), low-rank, or the sum of both."""

    def __init__(self, width: int, order: int, rank: int, diagonal: bool) -> None:
        super().__init__()
        self.order = order
        self.bias = nn.Parameter(torch.empty(order, width).uniform_(-(width**-0.5), width**-0.5))
        # different for each factor: equal factors would have equal gradients and stay equal
        self.scale = nn.Parameter(1 + 0.5 * torch.randn(order, width)) if diagonal else None
        self.down = nn.Linear(width, order * rank, bias=False) if rank else None
        self.up = nn.Parameter(torch.randn(order, rank, width) * rank**-0.5) if rank else None

    def forward(self, v: Tensor) -> Tensor:
        if self.down is not None and self.up is not None:
            low = self.down(v).unflatten(-1, (self.order, -1))  # (..., m, r)
            p = torch.einsum("...mr,mrc->...mc", low, self.up) + self.bias
            if self.scale is not None:
                p = p + v.unsqueeze(-2) * self.scale
        else:
            assert self.scale is not None
            p = v.unsqueeze(-2) * self.scale + self.bias  # (..., m, c)
        return reduce(torch.mul, p.unbind(-2))

    def at_zero(self) -> Tensor:
        return self.bias.prod(0)


def pointwise_factors(kind: FactorKind, width: int, order: int) -> PointwiseFactors:
    """The module for any kind but `spectral`."""
    if kind.name == "dense":
        return DenseFactors(width, order)
    if kind.name == "identity":
        return IdentityFactors(order)
    if kind.name == "shared":
        return SharedFactors(width, order)
    return StructuredFactors(width, order, kind.rank, diagonal=kind.name.startswith("diagonal"))
