"""The order-m spectral convolution against its slow reference, and the laws it must keep."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from hofno.errors import ShapeError, SpecError
from hofno.geometry import MODE_SETS, PADDED_BY, ModeSet, PaddedBy, padded_shape
from hofno.layers import HigherOrderSpectralConv
from hofno.layers.filters import DenseFilter, DepthwiseFilter
from hofno.layers.spectral import dealiased_points
from hofno.transforms import fourier
from reference import as_array, factor_maps, field, higher_order, interpolate, kept, no_biases, padded_points, relative

Shape = tuple[int, ...]
FACTORS = ("dense", "identity", "diagonal", "low-rank(2)", "diagonal+low-rank(1)", "shared", "spectral")
GRIDS: dict[int, tuple[Shape, Shape]] = {1: ((8,), (3,)), 2: ((7, 6), (3, 2)), 3: ((4, 5, 4), (1, 2, 2))}


def make(modes: Shape, order: int = 2, *, width: int = 3, **options: Any) -> HigherOrderSpectralConv:
    return HigherOrderSpectralConv(width, modes, order, **options).double()


def random_field(points: Shape, width: int = 3, batch: int = 1) -> Tensor:
    return torch.randn(batch, *points, width, dtype=torch.float64)


def band_limited(resolutions: tuple[Shape, ...], modes: Shape, width: int = 3) -> list[Tensor]:
    """One random function with |k| < modes, sampled on several grids."""
    ks = kept(modes, "symmetric")
    spectrum = np.random.default_rng(1).normal(size=(2, *(len(k) for k in ks), width))
    return [torch.from_numpy(field(spectrum[0] + 1j * spectrum[1], ks, n))[None] for n in resolutions]


@pytest.mark.parametrize(("padding", "padded_by"), [(0.0, "points"), (0.5, "points"), (0.5, "length")])
@pytest.mark.parametrize("dealias", [False, True])
@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("factors", FACTORS)
def test_layer_equals_its_reference(
    factors: str, dims: int, weights: str, dealias: bool, padding: float, padded_by: PaddedBy
) -> None:
    points, modes = GRIDS[dims]
    v = random_field(points)
    outputs = []
    options = {"factors": factors, "weights": weights, "dealias": dealias}
    for method in ("matmul", "fft"):
        torch.manual_seed(1)
        layer = make(modes, **options, domain_padding=padding, padded_by=padded_by, method=method)
        outputs.append(layer(v))
    assert relative(outputs[0], higher_order(layer, v)) < 1e-12
    assert relative(outputs[1], outputs[0]) < 1e-12


@st.composite
def layers(draw: st.DrawFn) -> tuple[HigherOrderSpectralConv, Tensor]:
    """Any small layer and a field for it; dealiased ones keep below the Nyquist wavenumber."""
    dims = draw(st.integers(1, 2))
    points = tuple(draw(st.integers(3, 9)) for _ in range(dims))
    padding = draw(st.sampled_from([0.0, 0.25, 2 / 3]))
    padded_by = draw(st.sampled_from(PADDED_BY))
    padded = padded_points(points, padding, padded_by)
    modes = tuple(draw(st.integers(1, max(1, (n - 1) // 2))) for n in padded)
    layer = make(
        modes,
        draw(st.integers(1, 4)),
        width=draw(st.integers(1, 3)),
        factors=draw(st.sampled_from(FACTORS)),
        weights=draw(st.sampled_from(["depthwise", "dense"])),
        dealias=draw(st.booleans()),
        domain_padding=padding,
        padded_by=padded_by,
        mode_set=draw(st.sampled_from(MODE_SETS)),
        method=draw(st.sampled_from(["auto", "matmul", "fft"])),
    )
    return layer, random_field(points, layer.width, batch=draw(st.integers(1, 2)))


@settings(max_examples=60)
@given(layers())
def test_any_layer_equals_its_reference(case: tuple[HigherOrderSpectralConv, Tensor]) -> None:
    layer, v = case
    assert relative(layer(v), higher_order(layer, v)) < 1e-11


@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize(("points", "modes"), [((8,), (5,)), ((8, 8), (4, 5)), ((7, 8), (3, 5))])
def test_all_modes_a_grid_holds(points: Shape, modes: Shape, mode_set: ModeSet) -> None:
    """Without dealiasing, up to and with the Nyquist wavenumber."""
    layer, v = make(modes, mode_set=mode_set), random_field(points, batch=2)
    assert relative(layer(v), higher_order(layer, v)) < 1e-12


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize(("dealias", "padding"), [(False, 0.0), (True, 0.5)])
def test_gradcheck_of_input_and_parameters(factors: str, weights: str, dealias: bool, padding: float) -> None:
    layer = make((2,), 3, width=2, factors=factors, weights=weights, dealias=dealias, domain_padding=padding)
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    v = random_field((4,), 2).requires_grad_()

    def run(v: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (v,))

    assert torch.autograd.gradcheck(run, (v, *values))


@pytest.mark.parametrize("dealias", [False, True])
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("mode_set", MODE_SETS)
def test_shift_equivariance(factors: str, dealias: bool, mode_set: ModeSet) -> None:
    layer = make((3, 3), 3, factors=factors, dealias=dealias, mode_set=mode_set)
    v = random_field((7, 8))
    shifts, axes = (3, 5), (1, 2)
    shifted = layer(torch.roll(v, shifts, axes))
    assert relative(shifted, torch.roll(layer(v), shifts, axes)) < 1e-12


@pytest.mark.parametrize("factors", FACTORS)
def test_padded_by_length_the_layer_is_one_operator_on_all_grids(factors: str) -> None:
    """A function that is not zero at the ends: errors fall as h^2; padded by points, they do not."""

    def at_common_points(padded_by: PaddedBy, points: int) -> Tensor:
        torch.manual_seed(0)
        layer = make((4, 4), factors=factors, domain_padding=0.5, padded_by=padded_by)
        x = torch.linspace(0, 1, points, dtype=torch.float64)
        function = torch.stack((1 + x[:, None] * x, torch.exp(x[:, None] - 2 * x), torch.cos(3 * x[:, None] + x)), -1)
        step = (points - 1) // 8
        return layer(function[None])[:, ::step, ::step]

    errors = {by: [relative(at_common_points(by, n), at_common_points(by, 257)) for n in (17, 33)] for by in PADDED_BY}
    assert errors["length"][1] < 0.006
    assert 3.5 < errors["length"][0] / errors["length"][1] < 4.6
    assert errors["points"][1] > 5 * errors["length"][1]


def test_padding_breaks_shift_equivariance() -> None:
    layer, v = make((3,), domain_padding=0.5), random_field((8,))
    assert relative(layer(torch.roll(v, 2, 1)), torch.roll(layer(v), 2, 1)) > 1e-2


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("factors", FACTORS)
def test_homogeneity_of_degree_m_no_biases(factors: str, order: int) -> None:
    layer = no_biases(make((3, 3), order, factors=factors, domain_padding=0.25))
    v = random_field((7, 8))
    for t in (2.0, -0.3):
        assert relative(layer(t * v), t**order * layer(v)) < 1e-12


@pytest.mark.parametrize("factors", FACTORS)
def test_dealiased_layers_mean_the_same_at_every_resolution(factors: str) -> None:
    """Also where the coarse grid cannot hold the product: input |k| <= 3 on 8 points, order 3."""
    coarse, fine = band_limited(((8, 9), (32, 20)), (4, 4))
    layer = make((3, 3), 3, factors=factors, dealias=True)
    out = interpolate(as_array(layer(coarse)[0]), (32, 20))
    assert relative(layer(fine)[0], out) < 1e-12


@pytest.mark.parametrize("factors", FACTORS)
def test_plain_layers_agree_where_the_grids_resolve_the_product(factors: str) -> None:
    """|k| <= 2, order 3, kept |k| <= 2: exact from 3 * 2 + 2 + 1 = 9 points."""
    layer = make((3, 3), 3, factors=factors)
    enough, fine = band_limited(((9, 10), (32, 21)), (3, 3))
    assert relative(layer(fine)[0], interpolate(as_array(layer(enough)[0]), (32, 21))) < 1e-12


@pytest.mark.parametrize("factors", ["dense", "identity", "spectral"])
def test_plain_layers_differ_where_a_grid_is_too_coarse(factors: str) -> None:
    layer = make((3,), 3, factors=factors)
    coarse, fine = band_limited(((7,), (32,)), (3,))
    assert relative(layer(fine)[0], interpolate(as_array(layer(coarse)[0]), (32,))) > 1e-2


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("points", [(8,), (9,), (7, 8)])
def test_dealiasing_is_exact_and_needed_on_a_full_band(points: Shape, order: int) -> None:
    """The kept modes of the product of interpolants, as computed on a grid with room for all of it."""
    modes = (3,) * len(points)
    v = random_field(points)
    layer = make(modes, order, dealias=True)
    exact = higher_order(layer, v)
    assert relative(layer(v), exact) < 1e-12
    layer.dealias = False
    assert relative(layer(v), exact) > 0.05


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5))
def test_dealiased_points_is_the_smallest_even_grid_that_is_exact(band: int, top: int, order: int) -> None:
    def folds(n: int) -> bool:
        """Whether some wavenumber of the product looks like a kept one on n points."""
        reached = range(-order * band, order * band + 1)
        return any(p != k and (p - k) % n == 0 for p in reached for k in range(-top, top + 1))

    (n,) = dealiased_points((band,), (top,), order)
    assert n % 2 == 0
    assert not folds(n)
    if order * band >= 1 and n > 2:
        assert folds(n - 2)


def test_add_is_added_in_the_same_pass() -> None:
    for dealias, padding, method in itertools.product((False, True), (0.0, 0.5), ("matmul", "fft")):
        layer = make((3, 3), dealias=dealias, domain_padding=padding, padded_by="length", method=method)
        v, add = random_field((7, 8)), random_field((7, 8))
        assert torch.allclose(layer(v, add=add), layer(v) + add, rtol=1e-12, atol=1e-13)
        assert torch.allclose(layer(v, add=add.float()), layer(v) + add.float(), rtol=1e-12, atol=1e-13)


def test_convolve_product_is_the_second_half_of_forward() -> None:
    layer, v = make((3, 3), 3, domain_padding=0.5), random_field((7, 8))
    add = random_field((7, 8))
    assert torch.equal(layer.convolve_product(layer.factors(v), add), layer(v, add))


@pytest.mark.parametrize("dealias", [False, True])
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("method", ["matmul", "fft"])
def test_reduced_precision_factors_with_single_precision_transforms(
    factors: str, dealias: bool, method: fourier.Method
) -> None:
    layer = HigherOrderSpectralConv(8, (3, 3), factors=factors, dealias=dealias, domain_padding=0.5, method=method)
    layer.transform_dtype = torch.float32
    v = torch.randn(2, 8, 8, 8)
    exact = layer(v)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(v, add=v)
    assert found.dtype == torch.float32
    assert 0 < relative(found - v, exact) < 3e-2
    found.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


BASE: dict[str, Any] = {"width": 4, "modes": (3, 3), "order": 2, "domain_padding": 0.25}
CHANGES: dict[str, Any] = {
    "width": 5,
    "modes": (3, 2),
    "order": 3,
    "factors": "shared",
    "weights": "dense",
    "dealias": True,
    "domain_padding": 0.5,
    "padded_by": "length",
    "mode_set": "reference",
}


@pytest.mark.parametrize("argument", sorted(CHANGES))
def test_every_argument_changes_the_layer(argument: str) -> None:
    def built(**options: Any) -> tuple[list[Shape], HigherOrderSpectralConv]:
        torch.manual_seed(2)
        layer = HigherOrderSpectralConv(**options)
        return [tuple(p.shape) for p in layer.parameters()], layer

    assert {*CHANGES, "method", "self"} == set(inspect.signature(HigherOrderSpectralConv.__init__).parameters)
    shapes, layer = built(**BASE)
    other_shapes, other = built(**{**BASE, argument: CHANGES[argument]})
    if shapes == other_shapes:
        v = torch.randn(1, 8, 8, 4)
        assert relative(other(v), layer(v)) > 1e-3


def test_the_method_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = torch.fft.rfftn
    monkeypatch.setattr(torch.fft, "rfftn", lambda *a, **k: calls.append(1) or original(*a, **k))
    v = random_field((8,))
    for method, expected in (("matmul", 0), ("auto", 0), ("fft", 1)):
        calls.clear()
        make((3,), method=method)(v)
        assert len(calls) == expected, method


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 0}, "width must be at least 1; got 0"),
        ({"order": 0}, "order must be at least 1"),
        ({"modes": ()}, "modes must have 1, 2 or 3 entries"),
        ({"modes": (2, 2, 2, 2)}, "modes must have 1, 2 or 3 entries"),
        ({"modes": (0, 2)}, "every entry of modes must be at least 1"),
        ({"domain_padding": -0.1}, "domain_padding is a fraction"),
        ({"domain_padding": float("nan")}, "domain_padding is a fraction"),
        ({"padded_by": "area"}, "padded_by must be one of points, length; got 'area'"),
        ({"factors": "some"}, "factors must be one of dense"),
        ({"weights": "sparse"}, "weights must be one of depthwise, dense; got 'sparse'"),
        ({"mode_set": "all"}, "mode_set must be one of symmetric, reference; got 'all'"),
        ({"method": "dct"}, "method must be one of auto, matmul, fft; got 'dct'"),
    ],
)
def test_each_bad_argument_has_its_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        HigherOrderSpectralConv(**{**BASE, **options})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_that_do_not_fit_are_refused_at_the_call() -> None:
    layer = HigherOrderSpectralConv(4, (5, 5))
    for shape in ((2, 16, 4), (2, 4, 16, 16), (2, 16, 16, 16, 4)):
        with pytest.raises(ShapeError, match=r"expected a channel-last field \(batch, 2 spatial axes, 4 channels\)"):
            layer(torch.randn(shape))
    with pytest.raises(ShapeError, match=r"modes\[0\]=5 is more than an axis of 8 points holds \(at most 4\)"):
        layer(torch.randn(1, 8, 16, 4))
    with pytest.raises(ShapeError, match=r"modes\[1\]=5 is more than an axis of 7 points holds \(at most 4\)"):
        layer(torch.randn(1, 16, 7, 4))
    padded = HigherOrderSpectralConv(4, (5, 5), domain_padding=0.5)
    assert padded(torch.randn(1, 8, 8, 4)).shape == (1, 8, 8, 4)  # the padded axis holds them


def test_weights_are_real_and_counted_as_the_paper_counts() -> None:
    """M C + m C^2 with a diagonal kernel, (M + m) C^2 with a dense one, and the biases m C."""
    width, order, modes = 5, 3, (4, 3)
    kept_modes = (2 * 4 - 1) * 3
    for weights, spectral in (("depthwise", kept_modes * width), ("dense", kept_modes * width**2)):
        layer = HigherOrderSpectralConv(width, modes, order, weights=weights)
        assert not any(p.is_complex() for p in layer.parameters())
        complex_once = sum(p.numel() for p in layer.factors.parameters()) + layer.filter.weight.numel() // 2
        assert complex_once == spectral + order * width**2 + order * width
    assert isinstance(HigherOrderSpectralConv(5, modes, weights="depthwise").filter, DepthwiseFilter)
    assert isinstance(HigherOrderSpectralConv(5, modes, weights="dense").filter, DenseFilter)


def test_repr_names_the_factors() -> None:
    assert "order=3, factors=low-rank" in repr(HigherOrderSpectralConv(4, (2,), 3, factors="low-rank(2)"))


def test_padded_pixels_carry_the_biases() -> None:
    """A zero field with factors b_i is the constant b_1...b_m on all of the padded domain."""
    layer, v = make((3,), 2, domain_padding=1.0), torch.zeros(1, 6, 3, dtype=torch.float64)
    _, (first, second) = factor_maps(layer)
    constant = torch.from_numpy(first * second).expand(1, *padded_shape((6,), 1.0), 3)
    spectrum = layer.filter(fourier.forward(constant, (3,), method="fft"))
    assert relative(layer(v), fourier.inverse(spectrum, (12,), (3,), method="fft")[:, :6]) < 1e-12
