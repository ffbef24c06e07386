r"""Mean and deviation of numbers that come in pieces, in one pass.

    M = sum (u - mean)^2;    for two pieces a and b with d = mean_b - mean_a:

    mean = mean_a + d n_b / (n_a + n_b),      M = M_a + M_b + d^2 n_a n_b / (n_a + n_b)

No difference of large numbers is taken, so fields that are nearly constant keep their digits. Float64 throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def moments(pieces: Iterable[Tensor], kept: Sequence[int]) -> tuple[int, Tensor, Tensor]:
    """How many numbers there are for each mean, the means, and the sums M of squares around them.

    Args:
        pieces: tensors that differ in length on the axes that are summed over only.
        kept: axes that have statistics of their own; the others become 1.
    """
    count, mean, square = 0, torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for piece in pieces:
        values = piece.double()
        axes = [axis for axis in range(values.ndim) if axis not in kept]
        number = 1
        for axis in axes:
            number *= values.shape[axis]
        centre = values.sum(axes, keepdim=True) / number
        around = (values - centre).square_().sum(axes, keepdim=True)
        if count == 0:
            count, mean, square = number, centre, around
            continue
        apart, total = centre - mean, count + number
        mean = mean + apart * (number / total)
        square = square + around + apart.square() * (count * number / total)
        count = total
    return count, mean, square


def moments_of_frames(pieces: Iterable[Tensor], fields: int) -> tuple[int, Tensor, Tensor]:
    """As `moments`, for each of the fields of frames (n, t fields, *grid), which are one quantity at all times."""
    return moments((piece.unflatten(1, (-1, fields)) for piece in pieces), kept=[2] if fields > 1 else [])
