"""The published Darcy loss: against its steps one by one, on channel-first and on flat fields, and its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.train.gradient_loss import differences, rel_l2_gradient


def published(p: Tensor, y: Tensor) -> Tensor:
    """Decoded fields (b, n, n), as the protocol has it: padding, central differences with h = 1/n, sums by samples."""
    n = y.shape[-1]
    h = 1 / n

    def central(u: Tensor) -> tuple[Tensor, Tensor]:
        padded = torch.zeros(len(u), n + 2, n + 2, dtype=u.dtype)
        padded[:, 1:-1, 1:-1] = u
        return (
            (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / (2 * h),
            (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / (2 * h),
        )

    def relative(u: Tensor, v: Tensor) -> Tensor:
        return ((u - v).flatten(1).norm(dim=1) / v.flatten(1).norm(dim=1)).sum()

    cut = torch.zeros_like(p)
    cut[:, 1:-1, 1:-1] = p[:, 1:-1, 1:-1]
    slopes = sum(relative(u, v) for u, v in zip(central(cut), central(y), strict=True))
    return (relative(p, y) + 0.1 * slopes) / len(y)


def fields(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


STATISTICS = {
    "channel": (torch.full((1, 1, 1), 0.3).double(), torch.full((1, 1, 1), 0.7).double()),
    "column": (fields(1, 1, 9, seed=5), 0.5 + fields(1, 1, 9, seed=6).abs()),
    "pixel": (fields(1, 9, 9, seed=7), 0.5 + fields(1, 9, 9, seed=8).abs()),
}


@pytest.mark.parametrize("per", STATISTICS)
def test_it_is_the_published_loss(per: str) -> None:
    mean, std = STATISTICS[per]
    p, y = fields(4, 1, 9, 9), fields(4, 1, 9, 9, seed=1)
    expected = published((p * std + mean)[:, 0], (y * std + mean)[:, 0])
    torch.testing.assert_close(rel_l2_gradient(p, y, mean, std), expected, rtol=1e-12, atol=0)


def test_a_perfect_prediction_still_loses_its_ring() -> None:
    """Only the prediction's ring is set to 0: the loss of y against y is 0 only if y vanishes there."""
    zero, one = torch.zeros(1, 1, 1).double(), torch.ones(1, 1, 1).double()
    y = fields(2, 1, 8, 8)
    assert float(rel_l2_gradient(y, y, zero, one)) > 0.01
    y[..., 0], y[..., -1], y[..., 0, :], y[..., -1, :] = 0, 0, 0, 0
    assert float(rel_l2_gradient(y, y, zero, one)) == 0


def test_any_dimension_and_channels() -> None:
    zero, one = torch.zeros(2, 1).double(), torch.ones(2, 1).double()
    p, y = fields(3, 2, 6), fields(3, 2, 6, seed=1)
    cut = p.clone()
    cut[..., 0] = cut[..., -1] = 0

    def slope(u: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(u, (1, 1))
        return padded[..., 2:] - padded[..., :-2]

    expected = sum(
        (p[i] - y[i]).norm() / y[i].norm() + 0.1 * (slope(cut[i]) - slope(y[i])).norm() / slope(y[i]).norm()
        for i in range(3)
    )
    torch.testing.assert_close(rel_l2_gradient(p, y, zero, one), torch.as_tensor(expected) / 3)
    cube = rel_l2_gradient(fields(2, 1, 4, 5, 6), fields(2, 1, 4, 5, 6, seed=2), zero[:1, None], one[:1, None])
    assert cube.isfinite()


def test_differences() -> None:
    u = torch.tensor([[[1.0, 2.0, 4.0, 8.0]]])
    assert differences(u, 2).tolist() == [[[2, 3, 6, -4]]]


def test_gradient() -> None:
    p, y = fields(2, 1, 5, 5).requires_grad_(), fields(2, 1, 5, 5, seed=1)
    mean, std = fields(1, 1, 1), torch.full((1, 1, 1), 0.7).double()
    assert torch.autograd.gradcheck(lambda q: rel_l2_gradient(q, y, mean, std), (p,))
