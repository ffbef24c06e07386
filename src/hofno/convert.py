r"""Weights of the authors' released two-dimensional code, as a model of this library.

    linear_p                                    lift          Linear, inputs and two coordinates -> C
    HO_blocks.i.norm1.weight, norm2.weight      norms         (1, 1, 1, C)
    HO_blocks.i.HO_conv.proj                    factors       1 x 1 convolution C -> m C, factor by factor
    HO_blocks.i.HO_conv.spec_convs.weights1     filter        complex (C, m1, m2), rows k1 = 0..m1-1
    HO_blocks.i.HO_conv.spec_convs.weights2     filter        complex (C, m1, m2), rows k1 = -m1..-1
    HO_blocks.i.MLP.0, MLP.3                    MLP           Linear C -> e C, Linear e C -> C
    linear_q                                    projection    Linear

FNO has `fno_blocks` and `fno_conv` in their place, and m = 1. Every size is read off the shapes. They do not
tell whether the network was used with zero padding: that is `domain_padding` (2/3 in the released code).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from hofno.errors import CheckpointError
from hofno.models.spectral import FNO, HOFNO

FAMILIES = {"HO_blocks": "HO_conv", "fno_blocks": "fno_conv"}
COORDINATE_CHANNELS = 2


def reference(state_dict: Mapping[str, Tensor], domain_padding: float = 0.0) -> HOFNO | FNO:
    """The model that holds the weights of the authors' `HO_FNO` or `FNO`.

    Args:
        state_dict: tensors by name, as the network's `state_dict()` gives them; names may begin with
            `module.`, and spectral weights may be complex or real with a trailing axis of 2.
        domain_padding: 2/3 if the network was trained with its `two_thirds_zero_padding`, else 0.
    """
    tensors = _named_tensors(state_dict)
    family = _family(tensors)
    block, conv = f"{family}.0", FAMILIES[family]
    width, lifted = _matrix(tensors, "linear_p.weight")
    out_channels, _ = _matrix(tensors, "linear_q.weight")
    hidden, _ = _matrix(tensors, f"{block}.MLP.0.weight")
    depth = _depth(tensors, family)
    order = _multiple(tensors, f"{block}.{conv}.proj.weight", width)
    expansion = _multiple(tensors, f"{block}.MLP.0.weight", width)
    first_rows = _take(tensors, f"{block}.{conv}.spec_convs.weights1")  # (C, m1, m2, 2)
    if first_rows.ndim != 4:
        raise CheckpointError(
            f"{block}.{conv}.spec_convs.weights1: expected complex (channels, modes1, modes2); got "
            f"{first_rows.ndim - 1} axes; only the two-dimensional network of the released code is known"
        )
    modes = (first_rows.shape[1], first_rows.shape[2])
    if lifted <= COORDINATE_CHANNELS:
        raise CheckpointError(
            f"linear_p.weight: expected at least 3 inputs, the last two being coordinates; got {lifted}"
        )

    expected: dict[str, tuple[int, ...]] = {
        "linear_p.weight": (width, lifted),
        "linear_p.bias": (width,),
        "linear_q.weight": (out_channels, width),
        "linear_q.bias": (out_channels,),
    }
    for index in range(depth):
        for name, shape in _block_shapes(conv, width, order, hidden, modes).items():
            expected[f"{family}.{index}.{name}"] = shape
    _check(tensors, expected)

    if family == "HO_blocks":
        model = HOFNO(
            lifted - COORDINATE_CHANNELS,
            out_channels,
            modes,
            width=width,
            depth=depth,
            order=order,
            expansion=expansion,
            domain_padding=domain_padding,
            mode_set="reference",
        )
    else:
        if order != 1:
            raise CheckpointError(
                f"{block}.fno_conv.proj.weight: expected {width} rows, one factor; got {order * width}; "
                "higher orders have their blocks under HO_blocks"
            )
        model = FNO(
            lifted - COORDINATE_CHANNELS,
            out_channels,
            modes,
            width=width,
            depth=depth,
            expansion=expansion,
            domain_padding=domain_padding,
            mode_set="reference",
        )
    lift = tensors["linear_p.weight"]
    model.to(device=lift.device, dtype=lift.dtype)
    model.load_state_dict(_renamed(tensors, family, depth))
    return model


def _named_tensors(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without `module.`; complex weights as real ones with a trailing axis of 2."""
    if not isinstance(state_dict, Mapping):
        raise CheckpointError(
            f"expected a dict of tensors by name; got {type(state_dict).__name__}; "
            "read the file first, for example with safetensors.torch.load_file(path)"
        )
    tensors: dict[str, Tensor] = {}
    for key, value in state_dict.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"{key}: expected a tensor; got {type(value).__name__}; give the state_dict itself, "
                "not the checkpoint around it"
            )
        name = str(key).removeprefix("module.")
        if name in tensors:
            raise CheckpointError(f"{name}: given twice, with and without the prefix 'module.'; keep one of them")
        spectral = ".spec_convs." in name
        if spectral and value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        if not value.is_floating_point() or (spectral and (value.ndim == 0 or value.shape[-1] != 2)):
            wanted = "complex numbers, or real ones with a trailing axis of 2" if spectral else "real numbers"
            raise CheckpointError(f"{key}: expected {wanted}; got {value.dtype}, shape {tuple(value.shape)}")
        tensors[name] = value.detach()
    return tensors


def _family(tensors: dict[str, Tensor]) -> str:
    present = [name for name in FAMILIES if any(key.startswith(f"{name}.") for key in tensors)]
    if len(present) == 1:
        return present[0]
    found = f"both {' and '.join(present)}" if present else f"neither among {len(tensors)} keys"
    raise CheckpointError(
        f"expected the keys of one network, HO_blocks.* or fno_blocks.*; got {found}; "
        "these are not weights of the authors' released code"
    )


def _take(tensors: dict[str, Tensor], key: str) -> Tensor:
    if key not in tensors:
        raise CheckpointError(f"{key}: missing; give the whole state_dict of the network")
    return tensors[key]


def _matrix(tensors: dict[str, Tensor], key: str) -> tuple[int, int]:
    tensor = _take(tensors, key)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise CheckpointError(f"{key}: expected a matrix (outputs, inputs); got shape {tuple(tensor.shape)}")
    return tensor.shape[0], tensor.shape[1]


def _multiple(tensors: dict[str, Tensor], key: str, width: int) -> int:
    """How many times the width fits into the first axis."""
    tensor = _take(tensors, key)
    rows = tensor.shape[0] if tensor.ndim else 0
    if rows < width or rows % width:
        raise CheckpointError(
            f"{key}: expected a multiple of the width {width} as first axis; got shape {tuple(tensor.shape)}"
        )
    return rows // width


def _depth(tensors: dict[str, Tensor], family: str) -> int:
    """Number of blocks; a gap in their numbering shows later as missing keys."""
    numbers = [re.match(rf"{family}\.(\d+)\.", key) for key in tensors]
    return 1 + max((int(found[1]) for found in numbers if found), default=0)


def _block_shapes(conv: str, width: int, order: int, hidden: int, modes: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    return {
        "norm1.weight": (1, 1, 1, width),
        "norm2.weight": (1, 1, 1, width),
        f"{conv}.proj.weight": (order * width, width, 1, 1),
        f"{conv}.proj.bias": (order * width,),
        f"{conv}.spec_convs.weights1": (width, *modes, 2),
        f"{conv}.spec_convs.weights2": (width, *modes, 2),
        "MLP.0.weight": (hidden, width),
        "MLP.0.bias": (hidden,),
        "MLP.3.weight": (width, hidden),
        "MLP.3.bias": (width,),
    }


def _check(tensors: dict[str, Tensor], expected: dict[str, tuple[int, ...]]) -> None:
    for key in tensors:
        if key not in expected:
            raise CheckpointError(f"{key}: unknown; the released two-dimensional network has no such weight")
    for key, shape in expected.items():
        found = tuple(_take(tensors, key).shape)
        if found != shape:
            raise CheckpointError(f"{key}: expected shape {shape} beside the other weights; got {found}")


def _renamed(tensors: dict[str, Tensor], family: str, depth: int) -> dict[str, Tensor]:
    """The same weights under our names and in our layouts."""
    conv = FAMILIES[family]
    renamed = {
        f"{ours}.{part}": tensors[f"{theirs}.{part}"]
        for ours, theirs in (("lift", "linear_p"), ("project", "linear_q"))
        for part in ("weight", "bias")
    }
    for index in range(depth):
        old, new = f"{family}.{index}", f"blocks.{index}"
        rows = [tensors[f"{old}.{conv}.spec_convs.weights{half}"] for half in (1, 2)]
        by_mode = torch.cat(rows, dim=1)  # (C, 2 m1, m2, 2)
        renamed[f"{new}.conv.filter.weight"] = by_mode.permute(1, 2, 0, 3)
        renamed[f"{new}.conv.factors.linear.weight"] = tensors[f"{old}.{conv}.proj.weight"].flatten(1)
        renamed[f"{new}.conv.factors.linear.bias"] = tensors[f"{old}.{conv}.proj.bias"]
        for norm in ("norm1", "norm2"):
            renamed[f"{new}.{norm}.weight"] = tensors[f"{old}.{norm}.weight"].flatten()
        for ours, theirs in (("up", "MLP.0"), ("down", "MLP.3")):
            for part in ("weight", "bias"):
                renamed[f"{new}.mlp.{ours}.{part}"] = tensors[f"{old}.{theirs}.{part}"]
    return renamed
