"""Small blocks in motion under dies, for steps of one kind beside those of another."""

from __future__ import annotations

import numpy as np
import torch

from hofno.solvers.die import Die
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.solvers.plasticity import Blocks
from own_process import DEVICE

CARRIED = ("x", "v", "p", "q", "s", "thickness", "hourglass", "hourglass_work", "plastic_work")
METAL = PerfectPlastic(poisson_ratio=0.2, density=7.85e-5)


def blocks(die: bool = True) -> Blocks:
    """Three blocks of 6 x 4 elements in motion, under dies that touch nodes, cut edges, or are not there yet."""
    y, x = torch.meshgrid(torch.linspace(0, 4, 5), torch.linspace(0, 12, 7), indexing="ij")
    nodes = torch.stack((x, y)).double()
    nodes[:, 1:-1, 1:-1] += 0.2 * torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    held = torch.zeros_like(nodes, dtype=torch.bool)
    held[1, 0] = True
    velocity = torch.randn(nodes.shape, generator=torch.Generator().manual_seed(1)).double()
    velocity[1, 0] = 0
    points = np.array([0.0, 2.0, 4.0, 5.0, 6.0, 7.0, 9.0, 12.0])
    heights = np.array([[6, 5, 4.4, 3.967, 4.4, 5, 5, 6], [6, 5, 4.0, 3.93, 4.3, 4.6, 5, 6], [9] * 8]).T
    falling = Die(points, heights, 3.0, DEVICE) if die else None
    return Blocks(nodes, 3, METAL, falling, held, velocity, hourglass=0.3, device=DEVICE)


def carried(of: Blocks, die: bool = True) -> dict[str, torch.Tensor]:
    """What goes on to the next step."""
    return {name: getattr(of, name) for name in (*CARRIED, *(("depth", "die_work", "impact") if die else ()))}


def stressed(*given: Blocks) -> tuple[torch.Tensor, torch.Tensor]:
    """Put all of them to rest under stress, and say which (3, e) and where it is below the yield stress.

    No stress at all, next to none, below the yield stress, on it, beyond and far beyond it, in all directions.
    """
    shape, size = given[0].p.shape, torch.tensor([0.0, 1e-200, 1e-30, 0.5, 1.0, 1.0001, 1.5, 20.0], dtype=torch.float64)
    direction = torch.randn(3, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    direction /= (direction[0] ** 2 + 3 * (direction[1] ** 2 + direction[2] ** 2)).sqrt()
    stress = (METAL.yield_stress * direction * size.repeat(9).reshape(shape)).to(DEVICE)
    for each in given:
        each.v.zero_()
        each.p, each.q, each.s = (part.clone() for part in stress)
    return stress, size.repeat(9).reshape(shape).to(DEVICE) < 1
