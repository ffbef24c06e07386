"""The fused step of blocks equals the plain one, with all that it carries on.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from hofno.solvers.die import Die
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.solvers.plasticity import Blocks
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, runs_kernels

if find_spec("triton") is None:
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)

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


@runs_kernels
@pytest.mark.parametrize("die", [True, False])
def test_fused_equals_plain(die: bool) -> None:
    from hofno.solvers.plasticity_kernels import FusedStep

    plain, fused = blocks(die), blocks(die)
    dt = 0.4 * float(plain.stable_step().min())
    step = FusedStep(fused, dt)
    for _ in range(16):
        plain._advance(dt)
        step()
    expected = carried(plain, die) | {"force": plain.force[:, -1]}
    found = carried(fused, die) | {"force": fused.force[:, -1]}
    for name, one in expected.items():
        assert float(one.abs().max()) > 0, name
        assert float((one - found[name]).abs().max()) < 1e-11 * float(one.abs().max()), name
    if die:
        assert float(plain.plastic_work.max()) > 0
        assert 0.03 < float(plain.penetration(8)[0]) < 0.05  # an edge is held near the allowance
        assert [bool(column.any()) for column in plain.die_work.T] == [True, True, False]
        for one, other in zip(vars(plain.energies()).values(), vars(fused.energies()).values(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-14)


@runs_kernels
def test_stress_returns_as_in_the_plain_step() -> None:
    """At rest, with no stress at all, next to none, below the yield stress, on it, beyond and far beyond it."""
    from hofno.solvers.plasticity_kernels import FusedStep

    plain, fused = blocks(die=False), blocks(die=False)
    shape, size = plain.p.shape, torch.tensor([0.0, 1e-200, 1e-30, 0.5, 1.0, 1.0001, 1.5, 20.0], dtype=torch.float64)
    direction = torch.randn(3, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    direction /= (direction[0] ** 2 + 3 * (direction[1] ** 2 + direction[2] ** 2)).sqrt()
    stress = METAL.yield_stress * direction * size.repeat(9).reshape(shape)
    for each in (plain, fused):
        each.v.zero_()
        each.p, each.q, each.s = (part.clone() for part in stress.to(DEVICE))
    plain._advance(1e-4)
    FusedStep(fused, 1e-4)()
    for name in ("p", "q", "s", "thickness", "v"):
        torch.testing.assert_close(getattr(fused, name), getattr(plain, name), rtol=1e-11, atol=1e-15)
    assert bool((plain.plastic_work > 0).any())
    inside = size.repeat(9).reshape(shape).to(DEVICE) < 1
    assert torch.equal(fused.p[inside], stress[0].to(DEVICE)[inside])
    torch.testing.assert_close(fused.plastic_work, plain.plastic_work, rtol=1e-11, atol=1e-15)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_graph_replays_what_the_plain_steps_do() -> None:
    plain, fused = blocks(), blocks()
    dt = 0.4 * float(plain.stable_step().min())
    for _ in range(50):
        plain._advance(dt)
    fused.advance(50 * dt, 50)
    assert float((plain.x - fused.x).abs().max()) < 1e-9


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="the kernels are tested directly")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
