"""HO-FNO and FNO: sizes, composition, errors, and the registry that builds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from model_cases import FORMS
from torch import nn

import hofno
from hofno.errors import ShapeError, SpecError
from hofno.geometry import grid_coordinates, grid_waves
from hofno.layers import DropPath, HigherOrderSpectralConv
from hofno.models import FNO, HOFNO, MODELS, build, parameter_counts
from hofno.models.registry import check_arguments, model_class, model_name
from reference import relative


def test_parameter_counts_of_the_published_models() -> None:
    navier_stokes = HOFNO(10, 1, (16, 16), width=256, depth=8, order=2, expansion=4, mode_set="reference")
    assert parameter_counts(navier_stokes)["real"] == 7_362_049
    poisson = HOFNO(5, 1, (16, 16), width=64, depth=1, order=5, expansion=2, mode_set="reference")
    assert parameter_counts(poisson)["complex_once"] == 70_849


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("weights", ["depthwise", "dense"])
def test_parameter_counts_follow_the_formula(order: int, weights: str) -> None:
    """Each layer: M C + m C^2 (diagonal kernel) or (M + m) C^2 (dense kernel), and m C biases; then the network."""
    width, depth, modes = 6, 3, (4, 3)
    kept = 2 * 4 * 3
    layer = kept * (width if weights == "depthwise" else width**2) + order * width**2 + order * width
    mlp = (width * 2 * width + 2 * width) + (2 * width * width + width)
    ends = (5 + 2) * width + width + width * 2 + 2
    model = HOFNO(
        5, 2, modes, width=width, depth=depth, order=order, expansion=2, weights=weights, mode_set="reference"
    )
    assert parameter_counts(model)["complex_once"] == ends + depth * (layer + mlp + 2 * width)
    spectral = kept * (width if weights == "depthwise" else width**2)
    assert parameter_counts(model)["real"] == parameter_counts(model)["complex_once"] + depth * spectral


def test_the_multipliers_of_spectral_factors_count_as_complex() -> None:
    layer = HigherOrderSpectralConv(4, (3,), 2, factors="spectral")
    counts = parameter_counts(layer)
    assert counts["real"] - counts["complex_once"] == 3 * 4 + 3 * 2 * 4


@pytest.mark.parametrize("backbone", ["modern", "classic"])
@pytest.mark.parametrize("coordinates", ["endpoint", "periodic", "none"])
def test_a_model_is_lift_blocks_projection(backbone: str, coordinates: Any) -> None:
    model = HOFNO(2, 3, (3, 3), width=8, depth=2, backbone=backbone, coordinates=coordinates).double()
    x = torch.randn(2, 2, 7, 8, dtype=torch.float64)
    v = x.permute(0, 2, 3, 1)
    if coordinates != "none":
        grid = grid_coordinates((7, 8), coordinates)
        v = torch.cat((v, grid[None].expand(2, 7, 8, 2)), -1)
    assert model.lift.in_features == v.shape[-1]
    v = model.lift(v)
    for block in model.blocks:
        v = block(v)
    torch.testing.assert_close(model(x), model.project(v).permute(0, 3, 1, 2), rtol=1e-13, atol=1e-13)
    assert isinstance(model.project, nn.Linear) == (backbone == "modern")


def test_only_the_last_classic_block_leaves_the_gelu_out() -> None:
    model = HOFNO(1, 1, (3,), width=4, depth=3, backbone="classic")
    assert [getattr(block, "last", None) for block in model.blocks] == [False, False, True]


def test_stochastic_depth_grows_to_the_last_block() -> None:
    model = HOFNO(1, 1, (3,), width=4, depth=4, drop_path=0.2)
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.2)
    assert len(rates) == 4


def test_fno_is_hofno_of_order_one() -> None:
    fno = FNO(2, 1, (3, 3), width=4, depth=2, domain_padding=0.5)
    ho = HOFNO(2, 1, (3, 3), width=4, depth=2, domain_padding=0.5, order=1)
    ho.load_state_dict(fno.state_dict())
    x = torch.randn(1, 2, 8, 8)
    assert torch.equal(fno(x), ho(x))
    assert {"order", "factors", "dealias"}.isdisjoint(fno.config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in_channels": 0}, "in_channels must be at least 1; got 0"),
        ({"out_channels": 0}, "out_channels must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"expansion": 0}, "expansion must be at least 1"),
        ({"order": 0}, "order must be at least 1"),
        ({"order": 2.0}, "order is a whole number, such as 2; got 2.0; give such a one"),
        ({"width": 8.0}, "width is a whole number, such as 2; got 8.0"),
        ({"depth": "2"}, "depth is a whole number, such as 2; got '2'"),
        ({"modes": (0, 3)}, "every entry of modes must be at least 1"),
        ({"modes": ()}, "modes must have 1, 2 or 3 entries"),
        ({"backbone": "unet"}, "backbone must be one of modern, classic; got 'unet'"),
        ({"coordinates": "polar"}, "coordinates must be one of endpoint, periodic, none; got 'polar'"),
        ({"mode_set": "all"}, "mode_set must be one of"),
        ({"weights": "sparse"}, "weights must be one of"),
        ({"factors": "cubic"}, "factors must be one of"),
        ({"domain_padding": -1.0}, "domain_padding is a fraction"),
        ({"padded_by": "pixels"}, "padded_by must be one of points, length; got 'pixels'"),
        ({"drop_path": 1.0}, "drop_path is a probability"),
        ({"drop_path": 0.1, "backbone": "classic"}, "classic backbone has no residual branch"),
    ],
)
def test_each_bad_argument_has_its_error(arguments: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"in_channels": 1, "out_channels": 1, "modes": (3, 3), "width": 4, "depth": 1}
    with pytest.raises(SpecError) as caught:
        HOFNO(**{**good, **arguments})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_inputs_that_do_not_fit_are_refused_with_a_way_out() -> None:
    model = HOFNO(3, 1, (5, 5), width=4, depth=1)
    with pytest.raises(ShapeError, match=r"expected \(batch, 3 channels, 2 spatial axes\).*x\[None\]"):
        model(torch.randn(3, 16, 16))
    for batch in (1, 5):
        with pytest.raises(ShapeError, match=r"x\[:, None\], as in from_arrays\(x\[:, None\], y\[:, None\]\); or give"):
            HOFNO(1, 1, (5, 5), width=4, depth=1)(torch.randn(batch, 16, 16))
    with pytest.raises(ShapeError, match=r"got shape \(2, 16, 16\); give modes for every axis"):
        model(torch.randn(2, 16, 16))
    with pytest.raises(ShapeError, match=r"expected 3 input channels on axis 1; got 16.*x\.movedim\(-1, 1\)"):
        model(torch.randn(1, 16, 16, 3))
    with pytest.raises(
        ShapeError, match=r"expected 3 input channels on axis 1; got 5.*; set in_channels=data\.in_channels"
    ):
        model(torch.randn(1, 5, 16, 16))
    with pytest.raises(ShapeError, match=r"modes\[0\]=5 is more than an axis of 8 points holds \(at most 4\)"):
        model(torch.randn(1, 3, 8, 16))


def test_inputs_of_another_kind_are_refused_with_a_way_out() -> None:
    grid, points = HOFNO(1, 1, (3,), width=4, depth=1), hofno.PointHO(1, 1, width=4, depth=1, tokens=2, heads=1)
    unet = build("unet", {"in_channels": 1, "out_channels": 1, "dims": 1, "width": 4, "levels": 1})
    x, coords = torch.randn(2, 1, 16), torch.rand(2, 2, 16)
    for model, places in ((grid, ()), (unet, ()), (points, (coords,))):
        with pytest.raises(ShapeError, match=r"expected a tensor; got ndarray; give torch\.from_numpy"):
            model(x.numpy(), *places)
        with pytest.raises(
            ShapeError, match=r"expected torch\.float32.*got torch\.float64; give x\.to\(torch\.float32"
        ):
            model(x.double(), *places)
        assert model.double()(x.double(), *(part.double() for part in places)).shape == x.shape
    with pytest.raises(ShapeError, match="expected a tensor; got list"):
        grid(x.tolist())


def test_a_mesh_of_the_wrong_channels_is_told_what_counts() -> None:
    rng = np.random.default_rng(0)
    u, nodes = rng.random((10, 1, 8, 8)), rng.random((2, 8, 8))
    data = hofno.from_arrays(u, u**2, coords=nodes)
    with pytest.raises(
        ShapeError,
        match=r"expected 1 input .*got 3 .*in_channels=data\.in_channels, which counts coordinates of a mesh",
    ):
        hofno.fit(HOFNO(1, 1, (3, 3), width=4, depth=1), data, epochs=1, progress=False)


def answer(model: nn.Module, points: int) -> torch.Tensor:
    """The model's answer to one function, on a grid of this many points."""
    x = 2 * torch.pi * torch.arange(points, dtype=torch.float64) / points
    return model((torch.sin(x) + 0.5 * torch.cos(3 * x))[None, None])


def test_a_finer_grid_shows_the_same_answer() -> None:
    """Exactly where only the spectral part sees more than one point; rapidly where a norm comes before it."""
    options: dict[str, Any] = {"width": 8, "depth": 1, "order": 3, "dealias": True, "coordinates": "none"}
    classic = HOFNO(1, 1, (4,), backbone="classic", **options).double()
    assert relative(answer(classic, 32)[..., ::4], answer(classic, 8)) < 1e-12
    modern = HOFNO(1, 1, (4,), backbone="modern", **options).double()
    coarse = relative(answer(modern, 32)[..., ::2], answer(modern, 16))
    fine = relative(answer(modern, 128)[..., ::2], answer(modern, 64))
    assert fine < coarse / 100


def test_the_registry_builds_what_the_config_says() -> None:
    model = build("hofno", {"in_channels": 2, "out_channels": 1, "modes": [3, 4], "width": 4, "depth": 1, "order": 3})
    assert isinstance(model, HOFNO)
    assert model.modes == (3, 4)
    assert model.config["order"] == 3
    assert model_name(model) == "hofno"
    assert model_name(FNO(1, 1, (2,), width=2)) == "fno"
    assert model_class("fno") is FNO
    assert {case.name for case in FORMS} == set(MODELS)
    for case in FORMS:
        again = build(case.name, dict(case.make().config))  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert type(again) is MODELS[case.name]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"widht": 4}, "model 'hofno' has no argument 'widht'; did you mean 'width'?"),
        ({"zzz": 4}, "model 'hofno' has no argument 'zzz'; it takes: in_channels"),
        ({"width": "wide"}, "model.width: "),
        ({"modes": "many"}, "model.modes: "),
        ({"coordinates": "polar"}, "model.coordinates: "),
        ({"in_channels": None}, "model.in_channels: "),
    ],
)
def test_the_registry_names_wrong_arguments(arguments: dict[str, Any], said: str) -> None:
    good = {"in_channels": 1, "out_channels": 1, "modes": [3]}
    with pytest.raises(SpecError) as caught:
        check_arguments("hofno", {**good, **arguments})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_the_registry_knows_its_own() -> None:
    with pytest.raises(SpecError, match=r"unknown model 'hofo'; there are: .*did you mean 'hofno'"):
        build("hofo", {})
    with pytest.raises(SpecError, match="Linear is not a registered model"):
        model_name(nn.Linear(1, 1))
    with pytest.raises(SpecError, match=r"model\.modes"):
        build("fno", {"in_channels": 1, "out_channels": 1})


class TestWavesAndResidual:
    """Fourier features of given wavevectors, and outputs that are changes of the last inputs."""

    @staticmethod
    def make(**changed: Any) -> HOFNO:
        torch.manual_seed(0)
        given: dict[str, Any] = {"width": 6, "depth": 2, "coordinates": "none", "waves": ((1, 1),)}
        return HOFNO(3, 1, (3, 3), **{**given, **changed}).double()

    def test_a_wave_keeps_the_shifts_along_which_it_is_constant(self) -> None:
        model, x = self.make(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
        out = model(x)
        along = torch.roll(x, (3, -3), (2, 3))
        assert torch.allclose(model(along), torch.roll(out, (3, -3), (2, 3)), atol=1e-12)
        across = torch.roll(x, (3, 0), (2, 3))
        assert not torch.allclose(model(across), torch.roll(out, (3, 0), (2, 3)), atol=1e-3)

    def test_features_are_cosines_and_sines(self) -> None:
        i = torch.arange(6, dtype=torch.float64) / 6
        j = torch.arange(4, dtype=torch.float64) / 4
        found = grid_waves((6, 4), ((1, 0), (2, -1)))
        angles = [2 * torch.pi * i[:, None].expand(6, 4), 2 * torch.pi * (2 * i[:, None] - j)]
        expected = torch.stack([f(a) for f in (torch.cos, torch.sin) for a in angles], -1)
        assert torch.allclose(found, expected, atol=1e-14)

    def test_a_residual_model_that_gives_nothing_repeats_its_last_inputs(self) -> None:
        model, x = self.make(residual=True), torch.randn(2, 3, 8, 8, dtype=torch.float64)
        torch.nn.init.zeros_(model.project.weight)
        torch.nn.init.zeros_(model.project.bias)
        assert torch.equal(model(x), x[:, 2:])

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"waves": ((1,),)}, "wavevectors of 2 whole numbers"),
            ({"waves": ((1, 0.5),)}, "wavevectors of 2 whole numbers"),
        ],
    )
    def test_refusals(self, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(SpecError, match=message):
            self.make(**changed)
        with pytest.raises(SpecError, match="residual adds the last 2 inputs"):
            HOFNO(1, 2, (3, 3), residual=True)
