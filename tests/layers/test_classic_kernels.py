"""The fused classic block equals its plain version in float64: values and every gradient.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_checks import assert_equals_plain, exact_products, outside_of, poison, relative
from torch import Tensor

from hofno import triton_use
from hofno.errors import ShapeError
from hofno.geometry import ModeSet, padded_shape, wavenumbers
from hofno.layers import ClassicBlock, HigherOrderSpectralConv, kernels
from hofno.transforms import fourier
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, runs_kernels

Block = Callable[..., Tensor]

__all__ = ["exact_products"]
pytestmark = pytest.mark.usefixtures("exact_products")

if not triton_use.triton_is_installed():
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)


def block_inputs(
    points: tuple[int, int],
    modes: tuple[int, int],
    channels: int,
    order: int,
    weights: str = "dense",
    mode_set: ModeSet = "symmetric",
    batch: int = 2,
) -> list[Tensor]:
    """The inputs of a block, matrices scaled to keep products of order one. One bias is 0."""
    kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
    mixing = (channels, channels) if weights == "dense" else (channels,)
    shapes = [
        (batch, *points, channels),
        (order * channels, channels),
        (order * channels,),
        (*kept, *mixing, 2),
        (channels, channels),
        (channels,),
    ]
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    scaled = [t / channels**0.5 if t.dim() in (2, 5) else t for t in drawn]
    scaled[2][1] = 0.0
    return [t.to(DEVICE).requires_grad_() for t in scaled]


def on_inputs(
    block: Block, modes: tuple[int, int], mode_set: ModeSet = "symmetric", padding: float = 0.0, gelu: bool = True
) -> Block:
    """A block as a function of its differentiable inputs alone."""

    def run(*inputs: Tensor) -> Tensor:
        x = inputs[0]
        points = (x.shape[1], x.shape[2])
        matrices = fourier.plane_matrices(points, padded_shape(points, padding), modes, mode_set, x)
        outside = outside_of(inputs[3]) if padding else None
        return block(*inputs[:4], outside, *inputs[4:], matrices, gelu)

    return run


def assert_block(inputs: list[Tensor], modes: tuple[int, int], *options: Any) -> None:
    fused, plain = (on_inputs(block, modes, *options) for block in (kernels.classic_block, kernels.classic_block_plain))
    assert_equals_plain(fused, plain, inputs)


@runs_kernels
@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_every_order(order: int) -> None:
    assert_block(block_inputs((6, 8), (2, 3), 20, order), (2, 3))


@runs_kernels
def test_gradients_of_the_plain_form_in_full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    from hofno.layers.kernels import classic

    monkeypatch.setattr(classic, "dot_precision", lambda _: "tf32x3")
    assert_block(block_inputs((6, 8), (2, 3), 20, 2), (2, 3))


@runs_kernels
@pytest.mark.parametrize("weights", ["dense", "depthwise"])
@pytest.mark.parametrize("channels", [8, 20, 32, 33, 64])
def test_every_width(channels: int, weights: str) -> None:
    assert_block(block_inputs((4, 8), (2, 2), channels, 2, weights, "reference"), (2, 2), "reference")


@runs_kernels
@pytest.mark.parametrize("order", [3, 4])
def test_maps_that_are_too_many_to_be_kept_are_read_again(order: int) -> None:
    assert_block(block_inputs((3, 66), (1, 2), 40, order), (1, 2))


@runs_kernels
@pytest.mark.parametrize(
    ("points", "modes", "mode_set"),
    [
        ((5, 7), (2, 3), "symmetric"),  # several rows in a tile that they do not fill
        ((3, 16), (2, 8), "symmetric"),  # image rows that do not fill the last tile
        ((3, 64), (2, 13), "reference"),  # a row that fills a tile
        ((2, 70), (1, 5), "reference"),  # a row of two blocks, the second one hardly filled
        ((2, 129), (1, 40), "symmetric"),  # three blocks, and more coefficients than points of a block
        ((1, 2), (1, 1), "symmetric"),
    ],
)
def test_every_grid(points: tuple[int, int], modes: tuple[int, int], mode_set: ModeSet) -> None:
    assert_block(block_inputs(points, modes, 9, 2, mode_set=mode_set), modes, mode_set)


@runs_kernels
@pytest.mark.parametrize("weights", ["dense", "depthwise"])
@pytest.mark.parametrize(
    ("points", "modes", "padding"),
    [((5, 7), (2, 3), 2 / 3), ((3, 5), (2, 12), 4.0)],  # in the second one a row has more coefficients than points
)
def test_padded_domains(points: tuple[int, int], modes: tuple[int, int], padding: float, weights: str) -> None:
    assert_block(block_inputs(points, modes, 20, 2, weights, "reference"), modes, "reference", padding)


@runs_kernels
@pytest.mark.parametrize("order", [1, 2])
def test_the_last_block_has_no_gelu(order: int) -> None:
    assert_block(block_inputs((4, 8), (2, 2), 20, order), (2, 2), "symmetric", 0.0, False)


@runs_kernels
def test_many_samples_and_tiles_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """More tiles than programs, and more samples than rows of one product."""
    from hofno.layers.kernels import classic_in, classic_modes, classic_out, classic_rows

    monkeypatch.setattr(classic_rows, "BACKWARD_PROGRAMS", 3)
    monkeypatch.setattr(classic_in, "FORWARD_PROGRAMS", 2)
    monkeypatch.setattr(classic_out, "FORWARD_PROGRAMS", 2)
    monkeypatch.setattr(classic_modes, "SAMPLES", 16)
    assert_block(block_inputs((5, 17), (2, 2), 20, 2, batch=19), (2, 2))


@runs_kernels
@pytest.mark.parametrize("width", [1, 5, 21, 63, 64, 65, 128, 129, 256])
@pytest.mark.parametrize("kept", [2, 26, 128])
def test_tiles_hold_whole_rows_and_no_more_than_a_program_can(width: int, kept: int) -> None:
    from hofno.layers.kernels.classic_rows import row_tile

    tile = row_tile(width, kept)
    assert tile.points == 64
    assert tile.filled <= tile.places < tile.filled + 64
    assert tile.modes(kept) <= 128
    assert tile.rows == 1 or tile.blocks == 1
    more = tile.rows + 1
    assert more * width > 64 or more * kept > 128, "as many rows as there is room for"


@runs_kernels
def test_a_factor_that_is_zero_has_a_gradient() -> None:
    inputs = block_inputs((4, 8), (2, 2), 20, 3)
    with torch.no_grad():
        inputs[1][20:40] = 0.0
        inputs[2][20:40] = 0.0
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    on_inputs(kernels.classic_block, (2, 2))(*inputs).sum().backward()  # upstream is an expanded scalar
    on_inputs(kernels.classic_block_plain, (2, 2))(*doubles).sum().backward()
    assert inputs[1].grad is not None
    assert doubles[1].grad is not None
    assert inputs[1].grad[20:40].abs().max() > 0
    assert relative(inputs[1].grad, doubles[1].grad) < 1e-5


@runs_kernels
def test_gelu_is_the_exact_one() -> None:
    """Down to the tails, where the value is a small difference."""
    inputs = block_inputs((2, 8), (1, 1), 16, 1)
    with torch.no_grad():
        inputs[0].mul_(0.01)
        inputs[-1].copy_(torch.linspace(-6, 6, 16))
    assert_block(inputs, (1, 1))


@runs_kernels
def test_derivatives_of_derivatives() -> None:
    inputs = block_inputs((3, 6), (2, 2), 8, 2)
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    second = []
    for block, given in ((kernels.classic_block, inputs), (kernels.classic_block_plain, doubles)):
        value = on_inputs(block, (2, 2))(*given)
        (slope,) = torch.autograd.grad(value.square().sum(), given[0], create_graph=True)
        second.append(torch.autograd.grad(slope.square().sum(), given))
    assert all(relative(found, expected) < 1e-4 for found, expected in zip(*second, strict=True))


@runs_kernels
def test_parameters_that_lie_in_memory_otherwise() -> None:
    inputs = block_inputs((4, 8), (2, 2), 20, 2)
    turned = [t.detach().mT.contiguous().mT.requires_grad_() if t.dim() == 2 else t for t in inputs]
    assert not turned[1].is_contiguous()
    assert_block(turned, (2, 2))


@runs_kernels
def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and partial sums start as NaN, so anything left unwritten shows."""
    fused = on_inputs(kernels.classic_block, (2, 3), padding=0.5)
    outputs: list[Tensor] = []
    for weights in ("dense", "depthwise"):
        inputs = block_inputs((5, 7), (2, 3), 20, 2, weights)
        with monkeypatch.context() as patch:
            poison(patch)
            value = fused(*inputs)
            outputs += [value, *torch.autograd.grad(value, inputs, torch.ones_like(value))]
    assert len(outputs) == 2 * 7
    assert all(output.isfinite().all() for output in outputs)


@runs_kernels
def test_gradients_are_the_same_bits_every_time() -> None:
    inputs = block_inputs((9, 17), (2, 2), 20, 2)
    fused = on_inputs(kernels.classic_block, (2, 2))
    first, second = (torch.autograd.grad(fused(*inputs).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@runs_kernels
def test_shapes_that_do_not_fit_are_refused() -> None:
    inputs = block_inputs((4, 8), (2, 2), 20, 2)
    for place, name in ((1, "factors.weight"), (3, "filter"), (4, "skip.weight"), (5, "skip.bias")):
        wrong = [*inputs]
        wrong[place] = inputs[place][:-1]
        with pytest.raises(ShapeError, match=name):
            on_inputs(kernels.classic_block, (2, 2))(*wrong)


@runs_kernels
@pytest.mark.parametrize("channels", [20, 64])
def test_operands_stay_in_float32_under_autocast(channels: int) -> None:
    inputs = block_inputs((16, 16), (4, 4), channels, 3)
    value = on_inputs(kernels.classic_block, (4, 4))(*inputs)
    gradients = torch.autograd.grad(value.square().mean(), inputs)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        cast = on_inputs(kernels.classic_block, (4, 4))(*inputs)
    assert torch.equal(cast, value)
    found = torch.autograd.grad(cast.square().mean(), inputs)
    assert all(torch.equal(g, r) for g, r in zip(found, gradients, strict=True))


@pytest.mark.skipif(DEVICE != "cuda", reason="the interpreter has no tensor cores")
@pytest.mark.parametrize(
    ("points", "channels", "order"),
    [((64, 64), 20, 2), ((64, 64), 64, 2), ((3, 66), 40, 2), ((3, 66), 40, 3), ((5, 129), 64, 3), ((3, 66), 64, 5)],
)
def test_operands_in_tf32(points: tuple[int, int], channels: int, order: int) -> None:
    torch.set_float32_matmul_precision("high")
    modes = (min(13, points[0] // 2), 13)
    inputs = block_inputs(points, modes, channels, order, mode_set="reference", batch=4)
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    options = modes, "reference"
    value = on_inputs(kernels.classic_block, *options)(*inputs)
    reference = on_inputs(kernels.classic_block_plain, *options)(*doubles)
    assert 1e-6 < relative(value, reference) < 2e-3
    gradients = torch.autograd.grad(value.square().mean(), inputs)
    references = torch.autograd.grad(reference.square().mean(), doubles)
    assert all(relative(g, r) < 5e-3 for g, r in zip(gradients, references, strict=True))


def test_mode_mix_plain_is_the_complex_product() -> None:
    generator = torch.Generator().manual_seed(0)
    spectrum, weight = (torch.randn(shape, generator=generator) for shape in ((2, 2, 3, 4), (3, 4, 4, 2)))
    expected = torch.einsum(
        "bkc,kco->bko", torch.complex(spectrum[:, 0], spectrum[:, 1]), torch.view_as_complex(weight)
    )
    mixed = kernels.mode_mix_plain(spectrum, weight)
    torch.testing.assert_close(torch.complex(mixed[:, 0], mixed[:, 1]), expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0.0, 0.5])
@pytest.mark.parametrize("weights", ["dense", "depthwise"])
@pytest.mark.parametrize(("order", "mode_set"), [(1, "symmetric"), (3, "reference")])
def test_the_fused_path_is_wired_as_the_plain_one(
    order: int, mode_set: ModeSet, weights: str, padding: float, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels replaced by the function they equal, both paths give the same block."""
    conv = HigherOrderSpectralConv(4, (3, 3), order, weights=weights, mode_set=mode_set, domain_padding=padding)
    block, v = ClassicBlock(conv, drop_path=0.0, last=last), torch.randn(2, 7, 8, 4)
    monkeypatch.setattr(kernels, "classic_supported", lambda *_: False)
    expected = block(v)
    calls: list[tuple[int, ...]] = []
    asked: list[tuple[Any, ...]] = []

    def counted(*inputs: Any) -> Tensor:
        calls.append(tuple(inputs[0].shape))
        return kernels.classic_block_plain(*inputs)

    def taken(x: Tensor, *rest: Any) -> bool:
        asked.append(rest)
        return True

    monkeypatch.setattr(kernels, "classic_supported", taken)
    monkeypatch.setattr(kernels, "classic_block", counted)
    torch.testing.assert_close(block(v), expected)
    assert calls == [(2, 7, 8, 4)]
    assert asked == [(order, (5 if mode_set == "symmetric" else 6, 3))]


@pytest.mark.parametrize(
    "options", [{"factors": "shared"}, {"factors": "spectral"}, {"dealias": True}, {"method": "fft"}]
)
def test_other_convolutions_take_the_plain_path(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Tensor:
        raise AssertionError("not one for the kernels")

    monkeypatch.setattr(kernels, "classic_supported", lambda *_: True)
    monkeypatch.setattr(kernels, "classic_block", refused)
    block = ClassicBlock(HigherOrderSpectralConv(8, (3, 3), 2, **options), drop_path=0.0, last=False)
    assert block(torch.randn(1, 8, 8, 8)).shape == (1, 8, 8, 8)


def test_transforms_in_another_precision_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "classic_supported", lambda *_: True)
    monkeypatch.setattr(kernels, "classic_block", None)
    block = ClassicBlock(HigherOrderSpectralConv(8, (3, 3), 2), drop_path=0.0, last=False)
    block.conv.transform_dtype = torch.float64
    assert block(torch.randn(1, 8, 8, 8)).dtype == torch.float64


def test_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, kept = torch.zeros(2, 8, 8, 20), (7, 4)
    assert kernels.classic_supported(x, 2, kept)
    for channels, taken in ((7, False), (8, True), (64, True), (65, False)):
        assert kernels.classic_supported(torch.zeros(1, 4, 4, channels), 8, kept) is taken
    assert not kernels.classic_supported(x, 9, kept)
    assert not kernels.classic_supported(x, 0, kept)
    assert not kernels.classic_supported(x, 2, (7, 65))
    assert not kernels.classic_supported(x, 2, (129, 4))
    assert not kernels.classic_supported(x, 2, (4,))
    assert not kernels.classic_supported(x.double(), 2, kept)
    assert not kernels.classic_supported(x[:0], 2, kept)
    assert not kernels.classic_supported(x.transpose(1, 2), 2, kept)
    assert not kernels.classic_supported(x[0], 2, kept)
    assert not kernels.classic_supported(torch.zeros(1, 4, 257, 20), 2, kept)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kernels.classic_supported(x, 2, kept)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not kernels.classic_supported(x, 2, kept)
    answers: list[bool] = []
    torch.func.vmap(lambda v: answers.append(kernels.classic_supported(v, 2, kept)) or v)(x.expand(3, -1, -1, -1, -1))
    assert answers == [False]
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not kernels.classic_supported(x, 2, kept)


@pytest.mark.skipif(DEVICE != "cuda", reason="asks a GPU")
def test_gpus_without_tf32_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    x, kept = torch.zeros(2, 8, 8, 20, device=DEVICE), (7, 4)
    assert kernels.classic_supported(x, 2, kept)
    monkeypatch.setattr(kernels, "_has_tf32", lambda index: False)
    assert not kernels.classic_supported(x, 2, kept)


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
