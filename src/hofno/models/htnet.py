r"""HT-Net: attention in windows on a ladder of grids, put together as a hierarchical matrix is, then Fourier layers.

    v = norm(k * [u, x])                                               lift: a convolution
    e_0 = block(v),   e_l = block(W norm [the 2^d children of e_l-1])  l = 1, ..., L, with twice the channels each time
    e_l <- e_l + [D e_l+1 on the 2^d children]                         l = L - 1, ..., 0
    v <- gelu(K v + k * v + b)                                         Fourier layers from v = e_0; no gelu in the last
    G u = MLP(v)

Blocks are v + A(norm v), v + MLP(norm v) with the softmax-free attention A in windows of `hofno.layers.windows`: what
is near is heard on the finest grid and what is far on coarser ones. K is the ordinary spectral convolution, and k have
3 points along each axis. As windows and kernels are made of cells, it is the map of one grid.

This is the network released under the name HANO, on any grid: windows at the end of an axis are smaller, and a last
cell without a neighbour has a child of zeros beside it. The published one takes sides that are multiples of 16, extends
fields by 5 points for the Fourier layers, and for Darcy's equation reads every second point of its input.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import Coordinates, ModeSet, check_mode_counts
from hofno.layers.cells import crop, extend, join_windows, split_windows
from hofno.layers.convolutions import CONVOLUTIONS
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP, check_drop_path
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.layers.token_blocks import TokenBlock
from hofno.layers.ushape import UShape
from hofno.layers.windows import WindowAttention
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

HEAD = 128


class Embed(nn.Module):
    """A convolution and a norm, channel-last. (b, *n, channels) -> (b, *n, width)"""

    def __init__(self, dims: int, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.conv = CONVOLUTIONS[dims](channels, width, patch, padding=patch // 2)
        self.norm = nn.LayerNorm(width)

    def forward(self, known: Tensor) -> Tensor:
        return self.norm(self.conv(known.movedim(-1, 1)).movedim(1, -1))


class Reduce(nn.Module):
    """W norm [children]: the 2^d cells of each coarser one beside each other. (b, *n, c) -> (b, *n / 2, 2 c)"""

    def __init__(self, dims: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2**dims * width)
        self.map = nn.Linear(2**dims * width, 2 * width)

    def forward(self, v: Tensor) -> Tensor:
        v = extend(v, tuple(n + n % 2 for n in v.shape[1:-1]))
        return self.map(self.norm(split_windows(v, 2).flatten(-2)))


class Decompose(nn.Module):
    """What a cell has for each of its 2^d children, added to what these have. (b, *n / 2, 2 c) -> (b, *n, c)"""

    def __init__(self, dims: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(2 * width, 2**dims * width)

    def forward(self, u: Tensor, kept: Tensor) -> Tensor:
        children = join_windows(self.map(u).unflatten(-1, (2 ** (u.ndim - 2), -1)), 2)
        return kept + crop(children, tuple(kept.shape[1:-1]))


class FourierLayer(nn.Module):
    """gelu(K v + k * v + b), or without the gelu. (b, *n, c) -> (b, *n, c)"""

    def __init__(self, conv: HigherOrderSpectralConv, last: bool) -> None:
        super().__init__()
        self.conv = conv
        self.near = CONVOLUTIONS[len(conv.modes)](conv.width, conv.width, 3, padding=1)
        self.last = last

    def forward(self, v: Tensor) -> Tensor:
        v = self.conv(v, add=self.near(v.movedim(-1, 1)).movedim(1, -1))
        return v if self.last else F.gelu(v)


class HTNet(GridModel):
    """HT-Net on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign on each axis; its length is the number of dimensions. Published: 12.
        width: channels on the finest grid. Published: 18 (Navier-Stokes), 64 (Darcy).
        depth: number of Fourier layers. Published: 5.
        levels: how often the grid is halved. Published: 2.
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 1.
        window: cells of a window along each axis. Published: 4.
        patch: points along each axis of the first convolution, an odd number. Published: 3 (Navier-Stokes).
        expansion: hidden width of the MLPs of blocks over their channels. Published: 4.
        drop_path: rate of stochastic depth on the coarsest grid, rising linearly from 0 on the finest. Published: 0.1.
        domain_padding: fraction of each axis appended as zeros in Fourier layers, for domains that are not periodic.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 18,
        depth: int = 5,
        levels: int = 2,
        heads: int = 1,
        window: int = 4,
        patch: int = 3,
        expansion: int = 4,
        drop_path: float = 0.1,
        domain_padding: float = 0.0,
        coordinates: Coordinates = "endpoint",
        mode_set: ModeSet = "symmetric",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(HTNet, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width, depth=depth, levels=levels)
        at_least(1, window=window, patch=patch, expansion=expansion)
        if patch % 2 == 0:
            raise SpecError(f"patch must be odd, so that a point is in the middle of it; got {patch}")
        check_drop_path(drop_path)
        dims = len(modes)
        self.modes = modes
        self.lift = Embed(dims, self.known, width, patch)

        def block(level: int) -> TokenBlock:
            channels = width * 2**level
            attention = WindowAttention(channels, heads, window, dims, weights="mean")
            return TokenBlock(attention, channels, expansion, drop_path * level / levels)

        self.finest = block(0)
        self.ladder = UShape(
            [nn.Sequential(Reduce(dims, width * 2 ** (level - 1)), block(level)) for level in range(1, levels + 1)],
            [Decompose(dims, width * 2**level) for level in reversed(range(levels))],
        )
        self.fourier = nn.Sequential(
            *(
                FourierLayer(
                    HigherOrderSpectralConv(
                        width,
                        modes,
                        1,
                        factors="identity",
                        weights="dense",
                        domain_padding=domain_padding,
                        mode_set=mode_set,
                    ),
                    last=index == depth - 1,
                )
                for index in range(depth)
            )
        )
        self.project = MLP(width, HEAD, out_channels)

    def through(self, v: Tensor) -> Tensor:
        return self.fourier(self.ladder(self.finest(v)))
