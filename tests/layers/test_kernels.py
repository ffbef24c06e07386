"""The fused kernels equal their plain versions in float64: values and every gradient.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fused_checks import assert_equals_plain, exact_products, outside_of, poison, relative
from torch import Tensor

from hofno import triton_use
from hofno.errors import ShapeError, SpecError
from hofno.geometry import ModeSet, padded_shape, wavenumbers
from hofno.layers import kernels
from hofno.transforms import fourier
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, in_own_process, runs_kernels

EPS = 1e-5

__all__ = ["exact_products"]
pytestmark = pytest.mark.usefixtures("exact_products")

if not triton_use.triton_is_installed():
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)


def draw(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Random float32 leaves; each matrix is scaled to keep its products of order one."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    scaled = [t / t.shape[-1] ** 0.5 if t.dim() == 2 else t for t in tensors]
    return [t.to(DEVICE).requires_grad_() for t in scaled]


def block_inputs(
    points: tuple[int, int],
    modes: tuple[int, int],
    channels: int,
    order: int,
    hidden: int,
    mode_set: ModeSet = "symmetric",
) -> list[Tensor]:
    """The inputs of a block. One bias is 0."""
    kept = [len(ks) for ks in wavenumbers(modes, mode_set)]
    inputs = draw(
        (2, *points, channels),
        (channels,),
        (order * channels, channels),
        (order * channels,),
        (*kept, channels, 2),
        (channels,),
        (hidden, channels),
        (hidden,),
        (channels, hidden),
        (channels,),
    )
    with torch.no_grad():
        inputs[3][1] = 0.0
    return inputs


def on_inputs(
    block: Callable[..., Tensor], modes: tuple[int, int], mode_set: ModeSet, padding: float
) -> Callable[..., Tensor]:
    """A block as a function of its differentiable inputs alone."""

    def run(*inputs: Tensor) -> Tensor:
        x = inputs[0]
        points = (x.shape[1], x.shape[2])
        matrices = fourier.plane_matrices(points, padded_shape(points, padding), modes, mode_set, x)
        outside = outside_of(inputs[4]) if padding else None
        return block(*inputs[:5], outside, *inputs[5:], matrices, EPS)

    return run


def fused_block(modes: tuple[int, int], mode_set: ModeSet = "symmetric", padding: float = 0.0) -> Callable[..., Tensor]:
    return on_inputs(kernels.modern_block, modes, mode_set, padding)


def plain_block(modes: tuple[int, int], mode_set: ModeSet = "symmetric", padding: float = 0.0) -> Callable[..., Tensor]:
    return on_inputs(kernels.modern_block_plain, modes, mode_set, padding)


def assert_block(
    points: tuple[int, int],
    modes: tuple[int, int],
    channels: int,
    order: int,
    hidden: int,
    mode_set: ModeSet = "symmetric",
    padding: float = 0.0,
) -> None:
    inputs = block_inputs(points, modes, channels, order, hidden, mode_set)
    chosen = modes, mode_set, padding
    assert_equals_plain(fused_block(*chosen), plain_block(*chosen), inputs)


@runs_kernels
@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_every_order(order: int) -> None:
    assert_block((6, 8), (2, 3), 16, order, 32, "symmetric")


@runs_kernels
@pytest.mark.parametrize(("channels", "hidden"), [(16, 16), (32, 64), (32, 128), (64, 32)])
def test_every_width(channels: int, hidden: int) -> None:
    assert_block((4, 8), (2, 2), channels, 2, hidden, "reference")


@runs_kernels
@pytest.mark.parametrize(
    ("points", "modes", "mode_set"),
    [
        ((5, 7), (2, 3), "symmetric"),  # several rows in a tile that they do not fill
        ((3, 16), (2, 8), "symmetric"),  # image rows that do not fill the last tile
        ((4, 70), (2, 5), "reference"),  # a row wider than a tile
        ((9, 4), (4, 2), "reference"),
        ((1, 2), (1, 1), "symmetric"),
    ],
)
def test_every_grid(points: tuple[int, int], modes: tuple[int, int], mode_set: ModeSet) -> None:
    assert_block(points, modes, 16, 2, 16, mode_set)


@runs_kernels
@pytest.mark.parametrize("channels", [16, 128])
@pytest.mark.parametrize("points", [(5, 7), (35, 3)])
def test_padded_domains(channels: int, points: tuple[int, int]) -> None:
    assert_block(points, (2, 3), channels, 2, 32, "reference", 2 / 3)


def turned(block: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The block with axes exchanged after it, so that its gradient comes in another layout."""
    return lambda *given: block(*given).permute(0, 2, 1, 3)


@runs_kernels
@pytest.mark.parametrize("padding", [0.0, 2 / 3])
@pytest.mark.parametrize("numbers", [[[1.25, 0.0], [0.0, 1.25]], [[0.0, 2.0], [2.0, 2.0]]])
@pytest.mark.parametrize("hidden", [64, 32])  # computed again, and kept
def test_branches_of_samples_are_scaled(padding: float, numbers: list[list[float]], hidden: int) -> None:
    """As stochastic depth has it: 0 in some samples, more than 1 in the others."""
    branches = torch.tensor(numbers, device=DEVICE)
    modes = (2, 3)
    inputs = block_inputs((5, 7), modes, 128, 2, hidden, "reference")

    def scaled(block: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*given: object) -> Tensor:
            x = given[0]
            assert isinstance(x, Tensor)
            return block(*given, branches.to(x.dtype))

        return run

    chosen = modes, "reference", padding
    fused, plain = (on_inputs(scaled(b), *chosen) for b in (kernels.modern_block, kernels.modern_block_plain))
    assert_equals_plain(fused, plain, inputs)
    assert_equals_plain(turned(fused), turned(plain), inputs)
    assert not torch.equal(fused(*inputs), fused_block(*chosen)(*inputs))


@runs_kernels
def test_narrow_blocks_do_not_scale_their_branches() -> None:
    wide, narrow = (torch.zeros(2, 8, 8, channels, device=DEVICE) for channels in (128, 16))
    assert kernels.supported(wide, 2, 32, (3, 3), True)
    assert kernels.supported(narrow, 2, 32, (3, 3))
    assert not kernels.supported(narrow, 2, 32, (3, 3), True)


def columns_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """More modes and channels, and samples, than a program takes at a time: s, weight, offset, gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = (9, 6, 10, 128), (4, 5, 128, 2), (2, 4, 5, 128), (9, 6, 10, 128)
    s, weight, offset, grad = (torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes)
    return s, weight, offset, grad


@runs_kernels
@pytest.mark.parametrize("padded", [False, True])
def test_columns_in_several_programs(padded: bool) -> None:
    from hofno.layers.kernels import columns

    s, weight, offset, grad = columns_inputs()
    last, _, leading, back = fourier.plane_matrices((6, 12), (6, 12), (2, 5), "reference", s)
    assert last.shape[0] == s.shape[2]
    given = offset if padded else None
    out, pairs = columns.forward(s, columns.columns_of(leading, back), weight, given)
    found = out, *columns.backward(pairs, columns.columns_of(leading, back), weight, given, grad)

    def plain(s: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
        spectrum = (leading.double() @ s.reshape(9, 12, -1)).view(9, 2, 4, 5, 128)
        filtered = kernels.mode_filter_plain(spectrum + offset * padded, weight)
        return (back.double() @ filtered.reshape(9, 8, -1)).view_as(s)

    inputs = [t.double().requires_grad_() for t in (s, weight, offset)]
    value = plain(*inputs)
    expected = value, *torch.autograd.grad(value, inputs, grad.double())
    for one, other in zip(found, expected, strict=True):
        if one is not None:
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@runs_kernels
def test_transforms_of_columns_stay_in_float32_under_autocast() -> None:
    from hofno.layers.kernels import columns

    s, weight, offset, grad = columns_inputs()
    _, _, leading, back = fourier.plane_matrices((6, 12), (6, 12), (2, 5), "reference", s)

    def both_ways() -> list[Tensor | None]:
        out, pairs = columns.forward(s, columns.columns_of(leading, back), weight, offset)
        return [out, *columns.backward(pairs, columns.columns_of(leading, back), weight, offset, grad)]

    expected = both_ways()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = both_ways()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True) if a is not None and b is not None)


def in_float32(matrix: Tensor, x: Tensor) -> Tensor:
    """`fourier.left_product` of 16-bit operands, which not every processor multiplies."""
    return (matrix.float() @ x.float()).to(x.dtype)


@runs_kernels
@pytest.mark.parametrize(("points", "channels"), [((6, 12), 128), ((4, 70), 192)])
@pytest.mark.parametrize("scaled", [False, True])
def test_spectra_in_sixteen_bits(
    points: tuple[int, int], channels: int, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution and its gradients by float16 spectra and bfloat16 gradients, however small the latter are."""
    from hofno.layers.kernels import columns, wide_rows
    from hofno.layers.kernels.transforms import transforms_of

    modes, order, batch = (2, 5), 2, 3
    kept = [len(ks) for ks in wavenumbers(modes, "reference")]
    q, bias, x, weight, offset, grad, other = draw(
        (batch, *points, order * channels),
        (order * channels,),
        (batch, *points, channels),
        (*kept, channels, 2),
        (2, *kept, channels),
        (batch, *points, channels),
        (batch, *points, channels),
    )
    with torch.no_grad():
        weight *= 1e-3  # what a filter leaves has its digits too
    grad, unit_grad = 1e-9 * grad.detach(), 1e-9 * other.detach()
    scale = torch.tensor([2.0, 0.0, 0.5], device=DEVICE) if scaled else None
    matrices = fourier.plane_matrices(points, padded_shape(points, 2 / 3), modes, "reference", x)

    def plain(q: Tensor, x: Tensor, weight: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        last, last_back, leading, leading_back = (m.double() for m in matrices)
        product = (q + bias.double()).unflatten(-1, (order, channels)).prod(-2)
        spectrum = (leading @ (last @ product).reshape(batch, 2 * points[0], -1)).view(batch, 2, *kept, channels)
        filtered = kernels.mode_filter_plain(spectrum + offset, weight)
        s = (leading_back @ filtered.reshape(batch, 2 * kept[0], -1)).view(batch, points[0], -1, channels)
        v = x + (last_back @ s) * (1.0 if scale is None else scale.view(-1, 1, 1, 1))
        return v, kernels.rms_norm_plain(v, torch.ones_like(v[0, 0, 0]), EPS)

    inputs = [t.detach().double().requires_grad_() for t in (q, x, weight, offset)]
    value, unit = plain(*inputs)
    expected = torch.autograd.grad((value, unit), inputs, (grad.double(), unit_grad.double()))

    t = transforms_of(matrices, wide_rows.tile_for(points[1], channels)).halved
    assert (t.columns.into.dtype, t.columns.back_grad.dtype) == (torch.float16, torch.bfloat16)
    rows = [part.detach().view(-1, part.shape[-1]) for part in (q, x, grad, unit_grad)]
    with monkeypatch.context() as patch:
        patch.setattr(columns, "left_product", in_float32)
        poison(patch)
        s = wide_rows.product_in(rows[0], bias, order, t.rows_in, t.tile, t.kept, "ieee")
        s, pairs = columns.forward(s.view(batch, points[0], t.kept, channels), t.columns, weight, offset, scale)
        assert (s.dtype, pairs.dtype) == (torch.float16, torch.float16)
        v, u, size = wide_rows.residual_out(rows[1], s, t.rows_out, None, t.tile, t.kept, EPS, torch.float32, "ieee")
        v_grad, s_grad = wide_rows.residual_out_grad(
            u, size, rows[3], rows[2], t.rows_out_transposed, t.tile, t.kept, "ieee"
        )
        s_grad, weight_grad, offset_grad = columns.backward(
            pairs, t.columns, weight, offset, s_grad.view(batch, points[0], t.kept, channels), scale
        )
        assert s_grad.dtype == torch.bfloat16
        q_grad, none = wide_rows.product_in_grad(
            rows[0], bias, order, t.rows_in_transposed, s_grad, t.tile, t.kept, "ieee", summed=False
        )
    assert none is None
    assert offset_grad is not None
    assert 1e-6 < relative(v - rows[1], (value - inputs[1]).view_as(v)) < 1e-3
    assert relative(u, unit.view_as(u)) < 1e-3
    found = q_grad.view_as(q), v_grad.view_as(x), weight_grad, offset_grad
    for one, reference in zip(found, expected, strict=True):
        assert 1e-8 < relative(one, reference) < 1e-2


@runs_kernels
def test_spectra_in_sixteen_bits_have_no_infinities() -> None:
    """Products beyond the range of float16 count as its largest numbers; what is no number stays none."""
    from hofno.layers.kernels import wide_rows
    from hofno.layers.kernels.transforms import transforms_of

    (x,) = draw((1, 2, 8, 128))
    matrices = fourier.plane_matrices((2, 8), (2, 8), (1, 3), "symmetric", x)
    t = transforms_of(matrices, wide_rows.tile_for(8, 128)).halved
    q, bias = torch.full((16, 256), 400.0, device=DEVICE), torch.zeros(256, device=DEVICE)
    s = wide_rows.product_in(q, bias, 2, t.rows_in, t.tile, t.kept, "ieee")
    assert float(s.float().max()) == pytest.approx(65504, rel=1e-3)
    assert bool(s.isfinite().all())
    q[0, 0] = torch.nan
    assert bool(wide_rows.product_in(q, bias, 2, t.rows_in, t.tile, t.kept, "ieee")[0, :, 0].isnan().all())


@runs_kernels
@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 64, 192), (200, 320, 128), (1000, 128, 64)])
def test_gradients_of_maps(count: int, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that are shared out or fewer than a share, and maps that do not fill their tiles."""
    from hofno.layers.kernels.weight_grads import folded_grads, weight_grads

    a, b, weight, gain = (t.detach() for t in draw((count, rows), (count, columns), (rows, columns), (columns,)))
    a, b = a.bfloat16(), b.bfloat16()
    exact = a.double().T @ b.double()
    with monkeypatch.context() as patch:
        poison(patch)
        plain, folded = weight_grads(a, b), folded_grads(a, b, weight, gain)
    expected = exact, a.double().sum(0), exact * gain, a.double().sum(0), (exact * weight).sum(0)
    for one, other in zip((*plain, *folded), expected, strict=True):
        assert relative(one, other) < 1e-5


@runs_kernels
@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (513, 40), (1025, 17), (5000, 3)])
def test_sums_of_rows(rows: int, columns: int) -> None:
    from hofno.layers.kernels.sums import sum_rows

    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    torch.testing.assert_close(sum_rows(x).double(), x.double().sum(0), rtol=1e-5, atol=1e-4)


@runs_kernels
def test_gradients_of_a_weight_and_of_its_gain() -> None:
    from hofno.layers.kernels.sums import unfold

    generator = torch.Generator().manual_seed(0)
    folded, weight, gain = (torch.randn(s, generator=generator).to(DEVICE) for s in ((300, 24), (300, 24), (24,)))
    weight_grad, gain_grad = unfold(folded, weight, gain)
    torch.testing.assert_close(weight_grad, folded * gain)
    torch.testing.assert_close(gain_grad, (folded * weight).sum(0), rtol=1e-5, atol=1e-4)


@runs_kernels
@pytest.mark.parametrize(
    ("points", "channels", "order", "hidden"),
    [((3, 6), 128, 1, 96), ((3, 6), 128, 3, 256), ((2, 70), 192, 2, 200), ((1, 2), 256, 2, 16), ((2, 5), 320, 2, 16)],
)
def test_many_channels(points: tuple[int, int], channels: int, order: int, hidden: int) -> None:
    assert_block(points, (1, 1), channels, order, hidden)


@runs_kernels
@pytest.mark.parametrize("count", [3, 192, 300])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("operand", [torch.bfloat16, torch.float32])
def test_hidden_activations_that_are_computed_again(
    count: int, scaled: bool, operand: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of points with more than one sample in them, and such as are not full."""
    from hofno.layers.kernels import wide_hidden
    from hofno.layers.kernels.weight_grads import weight_grads

    if DEVICE == "cuda" and operand == torch.float32:
        pytest.skip("on GPUs these kernels are for bfloat16")
    generator = torch.Generator().manual_seed(count)
    shapes = {"y": (count, 128), "u": (count, 128), "up": (192, 128), "b1": (192,), "down": (192, 128), "b2": (128,)}
    given = {name: torch.randn(shape, generator=generator).to(DEVICE) for name, shape in shapes.items()}
    for name in ("u", "up", "down"):
        given[name] = (given[name] / 5).to(operand)
    scale = torch.tensor([2.0, 0.0, -0.5], device=DEVICE) if scaled else None
    doubles = {name: value.double().requires_grad_() for name, value in given.items()}
    active = torch.nn.functional.gelu(doubles["u"] @ doubles["up"].T + doubles["b1"])
    added = active @ doubles["down"] + doubles["b2"]
    if scale is not None:
        added = added * scale.double().repeat_interleave(count // 3)[:, None]
    upstream = torch.randn(count, 128, generator=generator).to(DEVICE)
    (doubles["y"] + added).backward(upstream.double())

    y, u, up, b1, down, b2 = given.values()
    tolerance = 1e-5 if operand == torch.float32 else 1e-2
    with monkeypatch.context() as patch:
        poison(patch)
        assert wide_hidden.takes(u.dtype, u.shape[1], 192, u.device)
        value = wide_hidden.add_mlp(y.clone(), u, up, b1, down, b2, scale)
        grads = wide_hidden.add_mlp_grad(upstream, u, up, b1, down, scale)
        of_up, of_down = weight_grads(grads.hidden, u), weight_grads(grads.low, grads.active)
    assert relative(value - y, added) < tolerance
    assert relative(grads.unit, doubles["u"].grad) < tolerance
    for found, expected in zip((*of_up, of_down[0].T, of_down[1]), ("up", "b1", "down", "b2"), strict=True):
        assert relative(found, doubles[expected].grad) < tolerance


@runs_kernels
def test_long_rows_of_very_many_channels_are_left_to_the_plain_form() -> None:
    for columns, channels, taken in ((256, 256, True), (64, 320, True), (65, 320, False), (129, 64, True)):
        x = torch.zeros(1, 2, columns, channels, device=DEVICE)
        assert kernels.supported(x, 2, 128, (2, 3)) is taken


@runs_kernels
def test_operands_are_rounded_to_tf32_and_not_cut_off() -> None:
    """TF32 is the upper 19 bits of a float32; on average nothing may be lost by leaving out the rest."""
    from tf32_rounding import nearest_kernel

    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    x[:3] = torch.tensor([0.0, torch.inf, -torch.inf])
    x[3:6] = torch.tensor([2**31 - 1, -1, 0x7FC00000], dtype=torch.int32).view(torch.float32)  # no numbers
    out = torch.empty_like(x)
    nearest_kernel[(1,)](x, out, 4096)
    assert torch.equal(out[:3], x[:3])
    assert bool(out[3:6].isnan().all())
    assert int((out[6:].view(torch.int32) & (2**13 - 1)).abs().max()) == 0
    error = (out / x - 1)[6:]
    assert float(error.abs().max()) <= 2**-11
    assert abs(float(error.mean())) < 1e-5


@runs_kernels
def test_many_points_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from hofno.layers.kernels import outer

    monkeypatch.setattr(outer, "SHARES", 3)
    assert_block((9, 17), (2, 2), 16, 2, 16, "symmetric")


@pytest.mark.skipif(DEVICE != "cuda", reason="the interpreter has no bfloat16")
@pytest.mark.parametrize("channels", [64, 128])
def test_operands_in_bfloat16_under_autocast(channels: int) -> None:
    inputs = block_inputs((16, 16), (4, 4), channels, 3, 128)
    exact = plain_block((4, 4))(*(t.detach().double() for t in inputs))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        value = fused_block((4, 4))(*inputs)
    assert value.dtype == torch.float32
    assert 1e-5 < relative(value.detach(), exact) < 2e-2
    gradients = torch.autograd.grad(value.square().mean(), inputs)
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    references = torch.autograd.grad(plain_block((4, 4))(*doubles).square().mean(), doubles)
    assert all(relative(g, r) < 3e-2 for g, r in zip(gradients, references, strict=True))


@runs_kernels
def test_a_factor_that_is_zero_has_a_gradient() -> None:
    inputs = block_inputs((4, 8), (2, 2), 16, 3, 16)
    with torch.no_grad():
        inputs[2][16:32] = 0.0
        inputs[3][16:32] = 0.0
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    fused_block((2, 2))(*inputs).sum().backward()  # upstream is an expanded scalar
    plain_block((2, 2))(*doubles).sum().backward()
    assert inputs[2].grad is not None
    assert doubles[2].grad is not None
    assert inputs[2].grad[16:32].abs().max() > 0
    assert relative(inputs[2].grad, doubles[2].grad) < 1e-5


@runs_kernels
def test_gelu_is_the_exact_one() -> None:
    """Down to the tails, where the value is a small difference."""
    inputs = block_inputs((2, 8), (1, 1), 16, 1, 16)
    with torch.no_grad():
        inputs[7].copy_(torch.linspace(-6, 6, 16))  # biases before the gelu
    assert_equals_plain(fused_block((1, 1)), plain_block((1, 1)), inputs)


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
    narrow, wide = (block_inputs((5, 7), (2, 3), channels, 2, 32) for channels in (16, 128))
    filtering = draw((2, 2, 13, 16), (13, 16, 2))
    with monkeypatch.context() as patch:
        poison(patch)
        outputs: list[Tensor] = []
        padded = fused_block((2, 3), padding=0.5)
        for inputs, fused in ((narrow, padded), (wide, padded), (filtering, kernels.mode_filter)):
            value = fused(*inputs)
            outputs += [value, *torch.autograd.grad(value, inputs, torch.ones_like(value))]
    assert len(outputs) == 11 + 11 + 3
    assert all(output.isfinite().all() for output in outputs)


@runs_kernels
@pytest.mark.parametrize("channels", [16, 128])
def test_gradients_are_the_same_bits_every_time(channels: int) -> None:
    inputs = block_inputs((9, 17), (2, 2), channels, 2, 16)
    fused = fused_block((2, 2))
    first, second = (torch.autograd.grad(fused(*inputs).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@runs_kernels
def test_shapes_that_do_not_fit_are_refused() -> None:
    inputs = block_inputs((4, 8), (2, 2), 16, 2, 16)
    for place, name in ((2, "factors.weight"), (4, "filter"), (6, "up.weight"), (9, "down.bias")):
        wrong = [*inputs]
        wrong[place] = inputs[place][:-1]
        with pytest.raises(ShapeError, match=name):
            fused_block((2, 2))(*wrong)
    with pytest.raises(ShapeError, match="spectrum"):
        kernels.mode_filter(inputs[2], inputs[2])


def test_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, kept = torch.zeros(2, 8, 8, 64), (7, 4)
    assert kernels.supported(x, 2, 128, kept)
    assert kernels.supported(x[..., :16].contiguous(), 8, 16, kept)
    assert not kernels.supported(x, 9, 128, kept)
    assert not kernels.supported(x, 0, 128, kept)
    assert not kernels.supported(x, 2, 96, kept)
    assert not kernels.supported(x, 2, 512, kept)
    assert kernels.supported(torch.zeros(1, 4, 4, 256), 2, 1024, kept)
    assert not kernels.supported(torch.zeros(1, 4, 4, 96), 2, 96, kept)
    assert not kernels.supported(x, 2, 128, (7, 65))
    assert not kernels.supported(x, 2, 128, (7,))
    assert kernels.supported(torch.zeros(1, 4, 4, 128), 2, 256, (7, 128))
    assert not kernels.supported(x.double(), 2, 128, kept)
    assert not kernels.supported(x[:0], 2, 128, kept)
    assert not kernels.supported(x.transpose(1, 2), 2, 128, kept)
    assert not kernels.supported(x[..., :24].contiguous(), 2, 128, kept)
    assert not kernels.supported(x[0], 2, 128, kept)
    assert not kernels.supported(torch.zeros(1, 4, 257, 16), 2, 16, kept)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kernels.supported(x, 2, 128, kept)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not kernels.supported(x, 2, 128, kept)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not kernels.supported(x, 2, 128, kept)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with monkeypatch.context() as patch:
        patch.setattr(triton_use, "triton_is_installed", lambda: False)
        assert not kernels.supported(x, 2, 128, kept)
    monkeypatch.setenv("HOFNO_KERNELS", "off")
    assert not kernels.supported(x, 2, 128, kept)
    monkeypatch.setenv("HOFNO_KERNELS", "on")
    assert kernels.supported(x, 2, 128, kept)
    monkeypatch.setenv("HOFNO_KERNELS", "no")
    with pytest.raises(SpecError, match="HOFNO_KERNELS must be on or off; got 'no'"):
        kernels.supported(x, 2, 128, kept)


def test_importing_the_package_leaves_triton_alone() -> None:
    code = "import sys, hofno.layers.kernels; sys.exit('triton' in sys.modules)"
    finished = in_own_process("-c", code, interpret=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)


class Somewhere:
    """As much of a tensor as `dot_precision` asks about."""

    is_cuda, device = True, torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("capability", "asked", "found"),
    [((9, 0), "highest", "tf32x3"), ((8, 0), "high", "tf32"), ((7, 5), "highest", "ieee"), ((7, 5), "high", "ieee")],
)
def test_the_precision_of_products(
    capability: tuple[int, int], asked: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    torch.set_float32_matmul_precision(asked)
    kernels._has_tf32.cache_clear()
    try:
        assert kernels.dot_precision(Somewhere()) == found  # pyright: ignore[reportArgumentType]
        assert kernels.dot_precision(torch.zeros(1)) == "ieee"
    finally:
        kernels._has_tf32.cache_clear()
