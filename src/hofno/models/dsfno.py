r"""Dynamic Schwartz-Fourier Neural Operator, DSFNO: an FNO one of whose layers lets modes act on each other.

    v = lift u
    v <- gelu( MLP(norm(S_l norm(v))) + W v + b ),   l = 1, ..., L, the last one without gelu
    G u = MLP(v)

S_l is an ordinary spectral convolution but for one layer, the last, where every mode is multiplied by a combination of
all (`hofno.layers.schwartz`). norm gives each channel of each sample mean 0 and variance 1. Products of products grow
fast, so more such layers than one are less stable. On k_d = 0 the published weights of k and -k are one (1.09M
parameters with the defaults on 10 frames); here both are kept, 1.14M, and what they give is made Hermitian.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates, check_mode_counts, choose
from hofno.layers.fields import at_least, instance_norm
from hofno.layers.parts import MLP
from hofno.layers.schwartz import SchwartzConv
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel

MIXED = ("last", "first", "all", "none")


class SchwartzBlock(nn.Module):
    """gelu(MLP(norm(S norm(v))) + W v + b); the last block of a network leaves the gelu out."""

    def __init__(self, width: int, conv: SchwartzConv, last: bool) -> None:
        super().__init__()
        self.conv = conv
        self.mlp = MLP(width, width, width)
        self.skip = nn.Linear(width, width)
        self.last = last

    def forward(self, v: Tensor) -> Tensor:
        out = self.mlp(instance_norm(self.conv(instance_norm(v)))) + self.skip(v)
        return out if self.last else F.gelu(out)


class DSFNO(GridModel):
    """Dynamic Schwartz-Fourier Neural Operator on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        modes: kept Fourier modes per sign on each axis; its length is the number of dimensions. Published: 12 x 12.
        width: hidden channels. Published: 20.
        depth: number of blocks. Published: 4.
        mixed: which of the blocks let modes act on each other: "last", "first", "all" or "none". Published: "last".
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic. Published: 0.
        coordinates: positions appended to the input: "endpoint", "periodic" (i/n) or "none". Published: "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: tuple[int, ...],
        *,
        width: int = 20,
        depth: int = 4,
        mixed: str = "last",
        domain_padding: float = 0.0,
        coordinates: Coordinates = "none",
    ) -> None:
        modes = check_mode_counts(modes)
        super().__init__(config_of(DSFNO, locals()), in_channels, out_channels, len(modes), coordinates)
        at_least(1, width=width, depth=depth)
        choose(mixed, MIXED, "mixed")
        self.modes = modes
        self.lift = nn.Linear(self.known, width)
        chosen = {"last": {depth - 1}, "first": {0}, "all": set(range(depth)), "none": set[int]()}[mixed]
        self.blocks = nn.ModuleList(
            SchwartzBlock(width, SchwartzConv(width, modes, index in chosen, domain_padding), last=index == depth - 1)
            for index in range(depth)
        )
        self.project = MLP(width, 4 * width, out_channels)
