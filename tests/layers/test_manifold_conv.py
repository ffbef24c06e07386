"""The order-m spectral convolution on a surface: its formula, degree and gradients, and where its surface is from."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.layers import ClassicBlock, HigherOrderSurfaceConv, ModernBlock
from hofno.layers.blocks import stack_of_blocks
from hofno.layers.manifold import SurfaceBasis
from hofno.problems.lumpy_torus import lumpy_torus
from triangulated import torus

TORUS = torus(5, 4)


def layer(order: int = 2, functions: int = 6, *, placed: bool = True, **arguments: str) -> HigherOrderSurfaceConv:
    basis = SurfaceBasis(functions)
    if placed:
        basis.place(TORUS, torch.zeros(1, dtype=torch.float64))
    return HigherOrderSurfaceConv(3, basis, order, **arguments).double()  # pyright: ignore[reportArgumentType]


def fields(count: int = 2) -> Tensor:
    return torch.randn(count, 20, 3, dtype=torch.float64)


@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("order", [1, 2, 3])
@torch.no_grad()
def test_the_layer_is_its_formula(order: int, weights: str) -> None:
    conv, v = layer(order, weights=weights), fields()
    linear = conv.factors.linear
    assert isinstance(linear, torch.nn.Linear)
    z = torch.stack(linear(v).chunk(order, -1)).prod(0)
    functions, areas, _ = conv.basis.placed()
    expected = torch.zeros_like(v)
    for j in range(6):
        coefficient = sum(areas[n] * functions[n, j] * z[:, n] for n in range(20))  # (b, c)
        weight = conv.filter.weight[j]
        coefficient = coefficient @ weight if weights == "dense" else coefficient * weight
        expected += functions[:, j, None] * coefficient[:, None]
    torch.testing.assert_close(conv(v), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(conv(v, add=v), expected + v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("factors", ["dense", "identity", "diagonal", "low-rank(2)", "shared"])
@given(scale=st.floats(-3, 3), order=st.integers(1, 4))
@torch.no_grad()
def test_without_biases_its_degree_is_its_order(factors: str, scale: float, order: int) -> None:
    conv = layer(order, factors=factors)
    for name, parameter in conv.factors.named_parameters():
        if "bias" in name:
            parameter.zero_()
    v = fields()
    torch.testing.assert_close(conv(scale * v), scale**order * conv(v), rtol=1e-9, atol=1e-9)


def test_gradients() -> None:
    conv, v = layer(functions=5), fields(1).requires_grad_()
    assert torch.autograd.gradcheck(conv, (v,))
    weight = conv.filter.weight.detach().requires_grad_()

    def by_weight(values: Tensor) -> Tensor:
        return torch.func.functional_call(conv, {"filter.weight": values}, (v.detach(),))

    assert torch.autograd.gradcheck(by_weight, (weight,))


@pytest.mark.parametrize("backbone", ["modern", "classic"])
@torch.no_grad()
def test_blocks_take_it(backbone: str) -> None:
    (block,) = stack_of_blocks(1, layer, backbone, 2, 0.0).double()
    v = fields()
    if isinstance(block, ModernBlock):
        u = v + block.conv(block.norm1(v))
        expected = u + block.mlp(block.norm2(u))
    else:
        assert isinstance(block, ClassicBlock)
        expected = block.skip(v) + block.conv(v)
    torch.testing.assert_close(block(v), expected)


class TestBasis:
    def test_positions_are_about_the_centre(self) -> None:
        basis = SurfaceBasis(3)
        basis.place(lumpy_torus(8, 5.0), torch.zeros(1, dtype=torch.float64))
        _, areas, positions = basis.placed()
        torch.testing.assert_close(areas @ positions, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
        assert float(positions.norm(dim=1).max()) == pytest.approx(1.0)

    def test_it_is_saved_once_and_moves_with_the_network(self) -> None:
        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.basis = SurfaceBasis(4)
                self.basis.place(TORUS, torch.zeros(1))
                self.layers = torch.nn.ModuleList(HigherOrderSurfaceConv(3, self.basis) for _ in range(2))

        net = Net()
        assert [key for key in net.state_dict() if "functions" in key] == ["basis.functions"]
        other = copy.deepcopy(net).double()
        for one in other.layers:
            assert isinstance(one, HigherOrderSurfaceConv)
            assert one.basis is other.basis
            assert one(fields()).dtype == torch.float64

    def test_what_is_there_is_not_computed_again(self) -> None:
        """The functions of a trained network stay, whatever another machine would find."""
        basis, like = SurfaceBasis(4), torch.zeros(1)
        basis.reserve(TORUS, like)
        assert not basis.placed()[1].any()
        basis.place(TORUS, like)
        functions = basis.placed()[0]
        assert functions.any()
        functions.neg_()
        kept = functions.clone()
        basis.place(TORUS, like)
        assert torch.equal(basis.placed()[0], kept)


def test_what_it_cannot_be_or_take_is_refused() -> None:
    with pytest.raises(SpecError, match=r"on no surface yet; .*model.place\(surface\) first"):
        layer(placed=False)(fields())
    conv = layer()
    with pytest.raises(SpecError, match=r"is on another surface.*make a new network"):
        conv.basis.place(torus(4, 5), torch.zeros(1))
    for wrong in (fields()[:, :-1], fields()[..., :2], fields()[0]):
        with pytest.raises(ShapeError, match=r"\(batch, 20 vertices, 3 channels\)"):
            conv(wrong)
    with pytest.raises(ShapeError, match="1 to 20 basis functions; got functions=21"):
        layer(functions=21)
    with pytest.raises(SpecError, match="factors on spheres and surfaces are pointwise"):
        layer(factors="spectral")
    with pytest.raises(SpecError, match="weights must be one of"):
        layer(weights="none")
    with pytest.raises(SpecError, match="functions must be at least 1"):
        SurfaceBasis(0)
