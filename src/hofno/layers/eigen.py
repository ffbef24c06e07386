"""What the order-m spectral convolutions on spheres and other surfaces share: all but where their functions live.

Eigenfunctions of a Laplace operator take the place of Fourier modes, factors are pointwise, filters real.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import choose
from hofno.layers.factors import FactorKind, parse_factors, pointwise_factors
from hofno.layers.fields import at_least
from hofno.layers.precision import full_precision, wide
from hofno.layers.spectral import WEIGHTS


class RealFilter(nn.Module):
    """One real number for every filtered index and channel ("depthwise"), or one real matrix for every index ("dense").

    Indices are the degrees of spherical harmonics, or the functions of another basis.
    """

    def __init__(self, channels: int, indices: int, weights: str, scale: float) -> None:
        super().__init__()
        self.dense = weights == "dense"
        shape = (indices, channels, channels) if self.dense else (indices, channels)
        self.weight = nn.Parameter(scale * torch.randn(shape))

    def forward(self, spectrum: Tensor) -> Tensor:
        """(b, .., indices, c) -> the same."""
        weight = self.weight.to(spectrum.dtype)
        return torch.einsum("b...lc,lco->b...lo", spectrum, weight) if self.dense else spectrum * weight


class EigenfunctionConv(nn.Module, ABC):
    """Order-m spectral convolution of channel-last fields in a basis of eigenfunctions; subclasses transform.

    Args:
        width: number of channels, in and out.
        indices: how many numbers or matrices filter.
        order: number of factors m, at least 1.
        factors: the structure of the A_i, see `hofno.layers.factors`; all but "spectral".
        weights: "depthwise" (a number per index and channel) or "dense" (a matrix per index).
    """

    dealias = False  # the product is evaluated at the points that are given

    def __init__(self, width: int, indices: int, order: int, factors: str, weights: str) -> None:
        super().__init__()
        at_least(1, width=width, order=order)
        choose(weights, WEIGHTS, "weights")
        self.width, self.order = width, order
        self.kind: FactorKind = parse_factors(factors)
        if self.kind.name == "spectral":
            raise SpecError(
                "factors on spheres and surfaces are pointwise; got factors='spectral'; use 'dense' or another kind"
            )
        self.factors = pointwise_factors(self.kind, width, order)
        self.filter = RealFilter(width, indices, weights, 1.0 / width)

    @abstractmethod
    def coefficients(self, fields: Tensor) -> Tensor:
        """(b, *points, c) -> (b, .., indices, c)"""

    @abstractmethod
    def fields(self, spectrum: Tensor, like: Tensor, add: Tensor | None) -> Tensor:
        """Of coefficients, plus `add`, at the points of `like`."""

    @abstractmethod
    def check(self, v: Tensor) -> None:
        """Refuse a field this layer cannot take."""

    def forward(self, v: Tensor, add: Tensor | None = None) -> Tensor:
        """Apply the layer; `add`, of the shape of the result, is added to it in the same pass."""
        if not torch.compiler.is_compiling():
            self.check(v)
        return self.convolve_product(self.factors(v), add)

    def convolve_product(self, z: Tensor, add: Tensor | None = None) -> Tensor:
        """Convolve a product of factors that has been evaluated already; transforms are in float32 or better."""
        with full_precision(z):
            spectrum = self.filter(self.coefficients(wide(z)))
            residual = add if add is not None and add.dtype == spectrum.dtype else None
            out = self.fields(spectrum, z, residual)
        if residual is not None:
            return out
        out = out.to(z.dtype)
        return out if add is None else out + add
