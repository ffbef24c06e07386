r"""Plasticity: a block of metal under a falling die, in 20 frames.

    rho dv/dt = div sigma,    sigma_zz = 0,    |sigma|_Mises <= 70 MPa    in a block of 50 mm x 15 mm,
    y <= S(x) - 3 mm/ms t at its top,    u_y = 0 and no friction at its base,    free sides

S is a cubic spline through random heights; without friction, the die only pushes along its normal. Frames are 0.1 ms
apart, the first one undeformed; each holds the positions and displacements x, y, u_x, u_y of 101 x 31 nodes.

Every sample has a random stream of its own, and what is solved beside it does not change it: more samples extend a
split. The steps of a frame are the same for all samples; one that they are too long for, which shows in its balance of
energy, is solved again with steps of half the length.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from hofno.errors import DataError, SolverError
from hofno.geometry import Grid
from hofno.problems.base import Arrays, Problem, Progress, ignore_progress
from hofno.problems.matfile import read_mat
from hofno.solvers.die import Die
from hofno.solvers.memory import free_bytes, gibibytes
from hofno.solvers.parallel import in_order
from hofno.solvers.perfect_plastic import PerfectPlastic
from hofno.solvers.plasticity import Blocks

CARD = """\
# Plasticity

**Equation.** ρ dv/dt = div σ in a block of 50 mm x 15 mm, plane stress, von Mises stress at most 70 MPa without
hardening, E = 200 GPa, ν = 0.3, ρ = 7850 kg/m³, large displacements. A rigid die without friction comes down at 3 m/s
for 1.9 ms; the base may slide but not lift or sink, the sides are free.
**Task.** The die's profile (101 heights) to 20 frames, 0.1 ms apart, of x, y, u_x, u_y in mm at 101 x 31 nodes, the
first one undeformed. 900 training and 80 test samples. `generate` gives it as one field on a grid of 101 x 31 x 20;
`Pressed.by_time` gives die and time in [0, 1] to one frame, as the published models are called, one call for each time.
The metric is the relative L2 error over all 20 x 4 x 101 x 31 values; most of their norm is that of the coordinates.
**Protocol.** Die heights normalised by one mean and one standard deviation (`published_normaliser`), targets not.
**Inputs.** A spline (not-a-knot) through heights at 0, 7, 13, .., 43, 50 mm: 7.6 at both ends, 0 at one inner point,
the others by quantiles that were read off published dies (5, 25, 50, 75, 95 %: 2.3, 3.75, 5.2, 6.3, 7.2). Dies that dip
more than 0.05 mm below their lowest point are drawn again; the others are raised by what they dip, and touch the block.
**Solver.** 100 x 30 four-node elements with one point and hourglass resistance, radial return, thickness that follows
plastic volume, central differences with the true density (no mass scaling). 138 893 steps of 0.6e-4 to 0.5e-5 ms.
**Cost.** 73 s of one CPU core for a sample (4.2 ms for a step of 8 samples). Not measured on a GPU; the memory that a
step moves lets one expect 6 to 8 minutes for 987 samples on an H200.

| checked | die A | die C |
|---|---|---|
| die's work less all energies it went to: first, last frame | 0.03 %, 0.001 % | 0.03 %, 0.001 % |
| kinetic, hourglass energy, last frame | 0.2 %, 2.7 % of the work | 0.1 %, 3.2 % |
| nodes inside the die, at most | 2e-12 mm | 7e-12 mm |
| edges between nodes inside the die, at most | 0.11 mm | 0.38 mm |
| largest displacement, last frame (published sample 0: 5.7) | 5.73 mm | 5.70 mm |
| width gained (published, 88 mm² displaced: 3.8) | 4.2 mm (88 mm² displaced) | 4.4 mm |
| step halved: change of all displacements, relative L2 | 0.002 % (*) | |
| elements halved each way: the same | 2.0 % (*) | |

Heights at the inner points, in turn: A 2.2, 6.8, 4.5, 0, 4.1, 5.9, 4.4; C 2.6, 7.3, 3.3, 4.2, 0, 6.6, 4.1,
one with a sharp tip. To repeat: `blocks(heights)`, then `advance(0.1, frame_steps(frame))`. (*) With a compiled copy of
the scheme in which the hourglass limit kept the size of the undeformed element; with the limit as it is here, code and
copy differ by 5e-5 after four frames of training sample 0.

What is known to differ from the original files
- They were not at hand. They come from ABAQUS, whose contact, hourglass control, damping and Poisson's ratio are not
  known; ν = 0.3 is a guess. Frames can be alike in kind only.
- The law of the dies is read off 16 of them. The true one is not known, nor is its end condition; not-a-knot was taken
  since it overshoots as they do (10.8 mm above contact in one of 16).
- 56 % of the displaced area leaves the plane here (die A (*)); a crude reading of published meshes says a third.
- Only top nodes meet the die; beyond its ends it goes on flat.
- The random stream is ours: distribution, not samples. The published 7 samples between training and test are unused
  there and "valid" in `read_published`; validation samples here have a stream of their own.
- As published, die height k is the k-th from the left and node i the i-th from the right; `aligned=True` turns the die.

Known flaws
- The mesh is too coarse under the tip of the die. Its elements are stretched and flattened (to 0.03 mm), so that twice
  as many each way change displacements by 2 %, and the die cuts into edges of the top between nodes. `refine=2` solves
  with half the size (edges of die A 0.04 mm inside (*)) at eight times the cost.
- `hourglass` is a choice, which the result depends on: of seven kinds tried on die A, those with 0.5 were nearest to a
  mesh twice as fine (*). 1 keeps the sharp tip of die C in better shape (edges 0.23 mm inside, density times 4 (*)) and
  is stiffer.
- Where the block slides to depends on inertia. Mass scaling by 4 changes the displacements by 24 % (die A,
  hourglass=1 (*)), scaling by 25 by more; it is not offered.
- Another device or version rounds differently; the number of threads and the other samples do not matter.
"""

FILE = "plas_N987_T20.mat"
FRAMES, INTERVAL, SPEED = 20, 0.1, 3.0  # frames, ms between them, mm/ms of the die
WIDTH, HEIGHT, COLUMNS, ROWS = 50.0, 15.0, 100, 30
ORIGIN = (-49.65, -0.1)
"""Where the lower left corner of the undeformed block is in the published coordinates."""

KNOTS = np.array([0.0, 7.0, 13.0, 19.0, 25.0, 31.0, 37.0, 43.0, 50.0])
"""Distances from the left end at which the heights of a die are drawn."""

END_HEIGHT = 7.6
DIP = 0.05
"""How far below its lowest control point a die may be, mm; those that are lower are drawn again."""

_CHANCES, _QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0), (1.4, 2.3, 3.75, 5.2, 6.3, 7.2, 7.7)
_SPLITS = ("train", "valid", "test")
_PUBLISHED = {"train": slice(0, 900), "valid": slice(900, 907), "test": slice(907, 987)}
_GROUP = {"cpu": 8, "cuda": 512}  # samples that are solved together
_FILLED = 8  # groups are filled up to whole vectors of the processor, in which all places are alike
_HALVINGS = 3
_MOST_IMBALANCE = 0.01  # of the die's work, in any frame; steps that are too long create energy at once


@dataclass(frozen=True)
class Pressed:
    """Samples, float32: die heights (n, I) at the top of the undeformed block, frames (n, 20, 4, I, J) in mm.

    The channels are x, y, u_x, u_y. Node i is the i-th from the right, node j the j-th from the top; die height k is
    the k-th from the left, as published, or from the right if the samples are aligned.
    """

    die: np.ndarray
    frames: np.ndarray

    def grid(self) -> Arrays:
        """One sample for each block: die (n, 1, I, J, 20), the same along J and time, to y (n, 4, I, J, 20).

        The relative L2 error of such a sample, over all values, is the published metric.
        """
        n, times, _, columns, rows = self.frames.shape
        x = np.broadcast_to(self.die[:, None, :, None, None], (n, 1, columns, rows, times))
        return Arrays(np.ascontiguousarray(x), np.ascontiguousarray(self.frames.transpose(0, 2, 3, 4, 1)))

    def by_time(self) -> Arrays:
        """One sample for each frame, as published models are called: die and time in [0, 1], x (n 20, 2, I, J), y."""
        n, times, channels, columns, rows = self.frames.shape
        x = np.empty((n, times, 2, columns, rows), np.float32)
        x[:, :, 0] = self.die[:, None, :, None]
        x[:, :, 1] = np.linspace(0, 1, times)[:, None, None]
        return Arrays(x.reshape(-1, 2, columns, rows), self.frames.reshape(-1, channels, columns, rows))


@dataclass(frozen=True)
class Account:
    """What the simulations of samples say about themselves, float64, (n,) each and as parts of the die's work."""

    imbalance: np.ndarray
    kinetic: np.ndarray
    hourglass: np.ndarray
    penetration: np.ndarray  # of nodes, mm, largest of all frames
    edges: np.ndarray  # of the top edge between nodes, mm, likewise
    halvings: np.ndarray  # how often the step was halved


class Plasticity(Problem):
    """Blocks of metal under falling dies: die profile to 20 frames of positions and displacements."""

    name: ClassVar[str] = "plasticity"
    summary: ClassVar[str] = "Plasticity: die profile to 20 frames of a pressed block, 101 x 31 nodes"
    card: ClassVar[str] = CARD

    train: int = Field(900, ge=1, description="training samples")
    valid: int = Field(80, ge=1, description="validation samples, from a stream of their own")
    test: int = Field(80, ge=1, description="test samples, never used for choices")
    poisson_ratio: float = Field(0.3, ge=0, le=0.5, description="of the metal; the published one is not known")
    coarsen: Literal[1, 2, 5, 10] = Field(1, description="every n-th node of the 101 x 31, each way")
    refine: Literal[1, 2] = Field(1, description="cells between two nodes of a sample while solving, each way")
    hourglass: float = Field(0.5, gt=0, le=1, description="resistance against modes that one point does not see")
    aligned: bool = Field(False, description="die heights in the order of the nodes; published ones run against it")

    @property
    def nodes(self) -> tuple[int, int]:
        """Columns I and rows J of a sample."""
        return COLUMNS // self.coarsen + 1, ROWS // self.coarsen + 1

    @property
    def grid_geometry(self) -> Grid:
        return Grid(shape=(*self.nodes, FRAMES), periodic=False)

    @property
    def channels(self) -> tuple[int, int]:
        return 1, 4

    def memory_bytes(self) -> int:
        columns, rows = self.nodes
        return 4 * (self.train + self.valid + self.test) * 5 * columns * rows * FRAMES

    def generate_on(self, device: str, progress: Progress) -> dict[str, Arrays]:
        return self.generate(progress, device)

    def generate(self, progress: Progress, device: str | torch.device = "cpu") -> dict[str, Arrays]:
        """The three splits with time as the last axis of the grid: see `Pressed.grid`."""
        wanted = [(split, sample) for split in _SPLITS for sample in range(getattr(self, split))]
        pressed, _ = self.simulate_samples(wanted, device, progress)
        splits, start = {}, 0
        for split in _SPLITS:
            stop = start + getattr(self, split)
            splits[split] = Pressed(pressed.die[start:stop], pressed.frames[start:stop]).grid()
            start = stop
        return splits

    def simulate_samples(
        self,
        wanted: list[tuple[str, int]],
        device: str | torch.device = "cpu",
        progress: Progress = ignore_progress,
    ) -> tuple[Pressed, Account]:
        """Samples given by split and number, in this order, and the account of their simulations.

        Args:
            wanted: such as [("train", 0), ("test", 3)].
            device: where to solve.
            progress: called as progress(stage, done, total), counted in samples.
        """
        if not wanted or any(split not in _SPLITS or sample < 0 for split, sample in wanted):
            raise DataError(f"expected pairs of a split ({', '.join(_SPLITS)}) and a number >= 0; got {wanted[:3]}")
        count, (columns, rows) = len(wanted), self.nodes
        heights = np.stack([self.die_heights(split, sample) for split, sample in wanted], 1)  # (9, n)
        frames = np.empty((count, FRAMES, 4, columns, rows), np.float32)
        account = np.zeros((6, count))
        pending, done = np.arange(count), 0
        for halvings in range(_HALVINGS + 1):
            group, threads = self._group(device, len(pending))
            places = [pending[start : start + group] for start in range(0, len(pending), group)]
            jobs = [(heights[:, place], 2**halvings) for place in places]
            failed: list[int] = []
            solved = in_order(lambda job: self._press(*job, device), jobs, device, threads)
            with contextlib.closing(solved):
                for place, (found, said, good) in zip(places, solved, strict=True):
                    frames[place[good]] = found[good]
                    account[:, place[good]] = said[:, good]
                    account[5, place] = halvings
                    failed += place[~good].tolist()
                    done += int(good.sum())
                    progress("generate", done, count)
            pending = np.array(failed, int)
            if not failed:
                break
        else:
            named = ", ".join(f"{split} {sample}" for split, sample in (wanted[k] for k in pending[:5]))
            raise SolverError(
                f"{len(pending)} blocks did not balance their energy with steps halved {_HALVINGS} times ({named}); "
                "use another seed, or a larger coarsen"
            )
        points = np.linspace(0, WIDTH, columns)
        die = Die(KNOTS, heights, SPEED).height(torch.from_numpy(points)[:, None].expand(-1, count))[0].numpy().T
        die = die + HEIGHT + ORIGIN[1]
        kept = np.ascontiguousarray(die[:, ::-1] if self.aligned else die, np.float32)
        return Pressed(kept, frames), Account(*account)

    def die_heights(self, split: str, sample: int) -> np.ndarray:
        """Heights of one die at KNOTS, above its own lowest point. (9,), float64"""
        stream = np.random.SeedSequence([self.seed, _SPLITS.index(split), sample])
        rng = np.random.Generator(np.random.Philox(stream))
        places = torch.linspace(0, WIDTH, 2001, dtype=torch.float64)[:, None]
        while True:
            heights = np.full(len(KNOTS), END_HEIGHT)
            heights[1:-1] = np.interp(rng.uniform(size=len(KNOTS) - 2), _CHANCES, _QUANTILES)
            heights[1 + rng.integers(len(KNOTS) - 2)] = 0
            lowest = float(Die(KNOTS, heights[:, None], SPEED).height(places)[0].min())
            if lowest > -DIP:
                return heights - lowest

    def blocks(self, heights: np.ndarray, device: str | torch.device = "cpu") -> Blocks:
        """Undeformed blocks under dies (9, b) that touch them."""
        columns, rows = ((n - 1) * self.refine + 1 for n in self.nodes)
        x, y = (torch.linspace(0, length, n, dtype=torch.float64) for length, n in ((WIDTH, columns), (HEIGHT, rows)))
        nodes = torch.stack((x.expand(rows, -1), y[:, None].expand(-1, columns)))
        held = torch.zeros(nodes.shape, dtype=torch.bool)
        held[1, 0] = True
        metal = PerfectPlastic(poisson_ratio=self.poisson_ratio)
        die = Die(KNOTS, HEIGHT + heights, SPEED, device)
        return Blocks(nodes, heights.shape[1], metal, die, held, hourglass=self.hourglass, device=device)

    def frame_steps(self, frame: int) -> int:
        """Steps from frame - 1 to frame: elements under the die become flatter, by a law that most dies keep."""
        size = HEIGHT / ROWS * self.coarsen / self.refine
        least = size * max(0.06, 0.66 * math.exp(-0.13 * (frame - 1)))
        speed = PerfectPlastic(poisson_ratio=self.poisson_ratio).wave_speed
        return math.ceil(INTERVAL * speed / (0.9 * least))

    def _press(
        self, heights: np.ndarray, factor: int, device: str | torch.device
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frames (b, 20, 4, I, J), account (6, b) and whether the steps were short enough (b,)."""
        count = heights.shape[1]
        spare = np.repeat(heights[:, :1], -count % _FILLED, 1)
        blocks = self.blocks(np.concatenate((heights, spare), 1), device)
        frames = np.empty((count, FRAMES, 4, *self.nodes), np.float32)
        start = blocks.x.clone()
        shift = torch.tensor(ORIGIN, dtype=torch.float64, device=start.device)[:, None, None, None]
        good = torch.ones(count, dtype=torch.bool)
        nodes = edges = torch.zeros(count, dtype=torch.float64)
        for frame in range(FRAMES):
            if frame:
                steps = factor * self.frame_steps(frame)
                blocks.advance(INTERVAL, steps)
                whole = (blocks.stable_step() > 0) & (blocks.energies().imbalance.abs() < _MOST_IMBALANCE)
                good &= whole.cpu()[:count]
                nodes = torch.maximum(nodes, blocks.penetration().cpu()[:count])
                edges = torch.maximum(edges, blocks.penetration(8).cpu()[:count])
            both = torch.cat((blocks.x + shift, blocks.x - start))[:, :: self.refine, :: self.refine, :count]
            frames[:, frame] = both.flip(1, 2).permute(3, 0, 2, 1).float().cpu().numpy()
        found = blocks.energies()
        parts = (found.imbalance, found.kinetic / found.external, found.hourglass / found.external)
        imbalance, kinetic, hourglass = (part.cpu()[:count] for part in parts)
        account = torch.stack((imbalance, kinetic, hourglass, nodes, edges, torch.zeros_like(edges)))
        return frames, account.numpy(), good.numpy()

    def _group(self, device: str | torch.device, count: int) -> tuple[int, int]:
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


def read_published(path: str | Path) -> dict[str, Pressed]:
    """The original file, or the folder it is in, split as published: the first 900 train, the last 80 test.

    `plas_N987_T20.mat` holds `input` (987, 101) and `output` (987, 101, 31, 20, 4). The 7 samples in between, which the
    published protocol leaves out, are "valid".
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    die, frames = read_mat(path, "input", (0, 1)), read_mat(path, "output", (0, 3, 4, 1, 2))
    n = _PUBLISHED["test"].stop
    shape = (n, FRAMES, 4, COLUMNS + 1, ROWS + 1)
    if die.shape != (n, COLUMNS + 1) or frames.shape != shape:
        raise DataError(
            f"{path}: expected 'input' (987, 101) and 'output' (987, 101, 31, 20, 4); got {die.shape} and, time "
            f"and channels in front, {frames.shape}; it is not the published file: get it again"
        )
    expected = reference_nodes()
    for sample in frames:
        if not np.allclose(sample[:, :2] - sample[:, 2:], expected, rtol=0, atol=1e-3):
            raise DataError(
                f"{path}: positions less displacements are not the undeformed nodes; it is not the published file: get "
                "it again"
            )
    return {split: Pressed(die[part], frames[part]) for split, part in _PUBLISHED.items()}


def reference_nodes() -> np.ndarray:
    """The published undeformed nodes, x = 0.35 - 0.5 i, y = 14.9 - 0.5 j. (2, 101, 31), float32"""
    x, y = np.arange(COLUMNS, -1, -1) * WIDTH / COLUMNS, np.arange(ROWS, -1, -1) * HEIGHT / ROWS
    return np.stack(np.meshgrid(x + ORIGIN[0], y + ORIGIN[1], indexing="ij")).astype(np.float32)


def published_normaliser(die: np.ndarray) -> tuple[float, float]:
    """Shift and scale of the die heights, from the training split: encoded = (die - shift) / scale.

    One mean and one standard deviation (+ 1e-8) of all values; the target is left as it is.
    """
    return float(die.mean(dtype=np.float64)), float(die.std(dtype=np.float64, ddof=1)) + 1e-8
