"""The spherical harmonic transform against slow references, exact functions and its own identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import sph_harm_y
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.geometry import NODES
from hofno.transforms import sphere
from reference import relative

KINDS = st.sampled_from(NODES)


def random_spectrum(degrees: int, batch: int = 1, channels: int = 1, seed: int = 0) -> Tensor:
    """Coefficients of a real field: no order above the degree, and real ones of order 0."""
    made = torch.Generator().manual_seed(seed)
    spectrum = torch.randn(batch, 2, degrees, degrees, channels, dtype=torch.float64, generator=made)
    spectrum = spectrum * torch.ones(degrees, degrees, dtype=torch.float64).triu().unsqueeze(-1)
    spectrum[:, 1, 0] = 0
    return spectrum


def harmonic(degree: int, order: int, theta: Tensor, phi: Tensor) -> Tensor:
    """Y_l^m of SciPy, whose Condon-Shortley phase is taken out."""
    return torch.from_numpy(sph_harm_y(degree, order, theta.numpy(), phi.numpy())) * (-1) ** order


def mesh(rows: int, columns: int, kind: str) -> tuple[Tensor, Tensor]:
    theta, _ = sphere.nodes(rows, kind)
    phi = 2 * math.pi * torch.arange(columns, dtype=torch.float64) / columns
    return theta.unsqueeze(1).expand(rows, columns), phi.expand(rows, columns)


@pytest.mark.parametrize("rows", [1, 2, 3, 17, 64, 200])
def test_gauss_nodes_are_those_of_numpy_from_north_to_south(rows: int) -> None:
    theta, weights = sphere.nodes(rows, "gauss")
    x, w = np.polynomial.legendre.leggauss(rows)
    assert np.allclose(np.cos(theta.numpy())[::-1], x, rtol=0, atol=2e-15)
    assert np.allclose(weights.numpy()[::-1], w, rtol=0, atol=5e-15)
    assert bool((theta.diff() > 0).all())


@given(rows=st.integers(1, 40), kind=KINDS)
def test_quadrature_is_exact_for_polynomials(rows: int, kind: str) -> None:
    theta, weights = sphere.nodes(rows, kind)
    assert bool((weights > 0).all())
    for power in range(2 * rows if kind == "gauss" else rows):
        exact = 2 / (power + 1) if power % 2 == 0 else 0.0
        assert float((weights * torch.cos(theta) ** power).sum()) == pytest.approx(exact, abs=1e-14)


def test_equiangular_rows_are_half_a_step_from_the_poles() -> None:
    theta, weights = sphere.nodes(4, "equiangular")
    assert theta.tolist() == pytest.approx([math.pi / 8, 3 * math.pi / 8, 5 * math.pi / 8, 7 * math.pi / 8])
    assert float(weights.sum()) == pytest.approx(2)


def test_functions_of_low_degree_by_their_formulas() -> None:
    theta = torch.tensor([0.01, 0.4, 1.3, 2.2, 3.1], dtype=torch.float64)
    x, s = torch.cos(theta), torch.sin(theta)
    table, slope = sphere.legendre(3, theta), sphere.legendre_derivative(3, theta)
    expected = {  # (order, degree): the function and its derivative
        (0, 0): (math.sqrt(1 / (4 * math.pi)) * torch.ones_like(x), 0 * x),
        (0, 1): (math.sqrt(3 / (4 * math.pi)) * x, -math.sqrt(3 / (4 * math.pi)) * s),
        (1, 1): (math.sqrt(3 / (8 * math.pi)) * s, math.sqrt(3 / (8 * math.pi)) * x),
        (0, 2): (math.sqrt(5 / (16 * math.pi)) * (3 * x**2 - 1), -math.sqrt(5 / (16 * math.pi)) * 6 * x * s),
        (1, 2): (math.sqrt(15 / (8 * math.pi)) * s * x, math.sqrt(15 / (8 * math.pi)) * (x**2 - s**2)),
        (2, 2): (math.sqrt(15 / (32 * math.pi)) * s**2, math.sqrt(15 / (32 * math.pi)) * 2 * s * x),
    }
    for (order, degree), (value, derivative) in expected.items():
        torch.testing.assert_close(table[order, degree], value, rtol=0, atol=1e-15)
        torch.testing.assert_close(slope[order, degree], derivative, rtol=0, atol=2e-15)
    assert not table[1, 0].any()
    assert not table[2, :2].any()


def test_functions_are_those_of_scipy() -> None:
    theta = torch.tensor([0.02, 0.3, 1.0, 1.5, 2.9], dtype=torch.float64)
    degrees = 33
    table, slope = sphere.legendre(degrees, theta), sphere.legendre_derivative(degrees, theta)
    for degree in (0, 1, 2, 5, 16, 32):
        for order in range(degree + 1):
            value, first = sph_harm_y(degree, order, theta.numpy(), 0.0, diff_n=1)
            sign = (-1) ** order
            assert np.allclose(table[order, degree], sign * value.real, rtol=0, atol=2e-13)
            assert np.allclose(slope[order, degree], sign * first[..., 0].real, rtol=0, atol=5e-12)


def test_functions_of_high_degree_are_orthonormal_and_underflow_harms_none() -> None:
    """sin^m theta is 1e-1280 in the first row at the highest order, where float64 ends at 1e-308."""
    degrees = 400
    theta, weights = sphere.nodes(degrees, "gauss")
    table = sphere.legendre(degrees, theta)
    assert bool(table.isfinite().all())
    for order in (0, 1, 7, 150, 300, 399):
        rows = table[order, order:]
        product = 2 * math.pi * (rows * weights) @ rows.T
        torch.testing.assert_close(product, torch.eye(len(rows), dtype=torch.float64), rtol=0, atol=2e-13)


def test_a_start_below_the_smallest_number_grows_back() -> None:
    """Near a pole P_m^m is zero in float64, and the function of degree 2400 is not; the addition theorem knows."""
    theta = torch.tensor([0.4], dtype=torch.float64)
    degrees = 2401
    assert math.sin(0.4) ** 900 < 1e-308
    column = sphere.legendre(degrees, theta)[:, -1, 0]
    total = column[0].square() + 2 * column[1:].square().sum()
    assert float(total) == pytest.approx((2 * degrees - 1) / (4 * math.pi), rel=1e-10)
    assert float(column[800:].abs().max()) > 1e-3


@pytest.mark.parametrize("kind", NODES)
def test_forward_is_the_integral_against_each_harmonic(kind: str) -> None:
    """A field that is not band-limited, on rows fine enough for sums to be integrals."""
    theta, phi = mesh(40, 81, kind)
    field = torch.exp(torch.sin(theta) * torch.cos(phi - 0.3) + 0.5 * torch.cos(theta))
    spectrum = sphere.forward(field[None, :, :, None], 6, kind)
    _, weights = sphere.nodes(40, kind)
    for degree in range(6):
        for order in range(degree + 1):
            terms = field * harmonic(degree, order, theta, phi).conj() * weights.unsqueeze(1) * (2 * math.pi / 81)
            exact = complex(terms.sum())
            assert spectrum[0, 0, order, degree, 0].item() == pytest.approx(exact.real, abs=1e-13)
            assert spectrum[0, 1, order, degree, 0].item() == pytest.approx(exact.imag, abs=1e-13)


@pytest.mark.parametrize("kind", NODES)
def test_inverse_is_the_sum_over_harmonics(kind: str) -> None:
    spectrum = random_spectrum(5)
    theta, phi = mesh(7, 10, kind)
    expected = torch.zeros_like(theta)
    for degree in range(5):
        for order in range(degree + 1):
            c = torch.complex(spectrum[0, 0, order, degree, 0], spectrum[0, 1, order, degree, 0])
            expected += (1 if order == 0 else 2) * (c * harmonic(degree, order, theta, phi)).real
    torch.testing.assert_close(sphere.inverse(spectrum, 7, 10, kind)[0, ..., 0], expected, rtol=0, atol=1e-13)


@given(
    degrees=st.integers(1, 12),
    more_rows=st.integers(0, 3),
    more_columns=st.integers(0, 3),
    kind=KINDS,
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_round_trips_are_exact_from_the_smallest_grid_on(
    degrees: int, more_rows: int, more_columns: int, kind: str, seed: int
) -> None:
    spectrum = random_spectrum(degrees, 2, 3, seed)
    rows, columns = degrees + more_rows, 2 * degrees - 1 + more_columns
    field = sphere.inverse(spectrum, rows, columns, kind)
    assert field.shape == (2, rows, columns, 3)
    torch.testing.assert_close(sphere.forward(field, degrees, kind), spectrum, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", NODES)
def test_coefficients_mean_the_same_function_on_every_grid(kind: str) -> None:
    spectrum = random_spectrum(7, 1, 2)
    coarse = sphere.inverse(spectrum, 7, 13, kind)
    for other in NODES:
        fine = sphere.inverse(sphere.forward(coarse, 7, kind), 19, 31, other)
        torch.testing.assert_close(fine, sphere.inverse(spectrum, 19, 31, other), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "rows"), [("gauss", 9), ("equiangular", 13)])
def test_products_are_exact_where_the_docstring_says_so(kind: str, rows: int) -> None:
    """Degrees 6 + 6 and 6 kept: 12 + 6 <= 2 * 9 rows (gauss), 12 < 13 rows (equiangular), 12 + 6 <= 18 columns."""
    degrees, a, b = 6, random_spectrum(7, seed=1), random_spectrum(7, seed=2)

    def kept(rows: int, columns: int, kind: str) -> Tensor:
        product = sphere.inverse(a, rows, columns, kind) * sphere.inverse(b, rows, columns, kind)
        return sphere.forward(product, degrees, kind)

    exact = kept(40, 80, "gauss")
    torch.testing.assert_close(kept(rows, 18, kind), exact, rtol=0, atol=1e-12)
    assert relative(kept(rows - 1, 18, kind), exact) > 1e-4
    assert relative(kept(rows, 17, kind), exact) > 1e-4


def test_power_is_the_integral_of_the_square_by_degree() -> None:
    spectrum = random_spectrum(6, 2, 2)
    field = sphere.inverse(spectrum, 12, 23, "gauss")
    _, weights = sphere.nodes(12, "gauss")
    integral = (field.square().sum(2) * weights.unsqueeze(1)).sum(1) * (2 * math.pi / 23)
    torch.testing.assert_close(sphere.power(spectrum).sum(1), integral)
    only = torch.zeros_like(spectrum)
    only[:, :, :, 4] = spectrum[:, :, :, 4]
    assert sphere.power(only)[:, [0, 1, 2, 3, 5]].abs().max() == 0
    torch.testing.assert_close(sphere.power(only)[:, 4], sphere.power(spectrum)[:, 4])


@pytest.mark.parametrize("kind", NODES)
def test_gradient_of_an_exact_function(kind: str) -> None:
    """f = sin theta cos phi + cos^2 theta + sin^2 theta sin 2 phi, of degree 2."""
    theta, phi = mesh(6, 9, kind)
    s, x = torch.sin(theta), torch.cos(theta)
    field = s * torch.cos(phi) + x**2 + s**2 * torch.sin(2 * phi)
    south, east = sphere.gradient(sphere.forward(field[None, :, :, None], 3, kind), 6, 9, kind)
    exact_south = x * torch.cos(phi) - 2 * x * s + 2 * s * x * torch.sin(2 * phi)
    exact_east = -torch.sin(phi) + 2 * s * torch.cos(2 * phi)
    torch.testing.assert_close(south[0, ..., 0], exact_south, rtol=0, atol=1e-13)
    torch.testing.assert_close(east[0, ..., 0], exact_east, rtol=0, atol=1e-13)


def test_divergence_and_vorticity_of_an_exact_field() -> None:
    """u_phi = sin theta, a solid rotation, has vorticity 2 cos theta; u_theta = sin theta has that divergence."""
    theta, _ = mesh(5, 7, "gauss")
    turn = torch.sin(theta)[None, :, :, None]
    expected = sphere.forward(2 * torch.cos(theta)[None, :, :, None], 4, "gauss")
    for along, (first, second) in ((True, (torch.zeros_like(turn), turn)), (False, (turn, torch.zeros_like(turn)))):
        divergence, vorticity = sphere.divergence_curl(first, second, 4, "gauss")
        found, nothing = (vorticity, divergence) if along else (divergence, vorticity)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
        assert float(nothing.abs().max()) < 1e-14


@given(degrees=st.integers(1, 10), more=st.integers(0, 3), kind=KINDS, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_divergence_and_vorticity_of_gradients_and_of_turned_gradients(
    degrees: int, more: int, kind: str, seed: int
) -> None:
    """div grad f = Laplace f and curl grad f = 0; for k x grad f the other way round; from the smallest grid on."""
    spectrum = random_spectrum(degrees, 2, 2, seed)
    laplacian = sphere.eigenvalues(degrees, spectrum) * spectrum
    south, east = sphere.gradient(spectrum, degrees + more, 2 * degrees - 1 + more, kind)
    for (first, second), turned in (((south, east), False), ((-east, south), True)):
        divergence, vorticity = sphere.divergence_curl(first, second, degrees, kind)
        found, nothing = (vorticity, divergence) if turned else (divergence, vorticity)
        torch.testing.assert_close(found, laplacian, rtol=0, atol=2e-12 * degrees**2)
        assert float(nothing.abs().max()) < 2e-12 * degrees**2


@pytest.mark.parametrize("kind", NODES)
def test_derivatives_of_the_transforms(kind: str) -> None:
    field = torch.randn(1, 4, 7, 2, dtype=torch.float64, requires_grad=True)
    spectrum = torch.randn(1, 2, 3, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: sphere.forward(x, 4, kind), field)
    assert torch.autograd.gradcheck(lambda s: sphere.inverse(s, 4, 7, kind), spectrum)
    assert torch.autograd.gradcheck(lambda s: sphere.gradient(s, 4, 7, kind), spectrum)
    assert torch.autograd.gradcheck(lambda x: sphere.divergence_curl(x, x * x, 4, kind), field)


@pytest.mark.parametrize("kind", NODES)
def test_single_precision_at_degree_128(kind: str) -> None:
    spectrum = random_spectrum(128)
    field = sphere.inverse(spectrum, 128, 256, kind)
    found = sphere.inverse(spectrum.float(), 128, 256, kind)
    assert found.dtype == torch.float32
    assert relative(found.double(), field) < 1e-6
    assert relative(sphere.forward(found, 128, kind).double(), spectrum) < 3e-6


def test_what_is_added_comes_in_the_same_pass() -> None:
    spectrum, more = random_spectrum(3, 2, 2), torch.randn(2, 4, 6, 2, dtype=torch.float64)
    torch.testing.assert_close(
        sphere.inverse(spectrum, 4, 6, "gauss", add=more), sphere.inverse(spectrum, 4, 6, "gauss") + more
    )


def test_grids_that_hold_too_little_are_refused() -> None:
    expected = r"degrees=5 needs at least 5 rows and 9 columns; the grid has {} and holds degrees={}; lower degrees"
    with pytest.raises(ShapeError, match=expected.format("4 x 12", 4)):
        sphere.forward(torch.zeros(1, 4, 12, 1), 5, "gauss")
    with pytest.raises(ShapeError, match=expected.format("9 x 8", 4)):
        sphere.inverse(torch.zeros(1, 2, 5, 5, 1), 9, 8, "gauss")
    with pytest.raises(ShapeError, match="holds degrees=4"):
        sphere.gradient(torch.zeros(1, 2, 5, 5, 1), 9, 8, "gauss")
    with pytest.raises(ShapeError, match="holds degrees=4"):
        sphere.divergence_curl(torch.zeros(1, 4, 9, 1), torch.zeros(1, 4, 9, 1), 5, "gauss")
    with pytest.raises(ShapeError, match=r"one shape; got \(1, 4, 9, 1\) and \(1, 9, 9, 1\)"):
        sphere.divergence_curl(torch.zeros(1, 4, 9, 1), torch.zeros(1, 9, 9, 1), 4, "gauss")
    with pytest.raises(ShapeError, match="degrees must be at least 1"):
        sphere.check_degrees(0, 4, 4)
    with pytest.raises(SpecError, match="nodes must be one of gauss, equiangular; got 'healpix'"):
        sphere.forward(torch.zeros(1, 4, 7, 1), 4, "healpix")
    with pytest.raises(ShapeError, match="at least 1 row"):
        sphere.nodes(0, "gauss")
