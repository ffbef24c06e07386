r"""What an order-m layer can and cannot hold: the paper's theory, each statement as a number.

1. A product in space is a convolution of spectra: mode k of the layer is
   W_k sum_{k1 + .. + km = k} (A_1 v̂(k1)) .. (A_m v̂(km)).
2. The tied class (all factors equal, what a pointwise nonlinearity gives) lies in the order-n class.
3. Separation. Take C = 3, n = 2 and the target T v = (v1 v2, v2 v0, v0 v1). Its symmetric coefficient
   matrices are T_o = E_o / sqrt 2 with E_0, E_1, E_2 an orthonormal basis of V, the symmetric matrices with
   zero diagonal. A tied family has all its matrices in the span P of a_1 a_1^T, a_2 a_2^T, a_3 a_3^T (a_i the
   rows of A, real or complex). Scale one nonzero row to |a| = 1 and complete R = a a^T to an orthonormal basis
   R, F_2, .. of P. Then

       sum_o |E_o - proj_P E_o|^2 = 3 - |proj_V R|^2 - |proj_V F_2|^2 - ... >= 3 - |proj_V R|^2 - 2
       |proj_V R|^2 = 1 - sum_i |a_i|^4 <= 1 - 1/3

   so delta^2 >= (1/2)(1/3) = 1/6 at every mode where T is the target, a third of |T| = sqrt(3/2).
   Coefficient arrays are symmetric throughout: only their symmetric part is seen by any field.
4. The gap on fields. For a symmetric matrix S and x on the unit sphere of R^3 the mean of (x^T S x)^2 is
   (2 |S|^2 + (tr S)^2) / 15, and the twelve vertices of the icosahedron, a spherical 5-design, give that mean
   exactly. So any tied layer has a mean squared error of at least (2/15)(1/6) = 1/45 on those twelve constant
   fields, and of rho^4/45 on the sphere of radius rho: an error of at least rho^2/sqrt(45) somewhere.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.layers import HigherOrderSpectralConv
from hofno.layers.factors import DenseFactors, SharedFactors
from reference import (
    Wave,
    apply_filter,
    complex_weight,
    factor_maps,
    field,
    kept,
    no_biases,
    random_waves,
    relative,
    sample,
)


def multiplier(weight: np.ndarray, ks: list[list[int]], k: Wave) -> np.ndarray:
    """What a stored Fourier multiplier does to mode k of a real field: nothing outside the kept set."""
    index = {q: position for position, q in enumerate(itertools.product(*ks))}
    rows = weight.reshape(-1, weight.shape[-1])
    minus = tuple(-q for q in k)
    plain = rows[index[k]] if k in index else None
    mirrored = rows[index[minus]].conj() if minus in index else None
    if plain is not None and mirrored is not None:
        return (plain + mirrored) / 2
    found = plain if plain is not None else mirrored
    return np.zeros(weight.shape[-1]) if found is None else found


@pytest.mark.parametrize("factors", ["dense", "shared", "spectral"])
@pytest.mark.parametrize(("dims", "order"), [(1, 2), (1, 3), (2, 2), (2, 3)])
def test_a_product_in_space_is_a_convolution_of_spectra(dims: int, order: int, factors: str) -> None:
    band, width, modes, points = (2 if order == 2 else 1), 2, (3,) * dims, (12,) * dims
    layer = HigherOrderSpectralConv(width, modes, order, factors=factors, weights="dense").double()
    no_biases(layer)
    waves = random_waves(band, dims, width, np.random.default_rng(0))
    ks = kept(modes, "symmetric")
    maps, _ = factor_maps(layer)
    images = [{k: a @ value for k, value in waves.items()} for a in maps]
    if layer.multipliers is not None:
        parts = np.split(complex_weight(layer.multipliers.weight), order, axis=-1)
        images = [
            {k: multiplier(r, ks, k) * value for k, value in image.items()}
            for r, image in zip(parts, images, strict=True)
        ]
    sums = {k: np.zeros(width, dtype=complex) for k in itertools.product(*ks)}
    for terms in itertools.product(waves, repeat=order):
        k = tuple(sum(axis) for axis in zip(*terms, strict=True))
        if k in sums:
            sums[k] += np.prod([image[q] for image, q in zip(images, terms, strict=True)], axis=0)
    spectrum = np.stack(list(sums.values())).reshape(*(len(axis) for axis in ks), width)
    expected = field(apply_filter(layer, spectrum), ks, points)
    assert relative(layer(sample(waves, points))[0], expected) < 1e-12


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("padding", [0.0, 0.5])
def test_the_tied_class_lies_in_the_order_n_class(order: int, padding: float) -> None:
    tied = HigherOrderSpectralConv(3, (3, 3), order, factors="shared", domain_padding=padding).double()
    free = HigherOrderSpectralConv(3, (3, 3), order, factors="dense", domain_padding=padding).double()
    assert isinstance(tied.factors, SharedFactors)
    assert isinstance(free.factors, DenseFactors)
    with torch.no_grad():
        free.factors.linear.weight.copy_(tied.factors.linear.weight.repeat(order, 1))
        free.factors.linear.bias.copy_(tied.factors.linear.bias.repeat(order))
        free.filter.weight.copy_(tied.filter.weight)
    v = torch.randn(2, 8, 7, 3, dtype=torch.float64)
    assert relative(free(v), tied(v)) < 1e-13


def tied_power(a: Tensor, order: int, scale: float, points: int) -> HigherOrderSpectralConv:
    """scale (A v)^n on an odd grid, all of whose modes are kept."""
    layer = HigherOrderSpectralConv(a.shape[0], ((points + 1) // 2,), order, factors="shared").double()
    no_biases(layer)
    assert isinstance(layer.factors, SharedFactors)
    with torch.no_grad():
        layer.factors.linear.weight.copy_(a)
        layer.filter.weight.zero_()
        layer.filter.weight[..., 0] = scale
    return layer


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_the_degree_n_part_of_a_pointwise_nonlinearity_is_tied(degree: int) -> None:
    """sigma a polynomial of degree 4; its parts are told apart by how they scale with t."""
    alphas = [0.3, -1.2, 0.7, 2.1, -0.4]
    a, v = torch.randn(3, 3, dtype=torch.float64), torch.randn(1, 9, 3, dtype=torch.float64)
    scales = torch.tensor([-1.0, -0.5, 0.25, 0.75, 1.0], dtype=torch.float64)
    powers = scales[:, None] ** torch.arange(5, dtype=torch.float64)
    values = torch.stack([torch.stack([c * (t * v @ a.T) ** r for r, c in enumerate(alphas)]).sum(0) for t in scales])
    part = torch.linalg.solve(powers, values.flatten(1))[degree].reshape(v.shape)
    assert relative(part, tied_power(a, degree, alphas[degree], 9)(v)) < 1e-11


def test_the_degree_two_part_of_gelu_is_tied() -> None:
    """gelu(z) = z/2 + z^2/sqrt(2 pi) + O(z^4)."""
    a, v = torch.randn(3, 3, dtype=torch.float64), torch.randn(1, 9, 3, dtype=torch.float64)
    t = torch.zeros_like(v, requires_grad=True)
    (slope,) = torch.autograd.grad(F.gelu(t * (v @ a.T)).sum(), t, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), t)
    assert relative(curvature / 2, tied_power(a, 2, 1 / math.sqrt(2 * math.pi), 9)(v)) < 1e-12


def target(v: Tensor) -> Tensor:
    """(v1 v2, v2 v0, v0 v1)."""
    return torch.roll(v, -1, -1) * torch.roll(v, -2, -1)


def target_matrices() -> Tensor:
    """The symmetric coefficient matrices T_o: (3, 3, 3)."""
    matrices = torch.zeros(3, 3, 3, dtype=torch.complex128)
    for o in range(3):
        i, j = (o + 1) % 3, (o + 2) % 3
        matrices[o, i, j] = matrices[o, j, i] = 0.5
    return matrices


def squared_distance(a: Tensor) -> Tensor:
    """From the target to the nearest tied family with these factors, for a batch of A: (s, 3, 3) -> (s,)."""
    squares = torch.einsum("sij,sik->sjki", a, a).flatten(1, 2)  # columns a_i a_i^T: (s, 9, 3)
    basis, _ = torch.linalg.qr(squares)
    matrices = target_matrices().flatten(1).T  # (9, 3)
    inside = basis.mH @ matrices
    return matrices.abs().square().sum() - inside.abs().square().sum((1, 2))


def icosahedron() -> Tensor:
    """Twelve unit vectors whose means of polynomials up to degree 5 are those of the sphere."""
    golden = (1 + math.sqrt(5)) / 2
    corners = [
        np.roll((0, one, two), turn) for one, two, turn in itertools.product((1, -1), (golden, -golden), range(3))
    ]
    return torch.from_numpy(np.array(corners, dtype=np.float64) / math.hypot(1, golden))


def constant_fields(values: Tensor, points: int = 4) -> Tensor:
    return values[:, None, :].expand(-1, points, -1)


def test_an_order_two_layer_holds_the_target() -> None:
    layer = HigherOrderSpectralConv(3, (5, 5), 2).double()
    no_biases(layer)
    assert isinstance(layer.factors, DenseFactors)
    shift = torch.eye(3, dtype=torch.float64).roll(1, 1)
    with torch.no_grad():
        layer.factors.linear.weight.copy_(torch.cat((shift, shift @ shift)))
        layer.filter.weight.zero_()
        layer.filter.weight[..., 0] = 1.0
    v = torch.randn(2, 9, 9, 3, dtype=torch.float64)
    assert relative(layer(v), target(v)) < 1e-12


def test_the_tied_class_stays_a_sixth_away() -> None:
    """The proved bound holds at 4000 random A, and no minimisation from 40 starts gets below it."""
    a = torch.randn(4000, 3, 3, dtype=torch.complex128)
    assert float(squared_distance(a).min()) > 1 / 6
    a = a[:40].clone().requires_grad_()
    optimiser = torch.optim.Adam([a], lr=0.03)
    for _ in range(300):
        optimiser.zero_grad()
        squared_distance(a).sum().backward()
        optimiser.step()
    best = float(squared_distance(a.detach()).min())
    assert 1 / 6 < best < 1.0  # |T|^2 is 3/2: the minimisation did its work, and the gap remained


def test_a_twelve_point_design_measures_quadratic_forms_exactly() -> None:
    s = torch.randn(3, 3, dtype=torch.float64)
    s = s + s.T
    x = icosahedron()
    mean = torch.einsum("pi,ij,pj->p", x, s, x).square().mean()
    assert math.isclose(float(mean), float(2 * s.square().sum() + s.trace() ** 2) / 15, rel_tol=1e-12)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_no_trained_tied_layer_beats_the_bound(start: int) -> None:
    """Twelve constant fields suffice: mean squared error at least 1/45, and rho^4 of it at radius rho."""
    torch.manual_seed(start)
    layer = HigherOrderSpectralConv(3, (1,), 2, factors="shared", weights="dense").double()
    no_biases(layer)
    assert isinstance(layer.factors, SharedFactors)
    v = constant_fields(icosahedron())
    wanted = target(v)

    def error(radius: float = 1.0) -> Tensor:
        return (layer(radius * v) - radius**2 * wanted)[:, 0].square().sum(-1).mean()

    trained = [layer.factors.linear.weight, layer.filter.weight]
    optimiser = torch.optim.LBFGS(trained, max_iter=200, line_search_fn="strong_wolfe")
    before = float(error().detach())

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = error()
        loss.backward()
        return loss

    optimiser.step(closure)  # pyright: ignore[reportArgumentType]
    after = float(error().detach())
    assert 1 / 45 < after < before
    for radius in (0.1, 3.0):
        assert math.isclose(float(error(radius).detach()), radius**4 * after, rel_tol=1e-9)


def test_one_product_of_two_channels_is_tied_after_all() -> None:
    """v0 v1 = ((v0 + v1)^2 - (v0 - v1)^2)/4: the gap is a property of the target, not of every product."""
    layer = HigherOrderSpectralConv(2, (5,), 2, factors="shared", weights="dense").double()
    no_biases(layer)
    assert isinstance(layer.factors, SharedFactors)
    with torch.no_grad():
        layer.factors.linear.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        layer.filter.weight.zero_()
        layer.filter.weight[..., 0, 0, 0], layer.filter.weight[..., 1, 0, 0] = 0.25, -0.25
    v = torch.randn(1, 9, 2, dtype=torch.float64)
    assert relative(layer(v)[..., 0], v[..., 0] * v[..., 1]) < 1e-12
