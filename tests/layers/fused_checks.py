"""What tests of fused blocks share: comparison with the plain form in float64, and memory that starts as NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from own_process import DEVICE


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Float32 products in full precision, so that a GPU meets the same tolerance."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def relative(value: Tensor, reference: Tensor) -> float:
    return ((value.detach().double() - reference.detach()).norm() / reference.detach().norm()).item()


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
    assert relative(value, reference) < 1e-5
    for gradient, expected in zip(gradients, references, strict=True):
        assert gradient.shape == expected.shape
        assert relative(gradient, expected) < 1e-5


def outside_of(filter_: Tensor) -> Tensor:
    """Numbers for the spectrum of the padding, (2, K, M), in the type of a filter (K, M, .., 2)."""
    return torch.randn(2, *filter_.shape[:2], generator=torch.Generator().manual_seed(5)).to(filter_)


def poison(patch: pytest.MonkeyPatch) -> None:
    """Outputs and partial sums start as NaN, so anything left unwritten shows."""

    def poisoned_like(tensor: Tensor) -> Tensor:
        return torch.full_like(tensor, float("nan"))

    def poisoned(tensor: Tensor, *size: int, dtype: torch.dtype | None = None, device: str | None = None) -> Tensor:
        kind = dtype or tensor.dtype  # the interpreter copies arguments, also integers
        value = float("nan") if kind.is_floating_point else 0
        return torch.full(size, value, dtype=kind, device=device or tensor.device)

    patch.setattr(torch, "empty_like", poisoned_like)
    patch.setattr(Tensor, "new_empty", poisoned)
