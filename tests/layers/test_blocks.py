"""Blocks and their small parts against the formulas they stand for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import ModeSet, PaddedBy
from hofno.layers import MLP, ClassicBlock, DropPath, HigherOrderSpectralConv, ModernBlock, RMSNorm, kernels
from reference import as_array, higher_order, relative


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def affine(linear: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ as_array(linear.weight).T + as_array(linear.bias)


def normalised(norm: RMSNorm, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * as_array(norm.weight)


def convolution(**options: Any) -> HigherOrderSpectralConv:
    return HigherOrderSpectralConv(4, (3, 3), 2, **options).double()


def modern(drop_path: float = 0.0, **options: Any) -> ModernBlock:
    block = ModernBlock(convolution(**options), expansion=3, drop_path=drop_path).double()
    torch.nn.init.normal_(block.norm1.weight, 1.0, 0.3)
    torch.nn.init.normal_(block.norm2.weight, 1.0, 0.3)
    return block


def random_field(batch: int = 2) -> Tensor:
    return torch.randn(batch, 7, 8, 4, dtype=torch.float64)


@given(st.floats(1e-4, 1e4), st.integers(1, 9))
def test_rms_norm(scale: float, width: int) -> None:
    norm = RMSNorm(width).double()
    torch.nn.init.normal_(norm.weight)
    v = scale * torch.randn(3, 5, width, dtype=torch.float64)
    assert relative(norm(v), normalised(norm, as_array(v))) < 1e-12


def test_rms_norm_at_zero_is_zero_and_its_eps_counts() -> None:
    zero = torch.zeros(2, 4, requires_grad=True)
    RMSNorm(4)(zero).sum().backward()
    assert zero.grad is not None
    assert bool(zero.grad.isfinite().all())
    assert float(RMSNorm(1, eps=3.0)(torch.ones(1, 1)).detach()) == pytest.approx(0.5)


def test_mlp() -> None:
    mlp = MLP(4, 12, 3).double()
    v = random_field()
    assert relative(mlp(v), affine(mlp.down, gelu(affine(mlp.up, as_array(v))))) < 1e-12
    assert mlp.up.out_features == 12
    assert mlp(v).shape[-1] == 3


def test_drop_path_drops_whole_samples_and_keeps_the_mean() -> None:
    drop, v = DropPath(0.25), torch.ones(4000, 3, 2)
    out = drop(v)
    kept = out[:, 0, 0] != 0
    assert torch.equal(out, kept[:, None, None] * v / 0.75)
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.03)
    assert drop.eval()(v) is v
    assert DropPath(0.0)(v) is v


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, math.nan])
def test_drop_path_rates_that_are_no_probability(rate: float) -> None:
    with pytest.raises(SpecError, match="drop_path is a probability of at least 0 and below 1"):
        DropPath(rate)


@pytest.mark.parametrize(
    "options", [{}, {"domain_padding": 0.5}, {"dealias": True}, {"factors": "spectral", "weights": "dense"}]
)
def test_modern_block(options: dict[str, Any]) -> None:
    block, v = modern(**options), random_field()
    first = as_array(v) + higher_order(block.conv, torch.from_numpy(normalised(block.norm1, as_array(v))))
    inner = gelu(affine(block.mlp.up, normalised(block.norm2, first)))
    assert relative(block(v), first + affine(block.mlp.down, inner)) < 1e-12


@pytest.mark.parametrize("last", [False, True])
def test_classic_block(last: bool) -> None:
    block, v = ClassicBlock(convolution(), drop_path=0.0, last=last).double(), random_field()
    total = affine(block.skip, as_array(v)) + higher_order(block.conv, v)
    assert relative(block(v), total if last else gelu(total)) < 1e-12


def test_classic_block_has_nothing_to_drop() -> None:
    with pytest.raises(SpecError, match="classic backbone has no residual branch to drop"):
        ClassicBlock(convolution(), drop_path=0.1, last=False)


def test_stochastic_depth_in_a_modern_block() -> None:
    """In training each branch of each sample is dropped or scaled; at rest it is the block without it."""
    block, v = modern(drop_path=0.5), random_field(1).expand(64, -1, -1, -1)
    branch = block.conv(block.norm1(v))
    outcomes = []
    for first in (v, v + 2 * branch):
        outcomes += [first, first + 2 * block.mlp(block.norm2(first))]
    out = block(v)
    seen = [sum(bool(torch.allclose(sample, outcome[0])) for sample in out) for outcome in outcomes]
    assert sum(seen) == 64
    assert min(seen) > 0
    block.eval()
    plain = v + branch
    assert torch.allclose(block(v), plain + block.mlp(block.norm2(plain)))


@pytest.mark.parametrize(("padding", "padded_by"), [(0.0, "points"), (0.5, "points"), (0.5, "length")])
@pytest.mark.parametrize("mode_set", ["symmetric", "reference"])
@pytest.mark.parametrize("order", [1, 3])
def test_the_fused_path_is_wired_as_the_plain_one(
    order: int, mode_set: ModeSet, padding: float, padded_by: PaddedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels replaced by the function they equal, both paths give the same block."""
    options: dict[str, Any] = {"mode_set": mode_set, "domain_padding": padding, "padded_by": padded_by}
    conv = HigherOrderSpectralConv(4, (3, 3), order, **options)
    block, v = ModernBlock(conv, expansion=2, drop_path=0.5).eval(), torch.randn(2, 7, 8, 4)
    expected = block(v)
    calls: list[tuple[int, ...]] = []

    def counted(*inputs: Any) -> Tensor:
        calls.append(tuple(inputs[0].shape))
        return kernels.modern_block_plain(*inputs)

    monkeypatch.setattr(kernels, "modern_block", counted)
    monkeypatch.setattr(kernels, "supported", lambda *_: True)
    assert torch.allclose(block(v), expected, atol=1e-6)
    assert calls == [(2, 7, 8, 4)]
    block.train()
    dropped = []
    for fused in (True, False):
        monkeypatch.setattr(kernels, "supported", lambda *_, fused=fused: fused)
        torch.manual_seed(1)
        dropped.append(block(v))
    assert torch.allclose(*dropped, atol=1e-6)
    assert len(calls) == 2
    monkeypatch.setattr(kernels, "supported", lambda *_: True)
    calls.clear()
    block.eval()
    for name, value in (("dealias", True), ("method", "fft")):  # these run through the plain path
        kept = getattr(conv, name)
        setattr(conv, name, value)
        block(v)
        setattr(conv, name, kept)
    conv.transform_dtype = torch.bfloat16
    block(v)
    assert calls == []


def test_gelu_is_the_exact_one() -> None:
    x = torch.linspace(-4, 4, 50, dtype=torch.float64)
    assert relative(F.gelu(x), gelu(as_array(x))) < 1e-14
