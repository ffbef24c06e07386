"""What baselines on grids and structured meshes share: a lift at each point, what stands between, a projection.

v = start(u, x),   v <- through(v),   G u = end(v)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import COORDINATES, Coordinates, choose
from hofno.layers.fields import at_least, check_dims, check_field, told, with_places
from hofno.layers.precision import full_precision


class FieldModel(nn.Module):
    """What every baseline is told: its channels, its axes, and how it knows positions."""

    lift: nn.Module
    blocks: nn.ModuleList
    project: nn.Module

    def __init__(
        self,
        config: dict[str, object],
        in_channels: int,
        out_channels: int,
        dims: int,
        coordinates: Coordinates,
        landmarks: int = 0,
        *,
        fewest: int = 1,
    ) -> None:
        super().__init__()
        at_least(fewest, in_channels=in_channels)
        at_least(1, out_channels=out_channels)
        at_least(0, landmarks=landmarks)
        check_dims(dims)
        choose(coordinates, COORDINATES, "coordinates")
        if coordinates == "none" and (landmarks or not in_channels):
            wanted = f"landmarks={landmarks}" if landmarks else "in_channels=0"
            raise SpecError(f"{wanted} needs positions and coordinates='none' leaves them out; use 'endpoint'")
        self.config = config
        self.in_channels, self.out_channels, self.dims = in_channels, out_channels, dims
        self.coordinates: Coordinates = coordinates
        self.landmarks = landmarks
        self.known = told(in_channels, dims, coordinates, landmarks)


class GridModel(FieldModel):
    """A network of fields on a grid or a mesh, (b, in_channels, *n) -> (b, out_channels, *n).

    A model of this kind sets `lift`, `blocks` and `project`, channel-last, or says otherwise in `start`, `through` and
    `end`. The first and the last of them compute in full precision.
    """

    def start(self, known: Tensor) -> Tensor:
        """What goes through, of the fields and positions (b, *n, known)."""
        return self.lift(known)

    def through(self, v: Tensor) -> Tensor:
        """All between the lift and the projection, in the precision of the run."""
        for block in self.blocks:
            v = block(v)
        return v

    def end(self, v: Tensor, points: tuple[int, ...]) -> Tensor:
        """The answer (b, *points, out_channels), of what came through."""
        return self.project(v)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.check(x)
        with full_precision(x):
            v = self.start(with_places(x, self.coordinates, landmarks=self.landmarks))
        v = self.through(v)
        with full_precision(x):
            return self.end(v.to(x.dtype), tuple(x.shape[2:])).movedim(-1, 1)

    def check(self, x: Tensor) -> None:
        """Refuse an input of the wrong rank or channel count."""
        axes = "modes for every axis" if "modes" in self.config else "dims for its number of axes"
        check_field(x, self, self.in_channels, self.dims, axes)
