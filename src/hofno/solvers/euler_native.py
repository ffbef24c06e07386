"""Newton steps of steady Euler flow on a CPU as `euler_steps.c` has them, a thread for each flow.

What is computed is `euler_steady.newton_step`, but for vectors and factors of GMRES in float32. That changes a step by
1e-6 to 1e-3 of itself, and a flow that has converged by no more than its tolerance. A flow on 221 x 51
nodes takes 1.2 s on one core of an AMD EPYC where PyTorch's operations take 12 (results/bench); small ones gain more.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from hofno.solvers import euler_steady
from hofno.solvers.euler import Euler, free_stream
from hofno.solvers.euler_lines import LinePreconditioner
from hofno.solvers.euler_steady import Newton, next_cfl
from hofno.solvers.native import Native
from hofno.solvers.parallel import go_on

MOST_VECTORS = 64
"""Of GMRES: the source has room for no more."""

FLOWS_PER_THREAD = 4
"""That are solved together: some take more steps than others."""

MANY = 6e4
"""Nodes of flows that take a minute or more in plain PyTorch."""

_SIZES = ("rows", "columns", "wake", "wall")
_ARRAYS = ("edge_i", "edge_j", "normal_i", "normal_j", "once", "fit", "exterior", "body", "outer", "start", "end")


class _Mesh(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _SIZES] + [(name, ctypes.c_void_p) for name in _ARRAYS]


class NativeSteps:
    """Newton steps of flows, one at a time and by their number; those of different flows may go side by side."""

    def __init__(self, flow: Euler, krylov: int, library: ctypes.CDLL) -> None:
        b, _, *self._nodes = flow.nodes.shape
        of_edges = (flow.edge_i, flow.edge_j, flow.normal_i, flow.normal_j)
        of_rim = (flow.body_normal, flow.outer_normal, flow.start_normal, flow.end_normal)
        once, fit = flow.once.expand(b, -1, -1), torch.cat(flow.fit, 1)
        self._arrays = [part.contiguous() for part in (*of_edges, once, fit, flow.exterior, *of_rim)]
        self._beside = flow.wake, int(flow.wall)
        self._library, self._krylov = library, krylov
        library.room_needed.restype = ctypes.c_int64
        self._size = library.room_needed(*map(ctypes.c_int64, (*self._nodes, krylov)))
        self._rooms = threading.local()

    def step(self, at: Newton, number: int) -> tuple[float, float, bool]:
        """Change one flow of `at`, its residual and its norm: what GMRES left, the length, whether the step was taken.

        The arrays of `at` are contiguous, in float64.
        """
        told = torch.empty(2, dtype=torch.float64, device="cpu")
        numbers = ctypes.c_double(float(at.cfl[number])), ctypes.c_double(euler_steady.LARGEST_CHANGE)
        arrays = at.state[number], at.residual[number], at.norm[number], told
        count = ctypes.c_int64(self._krylov)
        taken = self._library.newton_step(self._mesh(number), self._room(), count, *numbers, *map(_place, arrays))
        return float(told[0]), float(told[1]), bool(taken)

    def residual(self, state: Tensor, number: int) -> Tensor:
        """Of one flow, (4, I, J) -> (4, I, J)."""
        state, found = state.contiguous(), torch.empty_like(state, memory_format=torch.contiguous_format)
        self._library.residual_of(self._mesh(number), self._room(), _place(state), _place(found))
        return found

    def precondition(self, state: Tensor, cfl: float, right: Tensor, number: int) -> Tensor:
        """What `LinePreconditioner.solve` makes of the right-hand side of one flow, (4, I, J) all."""
        state, found = state.contiguous(), right.clone(memory_format=torch.contiguous_format)
        given = _place(state), ctypes.c_double(cfl), _place(found)
        self._library.precondition_of(self._mesh(number), self._room(), *given)
        return found

    def _mesh(self, number: int) -> object:
        places = (part[number].data_ptr() for part in self._arrays)
        return ctypes.byref(_Mesh(*self._nodes, *self._beside, *places))

    def _room(self) -> ctypes.c_void_p:
        """What a step needs beside its arrays, kept by each thread."""
        if not hasattr(self._rooms, "room"):
            self._rooms.room = torch.empty(self._size, dtype=torch.float64, device="cpu")
        return _place(self._rooms.room)


def march(
    flow: Euler,
    at: Newton,
    scale: Tensor,
    wanted: Tensor,
    tolerance: float,
    max_steps: int,
    krylov: int,
    watch: Callable[[int, Tensor], None] | None,
) -> Tensor:
    """As `euler_steady._march`, by compiled code; flows that no one waits for stay where they are."""
    library = STEPS.library()
    assert library is not None, "asked before: see native_runs_on"
    native = NativeSteps(flow, krylov, library)
    at.state, at.residual, at.norm = (part.contiguous() for part in (at.state, at.residual, at.norm))
    steps = torch.zeros_like(wanted, dtype=torch.long)
    with ThreadPoolExecutor(min(torch.get_num_threads(), len(scale))) as pool:
        for step in range(max_steps):
            go_on()
            open_ = ~(at.norm <= tolerance * scale) & wanted  # a norm that is not a number stays open
            numbers = open_.nonzero().flatten()
            if len(numbers) == 0:
                break
            told = list(pool.map(lambda number: native.step(at, number), numbers.tolist()))
            left, length, taken = (scale.new_tensor(part) for part in zip(*told, strict=True))
            at.cfl[numbers] = next_cfl(at.cfl[numbers], left, length, taken.bool())
            steps += open_
            if watch is not None:
                watch(step + 1, at.norm / scale)
    return steps


def native_runs_on(flow: Euler, krylov: int) -> bool:
    """Whether compiled steps take these flows."""
    there = flow.nodes.device.type == "cpu" and flow.nodes.dtype == torch.float64
    return there and krylov <= MOST_VECTORS and STEPS.library() is not None


def warn_where_plain(nodes: int) -> None:
    """Say what would save minutes, where flows on so many nodes in all are solved in plain PyTorch."""
    if nodes > MANY:
        STEPS.warn_where_plain("flows")


def _place(array: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data_ptr())


@torch.no_grad()
def _is_right(library: ctypes.CDLL) -> bool:
    """Whether residuals, the preconditioner and steps are those of PyTorch, with a wall and without."""
    return all(_agrees(_around_a_blade(wall), library) for wall in (True, False))


def _agrees(flow: Euler, library: ctypes.CDLL) -> bool:
    native = NativeSteps(flow, 5, library)
    waves = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None, None]
    state = flow.uniform() * (1 + 0.05 * torch.sin(3 * flow.nodes[:, :1] + waves * flow.nodes[:, 1:]))
    residual, cfl = flow.residual(state), torch.tensor([20.0], dtype=torch.float64)
    lines = LinePreconditioner(flow, state, cfl).solve(residual)
    plain = Newton(state, residual, euler_steady.norm_of(residual), cfl)
    tried = Newton(state.clone(), residual.clone(), plain.norm.clone(), cfl)
    euler_steady.newton_step(flow, plain, torch.ones(1, dtype=torch.bool), 5)
    left, length, taken = (cfl.new_tensor([part]) for part in native.step(tried, 0))
    pairs = [
        (residual[0], native.residual(state[0], 0), 1e-12),
        (lines[0], native.precondition(state[0], 20.0, residual[0], 0), 1e-5),
        (plain.state - state, tried.state - state, 1e-4),
        (plain.residual, tried.residual, 1e-4),
        (plain.cfl, next_cfl(cfl, left, length, taken.bool()), 1e-4),
    ]
    return all(bool(((one - other).abs() <= most * one.abs().max()).all()) for one, other, most in pairs)


def _around_a_blade(wall: bool) -> Euler:
    """A small C-grid of parabolas around a thin blade with a cut behind it."""
    along, away = (torch.arange(-8, 9, dtype=torch.float64) / 8)[:, None], torch.arange(6, dtype=torch.float64) / 5
    room = (0.25 - along**2).clamp_min(0)
    thick = (2 * along * room + room**2) * (1 - away)
    nodes = torch.stack((along**2 - away**2, 2 * along * away + thick))[None]
    return Euler(nodes, free_stream(0.7, 3.0), wake=4, wall=wall)


STEPS = Native("euler_steps.c", _is_right)
