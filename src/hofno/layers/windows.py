r"""Attention inside the windows of a grid: cells see those of their own window and nothing else.

    z_i = sum_j softmax_j(q_i . k_j / sqrt d + B_{i - j}) v_j         "softmax" (Swin)
    z_i = sum_j (q_i . k_j / n + B_{i - j}) v_j                       "mean" (HT-Net)

over the n cells j in the window of cell i. q, k, v are linear images of the tokens in `heads` groups of d channels. The
numbers B are learned, one for each head and each offset between two cells of a window.

Windows have w cells along each axis. Shifted windows begin w / 2 cells further on, so that what was at the edge of one
is in the middle of another. On a torus they go across the ends of an axis, where it is made of whole windows. Elsewhere
the windows at the ends are smaller: cells past the end of the grid, and those of the other end, are seen by none.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.geometry import cached, choose
from hofno.layers.cells import crop, extend, join_windows, split_windows
from hofno.layers.fields import at_least
from hofno.layers.token_blocks import check_heads, hidden_score

WEIGHTS = ("softmax", "mean")
SPREAD = 0.02


def offset_numbers(size: int, dims: int) -> Tensor:
    """A number for the offset between any two cells of a window, (size^d, size^d), up to (2 size - 1)^d."""
    axes = torch.meshgrid(*(torch.arange(size) for _ in range(dims)), indexing="ij")
    number = torch.zeros(size**dims, size**dims, dtype=torch.long)
    for axis in axes:
        cells = axis.flatten()
        number = number * (2 * size - 1) + cells[:, None] - cells[None, :] + size - 1
    return number


def who_sees_whom(points: tuple[int, ...], size: int, shifts: tuple[int, ...], wraps: bool) -> Tensor:
    """Whether two cells of a window are both there and not at different ends of the grid. (windows, size^d, size^d)"""
    labels = torch.zeros(1, *(1 for _ in points), 1, dtype=torch.long)
    for axis, (n, shift) in enumerate(zip(points, shifts, strict=True)):
        total = n + -n % size
        place = torch.arange(total) + shift
        label = torch.where(place % total >= n, 2, (place >= total).long() if total != n or not wraps else 0)
        labels = 3 * labels + label.view(-1, *(1 for _ in points[axis:]))
    label = split_windows(labels, size).flatten(0, -3).squeeze(-1)  # (windows, cells)
    return label.unsqueeze(-1) == label.unsqueeze(-2)


class WindowAttention(nn.Module):
    """Attention inside windows, (b, *n, width) -> (b, *n, width) for any n.

    Args:
        width: number of channels, in and out.
        heads: groups of channels that attend by themselves; a divisor of `width`.
        window: cells of a window along each axis.
        dims: number of axes.
        shifted: begin the windows half of their length further on.
        wraps: let shifted windows go across the ends of axes that are made of whole windows.
        weights: "softmax" or "mean", see the top of this file.
    """

    offsets: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        window: int,
        dims: int,
        shifted: bool = False,
        wraps: bool = False,
        weights: str = "softmax",
    ) -> None:
        super().__init__()
        at_least(1, window=window)
        check_heads(width, heads)
        self.width, self.heads, self.window = width, heads, window
        self.shift, self.wraps = window // 2 if shifted else 0, wraps
        self.weights = choose(weights, WEIGHTS, "weights")
        self.maps = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(nn.init.trunc_normal_(torch.empty((2 * window - 1) ** dims, heads), std=SPREAD))
        self.register_buffer("offsets", offset_numbers(window, dims), persistent=False)

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}, window={self.window}, shift={self.shift}"

    def forward(self, v: Tensor) -> Tensor:
        points, size = tuple(v.shape[1:-1]), self.window
        total = tuple(n + -n % size for n in points)
        shifts = tuple(0 if n <= size else self.shift for n in points)
        axes = tuple(range(1, v.ndim - 1))
        cells = extend(self.maps(v), total)
        if any(shifts):
            cells = cells.roll([-shift for shift in shifts], axes)
        cells = split_windows(cells, size)  # (b, *windows, P, 3 c)
        q, k, u = cells.flatten(1, -3).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        heard = self.attend(q, k, u, self.hidden(points, shifts, cells))  # (b, W, h, P, d)
        heard = heard.transpose(2, 3).reshape(*cells.shape[:-1], self.width)
        heard = join_windows(heard, size)
        if any(shifts):
            heard = heard.roll(shifts, axes)
        return self.out(crop(heard, points))

    def hidden(self, points: tuple[int, ...], shifts: tuple[int, ...], like: Tensor) -> Tensor | None:
        """1 where two cells do not see each other, (W, 1, P, P); None where all of a window do."""
        whole = all(n % self.window == 0 for n in points)
        if whole and (self.wraps or not any(shifts)):
            return None
        key = ("windows", points, self.window, shifts, self.wraps)
        return cached(
            key, lambda: (~who_sees_whom(points, self.window, shifts, self.wraps)).unsqueeze(1).double(), like
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        """What cells hear in windows, (b, W, h, P, d)."""
        size = q.shape[-2]
        bias = self.bias[self.offsets].movedim(-1, 0)  # (h, P, P)
        if self.weights == "softmax":
            bias = bias if hidden is None else torch.add(bias, hidden, alpha=hidden_score(bias.dtype))
            return torch.matmul((torch.matmul(q * q.shape[-1] ** -0.5, k.mT) + bias).softmax(-1).to(v.dtype), v)
        if hidden is None:
            return torch.matmul((torch.matmul(q / size, k.mT) + bias).to(v.dtype), v)
        seen = 1.0 - hidden
        weights = (torch.matmul(q, k.mT) / seen.sum(-1, keepdim=True) + bias) * seen
        return torch.matmul(weights.to(v.dtype), v)
