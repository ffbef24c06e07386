"""What the fused kernels share: the RMSNorm of a block of points and its derivative, gelu, tiles, argument checks.

With s = (mean_c x^2 + eps)^(-1/2) and u = x s, the normalised point is h = u * gain and
dx = s (du - u mean_c(u du)),  du = dh * gain,  dgain = sum_points dh * u.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from hofno.errors import ShapeError

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4
    TensorDescriptor = None

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def nearest_tf32(x):
    """float32 rounded to TF32: tensor cores cut off, which makes numbers small by 3e-4. NaN stays NaN."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def rounded(x, PRECISION: tl.constexpr):
    """x as `tl.dot` takes it in this precision."""
    if PRECISION == "tf32" and x.dtype == tl.float32:
        x = nearest_tf32(x)
    return x


@triton.jit
def stored(x, kind: tl.constexpr):
    """x in a type; numbers that float16 does not reach are its largest ones, and NaN stays NaN."""
    if kind == tl.float16:
        x = tl.where(x != x, x, tl.minimum(tl.maximum(x, -65504.0), 65504.0))
    return x.to(kind)


@triton.jit
def dot(a, b, PRECISION: tl.constexpr, acc=None):
    """a b, plus `acc`; float32 operands rounded to TF32 where that is the precision, or to the type of a 16-bit a."""
    if a.dtype == tl.float32:
        a, b = rounded(a, PRECISION), rounded(b, PRECISION)
    else:
        b = stored(b, a.dtype) if b.dtype == tl.float32 else b.to(a.dtype)
        if INTERPRETED:  # which would multiply the bits of bfloat16 numbers
            a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc=acc, input_precision=PRECISION)


@triton.jit
def inverse_rms(x, eps, CHANNELS: tl.constexpr):
    """(points, C) -> (points, 1): s = (mean_c x^2 + eps)^(-1/2)."""
    return tl.rsqrt(tl.sum(x * x, axis=1) / CHANNELS + eps)[:, None]


@triton.jit
def norm_input_grad(unit_grad, unit, scale, CHANNELS: tl.constexpr):
    """dx = s (du - u mean_c(u du)) of a block of points."""
    projection = tl.sum(unit * unit_grad, axis=1) / CHANNELS
    return scale * (unit_grad - unit * projection[:, None])


@triton.jit
def normal_law(v):
    """Phi(v) and phi(v); gelu(v) = v Phi(v) and gelu'(v) = Phi(v) + v phi(v).

    1 - Phi(|v|) = phi(v) P(t), t = 1 / (1 + p |v|), with the P of Abramowitz and Stegun 26.2.17: off by at most 7.5e-8,
    and both functions share one exponential.
    """
    density = 0.3989422804014327 * tl.exp2(-0.7213475204444817 * v * v)
    d = 1.0 + 0.2316419 * tl.abs(v)
    t = tl.rsqrt(d * d)
    p = 0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    tail = density * (t * p)
    return tl.where(v >= 0.0, 1.0 - tail, tail), density


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Whole image rows that one program takes: `rows` of them, `width` points each, in `blocks` of `points` places."""

    rows: int
    width: int
    points: int
    blocks: int = 1

    @property
    def filled(self) -> int:
        return self.rows * self.width

    @property
    def places(self) -> int:
        return self.blocks * self.points

    def count(self, image_rows: int) -> int:
        """How many tiles cover so many image rows."""
        return blocks_of(image_rows, self.rows)

    def modes(self, kept: int) -> int:
        """Places for the coefficients of a tile whose rows have `kept` each."""
        return max(16, power_of_two(self.rows * kept))

    def sizes(self, kept: int) -> dict[str, int]:
        """Sizes that every kernel along image rows takes."""
        return {
            "POINTS": self.points,
            "FILLED": self.filled,
            "MODES": self.modes(kept),
            "KEPT": self.rows * kept,
        }

    def launch(self, kept: int) -> dict[str, int]:
        """Sizes and launch options of kernels that take a tile at once."""
        return {**self.sizes(kept), "num_warps": 8 if self.points >= 128 else 4, "num_stages": 1}


def tile_of(width: int, largest: int) -> Tile:
    """As many rows of `width` points as fit into `largest` places; a wider row has a tile of its own."""
    rows = max(1, largest // width)
    return Tile(rows=rows, width=width, points=max(16, power_of_two(rows * width)))


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def operand_type(x: Tensor) -> torch.dtype:
    """In which type the pointwise matrix products take their operands: bfloat16 under autocast, else float32."""
    device = x.device.type
    return torch.bfloat16 if torch.is_autocast_enabled(device) else torch.float32


def triton_type(dtype: torch.dtype) -> tl.dtype:
    """The kernel language's name of an operand type."""
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float32


def tiles(x: Tensor, rows: int, columns: int) -> object:
    """x (N, C) as tiles of so many rows and columns."""
    assert TensorDescriptor is not None, "see `wide_hidden.takes`"
    return TensorDescriptor.from_tensor(x, [rows, columns])


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Launch where the tensor lives, whichever GPU is current."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def blocks_of(total: int, block: int) -> int:
    """How many blocks cover `total` items."""
    return -(-total // block)


def parameter(name: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor) -> Tensor:
    """The parameter, contiguous, once it is known to have this shape and to live with `x`."""
    if tuple(tensor.shape) != shape or tensor.dtype != torch.float32 or tensor.device != x.device:
        raise ShapeError(
            f"expected {name} of shape {shape}, float32 on {x.device}, got {tuple(tensor.shape)}, {tensor.dtype} "
            f"on {tensor.device}; match it to x"
        )
    return tensor.contiguous()


def block_parameters(
    x: Tensor,
    gain1: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    gain2: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    kept: tuple[int, int],
) -> tuple[Tensor, ...]:
    """The parameters of a block on x (b, n1, n2, C), contiguous, once they are known to fit each other."""
    channels, hidden = x.shape[-1], up_bias.numel()
    order = max(1, bias.numel() // channels)
    return (
        parameter("norm1", gain1, (channels,), x),
        parameter("factors.weight", weight, (order * channels, channels), x),
        parameter("factors.bias", bias, (order * channels,), x),
        parameter("filter", filter_, (*kept, channels, 2), x),
        parameter("norm2", gain2, (channels,), x),
        parameter("up.weight", up, (hidden, channels), x),
        parameter("up.bias", up_bias, (hidden,), x),
        parameter("down.weight", down, (channels, hidden), x),
        parameter("down.bias", down_bias, (channels,), x),
    )
