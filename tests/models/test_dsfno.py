"""DSFNO beyond what every model is held to: its size, its blocks, and which of them let modes act on each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hofno.errors import SpecError
from hofno.layers.fields import instance_norm
from hofno.models.dsfno import DSFNO, SchwartzBlock
from hofno.models.registry import parameter_counts
from reference import relative


def test_as_large_as_published_but_for_the_weights_that_are_there_twice() -> None:
    modes, width = 12, 20
    with torch.device("meta"):
        count = parameter_counts(DSFNO(10, 1, (modes, modes)))["real"]
    twice = 5 * (modes - 1) * width**2 * 2  # k1 < 0 on k2 = 0, in five filters
    assert (count - twice) / 1e6 == pytest.approx(1.09, rel=0.005)


def test_a_block_is_its_formula() -> None:
    torch.manual_seed(0)
    model, v = DSFNO(1, 1, (3, 4), width=4, depth=2).double(), torch.randn(2, 7, 8, 4, dtype=torch.float64)
    for block, last in zip(model.blocks, (False, True), strict=True):
        assert isinstance(block, SchwartzBlock)
        inner = block.conv(instance_norm(v))
        mean, variance = inner.mean((1, 2), keepdim=True), inner.var((1, 2), correction=0, keepdim=True)
        hidden = F.gelu(block.mlp.up((inner - mean) / (variance + 1e-5).sqrt()))
        expected = block.mlp.down(hidden) + v @ block.skip.weight.T + block.skip.bias
        assert relative(block(v), expected if last else F.gelu(expected)) < 1e-12


@pytest.mark.parametrize(
    ("mixed", "expected"),
    [
        ("last", [False, False, True]),
        ("first", [True, False, False]),
        ("all", [True, True, True]),
        ("none", [False, False, False]),
    ],
)
def test_which_blocks_mix_modes(mixed: str, expected: list[bool]) -> None:
    model = DSFNO(1, 1, (3,), width=4, depth=3, mixed=mixed)
    assert [block.conv.mixed for block in model.blocks if isinstance(block, SchwartzBlock)] == expected


def test_mixing_modes_does_not_move_with_shifts_and_convolutions_do() -> None:
    x = torch.randn(1, 1, 16, dtype=torch.float64)
    for mixed, moves in (("none", True), ("last", False)):
        torch.manual_seed(0)
        model = DSFNO(1, 1, (5,), width=4, mixed=mixed).double()
        assert (relative(model(x.roll(3, -1)), model(x).roll(3, -1)) < 1e-9) == moves


def test_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(SpecError, match="mixed must be one of last, first, all, none; got 'some'"):
        DSFNO(1, 1, (3,), mixed="some")
    with pytest.raises(SpecError, match="domain_padding is a fraction"):
        DSFNO(1, 1, (3,), domain_padding=-0.5)
