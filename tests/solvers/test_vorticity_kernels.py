"""The fused step of the vorticity solver equals the plain one to rounding, in both precisions.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from hofno import triton_use
from hofno.solvers import VorticitySolver, vorticity
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, in_own_process, runs_kernels

ROUNDING = {torch.float64: 3e-15, torch.float32: 1e-6}  # with room for CPUs that round in another order

if find_spec("triton") is None:
    pytest.skip("the fused step needs Triton, which is not installed", allow_module_level=True)


def solver_of(n: int, dtype: torch.dtype = torch.float64) -> VorticitySolver:
    """Strongly forced by noise, so that no part of a step is small."""
    forcing = torch.randn(n, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return VorticitySolver(n, 2e-3, 20 * (forcing - forcing.mean()), step=0.01, dtype=dtype, device=DEVICE)


def noise(solver: VorticitySolver, count: int) -> Tensor:
    modes = torch.randn(
        count, len(solver.wavenumbers), generator=torch.Generator().manual_seed(2), dtype=torch.complex128
    )
    return (5 * modes).to(DEVICE, torch.complex128 if solver.dtype == torch.float64 else torch.complex64)


def plain(solver: VorticitySolver, modes: Tensor, step: float, count: int = 1) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vorticity, "fused_runs_on", lambda modes: False)
        for _ in range(count):
            solver.step_modes_(modes, step)
    return modes


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "count"), [(4, 1), (5, 2), (7, 5), (8, 4), (15, 3), (16, 1), (26, 5)])
def test_a_step(n: int, count: int, dtype: torch.dtype) -> None:
    """Odd and even grids; modes and samples that do not fill the last program."""
    solver = solver_of(n, dtype)
    modes = noise(solver, count)
    fused = solver.step_modes_(modes.clone(), 0.01)
    expected = plain(solver, modes.clone(), 0.01)
    assert difference(fused, expected) < ROUNDING[dtype]
    assert difference(expected, modes) > 0.02


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_steps_with_looks_between(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of the CFL number and other batches use the same plane; what a step left there must not matter."""
    monkeypatch.setattr(vorticity, "_CHECK_EVERY", 2)
    solver = solver_of(16, dtype)
    modes = noise(solver, 3) / 20
    fused = solver.advance_modes_(modes.clone(), 0.03)
    solver.field_of(noise(solver, 2))
    again = solver.advance_modes_(modes.clone(), 0.03)
    assert torch.equal(again, fused)
    assert difference(fused, plain(solver, modes.clone(), 0.01, 3)) < 3 * ROUNDING[dtype]
    outside = torch.ones(16 * 16, dtype=torch.bool, device=DEVICE)
    outside[solver._places] = False
    assert float(solver._plane.flatten(1)[:, outside].abs().max()) == 0.0


def large_programs(patch: pytest.MonkeyPatch) -> None:
    """In the interpreter with few large programs, which is much faster there."""
    from hofno.solvers import vorticity_kernels

    if INTERPRETED:
        for name, size in {"LINES": 256, "MODES": 2**14, "SAMPLES": 1}.items():
            patch.setattr(vorticity_kernels, name, size)


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_our_own_transforms(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step on a plane that starts as NaN: only kept modes are read, and the mean is not."""
    large_programs(monkeypatch)
    solver = solver_of(256, dtype)
    modes = noise(solver, 1)
    expected = plain(solver, modes.clone(), 1e-3)
    monkeypatch.setattr(torch, "empty_like", lambda tensor: torch.full_like(tensor, torch.nan))
    assert difference(solver.step_modes_(modes.clone(), 1e-3), expected) < 2 * ROUNDING[dtype]
    assert difference(expected, modes) > 0.02


@runs_kernels
def test_our_own_transforms_cut_into_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that do not fill the last program, two samples; the result at kept modes is the library's."""
    from hofno.solvers import vorticity_kernels

    if INTERPRETED:
        monkeypatch.setattr(vorticity_kernels, "LINES", 128)
    solver = solver_of(256)
    plane = torch.zeros(2, 256 * 256, dtype=torch.complex128, device=DEVICE)
    plane[:, solver._places] = torch.randn(
        2, len(solver._places), generator=torch.Generator().manual_seed(3), dtype=torch.complex128
    ).to(DEVICE)
    plane = plane.unflatten(1, (256, 256))
    expected = vorticity_kernels._squared(plane)
    found = solver._fused_step()._squared_in_place(torch.view_as_real(plane.clone()))
    kept = solver._places
    assert difference(found.flatten(1, 2)[:, kept], expected.flatten(1, 2)[:, kept]) < 6e-15


@runs_kernels
def test_samples_do_not_see_each_other() -> None:
    solver = solver_of(16)
    modes = noise(solver, 6)
    expected = plain(solver, modes[1:].clone(), 0.01)
    modes[0] = torch.nan
    fused = solver.step_modes_(modes, 0.01)
    assert bool(fused[0].isnan().all())
    assert difference(fused[1:], expected) < ROUNDING[torch.float64]


@runs_kernels
def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a step takes starts as NaN, so anything read before it is written shows."""
    solver = solver_of(26)
    modes = noise(solver, 5)
    monkeypatch.setattr(torch, "empty_like", lambda tensor: torch.full_like(tensor, torch.nan))
    assert bool(torch.view_as_real(solver.step_modes_(modes, 0.01)).isfinite().all())


@runs_kernels
def test_modes_with_gaps_take_plain_steps() -> None:
    solver = solver_of(8)
    modes = noise(solver, 4)
    assert vorticity.fused_runs_on(modes)
    assert not vorticity.fused_runs_on(modes[::2])


def test_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = torch.zeros(2, 12, dtype=torch.complex128)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not vorticity.fused_runs_on(modes)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert vorticity.fused_runs_on(modes)
    monkeypatch.setattr(triton_use, "triton_is_installed", lambda: False)
    assert not vorticity.fused_runs_on(modes)


def test_a_step_on_the_cpu_leaves_triton_alone() -> None:
    code = (
        "import sys, torch; from hofno.solvers import VorticitySolver; "
        "VorticitySolver(8, 0.1).advance(torch.ones(1, 8, 8), 0.01); sys.exit('triton.language' in sys.modules)"
    )
    finished = in_own_process("-c", code, interpret=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
