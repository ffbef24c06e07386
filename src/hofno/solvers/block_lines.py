r"""Many block-tridiagonal systems at once, with 4 x 4 blocks, by elimination along the lines.

    L_k x_{k-1} + D_k x_k + U_k x_{k+1} = r_k,        k = 0 .. n-1

From the last row to the first,

    S_k = D_k - U_k S_{k+1}^{-1} L_{k+1},    c_k = S_k^{-1} (r_k - U_k c_{k+1}),    x_k = c_k - S_k^{-1} L_k x_{k-1}.

Lines may share their first node: `join` then adds up, over the lines that meet there, what they bring to it. This is
how the two sides of the wake cut of a C-grid are solved as one line.

All arithmetic is componentwise on lanes, one lane for each line: nothing waits for the device, nothing is pivoted.
Shapes: blocks (n, 4, 4, lanes), vectors (n, 4, lanes).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Join = Callable[[Tensor], Tensor]

_ROWS = ((0, 5, 4, 3), (5, 0, 2, 1), (4, 2, 0, 0), (3, 1, 0, 0))  # which 2 x 2 minor stands where
_SIGNS = ((0, 1, -1, 1), (-1, 0, 1, -1), (1, -1, 0, 1), (-1, 1, -1, 0))
_LEFT, _RIGHT = (0, 0, 0, 1, 1, 2), (1, 2, 3, 2, 3, 3)  # the six pairs of columns


class BlockLines:
    """The factors of lower (L), diagonal (D) and upper (U) blocks, each (n, 4, 4, lanes) with n >= 2."""

    def __init__(self, lower: Tensor, diagonal: Tensor, upper: Tensor, join: Join | None = None) -> None:
        self._join: Join = join if join is not None else _itself
        self._first = upper[0].clone()  # U_0
        self._inverse = torch.empty_like(diagonal)  # S_k^{-1}
        self._lower = torch.empty_like(diagonal)  # S_k^{-1} L_k
        self._upper = torch.empty_like(diagonal)  # S_k^{-1} U_k
        inverse = _inverse_for(diagonal)
        last = len(diagonal) - 1
        for k in range(last, -1, -1):
            pivot = diagonal[k]
            if k < last:
                brought = product(upper[k], self._lower[k + 1])
                pivot = pivot - (self._join(brought) if k == 0 else brought)
            self._inverse[k] = inverse(pivot)
            self._lower[k] = product(self._inverse[k], lower[k])
            self._upper[k] = product(self._inverse[k], upper[k])

    def solve(self, right: Tensor) -> Tensor:
        """x for the right-hand side r, (n, 4, lanes) both."""
        x = apply(self._inverse, right)
        for k in range(len(x) - 2, 0, -1):
            subtract_(x[k], self._upper[k], x[k + 1])
        brought = self._join(apply(self._first, x[1]))
        subtract_(x[0], self._inverse[0], brought)
        for k in range(1, len(x)):
            subtract_(x[k], self._lower[k], x[k - 1])
        return x


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b of blocks (4, 4, lanes)."""
    out = a[:, 0, None] * b[0]
    for m in range(1, a.shape[1]):
        out.addcmul_(a[:, m, None], b[m])
    return out


def apply(blocks: Tensor, vectors: Tensor) -> Tensor:
    """Blocks (.., 4, 4, lanes) times vectors (.., 4, lanes)."""
    out = blocks[..., 0, :] * vectors[..., None, 0, :]
    for m in range(1, 4):
        out.addcmul_(blocks[..., m, :], vectors[..., None, m, :])
    return out


def subtract_(target: Tensor, block: Tensor, vector: Tensor) -> None:
    """target -= block vector, with target and vector (4, lanes)."""
    for m in range(4):
        target.addcmul_(block[:, m], vector[m], value=-1)


class _Inverse:
    """The inverse of blocks (4, 4, lanes) from their 2 x 2 minors: no pivots, no branches."""

    def __init__(self, like: Tensor) -> None:
        self._places = torch.tensor(_ROWS, device=like.device).flatten()
        self.signs = torch.tensor(_SIGNS, device=like.device, dtype=like.dtype).unsqueeze(-1)  # (4, 4, 1)
        self._left, self._right = (torch.tensor(pairs, device=like.device) for pairs in (_LEFT, _RIGHT))

    def __call__(self, a: Tensor) -> Tensor:
        left, right = a.index_select(1, self._left), a.index_select(1, self._right)  # (4, 6, lanes)
        top = left[0] * right[1] - left[1] * right[0]  # minors of rows 0, 1
        bottom = left[2] * right[3] - left[3] * right[2]  # minors of rows 2, 3
        determinant = (
            top[0] * bottom[5]
            - top[1] * bottom[4]
            + top[2] * bottom[3]
            + top[3] * bottom[2]
            - top[4] * bottom[1]
            + top[5] * bottom[0]
        )
        of_top = product(self._spread(bottom), torch.stack((a[1], -a[0]), 1))  # (4, 2, lanes)
        of_bottom = product(self._spread(top), torch.stack((a[3], -a[2]), 1))
        return torch.cat((of_top, of_bottom), 1) / determinant

    def _spread(self, minors: Tensor) -> Tensor:
        """The antisymmetric matrix of six minors, (4, 4, lanes)."""
        return minors.index_select(0, self._places).unflatten(0, (4, 4)) * self.signs


_inverses: dict[tuple[torch.device, torch.dtype], _Inverse] = {}


def _inverse_for(like: Tensor) -> _Inverse:
    """The inverse with its index tensors on the device of `like`, made once: making them waits for the device."""
    key = (like.device, like.dtype)
    found = _inverses.get(key)
    if found is None:
        found = _Inverse(like)
        if type(found.signs) is Tensor:  # not while shapes are only traced
            _inverses[key] = found
    return found


def _itself(values: Tensor) -> Tensor:
    return values
