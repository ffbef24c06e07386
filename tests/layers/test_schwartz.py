"""The spectral operator whose modes act on each other, against complex sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hofno.layers.schwartz import AxisMixer, SchwartzConv, hermitian
from hofno.transforms import fourier
from reference import as_array, coefficients, complex_weight, crop, field, kept, pad, relative

Shape = tuple[int, ...]


def as_complex(spectrum: torch.Tensor) -> np.ndarray:
    parts = as_array(spectrum)
    return parts[:, 0] + 1j * parts[:, 1]


def project(spectrum: np.ndarray, ks: list[list[int]]) -> np.ndarray:
    """x(k) <- (x(k) + conj x(-k)) / 2 where the last wavenumber is 0."""
    out = spectrum.copy()
    leading = ks[:-1]
    for place in np.ndindex(*(len(axis) for axis in leading)):
        mirror = tuple(axis.index(-axis[i]) for axis, i in zip(leading, place, strict=True))
        out[(*place, 0)] = (spectrum[(*place, 0)] + spectrum[(*mirror, 0)].conj()) / 2
    return out


@pytest.mark.parametrize("padding", [0.0, 0.5])
@pytest.mark.parametrize(("points", "modes"), [((9,), (4,)), ((6, 8), (3, 4)), ((4, 5, 6), (2, 3, 2))])
def test_the_layer_equals_a_slow_one(points: Shape, modes: Shape, padding: float) -> None:
    torch.manual_seed(0)
    layer = SchwartzConv(2, modes, True, padding).double()
    v = torch.randn(2, *points, 2, dtype=torch.float64)
    ks = kept(modes, "symmetric")
    padded = tuple(n + int(padding * n) for n in points)
    expected = []
    for one in as_array(v):
        x = np.einsum("...c,...co->...o", coefficients(pad(one, padded), ks), complex_weight(layer.first.weight))
        x = project(x, ks)
        others = x
        for mixer in layer.mixers:
            assert isinstance(mixer, AxisMixer)
            weight = complex_weight(mixer.weight)  # (c, K, K)
            lines = np.moveaxis(others, mixer.axis, 0)
            mixed = np.stack([np.tensordot(weight[c], lines[..., c], 1) for c in range(2)], -1)
            others = np.moveaxis(mixed, 0, mixer.axis)
        y = x + x * np.einsum("...c,...co->...o", others, complex_weight(layer.second.weight))
        expected.append(crop(field(y, ks, padded), points))
    assert relative(layer(v), np.stack(expected)) < 1e-12


def test_the_spectrum_of_a_real_field_is_hermitian_already() -> None:
    spectrum = fourier.forward(torch.randn(2, 7, 6, 8, 3, dtype=torch.float64), (4, 3, 3))
    assert torch.allclose(hermitian(spectrum), spectrum)
    other = hermitian(torch.randn_like(spectrum))
    assert torch.allclose(hermitian(other), other)
    again = fourier.forward(fourier.inverse(other, (7, 6, 8), (4, 3, 3)), (4, 3, 3))
    assert torch.allclose(again, other)


def test_it_is_of_second_degree_and_without_the_product_of_first() -> None:
    torch.manual_seed(0)
    v = torch.randn(1, 6, 8, 3, dtype=torch.float64)
    plain, mixed = (SchwartzConv(3, (3, 4), kind).double() for kind in (False, True))
    assert relative(plain(3 * v), 3 * plain(v)) < 1e-12
    linear = (mixed(v) - mixed(-v)) / 2
    square = (mixed(v) + mixed(-v)) / 2
    assert relative(mixed(3 * v), 3 * linear + 9 * square) < 1e-12
    assert relative(square, linear) > 0.05


def test_gradients() -> None:
    torch.manual_seed(0)
    layer = SchwartzConv(2, (2, 2), True, 0.5).double()
    assert torch.autograd.gradcheck(layer, torch.randn(1, 4, 3, 2, dtype=torch.float64, requires_grad=True))
