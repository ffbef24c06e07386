r"""Factorised Fourier Neural Operator, F-FNO.

    z = P [u, x],     z <- z + FFN( sum_a F_a^-1[ R_a T_m F_a z ] ),  l = 1, ..., L,     G u = Q z

with FFN = W_2 relu(W_1 . + b_1) + b_2 at each point and one transform along each axis instead of one of all axes
(`hofno.layers.axial`). The relu of the FFN is all that is nonlinear here: without it the whole network is linear, as it
is in a benchmark library that leaves the FFN out.

Linear maps have weights of a direction and a length, W = g V / |V| row by row (`weight_norm`). The released code reads
the answer off the last update of z alone (`readout="update"`); the equation is for z itself. It extends fields by a
margin once, before the first block; here every transform extends what it is given by zeros (`domain_padding`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates, check_mode_counts, check_padding, choose
from hofno.layers.axial import AxialConv
from hofno.layers.fields import at_least
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

READOUTS = ("state", "update")
HEAD = 128


class NormedLinear(nn.Module):
    """Linear map with W = g V / |V| for each row; it begins as W = V."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        linear = nn.Linear(width, out)
        self.weight, self.bias = linear.weight, linear.bias
        self.length = nn.Parameter(linear.weight.detach().norm(dim=1))

    def forward(self, v: Tensor) -> Tensor:
        scale = self.length * torch.rsqrt(self.weight.square().sum(1))
        return F.linear(v, self.weight * scale.unsqueeze(1), self.bias)


class AxialBlock(nn.Module):
    """z + FFN(K z), with a convolution K of its own or one that is given."""

    def __init__(self, width: int, expansion: int, weight_norm: bool, conv: AxialConv | None) -> None:
        super().__init__()
        linear = NormedLinear if weight_norm else nn.Linear
        self.conv = conv
        self.up, self.down = linear(width, expansion * width), linear(expansion * width, width)

    def forward(self, z: Tensor, shared: AxialConv | None = None) -> Tensor:
        return z + self.update(z, shared)

    def update(self, z: Tensor, shared: AxialConv | None = None) -> Tensor:
        """FFN(K z)."""
        conv = self.conv if shared is None else shared
        assert conv is not None
        return self.down(F.relu(self.up(conv(z))))


class FFNO(GridModel):
    """Factorised Fourier Neural Operator on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept wavenumbers along each axis; its length is the number of dimensions. Published: 16, 32 x 16
            (airfoil), 32 x 12 x 8 (plasticity).
        width: hidden channels. Published: 64.
        depth: number of blocks. Published: 4 to 24.
        expansion: hidden width of the feed-forward maps over `width`. Published: 4.
        share: one set of spectral weights for all blocks. Published: true for Navier-Stokes alone.
        weight_norm: weights of a direction and a length. Published: true.
        readout: what the answer is a linear map of, "state" or "update", see above.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 64,
        depth: int = 24,
        expansion: int = 4,
        share: bool = False,
        weight_norm: bool = True,
        readout: str = "state",
        domain_padding: float = 0.0,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(FFNO, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width, depth=depth, expansion=expansion)
        check_padding(domain_padding)
        choose(readout, READOUTS, "readout")
        self.modes = modes
        self.readout = readout
        linear = NormedLinear if weight_norm else nn.Linear
        self.lift = linear(self.known, width)
        self.shared = AxialConv(width, modes, domain_padding) if share else None
        self.blocks = nn.ModuleList(
            AxialBlock(width, expansion, weight_norm, None if share else AxialConv(width, modes, domain_padding))
            for _ in range(depth)
        )
        self.project = nn.Sequential(linear(width, HEAD), linear(HEAD, out_channels))

    def through(self, v: Tensor) -> Tensor:
        for index, block in enumerate(self.blocks):
            if self.readout == "update" and index == len(self.blocks) - 1:
                assert isinstance(block, AxialBlock)
                v = block.update(v, self.shared)
            else:
                v = block(v) if self.shared is None else block(v, self.shared)
        return v
