r"""Batched block tridiagonal systems without symmetry, by elimination from the first block row to the last.

    L_k x_{k-1} + D_k x_k + U_k x_{k+1} = r_k

    S_k = D_k - L_k W_{k-1},    [W_k  c_k] = S_k^{-1} [U_k  r_k - L_k c_{k-1}],    x_k = c_k - W_k x_{k+1}

Pivots are chosen inside the blocks S_k only. Each block row takes one product and one solution for the whole batch, and
nothing waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor


def solve_block_tridiagonal(lower: Tensor, diagonal: Tensor, upper: Tensor, right: Tensor) -> Tensor:
    """x of b systems with n blocks of m unknowns; a singular block gives values that are not finite.

    Args:
        lower, upper: L_1 .. L_{n-1} and U_0 .. U_{n-2}, (n - 1, b, m, m).
        diagonal: D_0 .. D_{n-1}, (n, b, m, m).
        right: r, (n, b, m).
    """
    count = len(diagonal)
    couplings: list[Tensor] = []
    constants: list[Tensor] = []
    for k in range(count):
        pivot, sides = diagonal[k], [right[k, ..., None]]
        if k:
            pivot = torch.baddbmm(pivot, lower[k - 1], couplings[-1], alpha=-1)
            sides = [torch.baddbmm(sides[0], lower[k - 1], constants[-1], alpha=-1)]
        if k + 1 < count:
            sides.insert(0, upper[k])
        found = torch.linalg.solve_ex(pivot, torch.cat(sides, -1)).result
        constants.append(found[..., -1:])
        couplings.append(found[..., :-1])
    parts = [constants[-1]]
    for k in reversed(range(count - 1)):
        parts.append(torch.baddbmm(constants[k], couplings[k], parts[-1], alpha=-1))
    return torch.stack(parts[::-1])[..., 0]
