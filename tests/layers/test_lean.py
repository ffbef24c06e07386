"""The CPU's own forward and backward passes against the plain formulas they stand for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from hofno.errors import ShapeError
from hofno.layers import HigherOrderSpectralConv, ModernBlock, factors, filters, parts
from hofno.layers.factors import DenseFactors
from hofno.layers.filters import DepthwiseFilter
from hofno.layers.parts import MLP, RMSNorm

TILES = [7, 20, 10**6]
TOLERANCES = {torch.float64: {"rtol": 1e-12, "atol": 1e-12}, torch.float32: {"rtol": 1e-4, "atol": 1e-4}}


class ResidualMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.norm = MLP(6, 10, 6), RMSNorm(6)

    def forward(self, v: Tensor) -> Tensor:
        return self.mlp.residual(v, self.norm)


class NormFactors(nn.Module):
    def __init__(self, order: int) -> None:
        super().__init__()
        self.factors, self.norm = DenseFactors(6, order), RMSNorm(6)

    def forward(self, v: Tensor) -> Tensor:
        return self.factors(v, self.norm)


LEAN_MODULES: dict[str, Callable[[], nn.Module]] = {
    "norm": lambda: RMSNorm(6),
    "mlp": lambda: MLP(6, 10, 6),
    "norm and mlp": ResidualMLP,
    "factors 2": lambda: DenseFactors(6, 2),
    "factors 4": lambda: DenseFactors(6, 4),
    "norm and factors 2": lambda: NormFactors(2),
    "norm and factors 3": lambda: NormFactors(3),
    "filter": lambda: DepthwiseFilter(6, (2, 3), "reference", 1.0),
}
ON_ROWS = [name for name in LEAN_MODULES if name != "filter"]


def made(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    module = LEAN_MODULES[name]().to(dtype)
    for p in module.parameters():
        nn.init.normal_(p)
    shape = (2, 2, 4, 3, 6) if name == "filter" else (2, 5, 6)
    return module, torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.fixture(params=LEAN_MODULES)
def lean_module(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    return made(request.param)


def without_lean(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Callable[[Tensor], Tensor]:
    def plain(x: Tensor) -> Tensor:
        with monkeypatch.context() as patch:
            for home in (parts, factors, filters):
                patch.setattr(home, "lean", lambda *_: False)
            return module(x)

    return plain


def has_own_backward(y: Tensor) -> bool:
    """Whether the value came out of a lean function, as a view of it or directly."""
    node = y.grad_fn
    while node is not None and node.name().startswith(("View", "UnsafeView", "Reshape")):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(("_Lean", "_Tiled"))


def assert_equal(module: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients of everything that requires one, on the lean path and on the plain one."""
    tolerance = TOLERANCES[x.dtype]
    inputs = [p for p in (x, *module.parameters()) if p.requires_grad]
    lean, plain = module(x), without_lean(module, monkeypatch)(x)
    assert has_own_backward(lean)
    assert not has_own_backward(plain)
    torch.testing.assert_close(lean, plain, **tolerance)
    weights = torch.randn_like(lean)
    found, expected = (torch.autograd.grad(y, inputs, weights) for y in (lean, plain))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance)
    with torch.no_grad():
        torch.testing.assert_close(module(x), plain, **tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("name", LEAN_MODULES)
def test_lean_parts_equal_their_formula(
    name: str, tile: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "TILE", tile)
    assert_equal(*made(name, dtype), monkeypatch)


@pytest.mark.parametrize("name", LEAN_MODULES)
def test_gradients_of_some_inputs_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TILE", 20)
    module, x = made(name)
    parameters = list(module.parameters())
    for p in parameters:
        p.requires_grad_(False)
    assert_equal(module, x, monkeypatch)
    for p in parameters:
        p.requires_grad_(True)
        assert_equal(module, x.detach(), monkeypatch)
        p.requires_grad_(False)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("name", ON_ROWS)
def test_rows_that_are_not_contiguous(name: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TILE", tile)
    module, x = made(name)
    wide = torch.randn(2, 5, 12, dtype=torch.float64)
    for strided in (x.detach().transpose(0, 1), wide[..., ::2], wide[:, ::2, :6], wide[:1, :, 6:].expand(3, -1, -1)):
        assert_equal(module, strided.requires_grad_(), monkeypatch)


@pytest.mark.parametrize("name", ON_ROWS)
def test_gradients_that_are_not_contiguous(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = made(name)
    found, expected = (
        torch.autograd.grad(function(x).sum(), (x, *module.parameters()))
        for function in (module, without_lean(module, monkeypatch))
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ON_ROWS)
def test_no_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = made(name)
    assert_equal(module, torch.zeros(0, 5, 6, dtype=torch.float64, requires_grad=True), monkeypatch)


@pytest.mark.parametrize("name", ON_ROWS)
def test_rows_of_zeros(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the norm divides by the root of its eps alone, so derivatives are a thousand times larger."""
    module, x = made(name)
    with torch.no_grad():
        x[:, 1:] = 0.0
    found, expected = (
        torch.autograd.grad(function(x).square().sum(), (x, *module.parameters()))
        for function in (module, without_lean(module, monkeypatch))
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_lean_parts_can_be_differentiated_again(
    lean_module: tuple[nn.Module, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = lean_module
    second: list[tuple[Tensor, ...]] = []
    for function in (module, without_lean(module, monkeypatch)):
        (slope,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        second.append(torch.autograd.grad(slope.square().sum(), (x, *module.parameters())))
    for a, b in zip(*second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_lean_parts_leave_other_derivatives_to_the_formula(lean_module: tuple[nn.Module, Tensor]) -> None:
    module, x = lean_module
    x = x.detach()
    tangent = torch.randn_like(x)
    _, forward_mode = torch.func.jvp(module, (x,), (tangent,))
    step = 1e-6
    torch.testing.assert_close(
        forward_mode, (module(x + step * tangent) - module(x - step * tangent)) / (2 * step), rtol=1e-5, atol=1e-5
    )
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(module(forward_ad.make_dual(x, tangent))).tangent
    torch.testing.assert_close(dual, forward_mode)
    torch.testing.assert_close(torch.func.vmap(module)(torch.stack((x, -x)))[1], module(-x))


@pytest.mark.parametrize("name", ["mlp", "norm and mlp", "factors 2", "norm and factors 2"])
def test_autocast_is_left_to_the_formula(name: str) -> None:
    module, x = made(name, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = module(x)
    assert not has_own_backward(cast)
    assert not torch.equal(cast.float(), module(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_a_tangent_of_one_weight_alone_is_seen(lean_module: tuple[nn.Module, Tensor]) -> None:
    module, x = lean_module
    for name, parameter in module.named_parameters():
        given = parameter.detach()
        tangent = torch.randn_like(given)

        def at(weight: Tensor, name: str = name) -> Tensor:
            return torch.func.functional_call(module, {name: weight}, (x.detach(),))

        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(at(forward_ad.make_dual(given, tangent))).tangent
        step = 1e-6
        expected = (at(given + step * tangent) - at(given - step * tangent)) / (2 * step)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", [0.0, 0.5])
@pytest.mark.parametrize(("order", "dealias"), [(1, False), (2, False), (3, False), (2, True)])
def test_a_block_on_the_lean_path_is_the_plain_block(
    order: int, dealias: bool, padding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    conv = HigherOrderSpectralConv(4, (3, 3), order, domain_padding=padding, dealias=dealias)
    block = ModernBlock(conv, expansion=3, drop_path=0.0).double()
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.weight, 1.0, 0.3)
    x = torch.randn(2, 7, 8, 4, dtype=torch.float64, requires_grad=True)
    assert_equal(block, x, monkeypatch)
    seen: list[nn.Module] = []
    block.norm1.register_forward_hook(lambda module, *_: seen.append(module))
    block(x)
    assert bool(seen) == (order == 1 or dealias)  # inside the factors the norm is not called


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_spent_input_is_overwritten_only_without_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    module, x = made("norm and mlp")
    assert isinstance(module, ResidualMLP)
    expected, given = module(x).detach(), x.detach().clone()
    with mode():
        torch.testing.assert_close(module.mlp.residual(given, module.norm), expected)
        assert torch.equal(given, x)
        torch.testing.assert_close(module.mlp.residual(given, module.norm, spent=True), expected)
    assert torch.equal(given, x) == (mode is torch.enable_grad)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_block_leaves_its_input_alone(mode: Callable[[], AbstractContextManager[None]]) -> None:
    block = ModernBlock(HigherOrderSpectralConv(4, (3, 3), 2), expansion=2, drop_path=0.0)
    x = torch.randn(2, 7, 8, 4)
    copy, expected = x.clone(), block(x).detach()
    with mode():
        torch.testing.assert_close(block(x), expected)
    assert torch.equal(x, copy)


def test_a_field_of_the_wrong_shape_is_refused_on_the_lean_path_too() -> None:
    block = ModernBlock(HigherOrderSpectralConv(4, (3, 3), 2), expansion=2, drop_path=0.0)
    with pytest.raises(ShapeError, match="channel-last field"):
        block(torch.randn(2, 7, 4))


def test_gradients_of_the_plain_form_are_those_of_each_input_alone() -> None:
    """One input may be made of another: what flows on from it is the graph's business. Once, and to be taken again."""
    weight = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 3, dtype=torch.float64) @ weight
    grad = torch.randn(2, 3, dtype=torch.float64)
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            found = parts.plain_backward(torch.matmul, (x, weight), grad)
        assert found[0] is not None
        assert found[1] is not None
        torch.testing.assert_close(found[0].detach(), grad @ weight.detach().T)
        torch.testing.assert_close(found[1].detach(), x.detach().T @ grad)
        assert found[0].requires_grad is enabled
