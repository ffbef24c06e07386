"""Kernels of wide blocks compile for Hopper GPUs, without a GPU, and what a program holds fits into its registers.

The interpreter shows that kernels are right; it takes what a compiler refuses, and knows nothing of registers.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from own_process import INTERPRETED

triton = pytest.importorskip("triton")
if INTERPRETED:
    pytest.skip("interpreted functions are not compiled", allow_module_level=True)
TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
if not TOOL.exists():
    pytest.skip("this Triton has no tools for NVIDIA GPUs", allow_module_level=True)

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from hofno.layers.kernels import (  # noqa: E402
    classic_in,
    classic_rows,
    columns,
    weight_grads,
    wide_hidden,
    wide_points,
    wide_rows,
)

FLOAT, LOW, HALF, WHOLE = "*fp32", "*bf16", "*fp16", "i32"
PIPE = {"FILLED": 129, "MODES": 64, "KEPT": 48, "POINTS": wide_rows.BLOCK, "BLOCKS": 5}
COUNTS = {"point_count": WHOLE, "coefficient_count": WHOLE}


def spilled(kernel: Any, types: dict[str, str], sizes: dict[str, Any], folder: Path, **options: int) -> int:
    """Bytes that a thread of the compiled kernel keeps outside of its registers."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in sizes else types[name] for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
    constants = {(names.index(name),): value for name, value in sizes.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    file = folder / "kernel.cubin"
    file.write_bytes(compiled.asm["cubin"])
    told = subprocess.run([TOOL, "-res-usage", str(file)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, told
    return int(found[2])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    assert os.environ["TRITON_CACHE_DIR"]


@pytest.mark.parametrize("precision", ["16 bits", "tf32", "tf32x3"])
def test_along_image_rows(precision: str, tmp_path: Path) -> None:
    low = precision == "16 bits"
    there, back = (HALF, LOW) if low else (FLOAT, FLOAT)
    operand, kind = (FLOAT, tl.float32) if precision == "tf32x3" else (LOW, tl.bfloat16)
    spectral = {**PIPE, "PRECISION": "tf32" if low else precision}
    loads = {"num_warps": wide_rows.WARPS, "num_stages": wide_rows.STAGES}
    factors = {"ORDER": 2, "C": 128, "CHUNK": wide_rows.CHUNK, **spectral}
    whole = {"C": 128, "CHUNK": 128, "CHUNKS": 1, **spectral}
    q = {"q_pointer": operand, "bias_pointer": FLOAT, **COUNTS}
    product = {**q, "transform_pointer": there, "out_pointer": there}
    assert spilled(wide_rows._product_kernel, product, factors, tmp_path, **loads) == 0
    product_grad = {**q, "transform_pointer": back, "out_grad_pointer": back, "q_grad_pointer": operand}
    product_grad |= {"bias_grad_pointer": FLOAT}
    for summed in (False, True):
        sizes = {**factors, "OPERAND": kind, "SUMMED": summed}
        assert spilled(wide_rows._product_grad_kernel, product_grad, sizes, tmp_path, **loads) == 0
    points = {"unit_pointer": operand, "scale_pointer": FLOAT, **COUNTS}
    residual = {**points, "v_pointer": FLOAT, "spectrum_pointer": there, "transform_pointer": there}
    residual |= {"bias_pointer": FLOAT, "out_pointer": FLOAT, "eps": "fp32"}
    sizes = {**whole, "OPERAND": kind, "BIASED": False}
    assert spilled(wide_rows._residual_kernel, residual, sizes, tmp_path, **loads) == 0
    residual_grad = {**points, "unit_grad_pointer": operand, "out_grad_pointer": FLOAT, "transform_pointer": back}
    residual_grad |= {"v_grad_pointer": FLOAT, "spectrum_grad_pointer": back}
    assert spilled(wide_rows._residual_grad_kernel, residual_grad, whole, tmp_path, **loads) == 0


def test_along_columns_and_points(tmp_path: Path) -> None:
    sizes = {"PADDED": True, "SCALED": True, "KEPT": 100, "PAIRS": 52, "N": 3072}
    gained = {**sizes, "GAIN": 32.0, "BLOCK": columns.BLOCK}
    same = {"weight_pointer": FLOAT, "offset_pointer": FLOAT, "scale_pointer": FLOAT, "rows_pointer": "*i32"}
    there = {**same, "pairs_pointer": HALF, "out_pointer": HALF}
    assert spilled(columns._filter_kernel, there, gained, tmp_path, num_warps=4) == 0
    back = {**same, "pairs_pointer": HALF, "grad_pointer": LOW, "pairs_grad_pointer": LOW}
    back |= {"weight_grad_pointer": FLOAT, "offset_grad_pointer": FLOAT, "sample_count": WHOLE}
    sizes |= {"BLOCK": columns.GRAD_BLOCK, "SAMPLES": columns.SAMPLES, "TURNS": 4}
    assert spilled(columns._filter_grad_kernel, back, sizes, tmp_path, num_warps=4) == 0
    unit = {"unit_pointer": LOW, "scale_pointer": FLOAT, "unit_grad_pointer": LOW, "out_grad_pointer": FLOAT}
    unit |= {"v_grad_pointer": FLOAT, "point_count": WHOLE}
    for channels in (128, 256, 1024):
        sizes = {"C": channels, "PLACES": channels, "ROWS": max(1, wide_points.GRAD_NUMBERS // channels)}
        assert spilled(wide_points._unit_grad_kernel, unit, sizes, tmp_path, num_warps=4) == 0


def described(rows: int, columns_: int, kind: str = "bf16") -> str:
    return f"tensordesc<{kind}[{rows},{columns_}]>"


def test_mlp(tmp_path: Path) -> None:
    same = {"up_bias_pointer": FLOAT, "scale_pointer": FLOAT, "point_count": WHOLE, "sample_points": WHOLE}
    sizes = {"H": 512, "C": 128, "SCALED": True, "OPERAND": tl.bfloat16, "EXACT": False}
    points, chunk = wide_hidden.POINTS, wide_hidden.CHUNK
    tiles = {"y_tiles": described(points, 128, "fp32"), "unit_tiles": described(points, 128)}
    tiles |= {"up_tiles": described(chunk, 128), "down_tiles": described(chunk, 128), "down_bias_pointer": FLOAT}
    there = {**sizes, "P": points, "CHUNK": chunk}
    assert spilled(wide_hidden._add_mlp_kernel, {**same, **tiles}, there, tmp_path, num_warps=8) == 0
    points, chunk = wide_hidden.GRAD_POINTS, wide_hidden.GRAD_CHUNK
    names = ("unit_tiles", "unit_grad_tiles", "low_tiles")
    tiles = {"y_grad_tiles": described(points, 128, "fp32"), **{name: described(points, 128) for name in names}}
    tiles |= {"up_tiles": described(chunk, 128), "down_tiles": described(chunk, 128)}
    tiles |= {name: described(points, chunk) for name in ("active_tiles", "hidden_grad_tiles")}
    back = {**sizes, "P": points, "CHUNK": chunk}
    assert spilled(wide_hidden._add_mlp_grad_kernel, {**same, **tiles}, back, tmp_path, num_warps=4) == 0


def test_gradients_of_maps(tmp_path: Path) -> None:
    tile = described(weight_grads.POINTS, weight_grads.SIDE)
    types = {"a_tiles": tile, "b_tiles": tile, "share_pointer": FLOAT, "sum_pointer": FLOAT}
    sizes = {"A": 512, "B": 128, "SIDE": weight_grads.SIDE, "POINTS": weight_grads.POINTS, "TURNS": 64}
    sizes |= {"STAGES": weight_grads.STAGES}
    assert spilled(weight_grads._share_kernel, types, sizes, tmp_path, num_warps=weight_grads.WARPS) == 0
    names = ("share", "sum", "weight", "gain", "weight_grad", "bias_grad", "gain_grad")
    types = {**{f"{name}_pointer": FLOAT for name in names}, "share_count": WHOLE}
    sizes = {"A": 512, "B": 128, "ROWS": weight_grads.ROWS, "COLUMNS": weight_grads.COLUMNS, "FOLDED": True}
    sizes |= {"TOGETHER": weight_grads.TOGETHER, "TURNS": 5}
    assert spilled(weight_grads._add_kernel, types, sizes, tmp_path, num_warps=4) == 0


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    ("channels", "order", "most"), [(20, 2, 112), (32, 3, 0), (40, 2, 0), (64, 1, 0), (64, 2, 0), (64, 3, 112)]
)
def test_classic_rows(channels: int, order: int, most: int, blocks: int, tmp_path: Path) -> None:
    """Many numbers outside of registers are slow, and were read from beyond shared memory on a GPU."""
    x, weight = torch.empty(1, 1, 64 * blocks, channels), torch.empty(order * channels, channels)
    tile = classic_rows.row_tile(64 * blocks, 24)
    types = {name: FLOAT for name in classic_in._backward_kernel.arg_names if name.endswith("pointer")}
    types |= {**COUNTS, "share_size": WHOLE, "first_out": WHOLE}
    launch = classic_rows.row_launch(x, tile, 24, 1, "tf32")
    forward = classic_in._sizes(x, weight, "tf32", classic_rows.places_of(channels), classic_in.AT_HAND)
    backward = classic_in._sizes(x, weight, "tf32", classic_in.CHUNK, classic_in.AT_HAND_BACKWARD)
    of_forward = launch | forward | {"MODE_ROWS": classic_rows.mode_rows(tile, 24)}
    bound = classic_rows.registers(x, "tf32") if order <= 2 else None
    for kernel, options in ((classic_in._forward_kernel, of_forward), (classic_in._backward_kernel, launch | backward)):
        sizes = {name: value for name, value in options.items() if name in kernel.arg_names}
        asked = {name: options[name] for name in ("num_warps", "num_stages")}
        asked |= {"maxnreg": bound} if bound and kernel is classic_in._backward_kernel else {}
        assert spilled(kernel, {**types, "out_pointer": FLOAT}, sizes, tmp_path, **asked) <= most, kernel.__name__
