r"""Fourier transforms of functions known at scattered points, exact, as matrix products.

For points x_i in units of the period (x and x + 1 are the same place) with quadrature weights w_i, and kept modes K:

    û(k) = sum_i w_i u(x_i) exp(-2 pi i k.x_i),   k in K                       (type 1)
    u(x) = Re sum_{k in K} c(k_d) û(k) exp(+2 pi i k.x),   c = 1 at k_d = 0, else 2     (type 2)

Unless weights are given, w_i = 1/N: then û are the coefficients of u times the density of the points. Layouts:

    values    (b, N, c)                 coords  (b, N, d)       weights, mask  (b, N)
    spectrum  (b, 2, K1, ..., Kd, c)    as in `hofno.transforms.fourier`

On a uniform grid of points x = i/n both are the transforms there, but for the Nyquist wavenumber of the last axis,
which is a matter of grids: scattered points have none and count it twice in type 2 as any other.

Both are products with one real matrix, the rows (cos 2 pi k.x_i, -sin 2 pi k.x_i): with its transpose in type 1, with
itself in type 2. Phases are separable, exp(i k.x) = exp(i k_1 x_1) ... exp(i k_d x_d), so the matrix takes a sine and a
cosine for each point, axis and wavenumber of that axis, and one complex product for each further axis. It has 2 K
columns whatever the number of channels: smaller than the intermediate of contracting one axis after the other as soon
as there are more channels than wavenumbers on the first axis, and half the multiply-adds, as the values are real.

A `Basis` keeps the matrix of its points while it is small, so that several transforms at the same points share it. Of a
large cloud it is made for a tile of points at a time, and made again for the gradient: it never exists as a whole.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from hofno.errors import ShapeError
from hofno.geometry import ModeSet, cached_wavenumbers, wavenumbers

Shape = tuple[int, ...]
Mirror = Literal["exact", "shifted"]

TILE = 2**24
"""Numbers in the matrix of one tile of points: 64 MiB of float32."""


class Basis:
    """The kept modes at points (b, N, d) in units of the period; see `to_modes` and `from_modes`, which make one.

    `mask` (b, N) says which points are there. The others may hold anything and change nothing.
    """

    def __init__(
        self, coords: Tensor, modes: Shape, mode_set: ModeSet = "symmetric", *, mask: Tensor | None = None
    ) -> None:
        if not torch.compiler.is_compiling() and (coords.ndim != 3 or coords.shape[2] != len(modes)):
            raise ShapeError(
                f"coords must be (batch, points, {len(modes)}), one column for each of modes={modes}; got "
                f"{tuple(coords.shape)}"
            )
        self.ks, self.mask = wavenumbers(modes, mode_set), mask
        self.coords = coords if mask is None else coords.masked_fill(~mask.unsqueeze(-1), 0.0)
        row = 2 * math.prod([len(axis) for axis in self.ks]) * coords.shape[0]  # numbers for a point of every sample
        self.step = max(1, TILE // row)
        whole = torch.compiler.is_compiling() or coords.shape[1] <= self.step
        self.matrix = phases(self.coords, self.ks) if whole else None

    def to_modes(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """Coefficients of a function given at the points, type 1. (b, N, c) -> (b, 2, K1, ..., Kd, c)"""
        self._check(values.shape[:2], "values")
        if self.mask is not None:  # before the product, whose gradients see both
            values = values.masked_fill(~self.mask.unsqueeze(-1), 0.0)
        weighted = values * self._weights(values, weights).unsqueeze(-1)
        if self.matrix is not None:
            found = torch.bmm(self.matrix.to(values.dtype).mT, weighted)
        else:
            pairs = zip(weighted.split(self.step, 1), self.coords.split(self.step, 1), strict=True)
            found = torch.stack([_again(_gather, u, x, self.ks) for u, x in pairs]).sum(0)
        return found.view(values.shape[0], 2, *[len(axis) for axis in self.ks], values.shape[-1])

    def from_modes(self, spectrum: Tensor, mirror: Mirror = "exact") -> Tensor:
        """The function of the given coefficients at the points, type 2. (b, 2, K1, ..., Kd, c) -> (b, N, c)"""
        self._check(spectrum.shape[:1], "spectrum")
        later = cached_wavenumbers(self.ks[-1:], spectrum).clamp(max=1)  # 1 where k_d > 0, (Kd, 1)
        if mirror == "exact":
            return self._spread(spectrum * (1.0 + later), self.ks, self.matrix)
        shifted = (*(tuple(k + 1 for k in axis) for axis in self.ks[:-1]), self.ks[-1])
        matrix = None if self.matrix is None else phases(self.coords, shifted)
        return self._spread(spectrum, self.ks, self.matrix) + self._spread(spectrum * later, shifted, matrix)

    def _spread(self, spectrum: Tensor, ks: tuple[Shape, ...], matrix: Tensor | None) -> Tensor:
        flat = spectrum.reshape(spectrum.shape[0], -1, spectrum.shape[-1])  # (b, 2 K, c)
        if matrix is not None:
            return torch.bmm(matrix.to(flat.dtype), flat)
        return torch.cat([_again(_spread, flat, x, ks) for x in self.coords.split(self.step, 1)], 1)

    def _weights(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """Quadrature weights, (b, N) or broadcast to it: those given, or one over the number of points there are."""
        if weights is not None:
            return (weights if self.mask is None else weights.masked_fill(~self.mask, 0.0)).to(values.dtype)
        if self.mask is None:
            return values.new_full((1, 1), 1.0 / values.shape[1])
        return 1.0 / self.mask.sum(1, keepdim=True).clamp_min(1).to(values.dtype)

    def _check(self, given: torch.Size, name: str) -> None:
        if not torch.compiler.is_compiling() and given != self.coords.shape[: len(given)]:
            raise ShapeError(
                f"{name} must fit coords of {tuple(self.coords.shape[:2])} samples and points; got {tuple(given)}"
            )


def to_modes(
    values: Tensor,
    coords: Tensor,
    modes: Shape,
    mode_set: ModeSet = "symmetric",
    *,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Coefficients of a function given at points, type 1. (b, N, c) -> (b, 2, K1, ..., Kd, c)

    Args:
        values: the function at the points.
        coords: the points (b, N, d), in units of the period.
        modes: kept modes per axis.
        mode_set: see `hofno.geometry`.
        weights: quadrature weights (b, N); 1 / (number of points) of each sample if left out.
        mask: which points are there, (b, N); the others, whatever they hold, change nothing.
    """
    return Basis(coords, modes, mode_set, mask=mask).to_modes(values, weights)


def from_modes(
    spectrum: Tensor, coords: Tensor, modes: Shape, mode_set: ModeSet = "symmetric", mirror: Mirror = "exact"
) -> Tensor:
    """The function of the given coefficients at points, type 2. (b, 2, K1, ..., Kd, c) -> (b, N, c)

    `mirror` says where the half of the spectrum that is not stored is put. "exact": û(-k) is the conjugate of û(k).
    "shifted": the conjugate of û(k) is put at (-1 - k_1, ..., -1 - k_{d-1}, -k_d), which is where flipping the stored
    order of the wavenumbers puts it, as published decoders do; it is not the inverse of anything.
    """
    return Basis(coords, modes, mode_set).from_modes(spectrum, mirror)


def phases(x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
    """The rows (cos 2 pi k.x, -sin 2 pi k.x), wavenumbers in storage order. (b, N, d) -> (b, N, 2 K)"""
    plain = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return _phases(x, ks) if plain or unpack_dual(x).tangent is not None else _Phases.apply(x, ks)


def _phases(x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
    real, imaginary = None, None
    for axis, axis_ks in enumerate(ks):
        turns = x[..., axis, None] * cached_wavenumbers((axis_ks,), x)[:, 0]
        angle = (2 * math.pi) * (turns - turns.detach().round())  # small angles keep their digits
        cos, sin = torch.cos(angle), -torch.sin(angle)  # (b, N, K of the axis)
        if real is None or imaginary is None:
            real, imaginary = cos, sin
            continue
        a, b, cos, sin = real.unsqueeze(-1), imaginary.unsqueeze(-1), cos.unsqueeze(-2), sin.unsqueeze(-2)
        real, imaginary = (a * cos - b * sin).flatten(2), (a * sin + b * cos).flatten(2)
    assert real is not None
    assert imaginary is not None
    return torch.cat((real, imaginary), -1)


class _Phases(torch.autograd.Function):
    """`_phases` with the gradient in closed form: phases turn at the rate 2 pi k, whatever made them.

    Transforms of `torch.func` and derivatives in forward mode are left to `_phases`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
        matrix = _phases(x, ks)
        ctx.save_for_backward(matrix)
        ctx.ks = ks
        return matrix

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (matrix,) = ctx.saved_tensors
        real, imaginary = matrix.chunk(2, -1)  # cos and -sin of the angle
        d_real, d_imaginary = grads[0].chunk(2, -1)
        d_angle = d_real * imaginary - d_imaginary * real  # (b, N, K)
        return torch.matmul(d_angle, cached_wavenumbers(ctx.ks, matrix)) * (2 * math.pi), None


def _gather(u: Tensor, x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
    return torch.bmm(phases(x, ks).to(u.dtype).mT, u)


def _spread(spectrum: Tensor, x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
    return torch.bmm(phases(x, ks).to(spectrum.dtype), spectrum)


def _again(product: Any, values: Tensor, x: Tensor, ks: tuple[Shape, ...]) -> Tensor:
    """The product of one tile, whose matrix is not kept but made again for the gradient; `torch.func` has no such."""
    if torch._C._are_functorch_transforms_active():
        return product(values, x, ks)
    return checkpoint(product, values, x, ks, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore[reportReturnType]
