r"""A rigid frictionless die: the graph of a cubic spline, moving straight down.

    S(x) = c_0 + c_1 x + c_2 x^2 + c_3 x^3 + sum_k d_k max(0, x - z_k)^3

with knots z_k; before the first and after the last point the height stays what it is there. Nodes that a step would
carry to y > S(x) - depth are moved back along the normal of the die, (S', -1)/sqrt(1 + S'^2), and so are their
velocities: an impulse without friction and without rebound.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError


class Die:
    """Splines of b dies through given points; the second and the last but one are no knots.

    Args:
        points: abscissae (n,), increasing, at least 4; the same for all dies.
        heights: (n, b) at these points.
        speed: downwards, positive.
    """

    def __init__(
        self, points: np.ndarray, heights: np.ndarray, speed: float, device: str | torch.device = "cpu"
    ) -> None:
        if points.ndim != 1 or len(points) < 4 or heights.ndim != 2 or len(heights) != len(points):
            raise ShapeError(f"expected points (n >= 4,) and heights (n, b); got {points.shape} and {heights.shape}")
        if not (np.diff(points) > 0).all() or not np.isfinite(heights).all() or not 0 < speed < np.inf:
            raise SolverError("points of a die must increase, its heights be finite and its speed positive")
        self.start, self.end, self.speed = float(points[0]), float(points[-1]), float(speed)
        knots = points[2:-2]
        basis = _powers(points, knots)
        self.knots = torch.from_numpy(knots).to(device)
        self.coefficients = torch.from_numpy(np.linalg.solve(basis, heights)).to(device).contiguous()  # (n, b)

    def height(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """S and S' at x. (i, b) -> (i, b), (i, b)"""
        inside = x.clamp(self.start, self.end)
        c = self.coefficients
        beyond = (inside[..., None, :] - self.knots[:, None]).clamp_min_(0)  # (i, k, b)
        squared = beyond * beyond * c[4:]
        slope = (3 * inside * c[3] + 2 * c[2]) * inside + c[1] + 3 * squared.sum(-2)
        height = ((inside * c[3] + c[2]) * inside + c[1]) * inside + c[0] + (squared * beyond).sum(-2)
        return height, torch.where(x == inside, slope, 0.0)

    def profiles(self, places: np.ndarray) -> np.ndarray:
        """Heights of all dies at the same places, (p,) -> (b, p)."""
        where = torch.from_numpy(places).to(self.coefficients)[:, None].expand(-1, self.coefficients.shape[1])
        return self.height(where)[0].cpu().numpy().T


def _powers(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    return np.concatenate((x[:, None] ** np.arange(4), np.maximum(0, x[:, None] - knots) ** 3), 1)
