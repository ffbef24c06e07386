r"""LaMO of patches: scans of a grid's patches along each axis from both ends, on grids and meshes.

    v_p = norm(E [u, x] on patch p)                                    patches of s points along each axis
    v <- v + S(norm v),   v <- v + MLP(norm v)                         blocks, S see `GridScan` of layers.statespace
    (G u) on patch p = W norm v_p

A field is extended by zeros to whole patches, and what is answered there cut off. The published models add a learned
vector to each patch, one number after the other for one size of grid; here positions are told by the lift alone, and
any grid will do. That is 0.12 of 1.15 million parameters for Darcy's equation and 0.26 of 10.1 for Navier-Stokes.
"""

from __future__ import annotations

from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.cells import crop, extend, join_windows, split_windows
from hofno.layers.fields import at_least
from hofno.layers.statespace import GridScan
from hofno.layers.token_blocks import TokenBlock, normal_weights
from hofno.models.config import config_of
from hofno.models.on_grid import GridModel


def to_patches(v: Tensor, size: int) -> Tensor:
    """The points of each patch beside each other, with zeros past the end. (b, *n, c) -> (b, *patches, size^d c)"""
    return split_windows(extend(v, tuple(n + -n % size for n in v.shape[1:-1])), size).flatten(-2)


def from_patches(v: Tensor, size: int, points: tuple[int, ...]) -> Tensor:
    """The inverse of `to_patches` on the first `points`. (b, *patches, size^d c) -> (b, *points, c)"""
    return crop(join_windows(v.unflatten(-1, (size ** len(points), -1)), size), points)


class PatchLaMO(GridModel):
    """LaMO of patches on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too. Positions that the model appends are not counted.
        out_channels: output fields.
        dims: number of axes of the fields.
        width: hidden channels. Published: 64 (Darcy), 256 (Navier-Stokes).
        depth: number of blocks. Published: 8.
        patch: points of a patch along each axis. Published: 2.
        states: numbers remembered for each channel. Published: 64.
        growth: channels that are scanned over `width`. Published: 2.
        expansion: hidden width of the MLPs over `width`. Published: 4.
        coordinates: positions appended to the input: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none".
        landmarks: tell positions by their distances to a grid of this many points per axis; 0 tells coordinates.
            Published: 8.
        spread: standard deviation of the weights of linear maps at the start. Published: 0.02.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 64,
        depth: int = 8,
        patch: int = 2,
        states: int = 64,
        growth: int = 2,
        expansion: int = 4,
        coordinates: Coordinates = "endpoint",
        landmarks: int = 8,
        spread: float = 0.02,
    ) -> None:
        super().__init__(config_of(PatchLaMO, locals()), in_channels, out_channels, dims, coordinates, landmarks)
        at_least(1, width=width, depth=depth, patch=patch, expansion=expansion)
        self.patch = patch
        self.lift = nn.Sequential(nn.Linear(patch**dims * self.known, width), nn.LayerNorm(width))
        self.blocks = nn.ModuleList(
            TokenBlock(GridScan(width, dims, states, growth), width, expansion) for _ in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, patch**dims * out_channels))
        normal_weights(self, spread)

    def start(self, known: Tensor) -> Tensor:
        return self.lift(to_patches(known, self.patch))  # (b, *patches, width)

    def end(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        return from_patches(self.project(v), self.patch, points)
