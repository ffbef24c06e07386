"""Fused Newton steps of Euler flow equal the plain ones to rounding, and a CUDA graph can hold them.

On a GPU the compiled kernels are tested. Elsewhere Triton's interpreter runs them, which must be chosen before Triton
is first imported, so one test runs this file again in a process of its own with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch
from bent_flows import channel, disturbed, foils, start
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hofno import triton_use
from hofno.problems.airfoil_mesh import c_grid
from hofno.solvers import euler_steady
from hofno.solvers.euler import Euler, free_stream
from hofno.solvers.euler_lines import LinePreconditioner
from hofno.solvers.euler_steady import Newton, Steady, solve_steady
from hofno.solvers.gpu import Replayed
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, in_own_process, runs_kernels

if find_spec("triton") is None:
    pytest.skip("the fused steps need Triton, which is not installed", allow_module_level=True)

from hofno.solvers import euler_block_kernels, euler_fused, euler_kernels, euler_line_kernels, krylov_kernels
from hofno.solvers.euler_block_kernels import FusedBlocks
from hofno.solvers.euler_fused import FusedSteps, group_size, largest, march
from hofno.solvers.euler_kernels import FusedEuler
from hofno.solvers.euler_line_kernels import FusedLines
from hofno.solvers.krylov_kernels import Krylov

MODULES = (euler_block_kernels, euler_kernels, euler_line_kernels, krylov_kernels)


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def large_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter with few large programs, which is much faster there."""
    if INTERPRETED:
        for module, lanes in ((euler_block_kernels, 512), (euler_kernels, 512), (euler_line_kernels, 64)):
            monkeypatch.setattr(module, "LANES", lanes)
        for name, size in {"LANES": 512, "CHUNKS": 2, "ROWS": 128, "SYSTEMS": 4}.items():
            monkeypatch.setattr(krylov_kernels, name, size)


def innermost(values: Tensor, chosen: Tensor) -> Tensor:
    return values[chosen].movedim(0, -1).contiguous()


def difference(found: Tensor, expected: Tensor) -> float:
    """Of a tensor (.., b) from one (b, ..)."""
    return float((found.movedim(-1, 0) - expected).abs().max() / expected.abs().max())


def forget(*parts: object) -> None:
    """All room that is written before it is read holds no numbers, so that anything read too early shows."""
    for part in parts:
        for name, values in vars(part).items():
            if isinstance(values, Tensor) and name in ROOM:
                values.fill_(torch.nan)


ROOM = ("q", "_gradient", "_flux", "_rim_flux", "diagonal", "time_term", "_radius", "_rim", "_factors", "_down",
        "_between", "basis", "_dots", "_squares", "_parts", "_left", "_trial", "_change", "_vector")  # fmt: skip


@runs_kernels
@pytest.mark.parametrize("cut", [True, False])
def test_residual_blocks_and_lines(cut: bool) -> None:
    """Each part against its plain form, for flows in another order."""
    flow = foils(device=DEVICE) if cut else channel(DEVICE)
    chosen = torch.tensor([2, 0] if cut else [1, 0], device=DEVICE)
    state, cfl = disturbed(flow), 1 + 10 * torch.rand(len(flow.nodes), dtype=torch.float64, device=DEVICE)
    plain = LinePreconditioner(flow, state, cfl)
    residual = flow.residual(state)
    fused = FusedEuler(flow, chosen)
    blocks = FusedBlocks(fused)
    lines = FusedLines(blocks.diagonal, blocks.coupling, flow.wake)
    forget(fused, blocks, lines)
    given = innermost(state, chosen)
    net, x, moved = (torch.full_like(given, torch.nan) for _ in range(3))
    fused.residual(given, net)
    assert difference(net, residual[chosen]) < 1e-13
    fused.primitive(given)
    blocks.assemble(cfl[chosen])
    assert difference(blocks.time_term, plain.time_term[chosen, 0]) < 1e-14
    lines.factorise()
    right = flow.join_(torch.randn_like(state))
    expected = plain.solve(right)
    lines.solve(innermost(right, chosen), x)
    assert difference(x, expected[chosen]) < 1e-13
    torch.testing.assert_close(largest(x), expected[chosen].abs().amax((1, 2, 3)))
    length = 1e-3 / expected.abs().amax((1, 2, 3))
    wide = length[:, None, None, None]
    quotient = plain.time_term * expected + (flow.residual(state + wide * expected) - residual) / wide
    fused.derivative(given, innermost(expected, chosen), length[chosen], net, blocks.time_term, moved)
    assert difference(moved, quotient[chosen]) < 1e-9


@runs_kernels
def test_krylov() -> None:
    """The same combination of the same vectors as the plain GMRES."""
    matrices = torch.randn(3, 20, 20, dtype=torch.float64, device=DEVICE) / 4 + 3 * torch.eye(20, device=DEVICE)
    right = torch.randn(3, 20, 1, 1, dtype=torch.float64, device=DEVICE)
    expected, left = euler_steady._gmres(
        lambda v: (matrices @ v.reshape(3, 20, 1)).reshape(v.shape), lambda v: v, right, 3
    )
    w = right[..., 0, 0].T.contiguous()
    krylov = Krylov(w, 3)
    forget(krylov)
    size = krylov.norm(w).clone()
    torch.testing.assert_close(size, w.norm(dim=0))
    krylov.scaled(w, size, 0)
    for k in range(3):
        krylov.orthogonalise(k, torch.einsum("bij,jb->ib", matrices, krylov.basis[k]).contiguous(), 1e-300)
    out = torch.full_like(w, torch.nan)
    rest = krylov.minimise(size, out)
    torch.testing.assert_close(-out.T, expected[..., 0, 0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(rest, left, rtol=1e-9, atol=0)


@runs_kernels
def test_a_newton_step() -> None:
    """One step; the difference quotient makes 1e-7 of rounding. A flow that is done stays as it is."""
    flow = foils(2, device=DEVICE)
    at, plain = (start(flow, flow.uniform()) for _ in range(2))
    scale = at.norm * torch.tensor([1.0, 1e9], dtype=torch.float64, device=DEVICE)
    fused = FusedSteps(flow, torch.tensor([1, 0], device=DEVICE), at, scale, 1e-6, 2)
    forget(fused, fused._flow, fused._blocks, fused._lines, fused._krylov)
    fused.advance()
    fused.leave(at)
    euler_steady.newton_step(flow, plain, torch.tensor([True, False], device=DEVICE), 2)
    assert float((at.state - plain.state).abs().max()) < 1e-5
    torch.testing.assert_close(at.norm, plain.norm, rtol=1e-3, atol=0)
    torch.testing.assert_close(at.cfl, plain.cfl, rtol=1e-3, atol=0)
    assert torch.equal(at.state[1], flow.uniform()[1])
    assert float((at.state - flow.uniform())[0].abs().max()) > 1e-3


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_on_a_gpu() -> None:
    """Steps, their record, and flows that leave: the flows of the plain solver, and the same bits in other company."""
    designs = 0.1 * torch.rand(96, 8, dtype=torch.float64) - 0.05
    found: list[Steady] = []
    for part in (designs, designs.flip(0)):
        found.append(solve_steady(Euler(c_grid(part, 10, 24, 10).to(DEVICE), free_stream(0.8), wake=10)))
        assert bool(found[-1].converged.all())
    assert torch.equal(found[0].state, found[1].state.flip(0))
    plain = solve_steady(Euler(c_grid(designs[:2], 10, 24, 10), free_stream(0.8), wake=10))
    torch.testing.assert_close(found[0].state[:2].cpu(), plain.state, rtol=0, atol=1e-5)


class Watch(TorchDispatchMode):
    """Counts operations, and notes those that a CUDA graph cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name.startswith(
            ("lift_fresh", "_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "_to_copy")
        ):
            self.found.append(name)
        self.launches += not (func.is_view or name.startswith("empty"))
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="kernels are left out")
def test_a_step_could_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels that do nothing: the rest reads nothing back, makes no tensors from numbers, moves no results."""
    launches: list[str] = []
    names: list[str] = []

    class Nothing:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            assert all(isinstance(count, int) and count > 0 for count in grid)
            return lambda *arguments, **options: launches.append(self.name)

    for module in MODULES:
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            names.append(f"{module.__name__}.{name}")
            monkeypatch.setattr(module, name, Nothing(names[-1]))
    flow = foils(device=DEVICE)
    at = start(flow, flow.uniform())
    fused = FusedSteps(flow, torch.arange(3), at, at.norm.clone(), 1e-6, 20)
    carried = (fused.state, fused.residual, fused.norm, fused.cfl)
    places = [part.data_ptr() for part in carried]
    with Watch() as watch:
        fused.advance()
    assert watch.found == []
    assert set(launches) == set(names)
    assert len(launches) + watch.launches < 750
    assert [part.data_ptr() for part in (fused.state, fused.residual, fused.norm, fused.cfl)] == places


class Plainly:
    """Stands in for `FusedSteps`: plain steps of the chosen flows."""

    sizes: list[int] = []  # noqa: RUF012
    alive: list[ReferenceType[Plainly]] = []  # noqa: RUF012

    def __init__(self, flow: Euler, chosen: Tensor, at: Newton, scale: Tensor, tolerance: float, krylov: int) -> None:
        self.flow = Euler(flow.nodes[chosen], flow.exterior[chosen], flow.wake)
        self.chosen, self.goal, self.krylov = chosen, tolerance * scale[chosen], krylov
        self.at = Newton(at.state[chosen], at.residual[chosen], at.norm[chosen], at.cfl[chosen])
        self.sizes.append(len(chosen))
        self.alive.append(ref(self))

    @property
    def norm(self) -> Tensor:
        return self.at.norm

    def advance(self) -> None:
        assert sum(group() is not None for group in self.alive) == 1  # those before have gone, with their room
        euler_steady.newton_step(self.flow, self.at, ~(self.at.norm <= self.goal), self.krylov)

    def leave(self, at: Newton) -> None:
        at.state[self.chosen], at.residual[self.chosen] = self.at.state, self.at.residual
        at.norm[self.chosen], at.cfl[self.chosen] = self.at.norm, self.at.cfl


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="needs no kernels")
def test_flows_that_are_done_leave(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The same flows and steps as without leaving; flows that nobody waits for are left out at once."""
    monkeypatch.setattr(euler_fused, "SMALLEST", 1)
    monkeypatch.setattr(euler_fused, "FusedSteps", Plainly)
    Plainly.sizes.clear()
    Plainly.alive.clear()
    gc.disable()
    request.addfinalizer(gc.enable)
    flow = Euler(c_grid(0.1 * torch.rand(5, 8, dtype=torch.float64) - 0.05, 5, 12, 5), free_stream(0.8), wake=5)
    scale = euler_steady.norm_of(flow.residual(flow.uniform()))
    wanted = torch.tensor([True, True, False, True, True])
    seen: list[int] = []
    found: list[tuple[Newton, Tensor]] = []
    for advance in (march, euler_steady._march):
        at = start(flow, flow.uniform())
        steps = advance(flow, at, scale, wanted, 1e-3, 40, 8, lambda step, relative: seen.append(step))
        found.append((at, steps))
    (left, steps), (stayed, expected) = found
    assert Plainly.sizes[0] == 4
    assert sorted(set(Plainly.sizes), reverse=True) == Plainly.sizes  # each size once, falling
    assert len(Plainly.sizes) > 1
    assert bool((stayed.norm <= 1e-3 * scale)[wanted].all())
    assert torch.equal(steps[wanted], expected[wanted])
    torch.testing.assert_close(left.state[wanted], stayed.state[wanted], rtol=0, atol=1e-12)
    assert torch.equal(left.state[2], flow.uniform()[2])
    assert seen == [*range(1, int(steps.max()) + 1)] * 2
    assert not any(group() for group in Plainly.alive)


def test_sizes() -> None:
    assert [group_size(count, 256) for count in (1, 32, 33, 128, 129, 256)] == [32, 32, 64, 128, 256, 256]
    assert [group_size(count, 100) for count in (100, 65, 64, 1)] == [100, 100, 64, 32]
    assert group_size(3, 4) == 4


def test_replayed_calls_every_time_without_a_gpu() -> None:
    calls: list[int] = []
    work = Replayed(lambda: calls.append(1), torch.device("cpu"))
    for _ in range(3):
        work()
    assert len(calls) == 3


@pytest.mark.parametrize("lacking", [True, False])
def test_replayed_tells_of_too_little_memory(lacking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that is broken off ends with an error of its own, which would hide the reason."""

    class Recording:
        def __init__(self, graph: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None:
            raise RuntimeError("capture failed")

    def work() -> None:
        if lacking:
            raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Recording)
    with pytest.raises(RuntimeError, match="no room" if lacking else "capture failed") as found:
        Replayed(work, torch.device("cpu"))._recorded()
    assert isinstance(found.value, torch.OutOfMemoryError) is lacking


def test_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = foils(device=DEVICE)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert euler_steady.fused_runs_on(flow)
    assert not euler_steady.fused_runs_on(Euler(flow.nodes, free_stream(0.8), wall=False))
    monkeypatch.delenv("TRITON_INTERPRET")
    assert euler_steady.fused_runs_on(flow) == (DEVICE == "cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_use, "triton_is_installed", lambda: False)
    assert not euler_steady.fused_runs_on(flow)


@pytest.mark.skipif(INTERPRETED, reason="has been run outside")
def test_the_cpu_leaves_triton_alone() -> None:
    code = (
        "import sys, torch; from hofno.problems.airfoil import Airfoil; "
        "Airfoil(coarsen=10, tolerance=1e-2).flows('train', 1, 'cpu'); sys.exit('triton.language' in sys.modules)"
    )
    finished = in_own_process("-c", code, interpret=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(INTERPRETED or DEVICE == "cuda", reason="this is that process, or the kernels are tested directly")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
