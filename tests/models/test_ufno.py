"""U-FNO beyond what every model is held to: its published size and its blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hofno.errors import SpecError
from hofno.layers.ushape import HalvingUShape
from hofno.models.registry import parameter_counts
from hofno.models.ufno import UFNO, UFourierBlock, small_unet
from reference import higher_order, relative


def test_as_large_as_published() -> None:
    with torch.device("meta"):
        count = parameter_counts(UFNO(9, 1, (10, 10, 10), mode_set="reference"))["real"]
    assert count / 1e6 == pytest.approx(64, rel=0.005)


def test_a_block_is_its_formula() -> None:
    torch.manual_seed(0)
    model = UFNO(1, 1, (3, 4), width=4, depth=1, before=1, domain_padding=0.5).double()
    v = torch.randn(2, 9, 8, 4, dtype=torch.float64)
    for block, beside in zip(model.blocks, (False, True), strict=True):
        assert isinstance(block, UFourierBlock)
        total = torch.from_numpy(higher_order(block.conv, v)) + v @ block.skip.weight.T + block.skip.bias
        assert (block.beside is not None) == beside
        if block.beside is not None:
            total = total + block.beside(v.movedim(-1, 1)).movedim(1, -1)
        assert relative(block(v), total.clamp_min(0)) < 1e-12


def test_the_small_unet_is_its_formula() -> None:
    torch.manual_seed(0)
    net = small_unet(2, 3, "instance").double()
    ladder, last = net
    assert isinstance(ladder, HalvingUShape)
    v = torch.randn(1, 3, 16, 24, dtype=torch.float64)

    def down(u: torch.Tensor, step: nn.Module) -> torch.Tensor:
        weight = step.get_parameter("0.weight")
        return F.leaky_relu(F.instance_norm(F.conv2d(u, weight, stride=2, padding=1)), 0.1)

    def up(u: torch.Tensor, step: nn.Module) -> torch.Tensor:
        weight, bias = step.get_parameter("conv.weight"), step.get_parameter("conv.bias")
        return F.leaky_relu(F.conv_transpose2d(u, weight, bias, stride=2, padding=1), 0.1)

    (d1, d2, d3), (u1, u2, u3) = ladder.downs, ladder.ups
    e1 = down(v, d1)
    e2 = down(e1, d2)
    u = torch.cat((up(down(e2, d3), u1), e2), 1)
    u = torch.cat((up(u, u2), e1), 1)
    u = torch.cat((up(u, u3), v), 1)
    assert relative(net(v), last(u)) < 1e-12


def test_arguments_that_mean_nothing_are_refused() -> None:
    for change, text in (
        ({"before": -1}, "before must be at least 0"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"norm": "batch"}, "norm must be one of"),
        ({"domain_padding": 9.0}, "domain_padding is a fraction"),
    ):
        with pytest.raises(SpecError, match=text):
            UFNO(1, 1, (3,), width=4, **change)  # pyright: ignore[reportArgumentType]
