"""Block-tridiagonal lines against dense matrices, alone and where lines share their first node."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.solvers.block_lines import BlockLines, apply, product


def blocks(n: int, lanes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lower, diagonal and upper blocks (n, 4, 4, lanes), well conditioned but not diagonally dominant by rows."""
    lower, diagonal, upper = torch.randn(3, n, 4, 4, lanes, dtype=torch.float64)
    return 0.5 * lower, diagonal + 5 * torch.eye(4, dtype=torch.float64)[..., None], 0.5 * upper


def dense(lower: Tensor, diagonal: Tensor, upper: Tensor) -> Tensor:
    """(lanes, 4n, 4n)"""
    n, lanes = len(diagonal), diagonal.shape[-1]
    whole = torch.zeros(lanes, n, 4, n, 4, dtype=torch.float64)
    for k in range(n):
        whole[:, k, :, k] = diagonal[k].permute(2, 0, 1)
        if k > 0:
            whole[:, k, :, k - 1] = lower[k].permute(2, 0, 1)
        if k < n - 1:
            whole[:, k, :, k + 1] = upper[k].permute(2, 0, 1)
    return whole.reshape(lanes, 4 * n, 4 * n)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_lines_alone(n: int) -> None:
    lower, diagonal, upper = blocks(n, lanes=5)
    right = torch.randn(n, 4, 5, dtype=torch.float64)
    expected = torch.linalg.solve(dense(lower, diagonal, upper), right.permute(2, 0, 1).reshape(5, 4 * n))
    found = BlockLines(lower, diagonal, upper).solve(right)
    torch.testing.assert_close(found.permute(2, 0, 1).reshape(5, 4 * n), expected, rtol=1e-11, atol=1e-11)


def test_two_lines_that_meet() -> None:
    """Lanes 0 and 1 share their first node: one line of 2n - 1 nodes, folded."""
    n = 4
    lower, diagonal, upper = blocks(n, lanes=2)
    diagonal[0, ..., 1] = diagonal[0, ..., 0]
    right = torch.randn(n, 4, 2, dtype=torch.float64)
    right[0, :, 1] = right[0, :, 0]
    whole = torch.zeros(2 * n - 1, 4, 2 * n - 1, 4, dtype=torch.float64)
    middle = n - 1
    for lane, way in ((0, -1), (1, 1)):
        for k in range(n):
            here = middle + way * k
            whole[here, :, here] = diagonal[k, ..., lane]
            if k > 0:
                whole[here, :, here - way] = lower[k, ..., lane]
            if k < n - 1:
                whole[here, :, here + way] = upper[k, ..., lane]
    flat = torch.cat((right[:, :, 0].flip(0), right[1:, :, 1])).flatten()
    expected = torch.linalg.solve(whole.reshape(8 * n - 4, 8 * n - 4), flat).reshape(2 * n - 1, 4)

    def join(values: Tensor) -> Tensor:
        return values.sum(-1, keepdim=True).expand(values.shape)

    found = BlockLines(lower, diagonal, upper, join).solve(right)
    torch.testing.assert_close(found[:, :, 0].flip(0), expected[:n], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found[:, :, 1], expected[n - 1 :], rtol=1e-11, atol=1e-11)


def test_products() -> None:
    a, b = torch.randn(2, 4, 4, 6, dtype=torch.float64)
    x = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(product(a, b), torch.einsum("imn,mkn->ikn", a, b))
    torch.testing.assert_close(apply(a, x), torch.einsum("imn,mn->in", a, x))
