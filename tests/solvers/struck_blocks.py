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


def assert_same(plain: Blocks, other: Blocks, die: bool) -> None:
    """All that goes on is there and the same to rounding, and with dies, they have done what these blocks are for."""
    expected = carried(plain, die) | {"force": plain.force[:, -1]}
    found = carried(other, die) | {"force": other.force[:, -1]}
    for name, one in expected.items():
        assert float(one.abs().max()) > 0, name
        assert float((one - found[name]).abs().max()) < 1e-11 * float(one.abs().max()), name
    if die:
        assert float(plain.plastic_work.max()) > 0
        assert 0.03 < float(plain.penetration(8)[0]) < 0.05  # an edge is held near the allowance
        assert [bool(column.any()) for column in plain.die_work.T] == [True, True, False]
        for one, another in zip(vars(plain.energies()).values(), vars(other.energies()).values(), strict=True):
            torch.testing.assert_close(one, another, rtol=1e-9, atol=1e-14)


def assert_same_return(plain: Blocks, other: Blocks, stress: torch.Tensor, inside: torch.Tensor) -> None:
    """After a step from the stress of `stressed`: the same state, and what was below the yield stress as it was."""
    for name in ("p", "q", "s", "thickness", "v", "plastic_work"):
        torch.testing.assert_close(getattr(other, name), getattr(plain, name), rtol=1e-11, atol=1e-15)
    assert bool((plain.plastic_work > 0).any())
    assert torch.equal(other.p[inside], stress[0][inside])
