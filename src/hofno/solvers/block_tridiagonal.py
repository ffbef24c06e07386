r"""Batched Cholesky of sparse matrices with one common pattern, as block tridiagonal matrices.

Take the levels of a breadth-first walk through the graph of a symmetric matrix as blocks. Entries then couple a block
with itself and its two neighbours only, and the factor L has the same blocks,

    L_k L_k^T = D_k - W_k^T W_k,        W_k = L_{k-1}^{-1} E_k^T,

with diagonal blocks D_k and blocks E_k to the left of them. All blocks are padded to one size with the identity, so
that the whole batch goes through each of them in one call.

Shapes: b matrices, n unknowns, B blocks of m unknowns.
"""

from __future__ import annotations

import torch
from torch import Tensor

_STARTS = 16  # walks that are compared, about


class BlockTridiagonal:
    """The pattern of b symmetric positive definite matrices of n unknowns, given as sums of entries.

    Args:
        n: number of unknowns.
        rows, columns: places of the entries that are added up, (p,) each; a place may come more than once, and both
            triangles are given.
        device: where the work is done.
    """

    def __init__(self, n: int, rows: Tensor, columns: Tensor, device: str | torch.device = "cpu") -> None:
        level = _levels(n, rows, columns)
        count, size = int(level.max()) + 1, int(torch.bincount(level).max())
        order = torch.argsort(level, stable=True)
        within = torch.empty_like(level)
        starts = torch.bincount(level).cumsum(0) - torch.bincount(level)
        within[order] = torch.arange(n) - starts[level[order]]
        self.blocks, self.size = count, size
        self._slot = (level * size + within).to(device)  # (n,) in the B * m unknowns with padding
        padding = torch.ones(count * size, dtype=torch.bool)
        padding[self._slot.cpu()] = False
        slot = padding.nonzero().flatten()
        self._padding = (slot // size * size**2 + slot % size * (size + 1)).to(device)  # on the diagonal
        step = level[rows] - level[columns]
        source = ((step == 1) | (step == 0)).nonzero().flatten()
        left = step[source] * count * size**2  # blocks E_k lie behind all D_k
        place = left + (level[rows] * size + within[rows])[source] * size + within[columns][source]
        self._rounds = [(at.to(device), source[chosen].to(device)) for at, chosen in sum_rounds(place)]

    def factorise(self, entries: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Factors L_k and W_k, and for each matrix whether it is not positive. (b, p) -> B x (b, m, m), .., (b,)"""
        count, size = self.blocks, self.size
        flat = entries.new_zeros(len(entries), 2 * count * size**2)
        flat[:, self._padding] = 1.0
        for place, source in self._rounds:
            flat[:, place] += entries[:, source]
        diagonal, left = flat.view(len(flat), 2, count, size, size).unbind(1)
        lower, failures = torch.linalg.cholesky_ex(diagonal[:, 0])
        lowers, couplings, failed = [lower], [], failures != 0
        for k in range(1, count):
            coupling = torch.linalg.solve_triangular(lower, left[:, k].mT, upper=False)
            lower, failures = torch.linalg.cholesky_ex(torch.baddbmm(diagonal[:, k], coupling.mT, coupling, alpha=-1))
            lowers.append(lower)
            couplings.append(coupling)
            failed = failed | (failures != 0)
        return lowers, couplings, failed

    def solve(self, lowers: list[Tensor], couplings: list[Tensor], right: Tensor) -> Tensor:
        """Solutions for one right-hand side each. (b, n) -> (b, n)"""
        padded = right.new_zeros(len(right), self.blocks * self.size)
        padded[:, self._slot] = right
        parts = list(padded.unflatten(1, (self.blocks, self.size, 1)).unbind(1))  # B x (b, m, 1)
        for k, lower in enumerate(lowers):
            if k:
                parts[k] = torch.baddbmm(parts[k], couplings[k - 1].mT, parts[k - 1], alpha=-1)
            parts[k] = torch.linalg.solve_triangular(lower, parts[k], upper=False)
        for k in reversed(range(self.blocks)):
            if k + 1 < self.blocks:
                parts[k] = torch.baddbmm(parts[k], couplings[k], parts[k + 1], alpha=-1)
            parts[k] = torch.linalg.solve_triangular(lowers[k].mT, parts[k], upper=True)
        return torch.cat(parts, 1)[..., 0][:, self._slot]

    def bytes_per_matrix(self) -> int:
        """Memory of one matrix and its factor in float64."""
        return 8 * 4 * self.blocks * self.size**2


def sum_rounds(places: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Split a sum by place into rounds in which every place occurs once, so that the order of addition is fixed.

    (p,) -> pairs of places and of the indices of what is added there
    """
    order = torch.argsort(places, stable=True)
    ordered = places[order]
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    index = torch.arange(len(ordered))
    turn = index - torch.where(new, index, 0).cummax(0).values  # how often the place came before
    return [(ordered[turn == t], order[turn == t]) for t in range(int(turn.max()) + 1)]


def _levels(n: int, rows: Tensor, columns: Tensor) -> Tensor:
    """The level of each unknown in that of many breadth-first walks which makes the least work, B m^3. (n,)"""
    pairs = torch.unique(torch.stack((rows, columns)), dim=1)
    starts = torch.arange(0, n, max(1, n // _STARTS))
    level = torch.full((len(starts), n), -1)
    front, step = torch.zeros(len(starts), n, dtype=torch.bool), 0
    front[torch.arange(len(starts)), starts] = True
    while bool(front.any()):
        level[front] = step
        reached = torch.zeros(level.shape).index_add_(1, pairs[1], front[:, pairs[0]].float())
        front = (reached > 0) & (level < 0)
        stuck = (level < 0).any(1) & ~front.any(1)  # the rest is not connected: go on from its first unknown
        front[stuck, (level[stuck] < 0).int().argmax(1)] = True
        step += 1
    largest = torch.stack([(level == k).sum(1) for k in range(step)]).amax(0)
    return level[int(((level.amax(1) + 1) * largest.double() ** 3).argmin())]
