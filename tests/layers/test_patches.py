"""The neural spectral block of LSM, patch by patch and token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hofno.errors import SpecError
from hofno.layers.patches import SpectralPatches, join_patches, split_patches
from reference import as_array, relative

Array = np.ndarray


def softmax(scores: Array) -> Array:
    share = np.exp(scores - scores.max())
    return share / share.sum()


def one_patch(block: SpectralPatches, pixels: Array) -> Array:
    """(P, c) -> (P, c)"""
    both = pixels @ as_array(block.encode.weight).T + as_array(block.encode.bias)
    query = pixels @ as_array(block.decode.weight).T + as_array(block.decode.bias)
    key, value = np.split(both, 2, axis=1)
    out, size, waves = pixels.copy(), pixels.shape[1] // block.heads, block.waves
    for head in range(block.heads):
        part = slice(head * size, (head + 1) * size)
        series, tokens = as_array(block.series)[head], []
        for start in as_array(block.tokens)[head]:
            token = start + softmax(key[:, part] @ start) @ value[:, part]
            change = np.zeros(size)
            for c in range(size):
                for m in range(1, waves + 1):
                    angle = math.pi * m * token[c] / waves
                    change[c] += series[c, m - 1] * math.sin(angle) + series[c, waves + m - 1] * math.cos(angle)
            tokens.append(token + change)
        for i in range(len(pixels)):
            scores = np.array([query[i, part] @ token for token in tokens])
            out[i, part] += sum(share * token for share, token in zip(softmax(scores), tokens, strict=True))
    return out


def test_the_block_equals_a_slow_one() -> None:
    torch.manual_seed(0)
    block = SpectralPatches(6, 2, tokens=3, heads=2, waves=4).double()
    v = torch.randn(2, 6, 4, 6, dtype=torch.float64)
    expected = np.empty(v.shape)
    for sample in range(2):
        for i in (0, 2):
            for j in (0, 3):
                patch = v[sample, :, i : i + 2, j : j + 3].flatten(1).T.numpy()
                expected[sample, :, i : i + 2, j : j + 3] = one_patch(block, patch).T.reshape(6, 2, 3)
    assert relative(block(v), expected) < 1e-12


@pytest.mark.parametrize("points", [(8,), (4, 12), (4, 8, 12)])
def test_patches_are_put_back_where_they_were(points: tuple[int, ...]) -> None:
    v = torch.randn(2, 3, *points)
    pixels = split_patches(v, 4)
    assert pixels.shape == (2 * 4 ** len(points), math.prod(points) // 4 ** len(points), 3)
    assert join_patches(pixels, 4, points).equal(v)


def test_patches_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    block, v = SpectralPatches(4, 2, tokens=2, heads=2, waves=3), torch.randn(1, 4, 8)
    moved = v.clone()
    moved[..., 1] += 1
    changed = (block(moved) - block(v)).abs().amax((0, 1)) > 0
    assert changed.tolist() == [True] * 4 + [False] * 4


def test_heads_divide_the_width() -> None:
    with pytest.raises(SpecError, match=r"width must be a multiple of heads.*got width=6 and heads=4"):
        SpectralPatches(6, 2, tokens=2, heads=4, waves=3)
