r"""HO-FNO and FNO on regular grids in one, two and three dimensions.

    G = project . block_L . ... . block_1 . lift

Outside, fields are channel-first (b, c, *n); inside, channel-last. The dimension is len(modes).
"""

from __future__ import annotations

from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import (
    COORDINATES,
    Coordinates,
    ModeSet,
    PaddedBy,
    cached_coordinates,
    cached_waves,
    check_mode_counts,
    choose,
)
from hofno.layers.fields import check_field, whole_numbers
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.models.config import config_of
from hofno.models.lifted import LiftedBlocks


class HOFNO(LiftedBlocks):
    """Higher-Order Fourier Neural Operator, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign on each axis; its length is the number of dimensions.
        width: hidden channels. Published: 64 (Poisson), 128, 256 (Navier-Stokes).
        depth: number of blocks.
        order: number of factors in each spectral convolution. Good values: the polynomial degree of the PDE.
        backbone: "modern" (pre-norm residual with MLP) or "classic" (the block of the original FNO).
        expansion: hidden width of the MLPs over `width` (modern: in every block; classic: in the projection).
        factors: structure of the factors, see `hofno.layers.factors`.
        weights: spectral weights, "depthwise" or "dense".
        dealias: evaluate the products exactly on the kept modes.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic.
        padded_by: "points" appends int(fraction n) of them, as published; "length" makes the padded domain equally long
            on every grid, and its ends count half: for runs that are evaluated on other grids than their own.
        drop_path: rate of stochastic depth in the last block, rising linearly from 0 in the first (modern only).
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
        waves: wavevectors k whose cos 2 pi k.x and sin 2 pi k.x are appended too, x = i/n. A forcing of wavevector k is
            such a wave: with coordinates="none" the model then keeps every shift along which the forcing is constant.
        residual: add the last `out_channels` inputs to the output, so that the network gives the change of them.
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 64,
        depth: int = 4,
        order: int = 2,
        backbone: str = "modern",
        expansion: int = 2,
        factors: str = "dense",
        weights: str = "depthwise",
        dealias: bool = False,
        domain_padding: float = 0.0,
        padded_by: PaddedBy = "points",
        drop_path: float = 0.0,
        coordinates: Coordinates = "endpoint",
        waves: tuple[tuple[int, ...], ...] = (),
        residual: bool = False,
        mode_set: ModeSet = "symmetric",
    ) -> None:
        super().__init__()
        choose(coordinates, COORDINATES, "coordinates")
        whole_numbers(order=order)
        modes = check_mode_counts(modes)
        waves = tuple(tuple(k) for k in waves)
        for k in waves:
            if len(k) != len(modes) or not all(type(number) is int for number in k):
                raise SpecError(
                    f"waves are wavevectors of {len(modes)} whole numbers, one for each axis; got {list(k)}"
                )
        self.config = config_of(HOFNO, locals())
        self.modes, self.waves = modes, waves
        self.coordinates: Coordinates = coordinates

        def conv() -> HigherOrderSpectralConv:
            return HigherOrderSpectralConv(
                width,
                modes,
                order,
                factors=factors,
                weights=weights,
                dealias=dealias,
                domain_padding=domain_padding,
                padded_by=padded_by,
                mode_set=mode_set,
            )

        self.build(
            conv,
            (0 if coordinates == "none" else len(modes)) + 2 * len(waves),
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
        points, found = tuple(x.shape[2:]), []
        if self.coordinates != "none":
            found.append(cached_coordinates(points, self.coordinates, x).flatten(0, -2))  # (N, d)
        if self.waves:
            found.append(cached_waves(points, self.waves, x).flatten(0, -2))  # (N, 2 waves)
        return found

    def check(self, x: Tensor) -> None:
        """Refuse an input of the wrong rank or channel count."""
        check_field(x, self, self.in_channels, len(self.modes), "modes for every axis")


class FNO(HOFNO):
    """Fourier Neural Operator: the same network with spectral convolutions of order 1.

    Its block is that of `HOFNO`, the "FNO with modern backbone" of the published tables; the original one has
    backbone="classic" and weights="dense".

    Arguments as for `HOFNO`, without `order`, `factors` and `dealias`, which mean nothing without a product.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 64,
        depth: int = 4,
        backbone: str = "modern",
        expansion: int = 2,
        weights: str = "depthwise",
        domain_padding: float = 0.0,
        padded_by: PaddedBy = "points",
        drop_path: float = 0.0,
        coordinates: Coordinates = "endpoint",
        waves: tuple[tuple[int, ...], ...] = (),
        residual: bool = False,
        mode_set: ModeSet = "symmetric",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            modes,
            width=width,
            depth=depth,
            order=1,
            backbone=backbone,
            expansion=expansion,
            weights=weights,
            domain_padding=domain_padding,
            padded_by=padded_by,
            drop_path=drop_path,
            coordinates=coordinates,
            waves=waves,
            residual=residual,
            mode_set=mode_set,
        )
        for name in ("order", "factors", "dealias"):
            del self.config[name]
