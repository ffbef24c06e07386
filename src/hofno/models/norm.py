r"""HO-NORM and NORM on a surface: the networks of HO-FNO and FNO with Laplace-Beltrami functions for Fourier modes.

    G = project . block_L . ... . block_1 . lift

Outside, fields are channel-first (b, c, vertices); inside, channel-last. All samples are on one triangulated surface,
closed or with borders, whose functions are computed from its triangles (`hofno.transforms.manifold`) when the network
is placed there: by `hofno.fit` on that of the data, in a loop of your own by `model.place(surface)`, also before
`load_state_dict`. They are saved with the weights.

Limits. A network belongs to its surface and triangulation and refuses others: on another one, functions come with
other signs, rotated among those of one eigenvalue, or in another order, and the weight of each would meet another.

What differs from the published NORM (Neural Operator on Riemannian Manifolds): the block is that of the HO-FNO paper,
and filters are "depthwise" unless weights="dense", as published, is asked for; input and output are on one surface.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from hofno.errors import ShapeError
from hofno.geometry import choose
from hofno.layers.fields import check_field, whole_numbers
from hofno.layers.manifold import HigherOrderSurfaceConv, SurfaceBasis
from hofno.models.config import config_of
from hofno.models.lifted import LiftedBlocks
from hofno.surface import Surface

SurfaceCoordinates = Literal["cartesian", "none"]
POSITIONS: dict[str, int] = {"cartesian": 3, "none": 0}


class HONORM(LiftedBlocks):
    """Higher-Order Neural Operator on Riemannian Manifolds, (b, in_channels, vertices) -> (b, out_channels, ...).

    Args:
        in_channels: input fields. Coordinates are appended by the model and never counted here.
        out_channels: output fields.
        functions: kept eigenfunctions of the Laplace-Beltrami operator, from the smoothest on; at most as many as the
            surface has vertices. Good values: 64 to 256, well below a quarter of the vertices.
        width: hidden channels.
        depth: number of blocks.
        order: number of factors in each spectral convolution. Good values: the polynomial degree of the PDE.
        backbone: "modern" (pre-norm residual with MLP) or "classic" (the block of the original FNO).
        expansion: hidden width of the MLPs over `width` (modern: in every block; classic: in the projection).
        factors: structure of the factors, see `hofno.layers.factors`; all but "spectral".
        weights: spectral weights of each function, "depthwise" or "dense".
        drop_path: rate of stochastic depth in the last block, rising linearly from 0 in the first (modern only).
        coordinates: positions appended to the input: "cartesian" (of the vertices, about the surface's centre) or
            "none" (the model then sees distances along the surface alone, not how it lies in space).
        residual: add the last `out_channels` inputs to the output, so that the network gives the change of them.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        functions: int,
        *,
        width: int = 64,
        depth: int = 4,
        order: int = 2,
        backbone: str = "modern",
        expansion: int = 2,
        factors: str = "dense",
        weights: str = "depthwise",
        drop_path: float = 0.0,
        coordinates: SurfaceCoordinates = "cartesian",
        residual: bool = False,
    ) -> None:
        super().__init__()
        whole_numbers(order=order)
        choose(coordinates, tuple(POSITIONS), "coordinates")
        self.config = config_of(HONORM, locals())
        self.coordinates: SurfaceCoordinates = coordinates
        self.basis = SurfaceBasis(functions)

        def conv() -> HigherOrderSurfaceConv:
            return HigherOrderSurfaceConv(width, self.basis, order, factors=factors, weights=weights)

        self.build(
            conv,
            POSITIONS[coordinates],
            in_channels=in_channels,
            out_channels=out_channels,
            width=width,
            depth=depth,
            backbone=backbone,
            expansion=expansion,
            drop_path=drop_path,
            residual=residual,
        )

    def place(self, surface: Surface) -> HONORM:
        """Put the network on a surface, once, and compute its functions."""
        self.basis.place(surface, self.lift.weight.detach())
        return self

    def reserve(self, surface: Surface) -> None:
        """Put the network on a surface whose functions come with the weights that are to be loaded."""
        self.basis.reserve(surface, self.lift.weight.detach())

    def known(self, x: Tensor) -> list[Tensor]:
        return [] if self.coordinates == "none" else [self.basis.placed()[2].to(x.dtype)]  # (N, 3)

    def check(self, x: Tensor) -> None:
        check_field(x, self, self.in_channels, 1, "fields with one axis, that of the vertices")
        vertices = len(self.basis.placed()[0])
        if x.shape[2] != vertices:
            raise ShapeError(
                f"the network is on a surface of {vertices} vertices; got fields at {x.shape[2]}; its weights belong "
                "to that triangulation: give fields there, or train a network on the other one"
            )


class NORM(HONORM):
    """Neural Operator on Riemannian Manifolds: the same network with spectral convolutions of order 1.

    Arguments as for `HONORM`, without `order` and `factors`, which mean nothing without a product. The published one
    has weights="dense".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        functions: int,
        *,
        width: int = 64,
        depth: int = 4,
        backbone: str = "modern",
        expansion: int = 2,
        weights: str = "depthwise",
        drop_path: float = 0.0,
        coordinates: SurfaceCoordinates = "cartesian",
        residual: bool = False,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            functions,
            width=width,
            depth=depth,
            order=1,
            backbone=backbone,
            expansion=expansion,
            weights=weights,
            drop_path=drop_path,
            coordinates=coordinates,
            residual=residual,
        )
        for name in ("order", "factors"):
            del self.config[name]
