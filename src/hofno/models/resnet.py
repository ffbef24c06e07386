r"""Residual network of convolutions at one resolution.

    v = k_0 * [u, x],    v <- relu(v + F_l(v)),  l = 1, ..., L,    G u = W v

with F = norm . convolution . relu . norm . convolution, kernels of 3 points per axis. Every block lets a point see two
points farther, and nothing else does: after L blocks a point knows of 2 L + 1 points around it. No configuration of the
row that others publish under this name is known; the defaults are ours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.geometry import COORDINATES, Coordinates, choose
from hofno.layers.convolutions import CONVOLUTIONS, ResidualConv
from hofno.layers.fields import at_least, check_dims, check_field, told, with_places
from hofno.layers.precision import full_precision


class ResNet(nn.Module):
    """Residual network on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    It is the map of one grid: on a finer one the same kernels reach less far.

    Args:
        in_channels: input fields. Coordinates are appended by the model and never counted here.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: hidden channels.
        depth: number of blocks.
        norm: "group", "instance" or "none", see `hofno.layers.convolutions`.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 64,
        depth: int = 8,
        norm: str = "group",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__()
        at_least(1, in_channels=in_channels, out_channels=out_channels, width=width, depth=depth)
        check_dims(dims)
        choose(coordinates, COORDINATES, "coordinates")
        self.config: dict[str, object] = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "dims": dims,
            "width": width,
            "depth": depth,
            "norm": norm,
            "coordinates": coordinates,
        }
        self.in_channels, self.out_channels, self.dims = in_channels, out_channels, dims
        self.coordinates: Coordinates = coordinates
        self.lift = CONVOLUTIONS[dims](told(in_channels, dims, coordinates), width, 3, padding=1)
        self.blocks = nn.ModuleList(ResidualConv(dims, width, norm) for _ in range(depth))
        self.project = CONVOLUTIONS[dims](width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.check(x)
        with full_precision(x):
            v = self.lift(with_places(x, self.coordinates).movedim(-1, 1).contiguous())  # (b, c, *n)
        for block in self.blocks:
            v = block(v)
        with full_precision(x):
            return self.project(v.to(x.dtype))

    def check(self, x: Tensor) -> None:
        """Refuse an input of the wrong rank or channel count."""
        check_field(x, self.in_channels, self.dims, "dims for its number of axes")
