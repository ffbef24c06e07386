"""U-Net, ResNet and LSM beyond what every model is held to: published sizes, what norms forget, one resolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hofno.errors import ShapeError, SpecError
from hofno.models.lsm import LSM
from hofno.models.resnet import ResNet
from hofno.models.unet import UNet
from reference import relative


def million(make: type[nn.Module], *channels: int, **arguments: int) -> float:
    with torch.device("meta"):
        return sum(p.numel() for p in make(*channels, **arguments).parameters()) / 1e6


@pytest.mark.parametrize(("width", "expected"), [(32, 4.3), (128, 69), (256, 277)])
def test_unet_is_as_large_as_published(width: int, expected: float) -> None:
    assert million(UNet, 2, 1, width=width) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("width", "expected"), [(32, 4.8), (64, 19)])
def test_lsm_is_as_large_as_published(width: int, expected: float) -> None:
    assert million(LSM, 2, 1, width=width) == pytest.approx(expected, rel=0.015)


def test_resnet_by_hand() -> None:
    width, depth = 5, 3
    blocks = depth * 2 * (9 * width * width + 2 * width)
    assert million(ResNet, 1, 1, width=width, depth=depth) * 1e6 == 27 * width + width + blocks + width + 1


@pytest.mark.parametrize(("make", "more"), [(UNet, {"levels": 2}), (LSM, {"levels": 2, "heads": 2})])
def test_an_instance_norm_forgets_how_large_a_field_is(make: type[nn.Module], more: dict[str, int]) -> None:
    """With a lift that is linear; and without norms it is not forgotten."""
    x = torch.randn(1, 1, 16, 16)
    for norm, forgets in (("instance", True), ("none", False)):
        torch.manual_seed(0)
        model = make(1, 1, width=4, norm=norm, coordinates="none", **more)
        model.lift = nn.Linear(1, 4, bias=False)
        assert (relative(model(1000 * x), model(100 * x)) < 1e-3) == forgets


def test_resnet_keeps_how_large_a_field_is() -> None:
    torch.manual_seed(0)
    model, x = ResNet(1, 1, width=8, depth=2), torch.randn(1, 1, 12, 12)
    assert relative(model(10 * x), model(x)) > 0.5


def test_resnet_sees_two_points_farther_with_each_block() -> None:
    torch.manual_seed(0)
    model, x = ResNet(1, 1, 1, width=8, depth=2, norm="none"), torch.randn(1, 1, 31)
    moved = x.clone()
    moved[..., 15] += 1
    seen = (model(moved) - model(x)).flatten().abs() > 0
    assert seen.nonzero().flatten().tolist() == list(range(15 - 5, 15 + 6))


def test_lsm_without_its_tokens_is_a_unet() -> None:
    torch.manual_seed(0)
    model = LSM(2, 1, width=8, levels=2, heads=2, waves=2)
    plain = UNet(2, 1, width=8, levels=2)
    missing, unexpected = plain.load_state_dict(model.state_dict(), strict=False)
    assert not missing
    assert all(".mixers." in name for name in unexpected)
    x = torch.randn(1, 2, 16, 16)
    assert relative(model(x), plain(x)) > 1e-2
    model.body[1].mixers = nn.ModuleList(nn.Identity() for _ in range(3))
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("make", [UNet, ResNet, LSM])
def test_arguments_that_mean_nothing_are_refused(make: type[nn.Module]) -> None:
    for change, text in (
        ({"dims": 4}, "dims must be 1, 2 or 3"),
        ({"width": 0}, "width must be at least 1; got 0"),
        ({"norm": "batch"}, "norm must be one of instance, group, none"),
        ({"coordinates": "polar"}, "coordinates must be one of"),
    ):
        with pytest.raises(SpecError, match=text):
            make(1, 1, **change)
    with pytest.raises(ShapeError, match=r"expected 2 input channels on axis 1; got 16 .*channel-last"):
        make(2, 1, width=8)(torch.randn(1, 16, 16, 2))
