"""Euler flows on small bent meshes in random states, for code of one kind beside that of another."""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.problems.airfoil_mesh import c_grid
from hofno.solvers import euler_steady
from hofno.solvers.euler import Euler, conservative, free_stream
from hofno.solvers.euler_steady import Newton


def bent(b: int = 2, wake: int = 4, foil: int = 12, normal: int = 6) -> Tensor:
    """C-grids of deformed foils, then bent, (b, 2, I, J); both sides of the cut still coincide."""
    x, y = c_grid(0.1 * torch.rand(b, 8, dtype=torch.float64) - 0.05, wake, foil, normal).unbind(1)
    return torch.stack((x + 0.1 * torch.sin(y), y + 0.1 * torch.sin(x)), 1)


def foils(b: int = 3, *cells: int, wall: bool = True, device: str = "cpu") -> Euler:
    wake, foil, normal = cells or (2, 6, 3)
    return Euler(bent(b, wake, foil, normal).to(device), free_stream(0.8), wake, wall)


def channel(device: str = "cpu", *, wall: bool = True, rows: int = 7, columns: int = 4) -> Euler:
    """Two flows over a wall, without a cut."""
    x, y = torch.meshgrid(torch.linspace(0, 2, rows).double(), torch.linspace(0, 1, columns).double(), indexing="ij")
    nodes = torch.stack((x + 0.1 * y, y + 0.1 * torch.sin(x))).expand(2, 2, rows, columns)
    wider = nodes * torch.tensor([1.0, 1.3])[:, None, None, None]
    return Euler(wider.to(device), free_stream(0.8), wall=wall)


def disturbed(flow: Euler, size: float = 0.1) -> Tensor:
    """A random state that is equal on both sides of the cut."""
    q = flow.exterior * (1 + size * torch.rand_like(flow.exterior))
    n = flow.wake + 1
    q[:, :, -n:, 0] = q[:, :, :n, 0].flip(-1)
    return conservative(q)


def start(flow: Euler, state: Tensor, cfl: float = 10.0) -> Newton:
    residual = flow.residual(state)
    return Newton(state.clone(), residual, euler_steady.norm_of(residual), torch.full_like(state[:, 0, 0, 0], cfl))
