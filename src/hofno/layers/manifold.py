r"""The order-m spectral convolution on a surface.

    (H v)(x) = sum_j K_j phi_j(x) z^_j,   z^_j = integral of phi_j z,   z = (A_1 v)(A_2 v)...(A_m v)

with phi_j the first eigenfunctions of the Laplace-Beltrami operator of the surface (`hofno.transforms.manifold`) and
one learned number for each of them and channel, or one matrix. Functions and weights are real. Order 1 is the layer of
NORM with a linear map before it.

The functions are numbers that the weights belong to: they are kept with them, and never computed anew for a trained
network, where another machine could find another sign or another rotation of functions with one eigenvalue. A cast of
the network to 16 bits rounds them with it; autocast does not.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.layers.eigen import EigenfunctionConv
from hofno.layers.fields import at_least
from hofno.surface import Surface
from hofno.transforms import manifold


class SurfaceBasis(nn.Module):
    """The surface of a network, in numbers that are saved and moved with its weights; none until it is placed.

    Attributes:
        functions: eigenfunctions at the vertices, (N, count).
        areas: of the vertices, (N,).
        positions: of the vertices about the surface's centre, (N, 3), the farthest at distance 1.
        surface: what they were made of.
    """

    functions: Tensor | None
    areas: Tensor | None
    positions: Tensor | None

    def __init__(self, count: int) -> None:
        super().__init__()
        at_least(1, functions=count)
        self.count = count
        self.surface: Surface | None = None
        for name in ("functions", "areas", "positions"):
            self.register_buffer(name, None)

    def extra_repr(self) -> str:
        return f"functions={self.count}, surface={self.surface}"

    def reserve(self, surface: Surface, like: Tensor) -> None:
        """Make room for the numbers of a surface, on the device and in the precision of `like`."""
        vertices = len(surface.vertices)
        manifold.check_count(self.count, vertices)
        if self.surface is not None and self.surface != surface:
            raise SpecError(
                f"the network is on another surface, {self.surface}; got {surface}; its weights belong to the "
                "functions of its own one: make a new network"
            )
        if self.surface is None:
            self.surface = surface
            self.functions, self.areas = like.new_zeros(vertices, self.count), like.new_zeros(vertices)
            self.positions = like.new_zeros(vertices, 3)

    def place(self, surface: Surface, like: Tensor) -> None:
        """Take a surface; its numbers are computed unless they are there, as those of a trained network are."""
        self.reserve(surface, like)
        functions, areas, positions = self.placed()
        if bool(areas.any()):
            return
        each = manifold.masses(surface)
        places = surface.vertices - each @ surface.vertices / each.sum()
        places = places / np.linalg.norm(places, axis=1).max()
        computed = (manifold.basis(surface, self.count)[1], each, places)
        for room, values in zip((functions, areas, positions), computed, strict=True):
            room.copy_(torch.tensor(values))

    def placed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Functions, areas and positions."""
        if self.functions is None or self.areas is None or self.positions is None:
            raise SpecError(
                "the network is on no surface yet; hofno.fit puts it on that of the data; in a loop of your own call "
                "model.place(surface) first"
            )
        return self.functions, self.areas, self.positions


class HigherOrderSurfaceConv(EigenfunctionConv):
    """Order-m spectral convolution of channel-last fields on a surface, (b, vertices, width) -> the same.

    Args:
        width: number of channels, in and out.
        basis: the surface's functions, which all layers of a network share; it is a part of the network, not of this.
        order: number of factors m, at least 1. Good values: the polynomial degree of the PDE.
        factors: the structure of the A_i, see `hofno.layers.factors`; all but "spectral".
        weights: "depthwise" (a number per function and channel) or "dense" (a matrix per function).
    """

    def __init__(
        self, width: int, basis: SurfaceBasis, order: int = 2, *, factors: str = "dense", weights: str = "depthwise"
    ) -> None:
        super().__init__(width, basis.count, order, factors, weights)
        self._shared = (basis,)  # in a tuple: a module of the network that holds it, and saved once

    @property
    def basis(self) -> SurfaceBasis:
        return self._shared[0]

    def extra_repr(self) -> str:
        return f"width={self.width}, functions={self.basis.count}, order={self.order}, factors={self.kind.name}"

    def coefficients(self, fields: Tensor) -> Tensor:
        functions, areas, _ = (part.to(fields.dtype) for part in self.basis.placed())
        return manifold.forward(fields, functions, areas)

    def fields(self, spectrum: Tensor, like: Tensor, add: Tensor | None) -> Tensor:
        return manifold.inverse(spectrum, self.basis.placed()[0].to(spectrum.dtype), add)

    def check(self, v: Tensor) -> None:
        """Refuse a field this layer cannot take."""
        vertices = len(self.basis.placed()[0])
        if v.ndim != 3 or tuple(v.shape[1:]) != (vertices, self.width):
            raise ShapeError(
                f"expected a channel-last field (batch, {vertices} vertices, {self.width} channels); got shape "
                f"{tuple(v.shape)}; channel-first data goes through x.movedim(1, -1)"
            )
