r"""Convolutions with small kernels on one to three axes, and the two blocks made of them. Channel-first (b, c, *n).

    double     v <- relu(norm(k_2 * relu(norm(k_1 * v))))
    residual   v <- relu(v + norm(k_2 * relu(norm(k_1 * v))))

Kernels have 3 points along each axis and fields are zero outside of the grid. A kernel is as wide as its 3 points are
apart, so such a network is a map of numbers on one grid and another operator on every other. Norms are over the points
of a sample alone: a norm over the batch, as these networks have it elsewhere, would let samples see each other. Over
groups of channels it keeps what channels are to each other, and is as near to the former as a sample alone can be.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import choose
from hofno.layers.precision import full_precision


class Conv3d(nn.Conv3d):
    """In float32 on a CPU, whatever autocast says.

    There torch 2.13 leaves the gradient of a bfloat16 kernel unset where fields have two points along an axis, and
    stops with an illegal instruction in a transposed convolution.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu":
            return super().forward(input)
        with full_precision(input):
            return super().forward(input.to(self.weight.dtype))


class ConvTranspose3d(nn.ConvTranspose3d):
    """As `Conv3d`."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if input.device.type != "cpu":
            return super().forward(input, output_size)
        with full_precision(input):
            return super().forward(input.to(self.weight.dtype), output_size)


CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: ConvTranspose3d}
NORMS = ("instance", "group", "none")
GROUP = 8


def norm_of(kind: str, channels: int) -> nn.Module:
    """Mean 0 and variance 1 for each channel ("instance"), for each group of up to 8 of them, or as it comes."""
    choose(kind, NORMS, "norm")
    if kind == "none":
        return nn.Identity()
    return nn.GroupNorm(channels if kind == "instance" else channels // math.gcd(GROUP, channels), channels)


def convolution(dims: int, channels: int, out: int, norm: str, stride: int = 1) -> nn.Module:
    """A kernel of 3 points along each axis; with a bias where no norm follows that has one."""
    return CONVOLUTIONS[dims](channels, out, 3, stride=stride, padding=1, bias=norm == "none")


class DoubleConv(nn.Sequential):
    """Twice a convolution, a norm and a relu, by way of `hidden` channels."""

    def __init__(self, dims: int, channels: int, hidden: int, out: int, norm: str) -> None:
        super().__init__(
            convolution(dims, channels, hidden, norm),
            norm_of(norm, hidden),
            nn.ReLU(),
            convolution(dims, hidden, out, norm),
            norm_of(norm, out),
            nn.ReLU(),
        )


class ResidualConv(nn.Module):
    """relu(v + norm(k_2 * relu(norm(k_1 * v))))."""

    def __init__(self, dims: int, width: int, norm: str) -> None:
        super().__init__()
        self.first, self.second = (convolution(dims, width, width, norm) for _ in range(2))
        self.norm1, self.norm2 = norm_of(norm, width), norm_of(norm, width)

    def forward(self, v: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.first(v)))
        return F.relu(v + self.norm2(self.second(inner)))
