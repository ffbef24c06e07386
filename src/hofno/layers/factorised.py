r"""Factorised attention (FactFormer): a kernel for each axis of a grid, made of what the field is along that axis.

    m_a(s)     = mean of v over all axes but a, through a small network
    K_a(s, s') = 1/n_a  q_a(s) . k_a(s')                          q, k linear in m_a, turned by their positions (RoPE)
    z          = K_1 x K_2 x ... x K_d  (V v)                     one axis after the other

No softmax is taken. Channels come in `heads`, each with kernels and values of its own; z is brought to mean 0 and
variance 1 in each head over the whole domain. Work grows as the points times the sum of the axes' lengths.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates, cached_coordinates
from hofno.layers.fields import at_least
from hofno.layers.rotary import angles_at, turned

REACH = 64.0  # turns of RoPE's fastest pair along an axis, times 2 pi
EPSILON = 1e-20  # far below a variance: products of small kernels are smaller still


class AxisKernel(nn.Module):
    """K of one axis from means over the others, (b, n, width) -> (b, h, n, n)."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.reduce = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.maps = nn.Linear(width, 2 * heads * rank, bias=False)

    def forward(self, means: Tensor, positions: Tensor) -> Tensor:
        a, b = self.up(self.norm(self.reduce(means))).chunk(2, -1)
        pairs = self.maps(self.down(a * F.gelu(b))).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        angles = angles_at(positions, pairs.shape[-1] // 2, REACH)  # (n, rank / 2)
        q, k = turned(pairs, angles.cos(), angles.sin())  # (b, h, n, rank) each
        return torch.matmul(q, k.mT) / means.shape[1]


class FactorisedAttention(nn.Module):
    """Kernels along the axes, (b, *n, width) -> (b, *n, width).

    Args:
        width: number of channels, in and out.
        dims: number of axes.
        heads: groups of channels with kernels of their own.
        head_width: channels of the values of each head.
        rank: channels of q and k of each head, an even number: no kernel has a higher rank.
    """

    def __init__(self, width: int, dims: int, heads: int, head_width: int, rank: int) -> None:
        super().__init__()
        at_least(1, width=width, heads=heads, head_width=head_width)
        self.heads = heads
        self.kernels = nn.ModuleList(AxisKernel(width, heads, rank) for _ in range(dims))
        self.value = nn.Linear(width, heads * head_width, bias=False)
        self.out = nn.Sequential(nn.Linear(heads * head_width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, v: Tensor, coordinates: Coordinates) -> Tensor:
        dims = len(self.kernels)
        z = self.value(v).unflatten(-1, (self.heads, -1)).movedim(-2, 1)  # (b, h, *n, c)
        for axis, kernel in enumerate(self.kernels):
            others = tuple(1 + other for other in range(dims) if other != axis)
            positions = cached_coordinates((v.shape[1 + axis],), coordinates, v)
            z = z.movedim(2 + axis, 2)  # the axis first, those done behind it in turn
            k = kernel(v.mean(others) if others else v, positions)
            z = torch.matmul(k, z.flatten(3).to(k.dtype)).unflatten(3, z.shape[3:])
        z = F.layer_norm(z, z.shape[2:], eps=EPSILON)  # (b, h, n_d, ..., n_1, c)
        return self.out(z.permute(0, *range(1 + dims, 1, -1), 1, 2 + dims).flatten(-2))
