"""Convolutional blocks and U-shaped ladders: the published U-Net in numpy, sizes that do not halve, norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.cells import crop, extend
from hofno.layers.convolutions import CONVOLUTIONS, TRANSPOSED, DoubleConv, ResidualConv, norm_of
from hofno.layers.ushape import HalvingUShape, UShape, ladder_points, pyramid
from reference import as_array, relative

Array = np.ndarray


def convolve(v: Array, conv: nn.Module) -> Array:
    """Three points, zeros outside: (c, n) -> (o, n), one output at a time."""
    weight = as_array(conv.get_parameter("weight"))
    wide = np.pad(v, ((0, 0), (1, 1)))
    return np.array([[(weight[o] * wide[:, i : i + 3]).sum() for i in range(v.shape[1])] for o in range(len(weight))])


def instance(v: Array) -> Array:
    return (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5)


def double(v: Array, convs: nn.Sequential) -> Array:
    for conv in (convs[0], convs[3]):
        v = np.maximum(instance(convolve(v, conv)), 0)
    return v


def finer(v: Array) -> Array:
    """Twice as many points, the ends where they were."""
    n = v.shape[1]
    return np.stack([np.interp(np.linspace(0, n - 1, 2 * n), np.arange(n), row) for row in v])


def unet(v: Array, net: nn.Sequential, levels: int) -> Array:
    first, ladder = net
    assert isinstance(first, nn.Sequential)
    assert isinstance(ladder, UShape)
    points = v.shape[1]
    v = double(v, first)
    v = np.pad(v, ((0, 0), (0, -points % 2**levels)))
    kept = [v]
    for down in ladder.downs:
        pooled = kept[-1].reshape(len(kept[-1]), -1, 2).max(2)
        kept.append(double(pooled, down[1]))  # pyright: ignore[reportArgumentType, reportIndexIssue]
    v = kept.pop()
    for up in ladder.ups:
        v = double(np.concatenate((kept.pop(), finer(v))), up.convs)  # pyright: ignore[reportArgumentType]
    return v[:, :points]


@pytest.mark.parametrize(("points", "levels"), [(16, 2), (13, 2), (16, 3), (9, 1)])
def test_the_pyramid_equals_a_slow_one(points: int, levels: int) -> None:
    torch.manual_seed(0)
    net = pyramid(1, 3, levels, "instance").double()
    v = torch.randn(2, 3, points, dtype=torch.float64)
    expected = np.stack([unet(sample, net, levels) for sample in v.numpy()])
    assert relative(net(v), expected) < 1e-12


def test_channels_double_down_to_the_last_level_but_one() -> None:
    widths = [(step[1][0].in_channels, step[1][3].out_channels) for step in pyramid(2, 4, 4, "none")[1].downs]  # pyright: ignore
    assert widths == [(4, 8), (8, 16), (16, 32), (32, 32)]
    rising = [(up.convs[0].in_channels, up.convs[3].out_channels) for up in pyramid(2, 4, 4, "none")[1].ups]  # pyright: ignore
    assert rising == [(64, 16), (32, 8), (16, 4), (8, 4)]


class Coarser(nn.Module):
    def forward(self, v: Tensor) -> Tensor:
        return 10 * v[..., ::2]


class Finer(nn.Module):
    def forward(self, u: Tensor, kept: Tensor) -> Tensor:
        return u.repeat_interleave(2, -1) + kept


class Plus(nn.Module):
    def forward(self, v: Tensor) -> Tensor:
        return v + 0.5


def test_a_ladder_is_its_formula() -> None:
    v = torch.arange(4.0)[None, None]
    found = UShape([Coarser(), Coarser()], [Finer(), Finer()], [nn.Identity(), nn.Identity(), Plus()])(v)
    assert found.flatten().tolist() == [0.5, 1.5, 22.5, 23.5]  # 100 * 0 + 0.5, then + (0, 20), then + (0, 1, 2, 3)


@given(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=3), levels=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_any_size_is_extended_to_what_halves_and_cropped_again(sizes: list[int], levels: int) -> None:
    points = ladder_points(tuple(sizes), levels)
    for n, big in zip(sizes, points, strict=True):
        assert big % 2**levels == 0
        assert big >= max(n, 2 ** (levels + 1))
        assert big - n < 2**levels or big == 2 ** (levels + 1)
    v = torch.randn(1, 2, *sizes)
    wide = extend(v, points, 2)
    assert tuple(wide.shape[2:]) == points
    assert crop(wide, tuple(sizes), 2).equal(v)
    assert float(wide.abs().sum()) == pytest.approx(float(v.abs().sum()), rel=1e-4)


def test_one_axis_that_halves_beside_one_that_does_not() -> None:
    """Cropping by what was added would leave nothing of the axis to which nothing was."""
    net = pyramid(2, 4, 2, "instance")
    assert net(torch.randn(1, 4, 16, 13)).shape == (1, 4, 16, 13)
    assert HalvingUShape([], [])(torch.randn(1, 4, 16, 13)).shape == (1, 4, 16, 13)


def test_norms() -> None:
    v = torch.randn(2, 16, 5, 6, dtype=torch.float64) * 3 + 1
    instances = norm_of("instance", 16).double()(v)
    assert torch.allclose(instances.mean((2, 3)), torch.zeros(2, 16).double(), atol=1e-12)
    assert torch.allclose(instances.var((2, 3), correction=0), torch.ones(2, 16).double(), atol=1e-4)
    groups = norm_of("group", 16).double()(v).unflatten(1, (2, 8))
    assert torch.allclose(groups.mean((2, 3, 4)), torch.zeros(2, 2).double(), atol=1e-12)
    assert float(groups.mean((3, 4)).abs().min().detach()) > 1e-6
    assert norm_of("none", 16)(v) is v
    with pytest.raises(SpecError, match=r"norm must be one of instance, group, none; got 'batch'"):
        norm_of("batch", 16)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_blocks_see_as_far_as_they_should(dims: int) -> None:
    torch.manual_seed(0)
    v = torch.randn(1, 4, *(11,) * dims, dtype=torch.float64)
    moved = v.clone()
    moved[(0, slice(None), *(5,) * dims)] += 1
    for block in (DoubleConv(dims, 4, 6, 4, "none").double(), ResidualConv(dims, 4, "none").double()):
        seen = (block(moved) - block(v)).abs().sum((0, 1)) > 0
        reach = (seen.nonzero() - 5).abs().max()
        assert int(reach) == 2


def test_a_residual_block_is_its_formula() -> None:
    torch.manual_seed(0)
    block, v = ResidualConv(1, 3, "instance").double(), torch.randn(1, 3, 10, dtype=torch.float64)
    inner = np.maximum(instance(convolve(v[0].numpy(), block.first)), 0)
    expected = np.maximum(v[0].numpy() + instance(convolve(inner, block.second)), 0)
    assert relative(block(v)[0], expected) < 1e-12


@pytest.mark.parametrize("kind", [CONVOLUTIONS[3], TRANSPOSED[3]])
def test_convolutions_of_three_axes_are_exact_on_a_cpu(kind: Any) -> None:
    conv, x = kind(16, 16, 4, stride=2, padding=1), torch.randn(2, 16, 2, 2, 2)
    (exact,) = torch.autograd.grad(conv(x).square().sum(), [conv.weight])
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(conv(x).square().sum(), [conv.weight])
    assert torch.equal(found, exact)
