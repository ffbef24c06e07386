"""The fused pointwise MLP equals its plain version in float64: values and every gradient.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, in a process of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_checks import assert_equals_plain, exact_products, poison, relative
from torch import Tensor
from torch.autograd import forward_ad

from hofno import triton_use
from hofno.errors import ShapeError
from hofno.layers import MLP, kernels, parts
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, runs_kernels

__all__ = ["exact_products"]
pytestmark = pytest.mark.usefixtures("exact_products")

if not triton_use.triton_is_installed():
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)


def mlp_inputs(points: tuple[int, ...], channels: int, hidden: int, out: int) -> list[Tensor]:
    """x, W1, b1, W2, b2, matrices scaled to keep products of order one."""
    shapes = [(*points, channels), (hidden, channels), (hidden,), (out, hidden), (out,)]
    generator = torch.Generator().manual_seed(0)
    x, up, up_bias, down, down_bias = (torch.randn(shape, generator=generator) for shape in shapes)
    scaled = (x, up / channels**0.5, up_bias, down / hidden**0.5, down_bias)
    return [t.to(DEVICE).requires_grad_() for t in scaled]


def assert_mlp(inputs: list[Tensor]) -> None:
    assert_equals_plain(kernels.mlp, kernels.mlp_plain, inputs)


@runs_kernels
@pytest.mark.parametrize(
    ("channels", "hidden", "out"),
    [
        (20, 80, 1),
        (8, 16, 3),
        (8, 256, 1),
        (20, 16, 8),
        (20, 256, 3),  # two groups of hidden channels in the backward pass
        (32, 80, 1),  # channels fill their places
        (33, 80, 8),
        (33, 128, 1),
        (64, 80, 3),
        (64, 256, 8),  # and in the forward pass
        (31, 17, 5),  # a chunk of one channel
        (10, 1, 2),
    ],
)
def test_every_width(channels: int, hidden: int, out: int) -> None:
    assert_mlp(mlp_inputs((40,), channels, hidden, out))


@runs_kernels
@pytest.mark.parametrize("points", [(1,), (63,), (64,), (129,), (2, 5, 9), (3, 1, 4, 6)])
def test_every_number_of_points(points: tuple[int, ...]) -> None:
    assert_mlp(mlp_inputs(points, 20, 48, 2))


@runs_kernels
@pytest.mark.parametrize("channels", [20, 32])
def test_points_are_shared_out(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More blocks than programs, and programs with a block fewer than others."""
    from hofno.layers.kernels import pointwise

    for name in ("FORWARD_PROGRAMS", "BACKWARD_PROGRAMS", "LIMITED_PROGRAMS"):
        monkeypatch.setattr(pointwise, name, 3)
    assert_mlp(mlp_inputs((2, 100), channels, 32, 1))
    assert_mlp(mlp_inputs((2, 100), channels, 136, 1))


@runs_kernels
@pytest.mark.parametrize("hidden", [1, 15, 16, 17, 80, 100, 128, 129, 255, 256])
@pytest.mark.parametrize("most", [32, 64, 128])
def test_groups_are_whole_chunks_and_cover_every_hidden_channel_once(hidden: int, most: int) -> None:
    from hofno.layers.kernels import pointwise

    groups = list(pointwise._groups(hidden, most))
    assert [h for group in groups for h in range(group.start, group.stop)] == list(range(hidden))
    assert all(group.stop - group.start <= most for group in groups)
    assert all(group.start % pointwise.CHUNK == 0 for group in groups)
    assert len(groups) == -(-hidden // most), "no more launches than needed"


@runs_kernels
def test_gelu_is_the_exact_one() -> None:
    """Down to the tails, where the value is a small difference."""
    inputs = mlp_inputs((30,), 16, 32, 1)
    with torch.no_grad():
        inputs[0].mul_(0.01)
        inputs[2].copy_(torch.linspace(-6, 6, 32))
    assert_mlp(inputs)


@runs_kernels
def test_inputs_that_lie_in_memory_otherwise() -> None:
    x, up, up_bias, down, down_bias = (t.detach() for t in mlp_inputs((6, 14), 20, 48, 3))
    turned = [x.transpose(0, 1).contiguous().transpose(0, 1), up.mT.contiguous().mT, up_bias]
    turned += [down.mT.contiguous().mT, down_bias.repeat_interleave(2)[::2]]
    assert not any(t.is_contiguous() for t in turned if t is not up_bias)
    assert_mlp([t.requires_grad_() for t in turned])


@runs_kernels
def test_an_upstream_gradient_that_is_one_number() -> None:
    inputs = mlp_inputs((40,), 20, 32, 3)
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    found = torch.autograd.grad(kernels.mlp(*inputs).sum(), inputs)
    expected = torch.autograd.grad(kernels.mlp_plain(*doubles).sum(), doubles)
    assert all(relative(a, b) < 1e-5 for a, b in zip(found, expected, strict=True))


@runs_kernels
@pytest.mark.parametrize("wanted", [(0,), (1, 2), (3,), (2, 4), (0, 3)])
def test_gradients_of_some_inputs(wanted: tuple[int, ...]) -> None:
    inputs = mlp_inputs((40,), 20, 32, 2)
    doubles = [t.detach().double().requires_grad_(place in wanted) for place, t in enumerate(inputs)]
    inputs = [t.detach().requires_grad_(place in wanted) for place, t in enumerate(inputs)]
    kernels.mlp(*inputs).square().sum().backward()
    kernels.mlp_plain(*doubles).square().sum().backward()
    for place, (found, expected) in enumerate(zip(inputs, doubles, strict=True)):
        assert (found.grad is not None) is (place in wanted)
        if found.grad is not None:
            assert expected.grad is not None
            assert relative(found.grad, expected.grad) < 1e-5


@runs_kernels
@pytest.mark.parametrize("frozen", [(), (1, 4)])
def test_derivatives_of_derivatives(frozen: tuple[int, ...]) -> None:
    inputs = [t.detach().requires_grad_(place not in frozen) for place, t in enumerate(mlp_inputs((7,), 8, 16, 2))]
    doubles = [t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    second = []
    for mlp, given in ((kernels.mlp, inputs), (kernels.mlp_plain, doubles)):
        (slope,) = torch.autograd.grad(mlp(*given).square().sum(), given[0], create_graph=True)
        second.append(torch.autograd.grad(slope.square().sum(), [t for t in given if t.requires_grad]))
    assert all(relative(found, expected) < 1e-4 for found, expected in zip(*second, strict=True))


@runs_kernels
@pytest.mark.parametrize(("channels", "hidden"), [(20, 80), (32, 136)])
def test_every_output_is_written(channels: int, hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and partial sums start as NaN, so anything left unwritten shows."""
    inputs = mlp_inputs((71,), channels, hidden, 3)
    with monkeypatch.context() as patch:
        poison(patch)
        value = kernels.mlp(*inputs)
        outputs = [value, *torch.autograd.grad(value, inputs, torch.ones_like(value))]
    assert len(outputs) == 6
    assert all(output.isfinite().all() for output in outputs)


@runs_kernels
def test_gradients_are_the_same_bits_every_time() -> None:
    inputs = mlp_inputs((100,), 20, 48, 2)
    first, second = (torch.autograd.grad(kernels.mlp(*inputs).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@runs_kernels
def test_shapes_that_do_not_fit_are_refused() -> None:
    inputs = mlp_inputs((10,), 20, 32, 3)
    for place, name in ((1, "up.weight"), (3, "down.weight")):
        wrong = [*inputs]
        wrong[place] = inputs[place][:, :-1]
        with pytest.raises(ShapeError, match=name):
            kernels.mlp(*wrong)
    with pytest.raises(ShapeError, match=r"up\.bias"):
        kernels.mlp(inputs[0], inputs[1], inputs[2].unsqueeze(0), inputs[3], inputs[4])


@runs_kernels
def test_operands_stay_in_float32_under_autocast() -> None:
    inputs = mlp_inputs((100,), 20, 48, 2)
    value = kernels.mlp(*inputs)
    gradients = torch.autograd.grad(value.square().mean(), inputs)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        cast = kernels.mlp(*inputs)
    assert torch.equal(cast, value)
    found = torch.autograd.grad(cast.square().mean(), inputs)
    assert all(torch.equal(g, r) for g, r in zip(found, gradients, strict=True))


@pytest.mark.skipif(DEVICE != "cuda", reason="the interpreter has no tensor cores")
@pytest.mark.parametrize(("channels", "hidden", "out"), [(20, 80, 1), (64, 128, 3), (33, 80, 8)])
def test_operands_in_tf32(channels: int, hidden: int, out: int) -> None:
    torch.set_float32_matmul_precision("high")
    inputs = mlp_inputs((50_000,), channels, hidden, out)
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    value, reference = kernels.mlp(*inputs), kernels.mlp_plain(*doubles)
    assert 1e-6 < relative(value, reference) < 2e-3
    gradients = torch.autograd.grad(value.square().mean(), inputs)
    references = torch.autograd.grad(reference.square().mean(), doubles)
    assert all(relative(g, r) < 5e-3 for g, r in zip(gradients, references, strict=True))


def test_the_fused_path_is_wired_as_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernel replaced by the function it equals, both paths give the same MLP."""
    mlp, v = MLP(6, 10, 2), torch.randn(3, 5, 4, 6).transpose(1, 2)
    expected = mlp(v)
    asked: list[tuple[Any, ...]] = []

    def taken(x: Tensor, *weights: Tensor) -> bool:
        asked.append(tuple(tuple(t.shape) for t in (x, *weights)))
        return True

    def counted(*inputs: Tensor) -> Tensor:
        asked.append(tuple(tuple(t.shape) for t in inputs))
        return kernels.mlp_plain(*inputs)

    monkeypatch.setattr(parts, "lean", lambda *_: False)
    monkeypatch.setattr(kernels, "mlp_supported", taken)
    monkeypatch.setattr(kernels, "mlp", counted)
    torch.testing.assert_close(mlp(v), expected)
    assert asked == [((3, 4, 5, 6), (10, 6), (2, 10)), ((3, 4, 5, 6), (10, 6), (10,), (2, 10), (2,))]
    monkeypatch.setattr(parts, "runs", lambda *_: False)
    torch.testing.assert_close(mlp(v), expected)
    assert len(asked) == 3, "asked, and not called where it does not run"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_the_kernel_is_not_for_takes_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward derivatives, vmap and compilation, with weights and points that would be taken."""

    def refused(*_: Tensor) -> Tensor:
        raise AssertionError("not one for the kernel")

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(parts, "lean", lambda *_: False)
    monkeypatch.setattr(kernels, "mlp", refused)
    mlp, v = MLP(8, 10, 2), torch.randn(2, 4096, 8)
    with pytest.raises(AssertionError, match="not one"):
        mlp(v)
    expected = kernels.mlp_plain(v, mlp.up.weight, mlp.up.bias, mlp.down.weight, mlp.down.bias)
    torch.testing.assert_close(torch.func.vmap(mlp)(v), expected)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(v, torch.ones_like(v))
        torch.testing.assert_close(forward_ad.unpack_dual(mlp(dual)).primal, expected)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(mlp(v), expected)


def test_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, up, down = torch.zeros(1, 64, 64, 20), torch.zeros(80, 20), torch.zeros(1, 80)
    assert kernels.mlp_supported(x, up, down)
    assert kernels.mlp_supported(x.transpose(1, 2), up, down)
    assert kernels.mlp_supported(x.flatten(0, 2), up, down)
    for channels, taken in ((7, False), (8, True), (64, True), (65, False)):
        assert kernels.mlp_supported(torch.zeros(4096, channels), torch.zeros(80, channels), down) is taken
    for hidden, taken in ((1, True), (256, True), (257, False)):
        assert kernels.mlp_supported(x, torch.zeros(hidden, 20), torch.zeros(1, hidden)) is taken
    assert kernels.mlp_supported(x, up, torch.zeros(8, 80))
    assert not kernels.mlp_supported(x, up, torch.zeros(9, 80))
    assert not kernels.mlp_supported(x[:, :63], up, down)
    assert not kernels.mlp_supported(x[:0], up, down)
    assert not kernels.mlp_supported(x.double(), up.double(), down.double())
    assert not kernels.mlp_supported(x, up.bfloat16(), down.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kernels.mlp_supported(x, up, down)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not kernels.mlp_supported(x, up, down)
    answers: list[bool] = []
    torch.func.vmap(lambda v: answers.append(kernels.mlp_supported(v, up, down)) or v)(x.expand(3, -1, -1, -1))
    assert answers == [False]
    monkeypatch.setattr(torch._C, "_get_tracing_state", lambda: object())
    assert not kernels.mlp_supported(x, up, down)
    monkeypatch.undo()
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not kernels.mlp_supported(x, up, down)


@pytest.mark.skipif(DEVICE != "cuda", reason="asks a GPU")
def test_gpus_without_tf32_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    x, up, down = (torch.zeros(shape, device=DEVICE) for shape in ((4096, 20), (80, 20), (1, 80)))
    assert kernels.mlp_supported(x, up, down)
    monkeypatch.setattr(kernels, "_has_tf32", lambda index: False)
    assert not kernels.mlp_supported(x, up, down)


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
