"""What models of tokens share: every point of a grid, a mesh or a cloud is a token, and the network sees tokens alone.

state = start(u, x),   state <- block_l(state),   G u = project(end(state))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.geometry import Coordinates
from hofno.layers.fields import check_field, with_places
from hofno.layers.precision import full_precision
from hofno.models.clouds import check_cloud
from hofno.models.on_grid import FieldModel


class TokenModel(FieldModel):
    """A network of tokens, (b, in_channels, *n) -> (b, out_channels, *n), or the same at points (b, c, N) at (b, d, N).

    A model of this kind sets `lift`, `blocks` and `project`; what its blocks are given and give may be more than one
    tensor, which `start` and `end` then say, and a network that is no stack of blocks says so in `through`.
    """

    def __init__(
        self,
        config: dict[str, object],
        in_channels: int,
        out_channels: int,
        dims: int,
        coordinates: Coordinates,
        landmarks: int = 0,
    ) -> None:
        super().__init__(config, in_channels, out_channels, dims, coordinates, landmarks, fewest=0)

    needs_grid = ""
    """The argument by which a model has convolutions, which points do not."""

    def need_places(self) -> None:
        """Refuse to leave positions out."""
        if self.coordinates == "none":
            raise SpecError(f"{type(self).__name__} is built on positions; use coordinates='endpoint' or 'periodic'")

    def start(self, known: Tensor) -> Any:
        """What the first block is given, of the fields and positions (b, *n, known)."""
        return self.lift(known)

    def through(self, state: Any, coords: Tensor | None, mask: Tensor | None) -> Any:
        """What the last block gives, of what the first is given; `coords` (b, d, N) where there are points."""
        for block in self.blocks:
            state = block(state) if mask is None else block(state, mask)
        return state

    def end(self, state: Any) -> Tensor:
        """What is projected, of what the last block gives."""
        return state

    def forward(self, x: Tensor, coords: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Fields x (b, c, *n) on a grid or a mesh, or (b, c, N) at coords (b, d, N) in units of the box.

        Points that `mask` (b, N) lacks become 0.
        """
        if not torch.compiler.is_compiling():
            self.check(x, coords, mask)
        if mask is not None and coords is not None:  # what stands where no point is must not matter, nor to gradients
            x, coords = x.masked_fill(~mask.unsqueeze(1), 0.0), coords.masked_fill(~mask.unsqueeze(1), 0.0)
        with full_precision(x):
            state = self.start(with_places(x, self.coordinates, coords, self.landmarks))
        state = self.through(state, coords, mask)
        with full_precision(x):
            out = self.project(self.end(state).to(x.dtype))  # (b, *n, out) or (b, N, out)
        out = out.flatten(1, -2).mT.unflatten(-1, x.shape[2:])
        return out if mask is None else out.masked_fill(~mask.unsqueeze(1), 0.0)

    def check(self, x: Tensor, coords: Tensor | None, mask: Tensor | None) -> None:
        """Refuse fields, points and masks of the wrong shape."""
        if coords is not None and self.needs_grid:
            raise ShapeError(f"{self.needs_grid} needs a grid, and these are points; use projection='linear'")
        if coords is not None:
            check_cloud(self, x, coords, mask, self.in_channels, self.dims, f"dims={self.dims}")
        elif mask is not None:
            raise ShapeError("expected coords beside a mask, which is for points; got none; give both or neither")
        elif x.ndim == 3 and self.dims > 1:
            raise ShapeError(
                f"expected (batch, {self.in_channels} channels, {self.dims} spatial axes), or fields at points with "
                f"their places, model(x, coords); got shape {tuple(x.shape)} alone"
            )
        else:
            check_field(x, self, self.in_channels, self.dims, "dims for its number of axes")
