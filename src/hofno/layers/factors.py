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
from functools import reduce
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.parts import differentiated, lean, plain_backward, scratch, tiles

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


class _TiledProduct(torch.autograd.Function):
    """Product of the dense factors of (rows, c) in tiles, see `hofno.layers.parts`; in training they are kept."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, weight: Tensor, bias: Tensor, order: int, keep: bool) -> Tensor:
        rows, stacked = v.shape[0], weight.shape[0]
        kept = v.new_empty(rows, stacked) if keep else scratch(v, stacked)
        z = v.new_empty(rows, stacked // order)
        for part in tiles(rows, stacked):
            p = kept[part] if keep else kept[: part.stop - part.start]
            first, second, *others = torch.mm(v[part], weight.T, out=p).add_(bias).chunk(order, dim=-1)
            torch.mul(first, second, out=z[part])
            for other in others:
                z[part].mul_(other)
        if keep:
            ctx.save_for_backward(v, weight, bias, kept)
            ctx.order = order
        return z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, weight, bias, kept = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            return *plain_backward(lambda *a: product(F.linear(*a), ctx.order), (v, weight, bias), grad), None, None
        d_v, d_weight, d_bias = torch.empty_like(v), torch.zeros_like(weight), torch.zeros_like(bias)
        d_kept = scratch(v, kept.shape[1])
        for part in tiles(*kept.shape):
            d = d_kept[: part.stop - part.start]
            _all_but_one(grad[part], kept[part].chunk(ctx.order, dim=-1), d.chunk(ctx.order, dim=-1))
            d_weight.addmm_(d.T, v[part])
            d_bias.add_(d.sum(0))
            torch.mm(d, weight, out=d_v[part])
        return d_v, d_weight, d_bias, None, None


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

    def forward(self, v: Tensor) -> Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        if self.order > 1 and lean(v, weight):
            keep = differentiated(v, weight, bias)
            return _TiledProduct.apply(v.reshape(-1, v.shape[-1]), weight, bias, self.order, keep).view(v.shape)
        return product(self.linear(v), self.order)

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
