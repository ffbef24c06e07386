"""Block tridiagonal systems against dense ones."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hofno.solvers.block_elimination import solve_block_tridiagonal


def system(n: int, b: int, m: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Blocks of well-conditioned matrices without symmetry, whose diagonal blocks need pivots."""
    torch.manual_seed(seed)
    lower, upper = (torch.randn(n - 1, b, m, m, dtype=torch.float64) / m for _ in "lu")
    diagonal = torch.randn(n, b, m, m, dtype=torch.float64) / m + 4 * torch.eye(m, dtype=torch.float64).flip(0)
    return lower, diagonal, upper, torch.randn(n, b, m, dtype=torch.float64)


def dense(lower: Tensor, diagonal: Tensor, upper: Tensor) -> Tensor:
    """(b, n m, n m)"""
    n, b, m, _ = diagonal.shape
    whole = diagonal.new_zeros(b, n, m, n, m)
    for k in range(n):
        whole[:, k, :, k] = diagonal[k]
        if k:
            whole[:, k, :, k - 1], whole[:, k - 1, :, k] = lower[k - 1], upper[k - 1]
    return whole.reshape(b, n * m, n * m)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 6), b=st.integers(1, 3), m=st.integers(1, 5), seed=st.integers(0, 99))
def test_equals_the_dense_solution(n: int, b: int, m: int, seed: int) -> None:
    lower, diagonal, upper, right = system(n, b, m, seed)
    expected = torch.linalg.solve(dense(lower, diagonal, upper), right.transpose(0, 1).reshape(b, n * m, 1))
    found = solve_block_tridiagonal(lower, diagonal, upper, right)
    assert found.shape == right.shape
    torch.testing.assert_close(found.transpose(0, 1).reshape(b, n * m, 1), expected, rtol=1e-10, atol=1e-10)


def test_a_singular_system_spoils_no_other() -> None:
    lower, diagonal, upper, right = system(4, 3, 4, 0)
    expected = solve_block_tridiagonal(lower, diagonal, upper, right)
    diagonal[2, 1], lower[1, 1] = 0.0, 0.0
    found = solve_block_tridiagonal(lower, diagonal, upper, right)
    torch.testing.assert_close(found[:, ::2], expected[:, ::2], rtol=0, atol=0)
    assert not found[:, 1].isfinite().all()
