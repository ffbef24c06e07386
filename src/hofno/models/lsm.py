r"""Latent Spectral Model, LSM: a U-Net whose every scale passes through tokens and series of sines and cosines.

    v = lift(u, x)
    e_0 = double(v),    e_l = double(pool e_l-1)           l = 1, ..., L
    v = S_L e_L,        v <- double([S_l e_l, interpolate v])       l = L - 1, ..., 0
    G u = MLP(W v)

The ladder is that of `hofno.models.unet`, and S_l the neural spectral block of `hofno.layers.patches`. A field on the
l-th grid is cut into 2^(L - l) patches along each axis, so all patches have as many pixels as the coarsest grid. Norms
are over the points of each sample; the published network has them over the batch.
"""

from __future__ import annotations

from hofno.geometry import Coordinates
from hofno.layers.fields import at_least
from hofno.layers.patches import SpectralPatches
from hofno.layers.ushape import UShape, ladder_widths
from hofno.models.config import plain
from hofno.models.unet import UNet


class LSM(UNet):
    """Latent Spectral Model on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: channels on the finest grid. Published: 32, 48 (pipe), 64 (Darcy, Navier-Stokes).
        levels: how often the grid is halved. Published: 4.
        tokens: of each patch and head. Published: 4.
        heads: groups of channels with scores of their own; a divisor of `width`. Published: 8.
        waves: number of sines and of cosines of a token. Published: 12.
        norm: "group", "instance" or "none", see `hofno.layers.convolutions`.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 32,
        levels: int = 4,
        tokens: int = 4,
        heads: int = 8,
        waves: int = 12,
        norm: str = "group",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        at_least(1, tokens=tokens, heads=heads, waves=waves)
        super().__init__(
            in_channels, out_channels, dims, width=width, levels=levels, norm=norm, coordinates=coordinates
        )
        self.config |= {"tokens": plain(tokens), "heads": plain(heads), "waves": plain(waves)}
        ladder = self.body[1]
        assert isinstance(ladder, UShape)
        ladder.mixers.extend(
            SpectralPatches(channels, 2 ** (levels - level), tokens, heads, waves)
            for level, channels in enumerate(ladder_widths(width, levels))
        )
