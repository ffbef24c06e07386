"""Flows around foils as they come out of the solver, with the account of how they did, and forces as coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hofno.device import find_device
from hofno.errors import SolverError
from hofno.problems.base import Progress, ignore_progress
from hofno.problems.kept_samples import KeptSamples, digest_of
from hofno.solvers import euler_native
from hofno.solvers.euler import GAMMA, Euler, free_stream, mach_number, primitive
from hofno.solvers.euler_steady import bytes_per_flow, solve_steady
from hofno.solvers.memory import free_bytes, gibibytes

BYTES_KEPT = 4 * 7  # of a node in the store: its place and five fields
_GROUP = {"cpu": 4, "cuda": 512}  # flows that are solved together


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


@dataclass(frozen=True)
class WindTunnel:
    """Solves flows around foils on C-grids of these cells: of the wake, the foil and the normal direction."""

    cells: tuple[int, int, int]
    tolerance: float
    max_steps: int

    @property
    def shape(self) -> tuple[int, int]:
        wake, foil, normal = self.cells
        return 2 * wake + foil + 1, normal + 1

    def around(
        self,
        nodes: Tensor,
        streams: Tensor,
        device: str | torch.device | None = None,
        progress: Progress = ignore_progress,
        kept: KeptSamples | None = None,
    ) -> dict[str, np.ndarray]:
        """Flows around foils of one's own, in arrays as `Flows` has them, with whether each one converged.

        Args:
            nodes: C-grids (n, 2, I, J) of the cells of this problem, float64.
            streams: Mach numbers and angles of attack in degrees (n, 2), float64.
            device: where to solve; None takes the GPU if there is one.
            progress: called as progress(stage, done, total), counted in flows and parts of flows.
            kept: flows that are solved already, to which those are added that are solved now.
        """
        chosen, count, kept = find_device(device or "auto"), len(nodes), kept or KeptSamples()
        names = [("foil", digest_of(*given)) for given in zip(nodes.numpy(), streams.numpy(), strict=True)]
        rows: dict[int, dict[str, np.ndarray]] = {}
        for places, found in kept.read(names):
            rows |= by_place(places, found)
        missing = [place for place in range(count) if place not in rows]
        kept.check_room(len(missing), BYTES_KEPT * nodes.shape[2] * nodes.shape[3], 0)
        if chosen.type == "cpu":
            euler_native.warn_where_plain(len(missing) * nodes.shape[2] * nodes.shape[3])
        group = self.group(chosen, len(missing)) if missing else 0
        while some := missing[:group]:
            watch = part_done(self.tolerance, 0, len(some), count - len(missing), count, progress)
            try:
                solved = self.solve(nodes[some], streams[some], chosen, watch)
            except torch.OutOfMemoryError:
                group = self.fewer(group, chosen)
                continue
            found = {name: part.numpy() for name, part in solved.items()}
            kept.write([names[place] for place in some], found)
            rows |= by_place(some, found)
            missing = missing[group:]
            progress("generate", count - len(missing), count)
        return {name: np.stack([rows[place][name] for place in range(count)]) for name in rows[0]}

    def solve(
        self,
        nodes: Tensor,
        streams: Tensor,
        device: torch.device,
        watch: Callable[[int, Tensor], None],
        wanted: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """What comes of flows that are solved together, on the CPU."""
        far = torch.stack([free_stream(mach, angle) for mach, angle in streams.tolist()])
        flow = Euler(nodes.to(device), far[..., None, None], self.cells[0])
        found = solve_steady(flow, tolerance=self.tolerance, max_steps=self.max_steps, wanted=wanted, watch=watch)
        q = primitive(found.state)
        everything = {
            "streams": streams,
            "nodes": flow.nodes.float(),
            "fields": torch.cat((q, mach_number(q)[:, None]), 1).float(),
            "coefficients": coefficients_of(flow.force(found.state).cpu(), streams[:, 0], streams[:, 1]),
            "residual": found.residual,
            "steps": found.steps,
            "converged": found.converged,
        }
        return {name: part.cpu() for name, part in everything.items()}

    def group(self, device: torch.device, count: int) -> int:
        """How many flows are solved together, fewer where memory is short; `count` are lacking."""
        group, each, free = _GROUP.get(device.type, 4), bytes_per_flow(*self.shape), free_bytes(device)
        if device.type == "cpu" and euler_native.STEPS.library():  # where the others do not change a flow
            group = min(euler_native.FLOWS_PER_THREAD * torch.get_num_threads(), count)
        if free is None:
            return group
        if each > free:
            raise self._too_little(device, free)
        while group > 1 and group * each > 0.8 * free:
            group //= 2
        return group

    def _too_little(self, device: torch.device, free: int) -> SolverError:
        needed = gibibytes(bytes_per_flow(*self.shape))
        return SolverError(
            f"one flow needs {needed} on {device} and {gibibytes(free)} are free; free some memory, raise coarsen or "
            "choose another device"
        )

    def fewer(self, group: int, device: torch.device) -> int:
        """Flows that are solved together where so many did not fit into memory after all."""
        if group == 1:
            raise self._too_little(device, free_bytes(device) or 0) from None
        return group // 2


def by_place(places: Iterable[int], arrays: Mapping[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    """The rows of arrays, each at its place."""
    return {place: {name: array[row] for name, array in arrays.items()} for row, place in enumerate(places)}


def part_done(
    tolerance: float, first: int, count: int, done: int, total: int, progress: Progress
) -> Callable[[int, Tensor], None]:
    """Tell, after each Newton step, the flows of a group that are done and parts of those that are on their way.

    A flow with the relative residual r has come log r / log tolerance of its way; what was told is not taken back.
    """
    told = done

    def watch(step: int, relative: Tensor) -> None:
        nonlocal told
        way = (relative[first : first + count].log() / math.log(tolerance)).nan_to_num(0.0).clamp(0.0, 1.0)
        told = max(told, done + min(int(way.sum()), count - 1))  # the last is told when all have been looked at
        progress("generate", told, total)

    return watch
