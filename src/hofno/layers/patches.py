r"""The neural spectral block of LSM: a few tokens for each patch of a field, changed by series of sines and cosines.

    T_j  = t_j + sum_i softmax_i(t_j . K v_i) V v_i                          encode: pixels i of a patch into tokens
    T_jc <- T_jc + sum_m a_cm sin(pi m T_jc / M) + b_cm cos(pi m T_jc / M)   m = 1, ..., M
    v_i  <- v_i + sum_j softmax_j(Q v_i . T_j) T_j                           decode: tokens into pixels

for every patch and head alone; the t_j are learned. Scores are not divided by the square root of their length.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.layers.token_blocks import check_heads, merge_heads, split_heads


def split_patches(v: Tensor, count: int) -> Tensor:
    """The pixels of `count` patches along each axis. (b, c, *n) -> (b count^d, pixels, c)"""
    dims = v.ndim - 2
    cut = [part for n in v.shape[2:] for part in (count, n // count)]
    v = v.reshape(*v.shape[:2], *cut)
    v = v.permute(0, *range(2, 2 + 2 * dims, 2), *range(3, 3 + 2 * dims, 2), 1)
    return v.flatten(0, dims).flatten(1, -2)


def join_patches(pixels: Tensor, count: int, points: tuple[int, ...]) -> Tensor:
    """The inverse of `split_patches`, for a field of `points`. (b count^d, pixels, c) -> (b, c, *n)"""
    dims = len(points)
    v = pixels.reshape(-1, *(count,) * dims, *(n // count for n in points), pixels.shape[-1])
    order = [place for axis in range(dims) for place in (1 + axis, 1 + dims + axis)]
    return v.permute(0, -1, *order).reshape(-1, pixels.shape[-1], *points)


class SpectralPatches(nn.Module):
    """Neural spectral block of channel-first fields, (b, width, *n) -> (b, width, *n).

    Args:
        width: number of channels.
        patches: how many patches an axis is cut into; a divisor of its points.
        tokens: of each patch and head.
        heads: groups of channels with scores of their own; a divisor of `width`.
        waves: number M of sines and of cosines.
    """

    def __init__(self, width: int, patches: int, tokens: int, heads: int, waves: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.patches, self.heads, self.waves = patches, heads, waves
        size = width // heads
        self.tokens = nn.Parameter(torch.randn(heads, tokens, size) / math.sqrt(size))
        self.encode = nn.Linear(width, 2 * width)
        self.series = nn.Parameter(torch.randn(heads, size, 2 * waves) / width)
        self.decode = nn.Linear(width, width)

    def forward(self, v: Tensor) -> Tensor:
        pixels = split_patches(v, self.patches)  # (B, P, c)
        key, value = (split_heads(part, self.heads) for part in self.encode(pixels).chunk(2, -1))
        start = self.tokens.to(key.dtype).expand(len(pixels), -1, -1, -1)  # (B, h, T, c / h)
        tokens = start + F.scaled_dot_product_attention(start, key, value, scale=1.0)
        tokens = tokens + self._wave_series(tokens).to(tokens.dtype)
        query = split_heads(self.decode(pixels), self.heads)
        gathered = F.scaled_dot_product_attention(query, tokens, tokens, scale=1.0)  # (B, h, P, c / h)
        return join_patches(pixels + merge_heads(gathered), self.patches, tuple(v.shape[2:]))

    def _wave_series(self, tokens: Tensor) -> Tensor:
        """sum_m a_m sin(pi m T / M) + b_m cos(pi m T / M) for each channel."""
        wide = tokens.to(self.series.dtype)
        numbers = torch.arange(1, self.waves + 1, dtype=wide.dtype, device=wide.device)
        angle = wide.unsqueeze(-1) * (math.pi / self.waves * numbers)  # (B, h, T, c / h, M)
        basis = torch.cat((torch.sin(angle), torch.cos(angle)), -1)
        return (basis * self.series.unsqueeze(1)).sum(-1)
