"""F-FNO beyond what every model is held to: published sizes, its formula, and that its trunk is not linear."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hofno.errors import SpecError
from hofno.models.ffno import FFNO, AxialBlock, NormedLinear
from hofno.models.registry import parameter_counts
from reference import relative


def make(**changed: object) -> FFNO:
    torch.manual_seed(0)
    arguments = {"width": 6, "depth": 3, **changed}
    return FFNO(2, 1, (3, 4), **arguments).double()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("channels", "modes", "share", "expected"),
    [
        ((2, 1), (32, 16), False, 10.2),  # airfoil
        ((2, 1), (16, 16), False, 7.1),  # pipe
        ((1, 4), (32, 12, 8), False, 11.0),  # plasticity
        ((1, 1), (16, 16), True, 1.07),  # Navier-Stokes
    ],
)
def test_as_large_as_published(channels: tuple[int, int], modes: tuple[int, ...], share: bool, expected: float) -> None:
    with torch.device("meta"):
        count = parameter_counts(FFNO(*channels, modes, share=share))["real"]
    assert count / 1e6 == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("readout", ["state", "update"])
def test_the_network_is_its_formula(readout: str, share: bool) -> None:
    model, x = (
        make(readout=readout, share=share, coordinates="none", domain_padding=0.5),
        torch.randn(2, 2, 7, 8).double(),
    )

    def linear(part: nn.Module, v: torch.Tensor) -> torch.Tensor:
        assert isinstance(part, NormedLinear)
        direction = part.weight / part.weight.norm(dim=1, keepdim=True)
        return v @ (part.length[:, None] * direction).T + part.bias

    z = update = linear(model.lift, x.movedim(1, -1))
    for block in model.blocks:
        assert isinstance(block, AxialBlock)
        conv = model.shared if share else block.conv
        assert conv is not None
        update = linear(block.down, linear(block.up, conv(z)).clamp_min(0))
        z = z + update
    out = linear(model.project[1], linear(model.project[0], z if readout == "state" else update))
    assert relative(model(x), out.movedim(-1, 1)) < 1e-12


def defect(model: FFNO, x: torch.Tensor, y: torch.Tensor) -> float:
    """How far f(x + y) - f(0) is from the sum of f(x) - f(0) and f(y) - f(0)."""
    zero = model(torch.zeros_like(x))
    return relative(model(x + y) - zero, model(x) + model(y) - 2 * zero)


def test_the_trunk_is_not_linear() -> None:
    """Between a linear lift and a linear projection all there is of it are the relus of the blocks."""
    x, y = torch.randn(2, 1, 2, 12, 12, dtype=torch.float64)
    assert defect(make(), x, y) > 0.05
    without = make()
    for block in without.blocks:
        assert isinstance(block, AxialBlock)
        block.update = lambda z, shared=None, block=block: block.down(block.up(block.conv(z)))  # pyright: ignore
    assert defect(without, x, y) < 1e-10


def test_weights_begin_as_those_of_a_linear_map_and_have_a_length_of_their_own() -> None:
    torch.manual_seed(0)
    part, v = NormedLinear(5, 3), torch.randn(4, 5)
    assert torch.allclose(part(v), F.linear(v, part.weight, part.bias), atol=1e-6)
    before = part(v)
    with torch.no_grad():
        part.weight.mul_(7.0)
    assert torch.allclose(part(v), before, atol=1e-6)


def test_shared_weights_are_stored_once() -> None:
    names = make(share=True).state_dict()
    assert sum("filters" in name for name in names) == 2
    assert sum("filters" in name for name in make().state_dict()) == 6


def test_arguments_that_mean_nothing_are_refused() -> None:
    for change, text in (
        ({"readout": "both"}, "readout must be one of state, update"),
        ({"domain_padding": -1.0}, "domain_padding is a fraction"),
        ({"depth": 0}, "depth must be at least 1"),
    ):
        with pytest.raises(SpecError, match=text):
            make(**change)
