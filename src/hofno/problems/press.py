"""Blocks of Plasticity under dies, solved group by group: their frames, and what each simulation says about itself."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np
import torch

from hofno.errors import SolverError
from hofno.problems.base import Progress, rising
from hofno.problems.dies import KNOTS, SPEED, tip_curvature
from hofno.problems.kept_samples import Begun, KeptSamples, Sample
from hofno.problems.pressed import COLUMNS, FRAMES, HEIGHT, ORIGIN, ROWS, WIDTH, Account
from hofno.solvers.die import Die
from hofno.solvers.memory import free_bytes, gibibytes
from hofno.solvers.parallel import in_order
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.solvers.plasticity import Blocks
from hofno.solvers.plasticity_native import warn_where_plain

INTERVAL = 0.1  # ms between frames
SHARPNESS = (0.3, 0.45, 0.6, 0.75, 1.0)
"""Largest curvatures where a die is lowest, 1/mm, of the classes that share their steps; the last one has no limit."""

OWN = "die"
"""What dies of one's own are called, in place of a split."""

_GROUP = {"cpu": 8, "cuda": 512}  # samples that are solved together
_FILLED = 8  # groups are filled up to whole vectors of the processor, in which all places are alike
_AT_ONCE = 1000  # steps after which a group on a CPU may be put aside; half a minute of eight blocks, refine=2
_HALVINGS = 3
_MOST_IMBALANCE = 0.01  # of the die's work, in any frame; steps that are too long create energy at once


@dataclass(frozen=True)
class Press:
    """A mesh of the block and its metal, under dies whose heights are given at these points.

    Parameters are those of Plasticity.
    """

    coarsen: int
    refine: int
    poisson_ratio: float
    hourglass: float
    points: np.ndarray  # (p,), mm from the left end

    @property
    def nodes(self) -> tuple[int, int]:
        """Columns I and rows J of a sample."""
        return COLUMNS // self.coarsen + 1, ROWS // self.coarsen + 1

    def blocks(self, heights: np.ndarray, device: str | torch.device = "cpu") -> Blocks:
        """Undeformed blocks under dies (p, b) that touch them."""
        columns, rows = ((n - 1) * self.refine + 1 for n in self.nodes)
        x, y = (torch.linspace(0, length, n, dtype=torch.float64) for length, n in ((WIDTH, columns), (HEIGHT, rows)))
        nodes = torch.stack((x.expand(rows, -1), y[:, None].expand(-1, columns)))
        held = torch.zeros(nodes.shape, dtype=torch.bool)
        held[1, 0] = True
        metal = PerfectPlastic(poisson_ratio=self.poisson_ratio)
        die = Die(self.points, HEIGHT + heights, SPEED, device)
        return Blocks(nodes, heights.shape[1], metal, die, held, hourglass=self.hourglass, device=device)

    def frame_steps(self, frame: int, sharpness: float) -> int:
        """Steps from frame - 1 to frame under a die of at most this curvature k where it is lowest, 1/mm.

        Elements there are flattened to exp(-5 tanh((k frame)^(3/4) / 9.6)) of their height, if `refine` is 2: a fit.
        """
        size = HEIGHT / ROWS * self.coarsen / self.refine
        least = 0.95 * size * math.exp(-5 * math.tanh((sharpness * frame) ** 0.75 / 9.6))
        speed = PerfectPlastic(poisson_ratio=self.poisson_ratio).wave_speed
        return math.ceil(INTERVAL * speed / (0.9 * least))

    def run(
        self,
        heights: np.ndarray,
        wanted: list[Sample],
        device: str | torch.device,
        progress: Progress,
        kept: KeptSamples,
        told: int = 1,
    ) -> tuple[np.ndarray, Account]:
        """Frames (n, 20, 4, I, J) under dies (p, n), which are called `wanted` among the kept and in errors.

        Progress is told in so many parts of each block.
        """
        count, (columns, rows) = len(wanted), self.nodes
        frames = np.empty((count, FRAMES, 4, columns, rows), np.float32)
        account = np.zeros((6, count))
        for places, found in kept.read(wanted):
            frames[places], account[:, places] = found["frames"], found["account"].T
        missing = np.array(kept.missing(wanted), int)
        sharpness = np.array([class_of(heights[:, k], self.points) for k in missing])
        begun: list[_Group] = []
        tell = rising(progress, told * count)

        def look() -> None:
            work, done = sum(group.work for group in begun), sum(group.done for group in begun)
            tell(told * (count - len(missing)) + told * len(missing) * done // work)

        if torch.device(device).type == "cpu":
            warn_where_plain(
                len(missing) * columns * rows * self.refine**2 * FRAMES * self.frame_steps(10, SHARPNESS[0])
            )
        pending = np.ones(len(missing), bool)
        for halvings in range(_HALVINGS + 1):
            if not pending.any():
                break
            size, threads = self.group(device, int(pending.sum()))
            classes = [(limit, missing[pending & (sharpness == limit)]) for limit in SHARPNESS]
            cut = [(limit, part[k : k + size]) for limit, part in classes for k in range(0, len(part), size)]
            groups = [
                _Group(
                    place,
                    heights[:, place],
                    [2**halvings * self.frame_steps(frame, limit) for frame in range(1, FRAMES)],
                    kept.begun([wanted[k] for k in place], f"steps / {2**halvings} on {device}"),
                )
                for limit, place in cut
            ]
            begun += groups
            solved = in_order(lambda group: self._pressed(group, device), groups, device, threads, look)
            with contextlib.closing(solved):
                for group, (found, said, good) in zip(groups, solved, strict=True):
                    said[5] = halvings
                    place = group.places[good]
                    frames[place], account[:, place] = found[good], said[:, good]
                    kept.write([wanted[k] for k in place], {"frames": found[good], "account": said[:, good].T})
                    group.aside.drop()
                    pending[np.isin(missing, place)] = False
                    if pending.any():
                        look()
        if pending.any():
            first = [(k, *wanted[k]) for k in missing[pending][:5]]
            named = ", ".join(f"{split} {k if split == OWN else sample}" for k, split, sample in first)
            raise SolverError(
                f"{pending.sum()} blocks did not balance their energy with steps halved {_HALVINGS} times ({named}); "
                "use another seed or blunter dies, or a larger coarsen"
            )
        progress("generate", told * count, told * count)
        return frames, Account(*account)

    def _pressed(self, group: _Group, device: str | torch.device) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frames (b, 20, 4, I, J), account (6, b) and whether the steps were short enough (b,)."""
        count = len(group.places)
        spare = np.repeat(group.heights[:, :1], -count % _FILLED, 1)
        blocks = group.blocks = self.blocks(np.concatenate((group.heights, spare), 1), device)
        frames = torch.empty((count, FRAMES, 4, *self.nodes), dtype=torch.float32)
        start = blocks.x.clone()
        shift = torch.tensor(ORIGIN, dtype=torch.float64, device=start.device)[:, None, None, None]
        good = torch.ones(count, dtype=torch.bool)
        nodes = edges = torch.zeros(count, dtype=torch.float64)
        first, on_cpu = 0, blocks.device.type == "cpu"  # elsewhere a group takes minutes, and is large
        if state := group.aside.read():
            frames[:, : (first := state["frames"].shape[1])] = state["frames"]
            good, nodes, edges = state["good"], state["nodes"], state["edges"]
            blocks.go_back_to(state)
        for frame in range(first, FRAMES):
            while left := sum(group.steps[:frame]) - blocks.steps:
                blocks.advance(INTERVAL, group.steps[frame - 1], min(left, _AT_ONCE) if on_cpu else left)
                so_far = {"frames": frames[:, :frame], "good": good, "nodes": nodes, "edges": edges}
                if on_cpu:
                    group.aside.keep(lambda so_far=so_far: so_far | blocks.state())
            if frame:
                whole = (blocks.stable_step() > 0) & (blocks.energies().imbalance.abs() < _MOST_IMBALANCE)
                good = good & whole.cpu()[:count]
                nodes = torch.maximum(nodes, blocks.penetration().cpu()[:count])
                edges = torch.maximum(edges, blocks.penetration(8).cpu()[:count])
            both = torch.cat((blocks.x + shift, blocks.x - start))[:, :: self.refine, :: self.refine, :count]
            frames[:, frame] = both.flip(1, 2).permute(3, 0, 2, 1).float().cpu()
        found = blocks.energies()
        parts = (found.imbalance, found.kinetic / found.external, found.hourglass / found.external)
        imbalance, kinetic, hourglass = (part.cpu()[:count] for part in parts)
        account = torch.stack((imbalance, kinetic, hourglass, nodes, edges, torch.zeros_like(edges)))
        group.is_over, group.blocks = True, None
        return frames.numpy(), account.numpy(), good.numpy()

    def group(self, device: str | torch.device, count: int) -> tuple[int, int]:
        """Samples that are solved together, and groups side by side; fewer where memory is short."""
        on_cpu = torch.device(device).type == "cpu"
        group, threads = _GROUP["cpu" if on_cpu else "cuda"], torch.get_num_threads() if on_cpu else 1
        columns, rows = self.nodes
        each = 8 * (60 * columns * rows * self.refine**2 + 4 * FRAMES * columns * rows)
        free = free_bytes(device)
        if free is None:
            return group, threads
        if _FILLED * each > free:
            raise SolverError(
                f"{_FILLED} blocks need {gibibytes(_FILLED * each)} on {device} and {gibibytes(free)} are free; free "
                "some memory, or raise coarsen"
            )
        while group > _FILLED and group * each > 0.8 * free:
            group //= 2
        return min(group, count), max(1, min(threads, int(0.8 * free / (group * each))))


@dataclass
class _Group:
    """Samples that are solved together, and how far they are."""

    places: np.ndarray  # of the samples among all that are wanted
    heights: np.ndarray  # (p, b)
    steps: list[int]  # from frame to frame
    aside: Begun
    blocks: Blocks | None = None
    is_over: bool = False

    @property
    def work(self) -> int:
        """Steps of all blocks."""
        return len(self.places) * sum(self.steps)

    @property
    def done(self) -> int:
        """Those that are done, also while another thread does them."""
        blocks = self.blocks
        return self.work if self.is_over else 0 if blocks is None else len(self.places) * blocks.steps


def class_of(heights: np.ndarray, points: np.ndarray = KNOTS) -> float:
    """The class of a die (p,) by the curvature where it is lowest, which is the limit of that class."""
    curvature = tip_curvature(heights, points)
    return next((limit for limit in SHARPNESS if curvature <= limit), SHARPNESS[-1])
