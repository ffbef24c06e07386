r"""The order-m spectral convolution on the sphere.

    (H v)(x) = S^-1[ K_l S[ (A_1 v)(A_2 v)...(A_m v) ] ](x)

with S the spherical harmonic transform of degrees l < L (`hofno.transforms.sphere`) and one learned matrix for each
degree: the convolution with a kernel that depends on the angle between two points alone. Such a kernel is real, and so
is K_l, whatever the order of the harmonic; a complex K_l would see where longitudes begin. H therefore commutes with
every rotation of the sphere: exactly with those about the polar axis by whole columns, with others as far as the grid
resolves the product. Order 1 is the convolution of the SFNO with a linear map before it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import NODES, Nodes, choose
from hofno.layers.factors import FactorKind, parse_factors, pointwise_factors
from hofno.layers.fields import at_least
from hofno.layers.precision import full_precision, wide
from hofno.layers.spectral import WEIGHTS
from hofno.transforms import sphere


class DegreeFilter(nn.Module):
    """One real number for every degree and channel ("depthwise"), or one real matrix for every degree ("dense").

    On other surfaces than the sphere, for every function of the basis.
    """

    def __init__(self, channels: int, degrees: int, weights: str, scale: float) -> None:
        super().__init__()
        self.dense = weights == "dense"
        shape = (degrees, channels, channels) if self.dense else (degrees, channels)
        self.weight = nn.Parameter(scale * torch.randn(shape))

    def forward(self, spectrum: Tensor) -> Tensor:
        """(b, 2, M, L, c) -> (b, 2, M, L, c), or without the axes between b and L."""
        weight = self.weight.to(spectrum.dtype)
        return torch.einsum("b...lc,lco->b...lo", spectrum, weight) if self.dense else spectrum * weight


class HigherOrderSphericalConv(nn.Module):
    """Order-m spectral convolution of channel-last fields on the sphere, (b, rows, columns, width) -> the same.

    Args:
        width: number of channels, in and out.
        degrees: kept degrees of the spherical harmonics, l < degrees. The grid needs as many rows and 2 degrees - 1
            columns; for an exact product of fields below degree d, order * d must be within what the grid resolves.
        order: number of factors m, at least 1. Good values: the polynomial degree of the PDE.
        factors: the structure of the A_i, see `hofno.layers.factors`; all but "spectral".
        weights: "depthwise" (a number per degree and channel) or "dense" (a matrix per degree).
        nodes: where the rows are, "equiangular" or "gauss", see `hofno.geometry.Sphere`.
    """

    dealias = False  # the product is evaluated on the grid that is given

    def __init__(
        self,
        width: int,
        degrees: int,
        order: int = 2,
        *,
        factors: str = "dense",
        weights: str = "depthwise",
        nodes: Nodes = "equiangular",
    ) -> None:
        super().__init__()
        at_least(1, width=width, degrees=degrees, order=order)
        choose(weights, WEIGHTS, "weights")
        choose(nodes, NODES, "nodes")
        self.width, self.degrees, self.order = width, degrees, order
        self.nodes: Nodes = nodes
        self.kind: FactorKind = parse_factors(factors)
        if self.kind.name == "spectral":
            raise SpecError("factors on the sphere are pointwise; got factors='spectral'; use 'dense' or another kind")
        self.factors = pointwise_factors(self.kind, width, order)
        self.filter = DegreeFilter(width, degrees, weights, 1.0 / width)

    def extra_repr(self) -> str:
        return f"width={self.width}, degrees={self.degrees}, order={self.order}, factors={self.kind.name}"

    def forward(self, v: Tensor, add: Tensor | None = None) -> Tensor:
        """Apply the layer; `add`, of the shape of the result, is added to it in the same pass."""
        if not torch.compiler.is_compiling():
            self.check(v)
        return self.convolve_product(self.factors(v), add)

    def convolve_product(self, z: Tensor, add: Tensor | None = None) -> Tensor:
        """Convolve a product of factors that has been evaluated already; transforms are in float32 or better."""
        with full_precision(z):
            spectrum = self.filter(sphere.forward(wide(z), self.degrees, self.nodes))
            residual = add if add is not None and add.dtype == spectrum.dtype else None
            out = sphere.inverse(spectrum, z.shape[1], z.shape[2], self.nodes, add=residual)
        if residual is not None:
            return out
        out = out.to(z.dtype)
        return out if add is None else out + add

    def check(self, v: Tensor) -> None:
        """Refuse a field this layer cannot take, and degrees its grid cannot hold."""
        if v.ndim != 4 or v.shape[-1] != self.width:
            raise ShapeError(
                f"expected a channel-last field (batch, rows, columns, {self.width} channels); got shape "
                f"{tuple(v.shape)}; channel-first data goes through x.movedim(1, -1)"
            )
        sphere.check_degrees(self.degrees, v.shape[1], v.shape[2])
