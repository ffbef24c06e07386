"""Weights of the released code: the converted model against a plain restatement of its network."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.convert import reference
from hofno.errors import CheckpointError, HofnoError
from hofno.models import FNO, HOFNO
from reference import relative

TWO_THIRDS = 2 / 3
Weights = dict[str, Tensor]


def released_weights(
    order: int = 2,
    *,
    fno: bool = False,
    dtype: torch.dtype = torch.float64,
    width: int = 4,
    depth: int = 2,
    in_channels: int = 3,
    modes: tuple[int, int] = (3, 2),
    expansion: int = 3,
) -> Weights:
    """Random weights with the names and shapes of the released network."""
    blocks, conv = ("fno_blocks", "fno_conv") if fno else ("HO_blocks", "HO_conv")

    def real(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype) * shape[-1] ** -0.5

    weights = {"linear_p.weight": real(width, in_channels + 2), "linear_p.bias": real(width)}
    for index in range(depth):
        name = f"{blocks}.{index}"
        weights[f"{name}.{conv}.proj.weight"] = 0.5 * real(order * width, width, 1, 1)
        weights[f"{name}.{conv}.proj.bias"] = real(order * width)
        for half in (1, 2):
            parts = torch.randn(2, width, *modes, dtype=dtype)
            weights[f"{name}.{conv}.spec_convs.weights{half}"] = torch.complex(parts[0], parts[1])
        weights[f"{name}.norm1.weight"] = 1 + 0.3 * torch.randn(1, 1, 1, width, dtype=dtype)
        weights[f"{name}.norm2.weight"] = 1 + 0.3 * torch.randn(1, 1, 1, width, dtype=dtype)
        weights[f"{name}.MLP.0.weight"] = real(expansion * width, width)
        weights[f"{name}.MLP.0.bias"] = real(expansion * width)
        weights[f"{name}.MLP.3.weight"] = real(width, expansion * width)
        weights[f"{name}.MLP.3.bias"] = real(width)
    weights["linear_q.weight"] = real(2, width)
    weights["linear_q.bias"] = real(2)
    return weights


def released_network(weights: Weights, x: Tensor, padding: bool) -> Tensor:
    """The released network restated: channel-last, rfft2 with explicit slices, pixels really padded."""
    blocks, conv = ("fno_blocks", "fno_conv") if "fno_blocks.0.norm1.weight" in weights else ("HO_blocks", "HO_conv")
    depth = sum(key.endswith(".norm1.weight") for key in weights)
    batch, height, breadth, _ = x.shape
    rows = torch.linspace(0, 1, height, dtype=x.dtype)[None, :, None, None].expand(batch, height, breadth, 1)
    columns = torch.linspace(0, 1, breadth, dtype=x.dtype)[None, None, :, None].expand(batch, height, breadth, 1)
    v = torch.cat((x, rows, columns), -1) @ weights["linear_p.weight"].T + weights["linear_p.bias"]
    for index in range(depth):
        name = f"{blocks}.{index}"
        h = released_norm(v, weights[f"{name}.norm1.weight"])
        if padding:
            h = F.pad(h, (0, 0, 0, int(2 * breadth / 3), 0, int(2 * height / 3)))
        z = released_product(h, weights[f"{name}.{conv}.proj.weight"], weights[f"{name}.{conv}.proj.bias"])
        spectral = [weights[f"{name}.{conv}.spec_convs.weights{half}"] for half in (1, 2)]
        v = v + released_spectral(z, *spectral)[:, :height, :breadth]
        h = released_norm(v, weights[f"{name}.norm2.weight"])
        h = F.gelu(h @ weights[f"{name}.MLP.0.weight"].T + weights[f"{name}.MLP.0.bias"])
        v = v + h @ weights[f"{name}.MLP.3.weight"].T + weights[f"{name}.MLP.3.bias"]
    return v @ weights["linear_q.weight"].T + weights["linear_q.bias"]


def released_norm(v: Tensor, weight: Tensor) -> Tensor:
    return v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-6) * weight


def released_product(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    width = h.shape[-1]
    z = torch.ones_like(h)
    for first in range(0, weight.shape[0], width):
        rows = slice(first, first + width)
        z = z * (h @ weight[rows, :, 0, 0].T + bias[rows])
    return z


def released_spectral(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """low: rows k1 = 0..m1-1, high: rows k1 = -m1..-1; both (C, m1, m2)."""
    m1, m2 = low.shape[1:]
    spectrum = torch.fft.rfft2(z.movedim(-1, 1))
    out = torch.zeros_like(spectrum)
    out[:, :, :m1, :m2] = spectrum[:, :, :m1, :m2] * low
    out[:, :, -m1:, :m2] = spectrum[:, :, -m1:, :m2] * high
    return torch.fft.irfft2(out, s=z.shape[1:3]).movedim(1, -1)


@pytest.mark.parametrize("shape", [(8, 9), (7, 12)])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, "fno"])
@pytest.mark.parametrize(("dtype", "accuracy"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_converted_model_is_the_released_network(
    order: int | str, padding: bool, shape: tuple[int, int], dtype: torch.dtype, accuracy: float
) -> None:
    fno = order == "fno"
    weights = released_weights(1 if isinstance(order, str) else order, fno=fno, dtype=dtype)
    x = torch.randn(2, *shape, 3, dtype=dtype)
    model = reference(weights, domain_padding=TWO_THIRDS if padding else 0.0)
    assert type(model) is (FNO if fno else HOFNO)
    found = model(x.movedim(-1, 1)).movedim(1, -1)
    assert found.dtype == dtype
    assert relative(found, released_network(weights, x, padding)) < accuracy


def test_padding_is_not_a_detail() -> None:
    weights = released_weights()
    x = torch.randn(1, 8, 9, 3, dtype=torch.float64)
    assert relative(released_network(weights, x, True), released_network(weights, x, False)) > 1e-2


def test_every_size_is_read_off_the_shapes() -> None:
    model = reference(released_weights(3, width=5, depth=4, in_channels=1, modes=(2, 6), expansion=2))
    expected = {"width": 5, "depth": 4, "order": 3, "expansion": 2, "in_channels": 1, "out_channels": 2}
    assert expected.items() <= model.config.items()
    assert model.config["modes"] == [2, 6]
    assert (model.config["mode_set"], model.config["coordinates"]) == ("reference", "endpoint")


def test_a_prefix_and_real_pairs_are_understood() -> None:
    weights = released_weights()
    stored = {f"module.{k}": torch.view_as_real(w) if w.is_complex() else w for k, w in weights.items()}
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    assert torch.equal(reference(stored)(x), reference(weights)(x))


def test_the_model_owns_its_weights() -> None:
    weights = released_weights()
    model = reference(weights)
    before = model.lift.weight.detach().clone()
    weights["linear_p.weight"].zero_()
    assert torch.equal(model.lift.weight, before)


@pytest.mark.parametrize("key", sorted(released_weights(depth=1)))
@pytest.mark.parametrize("damage", ["missing", "shape", "not a tensor", "whole numbers"])
def test_each_damaged_weight_is_named_in_one_line(key: str, damage: str) -> None:
    weights: dict[str, object] = dict(released_weights(depth=1))
    tensor = weights.pop(key)
    assert isinstance(tensor, Tensor)
    if damage == "shape":
        weights[key] = torch.cat((tensor, tensor[:1]))
    elif damage == "not a tensor":
        weights[key] = tensor.tolist()
    elif damage == "whole numbers":
        weights[key] = torch.zeros(tensor.shape, dtype=torch.int64)
    with pytest.raises(CheckpointError) as caught:
        reference(weights)  # pyright: ignore[reportArgumentType]
    message = str(caught.value)
    assert "\n" not in message
    # width and output channels are read off these two, so it is their neighbours that look wrong
    read_off = damage == "shape" and key in ("linear_p.weight", "linear_q.weight")
    assert key in message or read_off


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"HO_blocks.0.skip.weight": torch.zeros(4, 4)}, "HO_blocks.0.skip.weight: unknown"),
        ({"fno_blocks.0.norm1.weight": torch.ones(1, 1, 1, 4)}, "both HO_blocks and fno_blocks"),
        ({"HO_blocks.7.norm1.weight": torch.ones(1, 1, 1, 4)}, "HO_blocks.2.norm1.weight: missing"),
        ({"epoch": 3}, "epoch: expected a tensor; got int"),
        ({"module.linear_p.bias": torch.zeros(4)}, "linear_p.bias: given twice"),
        ({"linear_p.weight": torch.zeros(4, 2)}, "linear_p.weight: expected at least 3 inputs"),
        ({"linear_p.weight": torch.zeros(4)}, "linear_p.weight: expected a matrix"),
        ({"linear_q.weight": torch.zeros(0, 4)}, "linear_q.weight: expected a matrix"),
        ({"linear_q.bias": torch.zeros(2, dtype=torch.complex64)}, "linear_q.bias: expected real numbers"),
        ({"HO_blocks.0.HO_conv.proj.weight": torch.zeros(6, 4, 1, 1)}, "proj.weight: expected a multiple"),
        ({"HO_blocks.0.HO_conv.proj.weight": torch.zeros(8, 4, 3, 3)}, "expected shape (8, 4, 1, 1)"),
        (
            {"HO_blocks.0.HO_conv.spec_convs.weights1": torch.zeros(4, 3, dtype=torch.complex64)},
            "HO_blocks.0.HO_conv.spec_convs.weights1: expected complex (channels, modes1, modes2)",
        ),
        (
            {"HO_blocks.1.HO_conv.spec_convs.weights2": torch.zeros(4, 3, 5, dtype=torch.complex64)},
            "HO_blocks.1.HO_conv.spec_convs.weights2: expected shape (4, 3, 2, 2)",
        ),
        (
            {"HO_blocks.0.HO_conv.spec_convs.weights1": torch.zeros(4, 3, 5)},
            "HO_blocks.0.HO_conv.spec_convs.weights1: expected complex numbers",
        ),
    ],
)
def test_foreign_keys_and_shapes_are_refused(change: dict[str, Tensor], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        reference({**released_weights(), **change})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_objects_are_refused() -> None:
    with pytest.raises(CheckpointError, match="expected a dict of tensors by name; got str"):
        reference("weights.pt")  # pyright: ignore[reportArgumentType]
    with pytest.raises(CheckpointError, match="neither among 0 keys"):
        reference({})
    with pytest.raises(CheckpointError, match="one factor; got 8"):
        reference(released_weights(2, fno=True))
    with pytest.raises(HofnoError, match="domain_padding"):
        reference(released_weights(), domain_padding=-1.0)
