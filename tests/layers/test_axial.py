"""The factorised spectral convolution and filters that mix channels, against explicit Fourier sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hofno.errors import ShapeError
from hofno.layers.axial import AxialConv
from hofno.layers.mixing import MatrixFilter
from reference import as_array, coefficients, complex_weight, crop, field, kept, pad, random_waves, relative, sample

Shape = tuple[int, ...]


def along(v: np.ndarray, axis: int, filter: MatrixFilter, padding: float) -> np.ndarray:
    """One line at a time: (*n, c) -> (*n, c)."""
    weight = complex_weight(filter.weight)  # (m, c, o)
    lines = np.moveaxis(v, axis, -2)
    out = np.empty_like(lines)
    ks = [list(range(len(weight)))]
    for place in np.ndindex(*lines.shape[:-2]):
        n = lines.shape[-2]
        padded = (n + int(padding * n),)
        spectrum = coefficients(pad(lines[place], padded), ks)  # (m, c)
        mixed = np.stack([spectrum[k] @ weight[k] for k in range(len(weight))])
        out[place] = crop(field(mixed, ks, padded), (n,))
    return np.moveaxis(out, -2, axis)


@pytest.mark.parametrize("padding", [0.0, 0.4])
@pytest.mark.parametrize(("points", "modes"), [((9,), (4,)), ((6, 8), (3, 5)), ((4, 5, 6), (2, 3, 2))])
def test_the_layer_is_a_sum_over_axes(points: Shape, modes: Shape, padding: float) -> None:
    torch.manual_seed(0)
    layer = AxialConv(3, modes, padding).double()
    v = torch.randn(2, *points, 3, dtype=torch.float64)
    filters = [part for part in layer.filters if isinstance(part, MatrixFilter)]
    expected = [sum(along(s, axis, part, padding) for axis, part in enumerate(filters)) for s in as_array(v)]
    assert relative(layer(v), np.stack(expected)) < 1e-12


def test_the_same_function_at_two_resolutions() -> None:
    torch.manual_seed(0)
    layer = AxialConv(2, (4, 4)).double()
    waves = random_waves(3, 2, 2, np.random.default_rng(0))
    coarse, fine = layer(sample(waves, (8, 9))), layer(sample(waves, (24, 18)))
    assert relative(coarse, fine[:, ::3, ::2]) < 1e-12


def test_shifts_pass_through() -> None:
    torch.manual_seed(0)
    layer, v = AxialConv(3, (3, 4)).double(), torch.randn(1, 7, 8, 3, dtype=torch.float64)
    assert relative(layer(v.roll((2, 3), (1, 2))), layer(v).roll((2, 3), (1, 2))) < 1e-12


def test_gradients() -> None:
    torch.manual_seed(0)
    layer = AxialConv(2, (2, 2), 0.5).double()
    assert torch.autograd.gradcheck(layer, torch.randn(1, 4, 3, 2, dtype=torch.float64, requires_grad=True))


def test_more_modes_than_an_axis_holds_are_refused() -> None:
    layer = AxialConv(2, (3, 5))
    layer(torch.randn(1, 4, 8, 2))  # an axis alone holds n // 2 + 1
    with pytest.raises(
        ShapeError, match=r"modes\[1\]=5 is more than an axis of 7 points holds \(at most 4\); lower modes"
    ):
        layer(torch.randn(1, 4, 7, 2))


@pytest.mark.parametrize("mode_set", ["symmetric", "reference"])
def test_a_filter_between_numbers_of_channels(mode_set: str) -> None:
    torch.manual_seed(0)
    filter = MatrixFilter(3, 5, (3, 4), 1.0, mode_set).double()  # pyright: ignore[reportArgumentType]
    counts = [len(ks) for ks in kept((3, 4), mode_set)]
    spectrum = torch.randn(2, 2, *counts, 3, dtype=torch.float64)
    given = spectrum[:, 0].numpy() + 1j * spectrum[:, 1].numpy()
    expected = np.einsum("bijc,ijco->bijo", given, complex_weight(filter.weight))
    found = as_array(filter(spectrum))
    assert np.allclose(found[:, 0] + 1j * found[:, 1], expected)
