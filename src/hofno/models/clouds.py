"""What every model on scattered points is given: fields (b, c, N), coords (b, d, N), and a mask (b, N) or none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError
from hofno.layers.fields import check_tensor


def check_cloud(
    model: nn.Module, x: Tensor, coords: Tensor, mask: Tensor | None, channels: int, dims: int, told_by: str
) -> None:
    """Refuse fields, points and masks of the wrong kind or shape; `told_by` is the argument that says `dims`."""
    check_tensor(x, model)
    check_tensor(coords, model)
    if x.ndim != 3 or x.shape[1] != channels:
        raise ShapeError(
            f"expected fields (batch, {channels} channels, points); got shape {tuple(x.shape)}; "
            "coordinates are the second argument and not counted"
        )
    if x.shape[2] == 0:
        raise ShapeError(f"expected at least one point in a cloud; got fields {tuple(x.shape)}; leave it out")
    if coords.shape != (x.shape[0], dims, x.shape[2]):
        raise ShapeError(
            f"expected coords {(x.shape[0], dims, x.shape[2])}, one row for each of {told_by}; got "
            f"{tuple(coords.shape)}"
        )
    if mask is not None and (mask.shape != (x.shape[0], x.shape[2]) or mask.dtype != torch.bool):
        raise ShapeError(
            f"expected a boolean mask {(x.shape[0], x.shape[2])}; got {mask.dtype} of shape {tuple(mask.shape)}"
        )
