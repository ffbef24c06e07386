r"""The order-m spectral convolution on the sphere.

    (H v)(x) = S^-1[ K_l S[ (A_1 v)(A_2 v)...(A_m v) ] ](x)

with S the spherical harmonic transform of degrees l < L (`hofno.transforms.sphere`) and one learned matrix for each
degree: the convolution with a kernel that depends on the angle between two points alone. Such a kernel is real, and so
is K_l, whatever the order of the harmonic; a complex K_l would see where longitudes begin. H therefore commutes with
every rotation of the sphere: exactly with those about the polar axis by whole columns, with others as far as the grid
resolves the product. Order 1 is the convolution of the SFNO with a linear map before it.
"""

from __future__ import annotations

from torch import Tensor

from hofno.errors import ShapeError
from hofno.geometry import NODES, Nodes, choose
from hofno.layers.eigen import EigenfunctionConv
from hofno.layers.fields import at_least
from hofno.transforms import sphere


class HigherOrderSphericalConv(EigenfunctionConv):
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
        at_least(1, degrees=degrees)
        choose(nodes, NODES, "nodes")
        super().__init__(width, degrees, order, factors, weights)
        self.degrees = degrees
        self.nodes: Nodes = nodes

    def extra_repr(self) -> str:
        return f"width={self.width}, degrees={self.degrees}, order={self.order}, factors={self.kind.name}"

    def coefficients(self, fields: Tensor) -> Tensor:
        return sphere.forward(fields, self.degrees, self.nodes)  # (b, 2, M, L, c)

    def fields(self, spectrum: Tensor, like: Tensor, add: Tensor | None) -> Tensor:
        return sphere.inverse(spectrum, like.shape[1], like.shape[2], self.nodes, add=add)

    def check(self, v: Tensor) -> None:
        """Refuse a field this layer cannot take, and degrees its grid cannot hold."""
        if v.ndim != 4 or v.shape[-1] != self.width:
            raise ShapeError(
                f"expected a channel-last field (batch, rows, columns, {self.width} channels); got shape "
                f"{tuple(v.shape)}; channel-first data goes through x.movedim(1, -1)"
            )
        sphere.check_degrees(self.degrees, v.shape[1], v.shape[2])
