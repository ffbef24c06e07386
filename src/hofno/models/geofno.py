r"""Geo-FNO with higher-order layers: operators on scattered points, by way of a latent grid.

    xi = x + x * phi(x)                                     learned deformation onto the torus
    v_i = lift(u_i, x_i)                                    at the points
    V = F^-1 T_K sum_i w_i v_i exp(-2 pi i k.xi_i) + P      points to latent grid, P a linear map of its coordinates
    V <- block_L ... block_1 V                              higher-order spectral blocks on the latent grid
    u_i = project( sum_k V^(k) exp(2 pi i k.xi_i) + W v_i ) latent grid to points

phi is a network of the position, its direction and distance from the middle of the unit cube, and sines and cosines of
these at octaves of pi. The published network takes the angle in place of the direction; an angle jumps along a ray, a
direction does not and exists in any dimension. Coordinates come in units of the box the points lie in, and the torus
may be longer than the box (`domain_padding`), so that opposite sides of the box are not neighbours.

The published decoder mirrors half of the spectrum onto the wrong wavenumbers (`decoder="original"`, see
`hofno.transforms.points`); "correct" evaluates the series of the latent field.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.geometry import ModeSet, cached_coordinates, check_mode_counts, check_modes, check_padding, choose
from hofno.layers.blocks import BACKBONES, stack_of_blocks
from hofno.layers.fields import at_least, whole_numbers
from hofno.layers.parts import MLP
from hofno.layers.precision import full_precision
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.models.clouds import check_cloud
from hofno.models.config import config_of, plain
from hofno.transforms import fourier, points

DECODERS = ("correct", "original")
OCTAVES = 8
MIDDLE = 0.5


class Deformation(nn.Module):
    """xi = x + x * phi(x), (b, N, d) -> (b, N, d), in the precision of the points."""

    def __init__(self, dims: int, width: int) -> None:
        super().__init__()
        features = 2 * dims + 1
        self.features = nn.Linear(features, width)
        last = nn.Linear(4 * width, dims)
        with torch.no_grad():  # next to the identity at first: a rough start folds the domain
            last.weight.mul_(0.01)
            last.bias.zero_()
        self.network = nn.Sequential(
            nn.Linear(width + 2 * OCTAVES * features, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, 4 * width),
            nn.GELU(),
            last,
        )

    def forward(self, x: Tensor) -> Tensor:
        with full_precision(x):  # a phase multiplies the error of a position by 2 pi k
            away = x - MIDDLE
            distance = (away.square().sum(-1, keepdim=True) + 1e-12).sqrt()
            features = torch.cat((x, away / distance, distance), -1)  # (b, N, 2 d + 1)
            octaves = math.pi * 2.0 ** torch.arange(OCTAVES, dtype=x.dtype, device=x.device)
            angles = (features.unsqueeze(-1) * octaves).flatten(-2)
            known = torch.cat((self.features(features), torch.sin(angles), torch.cos(angles)), -1)
            return x + x * self.network(known)


class GeoFNO(nn.Module):
    """Geo-FNO on scattered points, (b, in_channels, N) at (b, d, N) -> (b, out_channels, N).

    Args:
        in_channels: input fields at the points; 0 where the positions are all there is. Coordinates are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign on each axis of the latent grid; its length is the number of coordinates.
        width: hidden channels. Published: 32.
        depth: number of blocks on the latent grid. Published: 3.
        order: number of factors in each spectral convolution; 1 is the ordinary one.
        backbone: "modern" (pre-norm residual with MLP) or "classic" (the block of the original FNO).
        expansion: hidden width of the MLPs over `width`.
        factors: structure of the factors, see `hofno.layers.factors`.
        weights: spectral weights, "depthwise" or "dense".
        latent_points: size of the latent grid; an even number of at least 10/3 of the modes if left out.
        deformation: width of the deformation's network (published: 32); 0 leaves the points where they are.
        decoder: "correct", or "original" for the published one.
        domain_padding: length of the torus beyond the box of the points, as a fraction of it.
        drop_path: rate of stochastic depth in the last block, rising linearly from 0 in the first (modern only).
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 32,
        depth: int = 3,
        order: int = 2,
        backbone: str = "modern",
        expansion: int = 2,
        factors: str = "dense",
        weights: str = "depthwise",
        latent_points: tuple[int, ...] | None = None,
        deformation: int = 32,
        decoder: str = "correct",
        domain_padding: float = 0.0,
        drop_path: float = 0.0,
        mode_set: ModeSet = "symmetric",
    ) -> None:
        super().__init__()
        at_least(0, in_channels=in_channels, deformation=deformation)
        at_least(1, out_channels=out_channels, width=width, depth=depth, expansion=expansion)
        whole_numbers(order=order)
        check_padding(domain_padding, "box")
        choose(backbone, BACKBONES, "backbone")
        choose(decoder, DECODERS, "decoder")
        self.modes = check_mode_counts(modes)
        self.grid = tuple(latent_points or (2 * math.ceil(5 * m / 3) for m in self.modes))
        check_modes(self.modes, mode_set, self.grid)
        self.config = config_of(GeoFNO, locals()) | {"latent_points": plain(self.grid)}
        dims = len(self.modes)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.mode_set: ModeSet = mode_set
        self.mirror: points.Mirror = "exact" if decoder == "correct" else "shifted"
        self.period = 1.0 + domain_padding
        self.deformation = Deformation(dims, deformation) if deformation else None
        self.lift = MLP(in_channels + dims, expansion * width, width)
        self.place = nn.Linear(dims, width)

        def conv() -> HigherOrderSpectralConv:
            return HigherOrderSpectralConv(
                width, self.modes, order, factors=factors, weights=weights, mode_set=mode_set
            )

        self.blocks = stack_of_blocks(depth, conv, backbone, expansion, drop_path)
        self.skip = nn.Linear(width, width)
        self.project = MLP(width, expansion * width, out_channels)

    def forward(self, x: Tensor, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        """Fields x (b, c, N) at coords (b, d, N) in units of the box; points that `mask` (b, N) lacks become 0."""
        if not torch.compiler.is_compiling():
            self.check(x, coords, mask)
        places = coords.mT  # (b, N, d)
        if mask is not None:  # what stands where no point is must not matter, not even to gradients
            places, x = places.masked_fill(~mask.unsqueeze(-1), MIDDLE), x.masked_fill(~mask.unsqueeze(1), 0.0)
        onto = places if self.deformation is None else self.deformation(places)
        basis = points.Basis(onto / self.period, self.modes, self.mode_set, mask=mask)
        with full_precision(x):
            v = self.lift(torch.cat((x.mT, places), -1))  # (b, N, width)
            latent = self._to_grid(v, basis)
        for block in self.blocks:
            latent = block(latent)
        with full_precision(x):
            out = self.project(self._to_points(latent, basis) + self.skip(v)).mT
        return out if mask is None else out.masked_fill(~mask.unsqueeze(1), 0.0)

    def _to_grid(self, v: Tensor, basis: points.Basis) -> Tensor:
        latent = fourier.inverse(basis.to_modes(v), self.grid, self.modes, self.mode_set)
        return latent + self.place(cached_coordinates(self.grid, "periodic", v))

    def _to_points(self, latent: Tensor, basis: points.Basis) -> Tensor:
        spectrum = fourier.forward(latent.to(basis.coords.dtype), self.modes, self.mode_set)
        return basis.from_modes(spectrum, self.mirror)

    def check(self, x: Tensor, coords: Tensor, mask: Tensor | None) -> None:
        """Refuse fields, points and masks of the wrong shape."""
        check_cloud(self, x, coords, mask, self.in_channels, len(self.modes), f"modes={self.modes}")
