"""The fused step of blocks equals the plain one, with all that it carries on.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from struck_blocks import assert_same, assert_same_return, blocks, stressed

from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, runs_kernels

if find_spec("triton") is None:
    pytest.skip("the fused kernels need Triton, which is not installed", allow_module_level=True)


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
    assert_same(plain, fused, die)


@runs_kernels
def test_stress_returns_as_in_the_plain_step() -> None:
    """At rest, with no stress at all, next to none, below the yield stress, on it, beyond and far beyond it."""
    from hofno.solvers.plasticity_kernels import FusedStep

    plain, fused = blocks(die=False), blocks(die=False)
    stress, inside = stressed(plain, fused)
    plain._advance(1e-4)
    FusedStep(fused, 1e-4)()
    assert_same_return(plain, fused, stress, inside)


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
