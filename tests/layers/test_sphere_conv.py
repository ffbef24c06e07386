"""The order-m spectral convolution on the sphere: its formula, its symmetries, its errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.geometry import NODES, Nodes
from hofno.layers import ClassicBlock, HigherOrderSphericalConv, ModernBlock
from hofno.layers.blocks import stack_of_blocks
from hofno.transforms import sphere
from reference import relative
from spherical import evaluated, integrated, places, polynomials, rotation


def layer(degrees: int = 5, order: int = 2, **arguments: str) -> HigherOrderSphericalConv:
    return HigherOrderSphericalConv(3, degrees, order, **arguments).double()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("order", [1, 2, 3])
@torch.no_grad()
def test_the_layer_is_its_formula(order: int, weights: str) -> None:
    conv = layer(order=order, weights=weights, nodes="gauss")
    v = torch.randn(1, 7, 12, 3, dtype=torch.float64)
    linear = conv.factors.linear
    assert isinstance(linear, torch.nn.Linear)
    z = torch.stack(linear(v).chunk(order, -1)).prod(0)
    x = places(7, 12, "gauss")
    spectrum = integrated(z[0], x, sphere.nodes(7, "gauss")[1], 5)  # (2, M, L, c)
    weight = conv.filter.weight
    matrices = weight if weights == "dense" else torch.diag_embed(weight)  # (L, c, c)
    expected = evaluated(torch.einsum("imlc,lco->imlo", spectrum, matrices), x)
    torch.testing.assert_close(conv(v)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("factors", ["dense", "identity", "diagonal", "low-rank(2)", "shared"])
@torch.no_grad()
def test_turns_about_the_polar_axis_commute_with_it(factors: str, nodes: Nodes) -> None:
    conv = layer(factors=factors, nodes=nodes)
    v = torch.randn(2, 6, 11, 3, dtype=torch.float64)
    for columns in (1, 4):
        torch.testing.assert_close(conv(v.roll(columns, 2)), conv(v).roll(columns, 2), rtol=0, atol=1e-13)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@torch.no_grad()
def test_every_rotation_commutes_with_it(weights: str, nodes: Nodes) -> None:
    """Fields of degree 3, whose products of degree 6 the grid resolves: H(v . R) = (H v) . R at every place."""
    conv = layer(degrees=7, weights=weights, nodes=nodes)
    x, turn = places(8, 15, nodes), rotation()
    before = polynomials(x, 3, 3)[None]
    after = polynomials(x @ turn.T, 3, 3)[None]
    spectrum = sphere.forward(conv(before), 7, nodes)[0]
    expected = evaluated(spectrum, x @ turn.T)
    assert relative(expected, conv(before)[0]) > 0.1, "the rotation does something"
    assert relative(conv(after)[0], expected) < 1e-12


@torch.no_grad()
def test_it_is_the_same_function_on_every_grid() -> None:
    """Where the product is resolved, on rows of either kind."""
    found: list[Tensor] = []
    grids: list[tuple[Nodes, int, int]]
    grids = [("gauss", 7, 13), ("gauss", 12, 20), ("equiangular", 7, 14), ("equiangular", 16, 32)]
    for nodes, rows, columns in grids:
        torch.manual_seed(0)
        conv = layer(degrees=5, nodes=nodes)
        out = conv(polynomials(places(rows, columns, nodes), 3, 3)[None])
        found.append(sphere.forward(out, 5, nodes))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
@torch.no_grad()
def test_without_bias_it_is_homogeneous_of_its_order(order: int) -> None:
    conv, v = layer(order=order, factors="identity"), torch.randn(1, 6, 9, 3, dtype=torch.float64)
    torch.testing.assert_close(conv(2 * v), 2**order * conv(v))


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
def test_derivatives(weights: str) -> None:
    conv = layer(degrees=3, weights=weights)
    v, add = (torch.randn(1, 3, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda v, add, _: conv(v, add), (v, add, conv.filter.weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.no_grad()
def test_what_is_added_and_what_type_comes_out(dtype: torch.dtype) -> None:
    conv = HigherOrderSphericalConv(3, 4).to(dtype)
    v, add = torch.randn(1, 4, 8, 3, dtype=dtype), torch.randn(1, 4, 8, 3, dtype=dtype)
    assert conv(v).dtype == conv(v, add).dtype == dtype
    assert relative(conv(v, add).float(), (conv(v) + add).float()) < 1e-2
    assert conv(v, add.float()).dtype == torch.float32


def test_both_blocks_take_it() -> None:
    for backbone, kind in (("modern", ModernBlock), ("classic", ClassicBlock)):
        blocks = stack_of_blocks(2, lambda: HigherOrderSphericalConv(4, 3), backbone, 2, 0.0)
        v = torch.randn(1, 3, 5, 4)
        for block in blocks:
            assert isinstance(block, kind)
            v = block(v)
        assert v.shape == (1, 3, 5, 4)


def test_what_it_cannot_take_is_refused() -> None:
    conv = HigherOrderSphericalConv(3, 5)
    with pytest.raises(ShapeError, match=r"\(batch, rows, columns, 3 channels\); got shape \(1, 3, 8, 9\)"):
        conv(torch.zeros(1, 3, 8, 9))
    with pytest.raises(ShapeError, match="degrees=5 needs at least 5 rows and 9 columns"):
        conv(torch.zeros(1, 4, 9, 3))
    with pytest.raises(SpecError, match="factors on spheres and surfaces are pointwise"):
        HigherOrderSphericalConv(3, 5, factors="spectral")
    for wrong in ({"width": 0}, {"degrees": 0}, {"order": 0}):
        with pytest.raises(SpecError, match="must be at least 1; got 0"):
            HigherOrderSphericalConv(**{"width": 3, "degrees": 5, **wrong})  # pyright: ignore[reportArgumentType]
    for wrong in ({"weights": "sparse"}, {"nodes": "healpix"}):
        with pytest.raises(SpecError, match="must be one of"):
            HigherOrderSphericalConv(3, 5, **wrong)  # pyright: ignore[reportArgumentType]
