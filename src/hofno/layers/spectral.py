r"""The order-m spectral convolution.

    (H v)(x) = F^-1[ R(k) T_K F[ (A_1 v)(A_2 v)...(A_m v) ] ](x)

so that output mode k gathers every m-tuple of input modes with k_1 + ... + k_m = k, as the degree-m term of a PDE does.
Order 1 is the ordinary spectral convolution with a linear map before it.

Domain padding extends the input by zeros at the end of each axis before the factors, and crops after. For pointwise
factors the extension is known: there the product is the constant b_1 b_2 ... b_m, whose kept coefficients are added to
the spectrum, so no padded pixel is ever computed.

Dealiasing evaluates the product on a grid fine enough that no wavenumber of it folds back onto a kept one. A product
of m fields of bandwidth B has wavenumbers up to m B; on N points those fold by N, so N > m B + K is exact for the kept
|k| <= K.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.geometry import (
    MODE_SETS,
    PADDED_BY,
    ModeSet,
    PaddedBy,
    check_mode_counts,
    check_modes,
    check_padding,
    choose,
    padded_shape,
    wavenumbers,
)
from hofno.layers.factors import FactorKind, PointwiseFactors, parse_factors, pointwise_factors, product
from hofno.layers.filters import DenseFilter, DepthwiseFilter
from hofno.layers.precision import full_precision
from hofno.transforms import fourier

WEIGHTS = ("depthwise", "dense")


def dealiased_points(bandwidths: tuple[int, ...], kept: tuple[int, ...], order: int) -> tuple[int, ...]:
    """The smallest even grid on which an order-m product of the given bandwidth leaves |k| <= kept untouched."""
    exact = (order * band + top + 1 for band, top in zip(bandwidths, kept, strict=True))
    return tuple(n + n % 2 for n in exact)


class HigherOrderSpectralConv(nn.Module):
    """Order-m spectral convolution of channel-last fields, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        modes: kept modes per sign on each axis; its length is the number of spatial dimensions (1, 2 or 3).
        order: number of factors m, at least 1. Good values: the polynomial degree of the PDE.
        factors: the structure of the A_i, see `hofno.layers.factors`.
        weights: "depthwise" (one complex number per mode and channel) or "dense" (a matrix per mode).
        dealias: evaluate the product on a grid fine enough to be exact on the kept modes.
        domain_padding: fraction of each axis appended as zeros, for domains that are not periodic (published: 2/3).
        padded_by: "points" (published) or "length", see `hofno.geometry.padded_shape`. By length, the points at the
            ends of a padded axis count half: the layer is then the same operator on every grid that holds its period.
        mode_set: "symmetric" or "reference", see `hofno.geometry`.
        method: "matmul", "fft", or "auto" by cost, see `hofno.transforms.fourier`.
    """

    def __init__(
        self,
        width: int,
        modes: tuple[int, ...],
        order: int = 2,
        *,
        factors: str = "dense",
        weights: str = "depthwise",
        dealias: bool = False,
        domain_padding: float = 0.0,
        padded_by: PaddedBy = "points",
        mode_set: ModeSet = "symmetric",
        method: fourier.Method = "auto",
    ) -> None:
        super().__init__()
        if width < 1:
            raise SpecError(f"width must be at least 1; got {width}")
        if order < 1:
            raise SpecError(f"order must be at least 1 (1 is the ordinary spectral convolution); got {order}")
        check_padding(domain_padding)
        choose(padded_by, PADDED_BY, "padded_by")
        choose(weights, WEIGHTS, "weights")
        choose(mode_set, MODE_SETS, "mode_set")
        choose(method, fourier.METHODS, "method")
        self.width, self.modes, self.order = width, check_mode_counts(modes), order
        self.dealias, self.domain_padding = dealias, domain_padding
        self.padded_by: PaddedBy = padded_by
        self.mode_set: ModeSet = mode_set
        self.method: fourier.Method = method
        self.transform_dtype: torch.dtype | None = None
        self.kind: FactorKind = parse_factors(factors)
        if self.kind.name == "spectral":
            self.factors = nn.Linear(width, order * width)
            self.multipliers = DepthwiseFilter(order * width, self.modes, mode_set, 1.0)
        else:
            self.factors = pointwise_factors(self.kind, width, order)
            self.multipliers = None
        make = DepthwiseFilter if weights == "depthwise" else DenseFilter
        self.filter = make(width, self.modes, mode_set, 1.0 / width)

    def extra_repr(self) -> str:
        return f"width={self.width}, modes={self.modes}, order={self.order}, factors={self.kind.name}"

    def forward(self, v: Tensor, add: Tensor | None = None) -> Tensor:
        """Apply the layer to (b, *n, width); `add`, of the same shape, is added to the result in the same pass."""
        points = tuple(v.shape[1:-1])
        if not torch.compiler.is_compiling():
            self.check(v)
        padded = self.padded(points)
        if self.kind.name == "spectral":
            z = self._spectral_product(v, padded)
            return self._convolve(z, points, padded, tuple(z.shape[1:-1]), None, add)
        if self.dealias:
            band = tuple(n // 2 for n in padded)
            fine = dealiased_points(band, self._kept(), self.order)
            z = self.factors(fourier.interpolate(v, fine, padded, half_ends=self.half_ends))
            return self._convolve(z, points, padded, fine, None, add)
        return self.convolve_product(self.factors(v), add)

    def convolve_product(self, z: Tensor, add: Tensor | None = None) -> Tensor:
        """Convolve a product of pointwise factors that has been evaluated already, on the unpadded grid."""
        points = tuple(z.shape[1:-1])
        padded = self.padded(points)
        assert isinstance(self.factors, PointwiseFactors)
        outside = self.factors.at_zero() if padded != points else None
        return self._convolve(z, points, padded, padded, outside, add)

    def padded(self, points: tuple[int, ...]) -> tuple[int, ...]:
        """Points along each axis of the padded domain."""
        return padded_shape(points, self.domain_padding, self.padded_by)

    @property
    def half_ends(self) -> bool:
        """Whether the ends of padded axes count half in transforms."""
        return self.padded_by == "length"

    def check(self, v: Tensor) -> None:
        """Refuse a field this layer cannot take, and modes its grid cannot hold."""
        dims = len(self.modes)
        if v.ndim != dims + 2 or v.shape[-1] != self.width:
            raise ShapeError(
                f"expected a channel-last field (batch, {dims} spatial axes, {self.width} channels); got shape "
                f"{tuple(v.shape)}; channel-first data goes through x.movedim(1, -1)"
            )
        padded = self.padded(tuple(v.shape[1:-1]))
        check_modes(self.modes, self.mode_set, padded)
        if self.dealias and any(2 * top >= n for top, n in zip(self._kept(), padded, strict=True)):
            raise ShapeError(
                f"dealias needs every kept wavenumber below half the grid {padded}, and modes={self.modes} keeps up to "
                f"{self._kept()}; lower modes by one, or use a finer grid"
            )

    def _kept(self) -> tuple[int, ...]:
        """Largest |k| kept on each axis."""
        return tuple(max(abs(k) for k in ks) for ks in wavenumbers(self.modes, self.mode_set))

    def _convolve(
        self,
        z: Tensor,
        points: tuple[int, ...],
        padded: tuple[int, ...],
        sampled: tuple[int, ...],
        outside: Tensor | None,
        add: Tensor | None,
    ) -> Tensor:
        """F^-1 R F z at the first `points` of `padded`, for z on a grid of `sampled` points, `outside` past its end."""
        dtype = z.dtype if self.transform_dtype is None else self.transform_dtype
        with full_precision(z):
            spectrum = fourier.forward(
                z.to(dtype), self.modes, self.mode_set, sampled, self.method, half_ends=self.half_ends
            )
            if outside is not None:
                shape = self._outside(points, padded, spectrum)
                spectrum = spectrum + shape.unsqueeze(-1) * outside.to(dtype)
            spectrum = self.filter(spectrum)
            residual = None if add is None or add.dtype != dtype else add
            out = fourier.inverse(spectrum, points, self.modes, self.mode_set, padded, self.method, add=residual)
        return out if add is None or residual is not None else out + add

    def _outside(self, points: tuple[int, ...], padded: tuple[int, ...], like: Tensor) -> Tensor:
        """Kept coefficients of the function that is 1 on the padding and 0 elsewhere."""
        return fourier.indicator(points, padded, self.modes, self.mode_set, like, half_ends=self.half_ends)

    def _spectral_product(self, v: Tensor, padded: tuple[int, ...]) -> Tensor:
        """Product of the Fourier multipliers of A_i v + b_i, on the padded grid or on the dealiased one."""
        assert self.multipliers is not None
        assert isinstance(self.factors, nn.Linear)
        points = tuple(v.shape[1:-1])
        p = self.factors(v)
        dtype = p.dtype if self.transform_dtype is None else self.transform_dtype
        with full_precision(v):
            spectrum = fourier.forward(
                p.to(dtype), self.modes, self.mode_set, padded, self.method, half_ends=self.half_ends
            )
            if padded != points:
                shape = self._outside(points, padded, spectrum)
                spectrum = spectrum + shape.unsqueeze(-1) * self.factors.bias.to(dtype)
            spectrum = self.multipliers(spectrum)
            kept = self._kept()
            grid = dealiased_points(kept, kept, self.order) if self.dealias else padded
            p = fourier.inverse(spectrum, grid, self.modes, self.mode_set, grid, self.method)
        return product(p, self.order)
