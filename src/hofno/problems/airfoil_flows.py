"""Flows around foils as they come out of the solver, with the account of how they did, and forces as coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hofno.solvers.euler import GAMMA


@dataclass(frozen=True)
class Flows:
    """Converged flows and the account of all candidates that were tried."""

    design: np.ndarray  # (n, 8), float64
    streams: np.ndarray  # (n, 2), float64: Mach number and angle of attack in degrees
    nodes: np.ndarray  # (n, 2, I, J), float32
    fields: np.ndarray  # (n, 5, I, J), float32: rho, u, v, p, Mach
    coefficients: np.ndarray  # (n, 2), float64: drag and lift
    candidates: np.ndarray  # (n,), which candidate each flow is
    residual: np.ndarray  # (n,), relative
    steps: np.ndarray  # (n,), Newton steps
    failed: dict[int, float]  # candidates that did not converge, with the relative residual they reached

    def report(self) -> str:
        """One line: how many converged, how fast, and which did not."""
        text = f"{len(self.steps)} flows converged in {int(np.median(self.steps))} Newton steps (median)"
        if not self.failed:
            return f"{text}, none failed"
        named = ", ".join(f"{c} ({r:.0e})" for c, r in list(self.failed.items())[:10])
        more = f" and {len(self.failed) - 10} more" if len(self.failed) > 10 else ""
        return f"{text}; left out, with the relative residual reached: {named}{more}"


def coefficients_of(force: Tensor, mach: float | Tensor, degrees: Tensor | None = None) -> Tensor:
    """Drag and lift of a chord: forces (n, 2) along and across streams of these Mach numbers and angles. (n, 2)"""
    found = force / (0.5 * GAMMA * torch.as_tensor(mach) ** 2)[..., None]
    if degrees is None:
        return found
    cosine, sine = torch.deg2rad(degrees).cos(), torch.deg2rad(degrees).sin()
    x, y = found.unbind(1)
    return torch.stack((cosine * x + sine * y, cosine * y - sine * x), 1)
