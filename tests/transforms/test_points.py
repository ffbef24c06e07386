"""Transforms at scattered points against explicit sums, the grid's own transforms, each other and their gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from hofno.errors import ShapeError
from hofno.geometry import MODE_SETS, ModeSet, grid_coordinates
from hofno.transforms import fourier, points
from reference import as_array, kept, relative

Shape = tuple[int, ...]
CASES: list[Shape] = [(1,), (4,), (3, 4), (1, 3), (4, 1), (2, 3, 2)]


def slow_sum(u: np.ndarray, x: np.ndarray, w: np.ndarray, ks: list[list[int]]) -> np.ndarray:
    """sum_i w_i u(x_i) exp(-2 pi i k.x_i) of (N, c), one wavenumber at a time: (2, K.., c)."""
    rows = []
    for k in itertools.product(*ks):
        phase = np.exp(-2j * math.pi * (x @ np.array(k, dtype=float)))
        rows.append((w[:, None] * u * phase[:, None]).sum(0))
    found = np.stack(rows).reshape(*map(len, ks), u.shape[1])
    return np.stack((found.real, found.imag))


def slow_series(s: np.ndarray, x: np.ndarray, ks: list[list[int]], mirror: str) -> np.ndarray:
    """The function of a half spectrum (2, K.., c), its other half written out wavenumber by wavenumber: (N, c)."""
    rows = (s[0] + 1j * s[1]).reshape(-1, s.shape[-1])
    out = np.zeros((len(x), s.shape[-1]), dtype=complex)
    for k, row in zip(itertools.product(*ks), rows, strict=True):
        out += np.exp(2j * math.pi * (x @ np.array(k, dtype=float)))[:, None] * row
        if k[-1] > 0:
            shift = 0 if mirror == "exact" else 1
            image = np.array([*(-shift - q for q in k[:-1]), -k[-1]], dtype=float)
            out += np.exp(2j * math.pi * (x @ image))[:, None] * row.conj()
    return out.real


def cloud(modes: Shape, count: int = 11, batch: int = 2) -> tuple[Tensor, Tensor]:
    values = torch.randn(batch, count, 3, dtype=torch.float64)
    return values, torch.rand(batch, count, len(modes), dtype=torch.float64) * 3 - 1


def spectrum_for(modes: Shape, mode_set: ModeSet, batch: int = 2) -> Tensor:
    return torch.randn(batch, 2, *map(len, kept(modes, mode_set)), 3, dtype=torch.float64)


@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize("modes", CASES)
def test_type_1_is_the_sum(modes: Shape, mode_set: ModeSet) -> None:
    values, coords = cloud(modes)
    ks, weights = kept(modes, mode_set), torch.rand(2, 11, dtype=torch.float64)
    for given_weights in (None, weights):
        w = torch.full_like(weights, 1 / 11) if given_weights is None else given_weights
        expected = [slow_sum(*map(as_array, row), ks) for row in zip(values, coords, w, strict=True)]
        found = points.to_modes(values, coords, modes, mode_set, weights=given_weights)
        assert relative(found, np.stack(expected)) < 1e-13


@pytest.mark.parametrize("mirror", ["exact", "shifted"])
@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize("modes", CASES)
def test_type_2_is_the_series(modes: Shape, mode_set: ModeSet, mirror: points.Mirror) -> None:
    spectrum, (_, coords) = spectrum_for(modes, mode_set), cloud(modes)
    expected = [
        slow_series(as_array(s), as_array(x), kept(modes, mode_set), mirror)
        for s, x in zip(spectrum, coords, strict=True)
    ]
    assert relative(points.from_modes(spectrum, coords, modes, mode_set, mirror), np.stack(expected)) < 1e-13


@pytest.mark.parametrize("mode_set", MODE_SETS)
@pytest.mark.parametrize(("shape", "modes"), [((9,), (5,)), ((8, 7), (3, 4)), ((9, 8), (4, 4)), ((5, 6, 7), (2, 3, 3))])
def test_a_uniform_grid_of_points_gives_the_transforms_of_the_grid(
    shape: Shape, modes: Shape, mode_set: ModeSet
) -> None:
    coords = grid_coordinates(shape, "periodic").flatten(0, -2).expand(2, -1, -1)
    u = torch.randn(2, *shape, 3, dtype=torch.float64)
    found = points.to_modes(u.flatten(1, -2), coords, modes, mode_set)
    assert torch.allclose(found, fourier.forward(u, modes, mode_set), rtol=0, atol=1e-14)
    spectrum = spectrum_for(modes, mode_set)
    back = points.from_modes(spectrum, coords, modes, mode_set).unflatten(1, shape)
    assert torch.allclose(back, fourier.inverse(spectrum, shape, modes, mode_set), rtol=0, atol=1e-12)


def test_a_band_limited_function_is_read_between_the_grid_points_and_the_shifted_mirror_is_not_it() -> None:
    grid = grid_coordinates((12, 12), "periodic").flatten(0, -2)[None]
    elsewhere = torch.rand(1, 50, 2, dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return torch.sin(2 * math.pi * (2 * x[..., :1] - x[..., 1:])) + torch.cos(2 * math.pi * 3 * x[..., 1:]) + 0.3

    spectrum = points.to_modes(function(grid), grid, (4, 4), "reference")
    exact = points.from_modes(spectrum, elsewhere, (4, 4), "reference")
    assert relative(exact, function(elsewhere)) < 1e-13
    assert relative(points.from_modes(spectrum, elsewhere, (4, 4), "reference", "shifted"), function(elsewhere)) > 0.3


@given(st.integers(1, 3), st.integers(1, 20), st.sampled_from(MODE_SETS), st.integers(0, 2**31))
def test_the_two_are_adjoint(dims: int, count: int, mode_set: ModeSet, seed: int) -> None:
    """<to_modes(u), s> = <u, from_modes(s)> with equal weights, counting the modes with k_d > 0 twice."""
    torch.manual_seed(seed)
    modes = (3, 2, 3)[:dims]
    values, coords = cloud(modes, count)
    spectrum = spectrum_for(modes, mode_set)
    twice = torch.tensor([1.0, *[2.0] * (modes[-1] - 1)], dtype=torch.float64).unsqueeze(-1)
    left = (points.to_modes(values, coords, modes, mode_set, weights=torch.ones(2, count)) * spectrum * twice).sum()
    right = (values * points.from_modes(spectrum, coords, modes, mode_set)).sum()
    assert torch.allclose(left, right, rtol=1e-11, atol=1e-11)


@given(st.integers(1, 3), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 2**31))
def test_a_mask_is_the_same_as_fewer_points(dims: int, counts: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    modes, longest = (3, 2, 2)[:dims], max(counts)
    values, coords = cloud(modes, longest, len(counts))
    mask = torch.arange(longest) < torch.tensor(counts)[:, None]
    hidden = values.masked_fill(~mask[..., None], torch.nan), coords.masked_fill(~mask[..., None], torch.inf)
    found = points.to_modes(*hidden, modes, mask=mask)
    for index, count in enumerate(counts):
        alone = points.to_modes(values[index : index + 1, :count], coords[index : index + 1, :count], modes)
        assert torch.allclose(found[index], alone[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("mirror", ["exact", "shifted"])
@pytest.mark.parametrize("modes", [(3,), (2, 3), (2, 2, 2)])
def test_gradients(modes: Shape, mirror: points.Mirror) -> None:
    """Of the values, the points, the weights and the spectrum: the points are learnt."""
    values, coords = (part.requires_grad_() for part in cloud(modes, 4))
    weights = torch.rand(2, 4, dtype=torch.float64, requires_grad=True)
    spectrum = spectrum_for(modes, "symmetric").requires_grad_()
    mask = torch.tensor([[True] * 4, [True, True, False, True]])

    def forward(u: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return points.to_modes(u, x, modes, weights=w, mask=mask)

    def back(s: Tensor, x: Tensor) -> Tensor:
        return points.from_modes(s, x, modes, "symmetric", mirror)

    assert torch.autograd.gradcheck(forward, (values, coords, weights))
    assert torch.autograd.gradcheck(back, (spectrum, coords))
    assert torch.autograd.gradgradcheck(back, (spectrum, coords), atol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("tile", [points.TILE, 1])
@pytest.mark.parametrize("modes", [(3,), (2, 3)])
def test_other_derivatives(modes: Shape, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward mode, of the points too, and the transforms of torch.func."""
    monkeypatch.setattr(points, "TILE", tile)
    values, coords = cloud(modes, 4)
    tangents = torch.randn_like(values), torch.randn_like(coords)

    def there_and_back(u: Tensor, x: Tensor) -> Tensor:
        return points.from_modes(points.to_modes(u, x, modes), x, modes)

    ahead, behind = (there_and_back(values + h * tangents[0], coords + h * tangents[1]).detach() for h in (1e-6, -1e-6))
    _, forward_mode = torch.func.jvp(there_and_back, (values, coords), tangents)
    assert torch.allclose(forward_mode, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-6)
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(part, tangent) for part, tangent in zip((values, coords), tangents, strict=True))
        assert torch.allclose(forward_ad.unpack_dual(there_and_back(*duals)).tangent, forward_mode)
    found = torch.func.vmap(there_and_back)(torch.stack((values, -values)), torch.stack((coords, coords)))
    assert torch.allclose(found[1], there_and_back(-values, coords))
    given = values.clone().requires_grad_(), coords.clone().requires_grad_()
    expected = torch.autograd.grad(there_and_back(*given).square().sum(), given)
    gradients = torch.func.grad(lambda u, x: there_and_back(u, x).square().sum(), (0, 1))(values, coords)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other)


def test_what_a_mask_leaves_out_is_in_no_gradient() -> None:
    """Whatever it is: not a number, here."""
    values, coords = cloud((2, 3), 4)
    weights = torch.rand(2, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, True]])
    for part in (values, coords, weights):
        part[1, 2] = torch.nan
        part.requires_grad_()
    points.to_modes(values, coords, (2, 3), weights=weights, mask=mask).square().sum().backward()
    for part in (values, coords, weights):
        assert part.grad is not None
        assert bool(part.grad.isfinite().all())
        assert not part.grad[1, 2].any()


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        values, coords = (part.requires_grad_() for part in cloud((3, 4), 23))
        spectrum = points.to_modes(values, coords, (3, 4))
        back = points.from_modes(spectrum, coords, (3, 4))
        return spectrum, back, *torch.autograd.grad(back.square().sum(), (values, coords))

    whole = outcome()
    monkeypatch.setattr(points, "TILE", 2 * 2 * 20 * 5)
    for a, b in zip(outcome(), whole, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_large_coordinates_keep_their_digits() -> None:
    values, coords = cloud((12, 12), 40)
    exact = points.to_modes(values, coords, (12, 12))
    assert relative(points.to_modes(values.float(), coords.float(), (12, 12)), exact) < 1e-5


@pytest.mark.parametrize("shape", [(2, 11), (2, 11, 3), (1, 11, 2), (2, 10, 2)])
def test_wrong_coordinates_are_refused(shape: Shape) -> None:
    match = r"coords must be \(batch, points, 2\)" if shape[2:] != (2,) else "values must fit coords"
    with pytest.raises(ShapeError, match=match):
        points.to_modes(torch.randn(2, 11, 3), torch.rand(shape), (3, 4))
    if shape != (2, 10, 2):
        with pytest.raises(ShapeError, match=match.replace("values", "spectrum")):
            points.from_modes(spectrum_for((3, 4), "symmetric"), torch.rand(shape), (3, 4))
