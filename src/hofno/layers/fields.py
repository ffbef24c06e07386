"""What models begin with: fields (b, c, *n), or (b, c, N) at points, checked, channel-last, with positions appended."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.exact import is_whole
from hofno.geometry import Coordinates, cached_coordinates

EPSILON = 1e-5


def whole_numbers(**values: object) -> None:
    """Refuse arguments that are no whole numbers, by name."""
    for name, value in values.items():
        if not is_whole(value):
            raise SpecError(f"{name} is a whole number, such as 2; got {value!r}; give such a one")


def at_least(smallest: int, **values: int) -> None:
    """Refuse arguments below `smallest`, or no whole numbers, by name."""
    whole_numbers(**values)
    for name, value in values.items():
        if value < smallest:
            raise SpecError(f"{name} must be at least {smallest}; got {value}")


def check_dims(dims: int) -> None:
    """Refuse a number of axes that grids do not have."""
    whole_numbers(dims=dims)
    if not 1 <= dims <= 3:
        raise SpecError(f"dims must be 1, 2 or 3, the number of axes of the fields; got {dims}")


def check_tensor(x: object, model: nn.Module) -> None:
    """Refuse an input that is no tensor, or of another precision than the weights."""
    if not isinstance(x, Tensor):
        raise ShapeError(
            f"expected a tensor; got {type(x).__name__}; give torch.from_numpy(x).float(), or ask predict of a trained "
            "operator, which takes arrays"
        )
    weight = next((weight for weight in model.parameters() if weight.is_floating_point()), x)
    if x.dtype != weight.dtype:
        raise ShapeError(
            f"expected {weight.dtype}, the precision of the weights; got {x.dtype}; give x.to({weight.dtype})"
        )


def check_field(x: Tensor, model: nn.Module, channels: int, dims: int, remedy: str) -> None:
    """Refuse an input of the wrong kind, rank or channel count; `remedy` says what tells the model its axes."""
    check_tensor(x, model)
    if x.ndim != dims + 2:
        missing = ""
        if x.ndim == dims + 1 and channels == 1:
            missing = "a single channel needs its axis, x[:, None], as in from_arrays(x[:, None], y[:, None]); or "
        elif x.ndim == dims + 1 and x.shape[0] == channels:
            missing = "add the axis of the batch with x[None], or "
        raise ShapeError(
            f"expected (batch, {channels} channels, {dims} spatial axes), {dims + 2} axes in all; "
            f"got shape {tuple(x.shape)}; {missing}give {remedy}"
        )
    if x.shape[1] != channels:
        hint = " (channel-last data goes through x.movedim(-1, 1))" if x.shape[-1] == channels else ""
        raise ShapeError(
            f"expected {channels} input channels on axis 1; got {x.shape[1]} in shape {tuple(x.shape)}; set "
            f"in_channels=data.in_channels, which counts coordinates of a mesh and no positions of a grid{hint}"
        )


def told(in_channels: int, dims: int, coordinates: Coordinates, landmarks: int = 0) -> int:
    """How many numbers `with_places` gives at each point."""
    return in_channels + (0 if coordinates == "none" else landmarks**dims if landmarks else dims)


def with_places(x: Tensor, coordinates: Coordinates, coords: Tensor | None = None, landmarks: int = 0) -> Tensor:
    """Fields and positions at every point: (b, c, *n) -> (b, *n, c + d), or (b, c, N) at (b, d, N) -> (b, N, c + d).

    Positions may be told by their distances to a grid of `landmarks` points per axis in place of coordinates.
    """
    fields = x.movedim(1, -1)
    if coordinates == "none":
        return fields
    places = cached_coordinates(tuple(x.shape[2:]), coordinates, x) if coords is None else coords.mT
    if landmarks:
        places = distances(places, landmarks)
    return torch.cat((fields, places.expand(*fields.shape[:-1], -1)), -1)


def distances(places: Tensor, landmarks: int) -> Tensor:
    """Distances to a grid of `landmarks` points per axis on the unit cube, (..., d) -> (..., landmarks^d)."""
    dims = places.shape[-1]
    grid = cached_coordinates((landmarks,) * dims, "endpoint", places).reshape(-1, dims)
    return ((places.unsqueeze(-2) - grid).square().sum(-1) + 1e-12).sqrt()  # 1e-12: a slope at 0


def instance_norm(v: Tensor) -> Tensor:
    """Every channel of every sample with mean 0 and variance 1 over the points of (b, *n, c)."""
    axes = tuple(range(1, v.ndim - 1))
    variance, mean = torch.var_mean(v, axes, correction=0, keepdim=True)
    return (v - mean) * torch.rsqrt(variance + EPSILON)
