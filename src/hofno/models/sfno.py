r"""HO-SFNO and SFNO on the sphere: the networks of HO-FNO and FNO with spherical harmonics in place of Fourier modes.

    G = project . block_L . ... . block_1 . lift

Outside, fields are channel-first (b, c, rows, columns), rows from north to south; inside, channel-last.

What differs from the published SFNO (torch-harmonics): every block works on the grid of the data, where that one goes
to a coarser Gaussian grid in its first block and back in its last; the block is that of the HO-FNO paper; filters are
real, as rotations ask for; and where rows are equally spaced all degrees below their number are transformed exactly.
The published models keep degrees = min(rows, columns / 2): 128 on the 128 x 256 points of PlanetSWE.
"""

from __future__ import annotations

from torch import Tensor

from hofno.geometry import SPHERE_COORDINATES, Nodes, SphereCoordinates, cached_sphere_coordinates, choose
from hofno.layers.fields import check_field, whole_numbers
from hofno.layers.sphere import HigherOrderSphericalConv
from hofno.models.config import config_of
from hofno.models.lifted import LiftedBlocks

POSITIONS: dict[SphereCoordinates, int] = {"cartesian": 3, "latitude": 1, "none": 0}


class HOSFNO(LiftedBlocks):
    """Higher-Order Spherical Fourier Neural Operator, (b, in_channels, rows, columns) -> (b, out_channels, ...).

    It takes any grid with at least `degrees` rows and 2 degrees - 1 columns.

    Args:
        in_channels: input fields. Coordinates are appended by the model and never counted here.
        out_channels: output fields.
        degrees: kept degrees of the spherical harmonics, l < degrees.
        width: hidden channels.
        depth: number of blocks.
        order: number of factors in each spectral convolution. Good values: the polynomial degree of the PDE.
        backbone: "modern" (pre-norm residual with MLP) or "classic" (the block of the original FNO).
        expansion: hidden width of the MLPs over `width` (modern: in every block; classic: in the projection).
        factors: structure of the factors, see `hofno.layers.factors`; all but "spectral".
        weights: spectral weights of each degree, "depthwise" or "dense".
        drop_path: rate of stochastic depth in the last block, rising linearly from 0 in the first (modern only).
        coordinates: positions appended to the input: "cartesian" (of the unit sphere), "latitude" (its sine; the model
            then keeps rotations about the polar axis, as a rotating planet does) or "none" (it keeps all rotations).
        residual: add the last `out_channels` inputs to the output, so that the network gives the change of them.
        nodes: where the rows of the data are: "equiangular" ((j + 1/2) pi / rows) or "gauss" (Legendre-Gauss nodes).
            Of your own arrays this cannot be checked: they are on a grid, whose rows must be these, north to south.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        degrees: int,
        *,
        width: int = 64,
        depth: int = 4,
        order: int = 2,
        backbone: str = "modern",
        expansion: int = 2,
        factors: str = "dense",
        weights: str = "depthwise",
        drop_path: float = 0.0,
        coordinates: SphereCoordinates = "cartesian",
        residual: bool = False,
        nodes: Nodes = "equiangular",
    ) -> None:
        super().__init__()
        whole_numbers(order=order)
        choose(coordinates, SPHERE_COORDINATES, "coordinates")
        self.config = config_of(HOSFNO, locals())
        self.degrees = degrees
        self.coordinates: SphereCoordinates = coordinates
        self.nodes: Nodes = nodes

        def conv() -> HigherOrderSphericalConv:
            return HigherOrderSphericalConv(width, degrees, order, factors=factors, weights=weights, nodes=nodes)

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

    def known(self, x: Tensor) -> list[Tensor]:
        if self.coordinates == "none":
            return []
        rows, columns = x.shape[2:]
        return [cached_sphere_coordinates((rows, columns), self.nodes, self.coordinates, x).flatten(0, -2)]  # (N, d)

    def check(self, x: Tensor) -> None:
        check_field(x, self, self.in_channels, 2, "fields with an axis of latitudes and one of longitudes")


class SFNO(HOSFNO):
    """Spherical Fourier Neural Operator: the same network with spectral convolutions of order 1.

    Arguments as for `HOSFNO`, without `order` and `factors`, which mean nothing without a product. The published one
    has weights="dense".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        degrees: int,
        *,
        width: int = 64,
        depth: int = 4,
        backbone: str = "modern",
        expansion: int = 2,
        weights: str = "depthwise",
        drop_path: float = 0.0,
        coordinates: SphereCoordinates = "cartesian",
        residual: bool = False,
        nodes: Nodes = "equiangular",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            degrees,
            width=width,
            depth=depth,
            order=1,
            backbone=backbone,
            expansion=expansion,
            weights=weights,
            drop_path=drop_path,
            coordinates=coordinates,
            residual=residual,
            nodes=nodes,
        )
        for name in ("order", "factors"):
            del self.config[name]
