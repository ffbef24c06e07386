"""The truncated Fourier transform against explicit sums, its own inverse and its own gradient."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hofno.geometry import MODE_SETS, ModeSet, modes_held
from hofno.transforms import fourier
from reference import as_array, coefficients, crop, field, interpolate, kept, pad, relative

Shape = tuple[int, ...]
METHODS: tuple[fourier.Method, ...] = ("matmul", "fft", "auto")

# points, padded, modes: 1-D, 2-D, 3-D; odd and even; padded and not; up to the most modes a grid holds
CASES: list[tuple[Shape, Shape, Shape]] = [
    ((8,), (8,), (3,)),
    ((8,), (8,), (5,)),
    ((9,), (9,), (5,)),
    ((7,), (11,), (4,)),
    ((8, 6), (8, 6), (3, 2)),
    ((8, 6), (8, 6), (4, 4)),
    ((7, 9), (7, 9), (3, 5)),
    ((5, 8), (8, 13), (4, 5)),
    ((5, 4, 6), (5, 4, 6), (2, 2, 3)),
    ((4, 6, 5), (4, 6, 5), (2, 3, 3)),
    ((3, 4, 5), (5, 6, 8), (2, 3, 4)),
]


def pairs(spectrum: np.ndarray) -> Tensor:
    """Complex (K.., c) as (2, K.., c)."""
    return torch.from_numpy(np.stack((np.real(spectrum), np.imag(spectrum))))


def random_spectrum(batch: int, modes: Shape, mode_set: ModeSet, channels: int) -> Tensor:
    sizes = [len(ks) for ks in kept(modes, mode_set)]
    return torch.randn(batch, 2, *sizes, channels, dtype=torch.float64)


@st.composite
def grids(draw: st.DrawFn) -> tuple[Shape, Shape, Shape, ModeSet]:
    """Points, padded sizes and modes that the padded grid can hold."""
    dims = draw(st.integers(1, 3))
    largest = {1: 12, 2: 8, 3: 5}[dims]
    points = tuple(draw(st.integers(2, largest)) for _ in range(dims))
    padded = tuple(n + draw(st.integers(0, 3)) for n in points)
    mode_set = draw(st.sampled_from(MODE_SETS))
    modes = tuple(
        draw(st.integers(1, max(1, modes_held(n, mode_set, axis == dims - 1)))) for axis, n in enumerate(padded)
    )
    return points, padded, modes, mode_set


def check_forward(points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, method: fourier.Method) -> None:
    x = torch.randn(2, *points, 3, dtype=torch.float64)
    found = fourier.forward(x, modes, mode_set, padded, method)
    expected = [pairs(coefficients(pad(as_array(u), padded), kept(modes, mode_set))) for u in x]
    assert found.shape == torch.stack(expected).shape
    assert torch.allclose(found, torch.stack(expected), rtol=0, atol=1e-13)


def check_inverse(points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, method: fourier.Method) -> None:
    spectrum = random_spectrum(2, modes, mode_set, 3)
    found = fourier.inverse(spectrum, points, modes, mode_set, padded, method)
    values = as_array(spectrum[:, 0]) + 1j * as_array(spectrum[:, 1])
    expected = np.stack([crop(field(s, kept(modes, mode_set), padded), points) for s in values])
    assert found.shape == expected.shape
    assert np.abs(as_array(found) - expected).max() < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize(("points", "padded", "modes"), CASES)
def test_forward_and_inverse_are_the_explicit_sums(
    points: Shape, padded: Shape, modes: Shape, mode_set: ModeSet, method: fourier.Method
) -> None:
    modes = tuple(
        min(m, modes_held(n, mode_set, axis == len(modes) - 1))
        for axis, (m, n) in enumerate(zip(modes, padded, strict=True))
    )
    check_forward(points, padded, modes, mode_set, method)
    check_inverse(points, padded, modes, mode_set, method)


@settings(max_examples=60)
@given(grids(), st.sampled_from(METHODS))
def test_explicit_sums_for_any_shape(case: tuple[Shape, Shape, Shape, ModeSet], method: fourier.Method) -> None:
    check_forward(*case, method)
    check_inverse(*case, method)


@settings(max_examples=40)
@given(grids())
def test_the_methods_agree_forward_inverse_and_in_their_gradients(
    case: tuple[Shape, Shape, Shape, ModeSet],
) -> None:
    points, padded, modes, mode_set = case
    x = torch.randn(2, *points, 2, dtype=torch.float64, requires_grad=True)
    results = []
    for method in METHODS:
        spectrum = fourier.forward(x, modes, mode_set, padded, method)
        out = fourier.inverse(spectrum * spectrum, points, modes, mode_set, padded, method, add=x.detach())
        (gradient,) = torch.autograd.grad((out * out).sum(), x)
        results.append((spectrum, out, gradient))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize("points", [(10,), (11,), (8, 10), (9, 7), (6, 7, 8)])
def test_band_limited_fields_survive_the_round_trip(points: Shape, mode_set: ModeSet, method: fourier.Method) -> None:
    modes = tuple(n // 2 - 1 for n in points)
    ks = kept(modes, "symmetric")  # the reference set keeps -m without +m: its last row is left empty
    spectrum = random_spectrum(1, modes, "symmetric", 2)[0]
    u = field(as_array(spectrum[0]) + 1j * as_array(spectrum[1]), ks, points)
    x = torch.from_numpy(u)[None]
    back = fourier.inverse(fourier.forward(x, modes, mode_set, method=method), points, modes, mode_set, method=method)
    assert relative(back, x) < 1e-13


@pytest.mark.parametrize("method", METHODS)
def test_all_modes_of_a_grid_lose_nothing(method: fourier.Method) -> None:
    for points, modes in (((8,), (5,)), ((9,), (5,)), ((8, 8), (4, 5)), ((7, 6), (4, 4))):
        mode_set: ModeSet = "reference" if len(points) > 1 and points[0] % 2 == 0 else "symmetric"
        x = torch.randn(1, *points, 2, dtype=torch.float64)
        spectrum = fourier.forward(x, modes, mode_set, method=method)
        assert relative(fourier.inverse(spectrum, points, modes, mode_set, method=method), x) < 1e-13


@pytest.mark.parametrize("method", ["matmul", "fft"])
@pytest.mark.parametrize("mode_set", MODE_SETS)
def test_coefficients_mean_the_same_function_at_every_resolution(mode_set: ModeSet, method: fourier.Method) -> None:
    modes = (3, 3)
    spectrum = random_spectrum(1, (3, 3), "symmetric", 1)
    fields = [fourier.inverse(spectrum, n, (3, 3), method=method) for n in ((8, 10), (15, 21), (64, 32))]
    found = [fourier.forward(u, modes, mode_set, method=method) for u in fields]
    assert torch.allclose(found[0], found[1], atol=1e-13)
    assert torch.allclose(found[0], found[2], atol=1e-13)


@pytest.mark.parametrize("method", ["matmul", "fft"])
@pytest.mark.parametrize(("points", "padded", "modes"), [((5,), (7,), (3,)), ((4, 5), (6, 5), (2, 3))])
def test_gradcheck(points: Shape, padded: Shape, modes: Shape, method: fourier.Method) -> None:
    x = torch.randn(1, *points, 2, dtype=torch.float64, requires_grad=True)
    add = torch.randn(1, *points, 2, dtype=torch.float64, requires_grad=True)
    spectrum = random_spectrum(1, modes, "symmetric", 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: fourier.forward(u, modes, "symmetric", padded, method), (x,))
    assert torch.autograd.gradcheck(
        lambda s, a: fourier.inverse(s, points, modes, "symmetric", padded, method, add=a), (spectrum, add)
    )


@settings(max_examples=30)
@given(grids())
def test_forward_and_inverse_are_adjoint_up_to_the_mode_weights(
    case: tuple[Shape, Shape, Shape, ModeSet],
) -> None:
    """<inverse s, u> = N <c s, forward u> with c = 2 on the modes that stand for a pair."""
    points, padded, modes, mode_set = case
    u = torch.randn(1, *points, 1, dtype=torch.float64)
    s = random_spectrum(1, modes, mode_set, 1)
    last = kept(modes, mode_set)[-1]
    twice = torch.tensor([1.0 if k == 0 or 2 * k == padded[-1] else 2.0 for k in last], dtype=torch.float64)
    left = (fourier.inverse(s, points, modes, mode_set, padded, "matmul") * u).sum()
    right = (s * twice[:, None] * fourier.forward(u, modes, mode_set, padded, "matmul")).sum()
    assert math.isclose(float(left), math.prod(padded) * float(right), rel_tol=1e-10, abs_tol=1e-10)


@settings(max_examples=40)
@given(grids())
def test_indicator_is_the_spectrum_of_the_padding(case: tuple[Shape, Shape, Shape, ModeSet]) -> None:
    points, padded, modes, mode_set = case
    outside = np.ones((*padded, 1))
    outside[tuple(slice(n) for n in points)] = 0.0
    expected = pairs(coefficients(outside, kept(modes, mode_set)))[..., 0]
    like = torch.zeros((), dtype=torch.float64)
    assert torch.allclose(fourier.indicator(points, padded, modes, mode_set, like), expected, rtol=0, atol=1e-13)


@settings(max_examples=40)
@given(grids(), st.lists(st.integers(2, 17), min_size=3, max_size=3))
def test_interpolation_is_the_explicit_interpolant(case: tuple[Shape, Shape, Shape, ModeSet], fine: list[int]) -> None:
    """Nyquist enters as a cosine; the target may be finer or coarser, odd or even."""
    points, padded, _, _ = case
    target = tuple(fine[: len(points)])
    x = torch.randn(2, *points, 2, dtype=torch.float64)
    expected = np.stack([interpolate(pad(as_array(u), padded), target) for u in x])
    assert np.abs(as_array(fourier.interpolate(x, target, padded)) - expected).max() < 1e-12


def test_interpolation_keeps_samples_and_follows_the_function() -> None:
    for n, fine in ((8, 24), (9, 27)):
        x = torch.randn(1, n, n, 1, dtype=torch.float64)
        assert relative(fourier.interpolate(x, (fine, fine))[:, ::3, ::3], x) < 1e-13
    coarse, fine = torch.arange(8, dtype=torch.float64), torch.arange(20, dtype=torch.float64)
    nyquist = fourier.interpolate(torch.cos(math.pi * coarse)[None, :, None], (20,))[0, :, 0]
    assert torch.allclose(nyquist, torch.cos(2 * math.pi * 4 * fine / 20), atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_keeps_six_digits(method: fourier.Method) -> None:
    points, padded, modes = (85, 64), (141, 106), (16, 16)
    x = torch.randn(2, *points, 4, dtype=torch.float64)
    exact = fourier.forward(x, modes, "reference", padded, "fft")
    found = fourier.forward(x.float(), modes, "reference", padded, method)
    assert found.dtype == torch.float32
    assert relative(found, exact) < 1e-6
    back = fourier.inverse(exact.float(), points, modes, "reference", padded, method)
    assert relative(back, fourier.inverse(exact, points, modes, "reference", padded, "fft")) < 1e-6


def test_large_grids_lose_no_digits() -> None:
    n, k = 100_003, 31
    x = torch.cos(2 * math.pi * k * torch.arange(n, dtype=torch.float64) / n)[None, :, None]
    found = fourier.forward(x, (k + 1,), method="matmul")[0, 0, k, 0]
    assert abs(float(found) - 0.5) < 1e-12


def test_auto_takes_products_for_few_modes_and_the_fft_for_many() -> None:
    few = fourier.choose_method((64, 64), (64, 64), (8, 8), "symmetric", "cpu")
    many = fourier.choose_method((512, 512), (512, 512), (250, 250), "symmetric", "cpu")
    assert (few, many) == ("matmul", "fft")
    # the fewer pixels of a padded domain are real, the better for the products
    chosen = {fourier.choose_method((n, n), (400, 400), (120, 120), "symmetric", "cpu") for n in (50, 400)}
    assert chosen == {"matmul", "fft"}


def test_multiply_adds_counts_the_products() -> None:
    def counted(points: Shape, modes: Shape) -> int:
        """Rows times columns of each real matrix, times how often it is applied, for one channel."""
        *leading, last = points
        total, width = 2 * modes[-1] * last * math.prod(leading), modes[-1]
        for axis in reversed(range(len(leading))):
            rows = 2 * len(kept(modes, "symmetric")[axis])
            total += rows * (2 * points[axis]) * math.prod(points[:axis]) * width
            width *= rows // 2
        return total

    for points, modes in itertools.product([(8, 6, 4)], [(2, 3, 2), (1, 1, 1)]):
        assert fourier.multiply_adds(points, modes, "symmetric") == counted(points, modes)


def test_a_matrix_first_met_in_inference_mode_can_be_trained_with_later() -> None:
    x = torch.randn(1, 19, 1)
    with torch.inference_mode():
        fourier.forward(x, (4,), method="matmul")
    y = x.clone().requires_grad_()
    fourier.forward(y, (4,), method="matmul").square().sum().backward()
    assert y.grad is not None
    assert bool(y.grad.abs().sum() > 0)


@pytest.mark.filterwarnings("ignore")
def test_a_matrix_first_met_while_exporting_stays_a_real_one() -> None:
    """Tracing works on tensors without values; none of them may stay behind in the cache."""

    class Smooth(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return fourier.inverse(fourier.forward(x, (4,), method="matmul"), (23,), (4,), method="matmul")

    x = torch.randn(1, 23, 1)
    exported = torch.export.export(Smooth(), (x,))
    assert type(Smooth()(x)) is Tensor
    assert torch.equal(exported.module()(x), Smooth()(x))
