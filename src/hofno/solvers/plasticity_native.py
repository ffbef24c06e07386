"""Steps of blocks under dies on a CPU in one pass, as `plasticity_steps.c` has them; it says how.

Done operation by operation a step takes 66 to 180 ns for each element; here it takes 10 (results/bench, one core of an
AMD EPYC). What is computed is `Blocks._advance`, and tried beside it before it is relied on.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import torch

from hofno.solvers import plasticity
from hofno.solvers.die import Die
from hofno.solvers.native import Native
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.solvers.plasticity import Blocks

MANY = 1e9
"""Steps of elements that take a minute or more in plain PyTorch."""

_NUMBERS = ("dt", "mean_stiffness", "shear", "by_yield", "growth", "stiffness", "limit")
_OF_DIE = ("speed", "allowance", "start", "end")
_SIZES = ("rows", "columns", "count", "knots", "places")
_STATE = ("x", "v", "force", "p", "q", "s", "thickness", "hourglass_work", "plastic_work", "hourglass")
_BESIDE = ("mass", "inverse_mass", "depth", "die_work", "impact")


class _Numbers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in (*_NUMBERS, *_OF_DIE)]


class _Blocks(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _SIZES] + [
        (name, ctypes.c_void_p) for name in (*_STATE, *_BESIDE, "knot", "coefficients")
    ]


class NativeSteps:
    """Steps of dt for blocks without moving supports; calling it with a number takes so many."""

    def __init__(self, blocks: Blocks, dt: float, library: ctypes.CDLL) -> None:
        material, die, part = blocks.material, blocks.die, blocks.hourglass_part
        self._blocks, self._library = blocks, library
        self._numbers = _Numbers(
            *(dt, material.mean_stiffness, material.shear_modulus, 1 / material.yield_stress),
            2 * material.poisson_ratio / material.modulus,
            *(part * material.modulus / 12, part * material.yield_stress / math.sqrt(32)),
            *(() if die is None else (die.speed, plasticity.ALLOWANCE, die.start, die.end)),
        )

    def __call__(self, steps: int) -> None:
        blocks, die = self._blocks, self._blocks.die
        _, *sizes = blocks.x.shape
        arrays = [getattr(blocks, name) for name in (*_STATE, *_BESIDE)]
        arrays += [] if die is None else [die.knots, die.coefficients]
        assert all(array.is_contiguous() and array.dtype == torch.float64 for array in arrays), "as Blocks makes them"
        places = [array.data_ptr() for array in arrays]
        given = _Blocks(*sizes, -1 if die is None else len(die.knots), plasticity.PLACES, *places)
        if self._library.advance(ctypes.byref(given), ctypes.byref(self._numbers), ctypes.c_int64(steps)):
            raise MemoryError("no room for the forces on two rows of nodes")


def native_steps(blocks: Blocks, dt: float) -> NativeSteps | None:
    """Steps of these blocks as compiled code; None where there is none for them."""
    if blocks.moves_supports or blocks.x.device.type != "cpu":
        return None
    library = STEPS.library()
    return None if library is None else NativeSteps(blocks, dt, library)


def warn_where_plain(work: float) -> None:
    """Say what would save minutes, where so many steps of elements are taken in plain PyTorch."""
    if work > MANY:
        STEPS.warn_where_plain("blocks")


@torch.no_grad()
def _is_right(library: ctypes.CDLL) -> bool:
    """Whether compiled steps end where the plain ones do."""
    plain, tried = _sheets(), _sheets()
    dt, steps = 0.5 * float(plain.stable_step().min()), 40
    for _ in range(steps):
        plain._advance(dt)
    NativeSteps(tried, dt, library)(steps)
    ends = [(getattr(plain, name), getattr(tried, name)) for name in ("x", "v", "p", "q", "s", "impact")]
    return all(bool(((one - other).abs() <= 1e-9 * one.abs().max()).all()) for one, other in ends)


def _sheets() -> Blocks:
    """Eight small sheets under a fast die, lowest between two nodes: they yield, and it pushes nodes and edges."""
    x, y = torch.linspace(0, 5, 6, dtype=torch.float64), torch.linspace(0, 3, 4, dtype=torch.float64)
    nodes = torch.stack((x.expand(4, -1), y[:, None].expand(-1, 6)))
    held = torch.zeros(nodes.shape, dtype=torch.bool)
    held[1, 0] = True
    heights = 3 + np.linspace(0.5, 1, 8) * np.array([[1.5, 0.5, 0.0, 0.6, 1.5]]).T
    return Blocks(nodes, 8, PerfectPlastic(), Die(np.array([0, 1.5, 2.5, 3.5, 5]), heights, 300.0), held)


STEPS = Native("plasticity_steps.c", _is_right)
