r"""Truncated real Fourier transform of channel-last fields, as matrix products and as plain rfftn.

Forward and inverse, for a real field u on N = N1 x ... x Nd points and the kept modes K:

    û(k) = 1/N  sum_x u(x) exp(-2 pi i k.x/N),   k in K
    u(x) = Re sum_{k in K} c(k_d) û(k) exp(+2 pi i k.x/N),   c = 1 at k_d = 0 and at Nyquist, else 2

so û are Fourier-series coefficients: they mean the same function at every resolution. Layouts:

    field     (b, n1, ..., nd, c)
    spectrum  (b, 2, K1, ..., Kd, c)      axis 1 holds real and imaginary part; no complex tensor

Matrix products. Axes are transformed one at a time, last axis first, each as one batched product with a real
cosine/sine matrix whose rows and columns are ordered so that nothing is ever transposed:

    (b.., W, c)          -> (b.., 2 M, c)            [2M x W]
    (b.., H 2, M c)      -> (b.., 2 K, M c)          [2K x 2H]

A field that is zero on the end of a longer, padded domain needs only the first n columns of the padded matrix, and
cropping needs only the first n rows of the inverse: domain padding is free. With `half_ends` the first and the last of
the n points count half, the mean of both sides of the jump there: sums are then trapezoidal rules, and coefficients
of one function agree between grids to second order and not to first.

Which is faster. `choose_method` compares the multiply-adds of the products with the work of the FFT on the padded
domain; the weight between the two was measured (`FFT_WEIGHT`). `hofno bench transform` measures it again.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from hofno.geometry import ModeSet, axis_wavenumbers, cached, wavenumbers

Method = Literal["auto", "matmul", "fft"]
METHODS: tuple[Method, ...] = ("auto", "matmul", "fft")
Shape = tuple[int, ...]

# One butterfly of the FFT costs as much as this many multiply-adds of a matrix product. On two CPU cores, float32, 114
# shapes of one to three dimensions: 60 picked the faster method 109 times and lost 0.9 % of the time on average; every
# miss lay at products of 32 to 64 multiply-adds per butterfly, where both methods take about the same.
FFT_WEIGHT = {"cpu": 60.0, "cuda": 100.0}


def _angles(points: int, total: int, ks: Shape) -> Tensor:
    """2 pi k x / total with the integer product reduced first, so that large grids lose no digits. (points, K)"""
    x = torch.arange(points, dtype=torch.int64)
    k = torch.tensor(ks, dtype=torch.int64)
    return torch.outer(x, k).remainder(total).double() * (2 * math.pi / total)


def _shares(points: int, total: int, half_ends: bool) -> Tensor:
    """What each point of an axis counts: the ends of a padded one half, if asked for."""
    shares = torch.ones(points, dtype=torch.float64)
    if half_ends and total > points:
        shares[0] = shares[-1] = 0.5
    return shares


def _forward_last(points: int, total: int, ks: Shape, half_ends: bool = False) -> Tensor:
    angle = _angles(points, total, ks).T
    return torch.cat((torch.cos(angle), -torch.sin(angle))) * _shares(points, total, half_ends) / total  # (2M, W)


def _inverse_last(points: int, total: int, ks: Shape) -> Tensor:
    angle = _angles(points, total, ks)
    twice = torch.tensor([1.0 if k == 0 or 2 * k == total else 2.0 for k in ks], dtype=torch.float64)
    return torch.cat((torch.cos(angle) * twice, -torch.sin(angle) * twice), 1)  # (W, 2M)


def _forward_leading(points: int, total: int, ks: Shape, half_ends: bool = False) -> Tensor:
    angle = _angles(points, total, ks).T
    cos, sin = torch.cos(angle), torch.sin(angle)  # (K, H)
    real = torch.stack((cos, sin), -1)  # columns ordered (h, re/im)
    imag = torch.stack((-sin, cos), -1)
    shares = _shares(points, total, half_ends).repeat_interleave(2)
    return torch.cat((real, imag)).flatten(1) * shares / total  # (2K, 2H)


def _inverse_leading(points: int, total: int, ks: Shape) -> Tensor:
    angle = _angles(points, total, ks)
    cos, sin = torch.cos(angle), torch.sin(angle)  # (H, K)
    real = torch.cat((cos, -sin), 1)
    imag = torch.cat((sin, cos), 1)
    return torch.stack((real, imag), 1).flatten(0, 1)  # (2H, 2K), rows ordered (h, re/im)


def _interpolation(points: int, total: int, fine: int, half_ends: bool) -> Tensor:
    """Trigonometric interpolation from `total` samples (those past `points` zero) to `fine`. (fine, points)"""
    ks = tuple(range(total // 2 + 1))
    return _inverse_last_at(fine, total, ks) @ _forward_last(points, total, ks, half_ends)


def _inverse_last_at(fine: int, total: int, ks: Shape) -> Tensor:
    """As `_inverse_last`, evaluated on a grid of `fine` points; Nyquist of the coarse grid enters as a cosine."""
    angle = _angles(fine, fine, ks)
    twice = torch.tensor([1.0 if k == 0 or 2 * k == total else 2.0 for k in ks], dtype=torch.float64)
    nyquist = torch.tensor([0.0 if 2 * k == total else 1.0 for k in ks], dtype=torch.float64)
    return torch.cat((torch.cos(angle) * twice, -torch.sin(angle) * twice * nyquist), 1)


def left_product(matrix: Tensor, x: Tensor, add: Tensor | None = None) -> Tensor:
    """matrix (r, s) times every x[i] (s, t): (batch, r, t), plus `add` of that shape in the same pass."""
    batched = matrix.expand(x.shape[0], -1, -1)
    return torch.bmm(batched, x) if add is None else torch.baddbmm(add, batched, x)


def multiply_adds(points: Shape, modes: Shape, mode_set: ModeSet) -> float:
    """Multiply-adds per channel of one forward transform by matrix products (the inverse costs the same)."""
    kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
    total = 2.0 * kept[-1] * math.prod(points)
    spectrum = kept[-1]
    for axis in range(len(points) - 2, -1, -1):
        total += 4.0 * kept[axis] * spectrum * math.prod(points[: axis + 1])
        spectrum *= kept[axis]
    return total


def fft_stages(padded: Shape) -> float:
    """Butterflies per channel of one FFT of the padded domain."""
    size = math.prod(padded)
    return size * math.log2(max(size, 2)) / 2


def choose_method(points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, device: str) -> Method:
    """Matrix products unless they need more work than the FFT of the padded domain, weighted as measured."""
    fft = FFT_WEIGHT.get(device, FFT_WEIGHT["cpu"]) * fft_stages(padded)
    return "matmul" if multiply_adds(points, modes, mode_set) <= fft else "fft"


def exporting() -> bool:
    """Whether the model is being written to a file by `torch.export`, which knows no number of samples."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def _resolve(method: Method, points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, x: Tensor) -> Method:
    """The method that is meant by "auto"; in files that are exported matrix products, which every format has."""
    if method == "auto" and exporting():
        return "matmul"
    return choose_method(points, padded, modes, mode_set, x.device.type) if method == "auto" else method


def forward(
    x: Tensor,
    modes: Shape,
    mode_set: ModeSet = "symmetric",
    padded: Shape | None = None,
    method: Method = "auto",
    *,
    half_ends: bool = False,
) -> Tensor:
    """Kept Fourier coefficients of a field that is zero from `x`'s shape up to `padded`. Field -> spectrum."""
    points = tuple(x.shape[1:-1])
    padded = padded or points
    if _resolve(method, points, padded, modes, mode_set, x) == "fft":
        return _forward_fft(_with_half_ends(x, padded) if half_ends else x, modes, mode_set, padded)
    batch, channels, last = x.shape[0], x.shape[-1], len(points) - 1
    ks = axis_wavenumbers(modes[last], mode_set, last=True)
    key = ("forward_last", points[last], padded[last], ks, half_ends)
    matrix = cached(key, lambda: _forward_last(points[last], padded[last], ks, half_ends), x)
    y = left_product(matrix, x.reshape(-1, points[last], channels))
    tail = modes[last] * channels
    for axis in range(last - 1, -1, -1):
        n, total = points[axis], padded[axis]
        ks = axis_wavenumbers(modes[axis], mode_set, last=False)
        key = ("forward_leading", n, total, ks, half_ends)
        matrix = cached(key, lambda n=n, total=total, ks=ks: _forward_leading(n, total, ks, half_ends), x)
        y = left_product(matrix, y.reshape(-1, 2 * n, tail))
        tail *= len(ks)
    kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
    return y.reshape(batch, 2, *kept, channels)


def inverse(
    spectrum: Tensor,
    points: Shape,
    modes: Shape,
    mode_set: ModeSet = "symmetric",
    padded: Shape | None = None,
    method: Method = "auto",
    add: Tensor | None = None,
) -> Tensor:
    """The field of the given coefficients on the first `points` of `padded` samples, plus `add`. Spectrum -> field."""
    padded = padded or points
    if _resolve(method, points, padded, modes, mode_set, spectrum) == "fft":
        field = _inverse_fft(spectrum, points, modes, mode_set, padded)
        return field if add is None else field + add
    batch, channels, last = spectrum.shape[0], spectrum.shape[-1], len(points) - 1
    kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
    tail = math.prod(kept) * channels
    y = spectrum
    for axis in range(last):
        n, total = points[axis], padded[axis]
        ks = axis_wavenumbers(modes[axis], mode_set, last=False)
        key = ("inverse_leading", n, total, ks)
        matrix = cached(key, lambda n=n, total=total, ks=ks: _inverse_leading(n, total, ks), spectrum)
        tail //= len(ks)
        y = left_product(matrix, y.reshape(-1, 2 * len(ks), tail))
    ks = axis_wavenumbers(modes[last], mode_set, last=True)
    key = ("inverse_last", points[last], padded[last], ks)
    matrix = cached(key, lambda: _inverse_last(points[last], padded[last], ks), spectrum)
    residual = None if add is None else add.reshape(-1, points[last], channels)
    field = left_product(matrix, y.reshape(-1, 2 * len(ks), channels), residual)
    return field.reshape(batch, *points, channels)


def plane_matrices(
    points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, like: Tensor, *, half_ends: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Matrices of a plane's last axis, (2M, n2) and back, (n2, 2M), then of its first, (2K, 2 n1) and back."""
    (n1, n2), (total1, total2), (first, last) = points, padded, wavenumbers(modes, mode_set)
    return (
        cached(("forward_last", n2, total2, last, half_ends), lambda: _forward_last(n2, total2, last, half_ends), like),
        cached(("inverse_last", n2, total2, last), lambda: _inverse_last(n2, total2, last), like),
        cached(
            ("forward_leading", n1, total1, first, half_ends),
            lambda: _forward_leading(n1, total1, first, half_ends),
            like,
        ),
        cached(("inverse_leading", n1, total1, first), lambda: _inverse_leading(n1, total1, first), like),
    )


def interpolate(x: Tensor, fine: Shape, padded: Shape | None = None, *, half_ends: bool = False) -> Tensor:
    """The trigonometric interpolant of `x` (zero up to `padded`) on a finer grid. (b, *n, c) -> (b, *fine, c)"""
    points = tuple(x.shape[1:-1])
    padded = padded or points
    channels = x.shape[-1]
    y, tail = x, channels
    for axis in range(len(points) - 1, -1, -1):
        n, total, target = points[axis], padded[axis], fine[axis]
        key = ("interpolate", n, total, target, half_ends)
        matrix = cached(key, lambda n=n, total=total, target=target: _interpolation(n, total, target, half_ends), x)
        y = left_product(matrix, y.reshape(-1, n, tail))
        tail *= target
    return y.reshape(x.shape[0], *fine, channels)


def indicator(
    points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, like: Tensor, *, half_ends: bool = False
) -> Tensor:
    """Kept coefficients of the function that is 1 on the padding and 0 on the first `points`. (2, K1, ..., Kd)"""

    def make() -> Tensor:
        ones = torch.ones((1, *points, 1), dtype=torch.float64)
        inside = forward(ones, modes, mode_set, padded, "matmul", half_ends=half_ends)[0, ..., 0]
        outside = -inside
        outside[(0,) * outside.ndim] += 1.0
        return outside

    return cached(("indicator", points, padded, modes, mode_set, half_ends), make, like)


def _with_half_ends(x: Tensor, padded: Shape) -> Tensor:
    """A field whose values at both ends of every padded axis are halved."""
    for axis, (n, total) in enumerate(zip(x.shape[1:-1], padded, strict=True), start=1):
        if total > n:
            shares = cached(("half_ends", n, total), lambda n=n, total=total: _shares(n, total, half_ends=True), x)
            x = x * shares.view(-1, *(1,) * (x.ndim - 1 - axis))
    return x


def _forward_fft(x: Tensor, modes: Shape, mode_set: ModeSet, padded: Shape) -> Tensor:
    axes = tuple(range(1, x.ndim - 1))
    # the FFT has no bfloat16 and, off powers of two, no float16
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    spectrum = torch.fft.rfftn(wide, s=padded, dim=axes, norm="forward")
    spectrum = spectrum.narrow(axes[-1], 0, modes[-1])
    for axis, m, n in zip(axes[:-1], modes[:-1], padded[:-1], strict=True):
        ks = axis_wavenumbers(m, mode_set, last=False)
        negative = len(ks) - m
        parts = (spectrum.narrow(axis, 0, m), spectrum.narrow(axis, n - negative, negative))
        spectrum = torch.cat(parts, axis) if negative else parts[0]
    return torch.stack((spectrum.real, spectrum.imag), 1).to(x.dtype)


def _inverse_fft(spectrum: Tensor, points: Shape, modes: Shape, mode_set: ModeSet, padded: Shape) -> Tensor:
    axes = tuple(range(1, len(points) + 1))
    wide = spectrum.float() if spectrum.dtype in (torch.bfloat16, torch.float16) else spectrum
    full = torch.complex(wide[:, 0], wide[:, 1])
    for axis, m, n in zip(axes[:-1], modes[:-1], padded[:-1], strict=True):
        ks = axis_wavenumbers(m, mode_set, last=False)
        negative = len(ks) - m
        gap = list(full.shape)
        gap[axis] = n - len(ks)
        full = torch.cat((full.narrow(axis, 0, m), full.new_zeros(gap), full.narrow(axis, m, negative)), axis)
    field = torch.fft.irfftn(full, s=padded, dim=axes, norm="forward")
    for axis, n in zip(axes, points, strict=True):
        field = field.narrow(axis, 0, n)
    return field.to(spectrum.dtype)
