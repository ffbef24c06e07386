"""The fused kernels equal their plain versions in float64: values and every gradient.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hofno.errors import ShapeError
from hofno.layers import kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
EPS = 1e-5
SOURCE = Path(kernels.__file__).parents[3]

if not kernels.triton_is_installed():
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)

runs_kernels = pytest.mark.skipif(
    not INTERPRETED and DEVICE == "cpu", reason="run by test_under_the_interpreter in a process of its own"
)


@pytest.fixture(autouse=True)
def exact_products() -> object:
    """Float32 products in full precision, so that a GPU meets the same tolerance."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def draw(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Random float32 leaves; each matrix is scaled to keep its products of order one."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    scaled = [t / t.shape[-1] ** 0.5 if t.dim() == 2 else t for t in tensors]
    return [t.to(DEVICE).requires_grad_() for t in scaled]


def relative(value: Tensor, reference: Tensor) -> float:
    return ((value.double() - reference).norm() / reference.norm()).item()


def assert_equals_plain(
    fused: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    inputs: Sequence[Tensor],
) -> None:
    """Values and gradients against float64, under an upstream gradient that differs everywhere."""
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    value, reference = fused(*inputs), plain(*doubles)
    upstream = torch.randn(value.shape, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    gradients = torch.autograd.grad(value, inputs, upstream)
    references = torch.autograd.grad(reference, doubles, upstream.double())
    assert relative(value.detach(), reference.detach()) < 1e-5
    for gradient, expected in zip(gradients, references, strict=True):
        assert gradient.shape == expected.shape
        assert relative(gradient, expected) < 1e-5


def factor_inputs(rows: tuple[int, ...], channels: int, order: int) -> list[Tensor]:
    return draw((*rows, channels), (channels,), (order * channels, channels), (order * channels,))


def mlp_inputs(rows: tuple[int, ...], channels: int, hidden: int) -> list[Tensor]:
    return draw((*rows, channels), (channels,), (hidden, channels), (hidden,), (channels, hidden), (channels,))


def fused_factors(order: int) -> Callable[..., Tensor]:
    return partial(kernels.norm_factors_product, order=order, eps=EPS)


def plain_factors(order: int) -> Callable[..., Tensor]:
    return partial(kernels.norm_factors_product_plain, order=order, eps=EPS)


def fused_mlp(*inputs: Tensor) -> Tensor:
    x, gain, up_weight, up_bias, down_weight, down_bias = inputs
    return kernels.norm_mlp_residual(x, gain, up_weight, up_bias, down_weight, down_bias, EPS)


def plain_mlp(*inputs: Tensor) -> Tensor:
    x, gain, up_weight, up_bias, down_weight, down_bias = inputs
    return kernels.norm_mlp_residual_plain(x, gain, up_weight, up_bias, down_weight, down_bias, EPS)


def assert_factors(rows: tuple[int, ...], channels: int, order: int) -> None:
    assert_equals_plain(fused_factors(order), plain_factors(order), factor_inputs(rows, channels, order))


def assert_mlp(rows: tuple[int, ...], channels: int, hidden: int) -> None:
    assert_equals_plain(fused_mlp, plain_mlp, mlp_inputs(rows, channels, hidden))


@runs_kernels
@pytest.mark.parametrize("channels", [16, 32, 64])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_norm_factors_product(channels: int, order: int) -> None:
    assert_factors((5, 14), channels, order)


@runs_kernels
@pytest.mark.parametrize("order", [6, 8])  # the weight gradients take two passes; at 8 the weights are read per block
def test_norm_factors_product_of_high_order(order: int) -> None:
    assert_factors((70,), 64, order)


@runs_kernels
@pytest.mark.parametrize(
    ("channels", "hidden"), [(16, 16), (16, 64), (16, 256), (32, 128), (64, 32), (64, 128), (64, 256)]
)
def test_norm_mlp_residual(channels: int, hidden: int) -> None:
    assert_mlp((2, 35), channels, hidden)


@runs_kernels
@pytest.mark.parametrize("rows", [1, 32, 300])  # less than a block, a whole one, several per program
def test_any_number_of_rows(rows: int) -> None:
    assert_factors((rows,), 16, 3)
    assert_mlp((rows,), 16, 32)


@runs_kernels
def test_weights_read_per_block_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from hofno.layers.kernels import norm_factors, norm_mlp

    for module in (norm_factors, norm_mlp):
        monkeypatch.setattr(module, "shared_memory", lambda device: 0)
    assert_factors((70,), 16, 3)
    assert_mlp((70,), 16, 128)


@pytest.mark.skipif(not INTERPRETED, reason="only the interpreter multiplies exactly whatever the precision asked for")
def test_block_sizes_of_the_tensor_core_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from hofno.layers.kernels import norm_factors, norm_mlp

    for module in (norm_factors, norm_mlp):
        monkeypatch.setattr(module, "dot_precision", lambda x: "tf32")
    for order in (1, 5, 6, 8):
        assert_factors((70,), 64, order)
    for hidden in (16, 128, 256):
        assert_mlp((70,), 64, hidden)


@runs_kernels
def test_a_factor_that_is_zero_has_a_gradient() -> None:
    x, gain, weight, bias = factor_inputs((70,), 16, 3)
    with torch.no_grad():
        weight[16:32] = 0.0
        bias[16:32] = 0.0
    assert kernels.norm_factors_product(x, gain, weight, bias, 3, EPS).abs().max() == 0
    doubles = [t.detach().double().requires_grad_() for t in (x, gain, weight, bias)]
    kernels.norm_factors_product(x, gain, weight, bias, 3, EPS).sum().backward()  # upstream is an expanded scalar
    plain_factors(3)(*doubles).sum().backward()
    assert weight.grad is not None
    assert doubles[2].grad is not None
    assert relative(weight.grad, doubles[2].grad) < 1e-5


@runs_kernels
@pytest.mark.parametrize(("batch", "modes", "channels"), [(1, 5, 16), (3, 13, 64)])
def test_mode_filter(batch: int, modes: int, channels: int) -> None:
    inputs = draw((batch, 2, modes, channels), (modes, channels, 2))
    assert_equals_plain(kernels.mode_filter, kernels.mode_filter_plain, inputs)


def test_mode_filter_plain_is_the_complex_product() -> None:
    spectrum, weight = (t.detach().cpu() for t in draw((2, 2, 3, 4), (3, 4, 2)))
    expected = torch.complex(spectrum[:, 0], spectrum[:, 1]) * torch.view_as_complex(weight)
    filtered = kernels.mode_filter_plain(spectrum, weight)
    torch.testing.assert_close(torch.complex(filtered[:, 0], filtered[:, 1]), expected)


@runs_kernels
def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and partial sums start as NaN, so anything left unwritten shows."""

    def poisoned_like(tensor: Tensor) -> Tensor:
        return torch.full_like(tensor, float("nan"))

    def poisoned(tensor: Tensor, *size: int, device: str | None = None) -> Tensor:
        return torch.full(size, float("nan"), dtype=tensor.dtype, device=device or tensor.device)

    factors, mlp = factor_inputs((70,), 64, 6), mlp_inputs((70,), 64, 256)
    filtering = draw((2, 2, 13, 16), (13, 16, 2))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty_like", poisoned_like)
        patch.setattr(Tensor, "new_empty", poisoned)
        outputs: list[Tensor] = []
        for inputs, fused in (
            (factors, fused_factors(6)),
            (mlp, fused_mlp),
            (filtering, kernels.mode_filter),
        ):
            value = fused(*inputs)
            outputs += [value, *torch.autograd.grad(value, inputs, torch.ones_like(value))]
    assert len(outputs) == 5 + 7 + 3
    assert all(output.isfinite().all() for output in outputs)


@runs_kernels
def test_input_gradient_is_left_out_where_not_needed() -> None:
    x, gain, weight, bias = factor_inputs((70,), 16, 2)
    kernels.norm_factors_product(x.detach(), gain, weight, bias, 2, EPS).sum().backward()
    assert x.grad is None
    assert gain.grad is not None


@runs_kernels
def test_gradients_are_the_same_bits_every_time() -> None:
    inputs = factor_inputs((300,), 16, 3)
    fused = fused_factors(3)
    first, second = (torch.autograd.grad(fused(*inputs).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@runs_kernels
def test_shapes_that_do_not_fit_are_refused() -> None:
    x, gain, weight, bias = factor_inputs((8,), 16, 2)
    with pytest.raises(ShapeError, match="weight"):
        kernels.norm_factors_product(x, gain, weight[:-1], bias, 2, EPS)
    with pytest.raises(ShapeError, match="order"):
        kernels.norm_factors_product(x, gain, weight, bias, 9, EPS)
    with pytest.raises(ShapeError, match="channels"):
        kernels.norm_factors_product(x[:, :12].contiguous(), gain, weight, bias, 2, EPS)
    with pytest.raises(ShapeError, match="hidden"):
        fused_mlp(*mlp_inputs((8,), 16, 24))
    with pytest.raises(ShapeError, match="spectrum"):
        kernels.mode_filter(x, weight)


def test_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x = torch.zeros(2, 8, 8, 64)
    assert kernels.supported(x, order=2, hidden=128)
    assert kernels.supported(x[..., :16].contiguous(), order=8, hidden=16)
    assert not kernels.supported(x, order=9, hidden=128)
    assert not kernels.supported(x, order=0, hidden=128)
    assert not kernels.supported(x, order=2, hidden=96)
    assert not kernels.supported(x, order=2, hidden=512)
    assert not kernels.supported(x.double(), order=2, hidden=128)
    assert not kernels.supported(x[:0], order=2, hidden=128)
    assert not kernels.supported(x.transpose(1, 2), order=2, hidden=128)
    assert not kernels.supported(x[..., :24].contiguous(), order=2, hidden=128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not kernels.supported(x, order=2, hidden=128)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not kernels.supported(x, order=2, hidden=128)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(kernels, "triton_is_installed", lambda: False)
    assert not kernels.supported(x, order=2, hidden=128)


def in_own_process(*arguments: str, interpret: bool) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET" and not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCE), environment.get("PYTHONPATH", "")])
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_importing_the_package_leaves_triton_alone() -> None:
    code = "import sys, hofno.layers.kernels; sys.exit('triton' in sys.modules)"
    finished = in_own_process("-c", code, interpret=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    finished = in_own_process("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, interpret=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
