r"""U-FNO: Fourier layers with a small U-Net beside the local map in the last of them.

    v = lift [u, x]
    v <- relu(K v + W v + b),              l = 1, ..., L_0        Fourier layers
    v <- relu(K v + W v + b + U v),        l = 1, ..., L          U-Fourier layers
    G u = W_2 relu(W_1 v)

K is the ordinary spectral convolution with a complex matrix for each mode. U goes down three times by a convolution of
step 2 and up three times by a transposed one of 4 points, with C channels throughout and what was seen on the way down
beside what comes up: what Fourier modes are too few for, fronts and corners, goes through it.

The published network extends fields by 8 points once; here each transform extends what it is given by zeros
(`domain_padding`). Its norms are over the batch, those here over the points of each sample. Benchmark libraries put a
U-Net of five scales and eightfold width in place of U, which is another and far larger network.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates, ModeSet, check_mode_counts
from hofno.layers.convolutions import CONVOLUTIONS, TRANSPOSED, convolution, norm_of
from hofno.layers.fields import at_least
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.layers.ushape import HalvingUShape
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

LEVELS = 3
SLOPE = 0.1
HEAD = 128


class Rise(nn.Module):
    """A transposed convolution onto the grid twice as fine, and what was kept there beside it."""

    def __init__(self, dims: int, channels: int, out: int) -> None:
        super().__init__()
        self.conv = TRANSPOSED[dims](channels, out, 4, stride=2, padding=1)

    def forward(self, u: Tensor, kept: Tensor) -> Tensor:
        risen = F.leaky_relu(self.conv(u), SLOPE)
        return torch.cat((risen, kept.to(risen.dtype)), 1)


def small_unet(dims: int, width: int, norm: str) -> nn.Sequential:
    """U: three steps down, three up, and a last convolution. (b, width, *n) -> (b, width, *n)"""
    downs = [
        nn.Sequential(convolution(dims, width, width, norm, stride=2), norm_of(norm, width), nn.LeakyReLU(SLOPE))
        for _ in range(LEVELS)
    ]
    ups = [Rise(dims, width if level == 0 else 2 * width, width) for level in range(LEVELS)]
    return nn.Sequential(HalvingUShape(downs, ups), CONVOLUTIONS[dims](2 * width, width, 3, padding=1))


class UFourierBlock(nn.Module):
    """relu(K v + W v + b), and + U v where there is a U. (b, *n, c) -> (b, *n, c)"""

    def __init__(self, conv: HigherOrderSpectralConv, beside: nn.Module | None) -> None:
        super().__init__()
        self.conv = conv
        self.skip = nn.Linear(conv.width, conv.width)
        self.beside = beside

    def forward(self, v: Tensor) -> Tensor:
        local = self.skip(v)
        if self.beside is not None:
            local = local + self.beside(v.movedim(-1, 1)).movedim(1, -1)
        return F.relu(self.conv(v, add=local))


class UFNO(GridModel):
    """U-FNO on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign on each axis; its length is the number of dimensions. Published: 10, three
            times, with 64M parameters in the "reference" set.
        width: hidden channels. Published: 36.
        depth: number of U-Fourier layers. Published: 3.
        before: number of Fourier layers before them. Published: 3.
        norm: of the small U-Nets, "group", "instance" or "none", see `hofno.layers.convolutions`.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 36,
        depth: int = 3,
        before: int = 3,
        norm: str = "group",
        domain_padding: float = 0.0,
        coordinates: Coordinates = "endpoint",
        mode_set: ModeSet = "symmetric",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(UFNO, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width, depth=depth)
        at_least(0, before=before)
        self.modes = modes
        self.lift = nn.Linear(self.known, width)

        def block(beside: nn.Module | None) -> UFourierBlock:
            conv = HigherOrderSpectralConv(
                width,
                modes,
                1,
                factors="identity",
                weights="dense",
                domain_padding=domain_padding,
                mode_set=mode_set,
            )
            return UFourierBlock(conv, beside)

        plain = [block(None) for _ in range(before)]
        self.blocks = nn.ModuleList(plain + [block(small_unet(len(modes), width, norm)) for _ in range(depth)])
        self.project = nn.Sequential(nn.Linear(width, HEAD), nn.ReLU(), nn.Linear(HEAD, out_channels))
