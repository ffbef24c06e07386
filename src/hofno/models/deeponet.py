r"""DeepONet: what the input is and where the output is asked for, each by a network of its own.

    (G u)_o(y) = sum_k b_ok(u(x_1), ..., u(x_m)) t_k(y) + beta_o

The branch b sees the input at m sensors, once for each sample; the trunk t sees a position, and its functions are the
same for all samples. Both are stacks of linear maps with a relu after each, but after the last one of the branch.

On a grid or a mesh (`DeepONet`) the sensors are a grid of their own, onto which fields are interpolated linearly, so
that inputs of any resolution will do; positions are the index coordinates. Scattered points (`PointDeepONet`) are their
own sensors: the branch sees fields and coordinates of all points one after the other, so it has to be given always as
many of them and always in the same order, and their coordinates are the positions asked for.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Coordinates, cached_coordinates, choose
from hofno.layers.fields import at_least, check_dims, check_field
from hofno.layers.precision import full_precision
from hofno.models.clouds import check_cloud
from hofno.models.config import config_of
from hofno.transforms import resample


class Combine(nn.Module):
    """sum_k b_ok t_k(y) + beta_o: coefficients (b, o, k) and functions (N, k) or (b, N, k) -> (b, o, N)."""

    def __init__(self, out_channels: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(out_channels, 1).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, coefficients: Tensor, functions: Tensor) -> Tensor:
        return torch.matmul(coefficients, functions.mT) + self.bias


def layers(width: int, depth: int, out: int) -> nn.Sequential:
    """What follows a first linear map: `depth` times relu and a linear map, the last one onto `out` numbers."""
    steps = pairwise([width] * depth + [out])
    return nn.Sequential(*(part for a, b in steps for part in (nn.ReLU(), nn.Linear(a, b))))


class TwoNetworks(nn.Module):
    """Branch and trunk, from what the sensors see (b, seen) and positions (N, d) or (b, N, d) to (b, o, N)."""

    def __init__(self, seen: int, dims: int, out_channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.sense = nn.Linear(seen, width)
        self.branch = layers(width, depth, out_channels * width)
        self.lift = nn.Linear(dims, width)
        self.trunk = nn.Sequential(layers(width, depth, width), nn.ReLU())
        self.project = Combine(out_channels, width)

    def answer(self, seen: Tensor, places: Tensor) -> Tensor:
        """Positions and fields go in and out in full precision; what is between them may be in less."""
        with full_precision(seen):
            sensed, lifted = self.sense(seen), self.lift(places)
        coefficients = self.branch(sensed).unflatten(-1, (self.out_channels, -1))  # (b, o, k)
        functions = self.trunk(lifted)  # (N, k) or (b, N, k)
        with full_precision(seen):
            return self.project(coefficients.to(seen.dtype), functions.to(seen.dtype))


class DeepONet(TwoNetworks):
    """DeepONet on grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields. Coordinates are not counted.
        out_channels: output fields; each has coefficients of its own and all share the functions of the trunk.
        sensors: sensors along each axis; its length is the number of dimensions.
        width: hidden width of both networks, and number of the trunk's functions. Published: 256.
        depth: hidden layers of both. Published: 4.
        coordinates: positions of sensors and points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        sensors: tuple[int, ...] = (32, 32),
        *,
        width: int = 256,
        depth: int = 4,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        at_least(1, in_channels=in_channels, out_channels=out_channels, width=width, depth=depth)
        choose(coordinates, ("endpoint", "periodic"), "coordinates")
        sensors = tuple(sensors)
        if not 1 <= len(sensors) <= 3 or min(sensors) < 1:
            raise SpecError(f"sensors must have 1, 2 or 3 entries of at least 1, one for each axis; got {sensors}")
        super().__init__(in_channels * math.prod(sensors), len(sensors), out_channels, width, depth)
        self.config = config_of(DeepONet, locals())
        self.in_channels, self.sensors = in_channels, sensors
        self.coordinates: Coordinates = coordinates

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            check_field(x, self, self.in_channels, len(self.sensors), "sensors for every axis")
        points = tuple(x.shape[2:])
        places = cached_coordinates(points, self.coordinates, x).flatten(0, -2)  # (N, d)
        with full_precision(x):
            seen = resample.linear(x.movedim(1, -1), self.sensors, self.coordinates)  # (b, *sensors, c)
        return self.answer(seen.flatten(1), places).unflatten(-1, points)


class PointDeepONet(TwoNetworks):
    """DeepONet on a fixed number of ordered points, (b, in_channels, N) at (b, d, N) -> (b, out_channels, N).

    Args:
        in_channels: input fields at the points; 0 where the positions are all there is. Coordinates are not counted.
        out_channels: output fields; each has coefficients of its own and all share the functions of the trunk.
        dims: number of coordinates of a point.
        points: number N of points of every sample. Published: 972 (elasticity).
        width: hidden width of both networks, and number of the trunk's functions. Published: 256.
        depth: hidden layers of both. Published: 4.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        points: int,
        width: int = 256,
        depth: int = 4,
    ) -> None:
        at_least(0, in_channels=in_channels)
        at_least(1, out_channels=out_channels, points=points, width=width, depth=depth)
        check_dims(dims)
        super().__init__((in_channels + dims) * points, dims, out_channels, width, depth)
        self.config = config_of(PointDeepONet, locals())
        self.in_channels, self.dims, self.points = in_channels, dims, points

    def forward(self, x: Tensor, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        """Fields x (b, c, N) at coords (b, d, N) in units of the box; points that `mask` (b, N) lacks become 0."""
        if not torch.compiler.is_compiling():
            self.check(x, coords, mask)
        if mask is not None:  # what stands where no point is must not matter, not even to gradients
            x, coords = x.masked_fill(~mask.unsqueeze(1), 0.0), coords.masked_fill(~mask.unsqueeze(1), 0.0)
        out = self.answer(torch.cat((x, coords), 1).flatten(1), coords.mT)
        return out if mask is None else out.masked_fill(~mask.unsqueeze(1), 0.0)

    def check(self, x: Tensor, coords: Tensor, mask: Tensor | None) -> None:
        """Refuse fields, points and masks of the wrong shape, and points in another number than the branch takes."""
        check_cloud(self, x, coords, mask, self.in_channels, self.dims, f"dims={self.dims}")
        if x.shape[2] != self.points:
            raise ShapeError(
                f"expected {self.points} points in a fixed order, the sensors of the branch; got {x.shape[2]}; "
                "give points=their number, or use a model that takes any number of them"
            )
