r"""Shallow water on a rotating planet: height and velocity every hour, on a grid of latitudes and longitudes.

    u_t = -u.grad u - f k x u - g grad h - nu Laplace^2 u
    h_t = -div(u (H + h - b)) - nu Laplace^2 h + F(t)

The planet's ground b, the source F and the laws of the initial flows are in `planet`. A flow starts near balance and is
left to itself for `spin_up` hours, after which its frames begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import BaseModel, Field, model_validator

from hofno.errors import SolverError
from hofno.geometry import Sphere
from hofno.problems.base import SEEDS, Progress, Trajectories
from hofno.problems.flows import Flow, Simulated
from hofno.problems.groups import too_little_memory
from hofno.problems.planet import ground, source_of_height, streamfunctions
from hofno.problems.quantities import Quantities, called
from hofno.problems.trajectories import split_frames
from hofno.solvers.memory import free_bytes, gibibytes
from hofno.solvers.shallow_water import HOUR, ShallowWaterSolver, tables_bytes

CARD = """\
# Shallow water on a rotating sphere (after PlanetSWE of The Well)

**Equations.** u_t = −u·∇u − f k×u − g∇h − ν∇⁴u and h_t = −∇·(u(H + h − b)) − ν∇⁴h + F on a sphere of radius
R = 6.37122e6 m with Ω = 7.292e-5 1/s, g = 9.80616 m/s². h is the height of the surface over its mean H = 5500 m and b
the ground. F = 2 m/h · cos(φ − 2πt/24 h) · exp(−(lat − 0.4 sin(2πt/1008 h))²/σ²), σ = 2π/3: a day and a year.
**Task.** Height in m, and velocity to the south (u_theta) and to the east (u_phi) in m/s, one hour to the next. 50
trajectories of 100 hours, 128 rows from north to south at (j + 1/2)π/128, 256 columns (the paper writes 256 x 128).
**Protocol.** One frame to the next, rolled out from the first frame; the paper gives errors of one step, and of
rollouts over the frames 0:10, 11:25, 26:50 and all.
**Errors.** Over all three fields as they are, and over the points of the grid: wind is 0.2 % of the square of a frame,
and polar rows count as much as others. Errors of each field stand beside them.
**Splits.** By trajectory. The paper states none; here 80, 10 and 10 %, as The Well has: 40 train, 5 valid, 5 test.
**Inputs.** A jet in each hemisphere and random eddies, in nonlinear balance, then `spin_up` = 252 hours.
**Sizes.** Deviations of height, u_theta and u_phi after 264 hours, over the points of three samples (and published):
361 m, 5.9 and 13.1 m/s (297, 7.2, 13.9); of their change in an hour 5.3 m, 0.33 and 0.29 m/s (4.0, 0.33, 0.26)
(`results/checks/shallow_water_statistics.json`).
**Solver.** Spherical harmonics of degree below 86, products dealiased on 128 x 256 Gauss nodes, ETDRK4 with steps of
20 minutes, gravity waves and hyperviscosity exact, float64.
**Cost.** One trajectory is 351 hours of 12 evaluations, 8 trajectories at a time: 265 hours of 8 took 413 s of one core
of a busy CPU, so that all 50 take about an hour.

Known flaws
- The published initial states are from ERA5, which is not available here: ours are random flows of about the same
  size. The samples are not the published ones, and have more waves and less wind to the north and south.
- The ground is a smooth random field (degrees up to 20, land on 40 % of the sphere, highest point 2000 m), the same
  for all samples and seeds, and not Earth's.
- The published solver keeps degrees up to 255 with ν = 1.6e14 m⁴/s; with 86 degrees that would not remove what comes
  down to the smallest scales, and ν = 1e15 m⁴/s here, with which the last degree decays in 9 hours.
- The published code seems to take its ground relative to H, which makes the water 2H deep. Here its depth is H on
  average, as the published equations say; `mean_height = 11000` gives the other.
- σ is that of the published code; its description says π/2. F at the poles is not smooth, as published.
- The published rows run from south to north, between those of a grid of 257 intervals; here from north to south.
- All samples have the same time of day and of year; frames begin at hour `spin_up`.
- Another device, version or count of threads rounds differently. An interrupted or extended generation does not.
"""

FIELDS = ("height", "u_theta", "u_phi")

_GROUP = {"cpu": 8, "cuda": 64}  # samples that are advanced together, at most


class Weather(BaseModel):
    """How a planet's water is solved and drawn, for its flows and for the problem that is made of them."""

    rows: int = Field(128, ge=8, description="rows of a frame, from north to south")
    columns: int = Field(256, ge=16, description="columns of a frame, eastwards")
    degrees: int = Field(86, ge=8, le=512, description="spherical harmonics of lower degree are solved for")
    spin_up: int = Field(252, ge=0, description="hours before the first frame")
    mean_height: float = Field(5500.0, gt=0, description="H in m, the mean height of the surface")
    hyperviscosity: float = Field(1e15, ge=0, description="nu in m^4/s")
    orography: float = Field(2000.0, ge=0, description="height of the highest point of the ground in m")
    forcing: float = Field(2.0, ge=0, description="amplitude of the source of height in m per hour")
    ground: int = Field(0, ge=0, lt=SEEDS, description="seed of the ground, the same one for all samples")
    step: float = Field(1200.0, gt=0, le=HOUR, description="largest time step of the solver in seconds")
    precision: Literal["float64", "float32"] = Field("float64", description="arithmetic of the solver")

    @model_validator(mode="after")
    def _water_everywhere(self) -> Self:
        if self.orography > 0.8 * self.mean_height:
            raise ValueError(
                f"the ground must stay well below the water, orography <= 0.8 mean_height; got orography="
                f"{self.orography:g} and mean_height={self.mean_height:g}; lower the one or raise the other"
            )
        return self


class ShallowWaterFlow(Weather, Flow):
    """Trajectories of height and velocity, (samples, frames, 3, rows, columns)."""

    name: ClassVar[str] = "shallow_water"

    samples: int = Field(50, ge=1, description="trajectories")
    frames: int = Field(100, ge=1, description="frames, one an hour")

    @property
    def frame_shape(self) -> tuple[int, ...]:
        return len(FIELDS), self.rows, self.columns

    @property
    def hidden(self) -> int:
        return self.spin_up

    def most_together(self, device: torch.device) -> int:
        return _GROUP["cuda" if device.type == "cuda" else "cpu"]

    def simulator(self, device: str | torch.device = "cpu") -> WaterSimulator:
        return WaterSimulator(self, device)

    def too_little(self, bytes_each: int, device: torch.device, free: int) -> SolverError:
        return too_little_memory(f"at degrees={self.degrees}", bytes_each, device, free, lower="degrees")


class WaterSimulator:
    """Solves the flows of samples that lie in one group."""

    def __init__(self, flow: ShallowWaterFlow, device: str | torch.device = "cpu") -> None:
        self.flow, self.device = flow, torch.device(device)
        free, needed = free_bytes(self.device), tables_bytes(flow.degrees)
        if free is not None and needed > free:
            raise SolverError(
                f"the tables of {flow.degrees} degrees need {gibibytes(needed)} on {self.device} and {gibibytes(free)} "
                "are free; free some memory, lower degrees or choose another device"
            )
        dtype = torch.float64 if flow.precision == "float64" else torch.float32
        flat = ShallowWaterSolver(flow.degrees, flow.mean_height)
        source = source_of_height(flat.colatitude, flat.longitude, flow.forcing / HOUR, self.device)
        self.solver = ShallowWaterSolver(
            flow.degrees,
            flow.mean_height,
            flow.hyperviscosity,
            orography=ground(flat, flow.orography, flow.ground) if flow.orography > 0 else None,
            forcing=source if flow.forcing > 0 else None,
            step=flow.step,
            dtype=dtype,
            device=device,
        )

    def bytes_each(self) -> int:
        return self.solver.bytes_per_field()

    def run(self, start: int, stop: int, group: int) -> Iterator[np.ndarray | None]:
        """None for every hour of the spin-up, then frame after frame, (b, 3, rows, columns)."""
        flow, solver, first = self.flow, self.solver, start - start % group
        wanted = slice(start - first, stop - first)
        asked = [sample if start <= sample < stop else None for sample in range(first, first + group)]
        state = solver.balanced(streamfunctions(solver, flow.seed, asked))  # always of a whole group, to the same bits
        for hour in range(flow.spin_up + flow.frames):
            if hour >= flow.spin_up:
                fields = solver.fields_of(state, flow.rows, flow.columns, "equiangular")[wanted]
                yield fields.float().cpu().numpy()
            else:
                yield None
            if hour == flow.spin_up + flow.frames - 1:
                return
            try:
                solver.advance_(state, HOUR, hour * HOUR)
            except SolverError as error:
                raise SolverError(f"hour {hour} of the batch from sample {first} on: {error}") from None


class ShallowWater(Weather, Simulated):
    """Height and velocity of one hour to those of the next."""

    name: ClassVar[str] = ShallowWaterFlow.name
    summary: ClassVar[str] = "Shallow water on a rotating sphere: height and velocity, hour by hour"
    card: ClassVar[str] = CARD

    samples: int = Field(50, ge=3, description="trajectories; train + valid + test")
    train: int = Field(40, ge=1, description="training trajectories, the first ones; 80 % of samples")
    valid: int = Field(5, ge=1, description="validation trajectories; 10 % of samples")
    test: int = Field(5, ge=1, description="test trajectories, the last ones; 10 % of samples; never used for choices")
    frames: int = Field(100, ge=2, description="frames, one an hour")

    @model_validator(mode="before")
    @classmethod
    def _counts(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Fill in what follows: samples = train + valid + test, a tenth for each of the last two, start and horizon."""
        if (filled := cls.with_defaults(given)) is None:
            return given
        if "samples" in given:
            tenth = max(1, filled["samples"] // 10)
            filled |= {key: given.get(key, tenth) for key in ("valid", "test")}
            filled["train"] = given.get("train", filled["samples"] - filled["valid"] - filled["test"])
        else:
            filled["samples"] = filled["train"] + filled["valid"] + filled["test"]
        cls.fill_times(filled)
        return filled

    @model_validator(mode="after")
    def _possible(self) -> ShallowWater:
        if self.train + self.valid + self.test != self.samples:
            raise ValueError(
                f"samples must be train + valid + test, here {self.train} + {self.valid} + {self.test}; got "
                f"samples={self.samples}; leave one of them out"
            )
        self.refuse_times()
        return self

    @property
    def flow(self) -> ShallowWaterFlow:
        """The trajectories this problem is made of."""
        return ShallowWaterFlow(**self.model_dump(include=set(ShallowWaterFlow.model_fields)))

    @property
    def grid_geometry(self) -> Sphere:
        return Sphere(shape=(self.rows, self.columns), nodes="equiangular")

    @property
    def quantities(self) -> Quantities:
        return Quantities(targets=called("height (m)", "southward wind (m/s)", "eastward wind (m/s)"))

    @property
    def fields(self) -> int:
        return len(FIELDS)

    def simulate(self, progress: Progress, folder: Path | None, device: str, again: bool = False) -> Trajectories:
        """Of all splits, train first and test last; the three fields of a frame are channels one after the other."""
        frames = self.flow.trajectories(device, progress, folder, again)
        frames = frames.reshape(len(frames), -1, self.rows, self.columns)
        first, last = self.train, self.train + self.valid
        return split_frames(frames, slice(first), slice(first, last), slice(last, None), self.rollout, self.start)
