"""Errors of Navier-Stokes frames: ours in float64 and in float32, and the published scheme in both.

    published:  w^ <- [(1 - h a / 2) w^ + h (f^ - mask (u.grad w)^)] / (1 + h a / 2),    a = 4 pi^2 nu |k|^2,  h = 1e-4

Forward Euler for advection and forcing, Crank-Nicolson for viscosity, products in physical space, the 2/3 mask on the
product. All runs start from the same initial field, made in float64. Both kinds keep the modes |k_x|, |k_y| <= 85 of
256 points, on which products are exact: they differ in time stepping and rounding alone. Errors are relative L2 on the
strided frame, against our own solver in float64 with a step small enough.

python tools/navier_stokes_precision.py FOLDER          run what is missing in FOLDER, write results/checks

Every simulated second is kept in FOLDER: an interrupted run goes on from there. About 75 minutes on one CPU thread.
"""

from __future__ import annotations

import io
import math
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hofno import storage
from hofno.problems.navier_stokes import PUBLISHED, NavierStokesFlow
from hofno.train.state import device_name
from hofno.versions import versions

RECORD = Path(__file__).resolve().parent.parent / "results" / "checks" / "navier_stokes_precision.json"
PUBLISHED_STEP = 1e-4
SAMPLES = {1e-5: 2, 1e-4: 1, 1e-3: 1}
HALVINGS = {1e-5: 3, 1e-4: 2, 1e-3: 2}  # of the default step, to the reference


@dataclass(frozen=True)
class Run:
    """One sample advanced by one scheme."""

    scheme: Literal["ours", "published"]
    viscosity: float
    sample: int
    step: float
    precision: Literal["float64", "float32"]

    @property
    def name(self) -> str:
        return f"{self.scheme}_{self.precision}_nu{self.viscosity:g}_step{self.step:g}_sample{self.sample}"

    @property
    def flow(self) -> NavierStokesFlow:
        step = self.step if self.scheme == "ours" else default_step(self.viscosity)
        return NavierStokesFlow(**{**PUBLISHED[self.viscosity], "step": step, "precision": self.precision})


class Ours:
    """The solver of the problem; the state is its modes, (1, M)."""

    def __init__(self, flow: NavierStokesFlow) -> None:
        self.solver = flow.solver()

    def start(self, w: Tensor) -> Tensor:
        return self.solver.modes_of(w)

    def second(self, state: Tensor) -> Tensor:
        return self.solver.advance_modes_(state, 1.0)

    def field(self, state: Tensor) -> Tensor:
        return self.solver.field_of(state)


class Published:
    """The published scheme in the precision of the flow; the state is rfft2 of the field, (1, N, N // 2 + 1)."""

    def __init__(self, flow: NavierStokesFlow, step: float = PUBLISHED_STEP) -> None:
        n = self.resolution = flow.solver_resolution
        self.step, self.dtype = step, getattr(torch, flow.precision)
        kx = torch.fft.fftfreq(n, 1 / n, dtype=self.dtype)[:, None].expand(n, n // 2 + 1)
        ky = torch.fft.rfftfreq(n, 1 / n, dtype=self.dtype).expand(n, n // 2 + 1)
        laplacian = 4 * math.pi**2 * (kx**2 + ky**2)  # of -psi
        laplacian[0, 0] = 1
        dx, dy = 2j * math.pi * kx, 2j * math.pi * ky
        self.derive = torch.stack((dy / laplacian, dx, -dx / laplacian, dy))  # u, w_x, v, w_y
        self.mask = (kx.abs() <= n / 3) & (ky.abs() <= n / 3)
        # in float32 as in float64 formed as written: 1 -+ h a / 2 is rounded, and h a / 2 is 2e-8 for the longest waves
        self.before = 1 - step / 2 * flow.viscosity * laplacian
        self.after = 1 + step / 2 * flow.viscosity * laplacian
        x = torch.arange(n, dtype=torch.float64) / n
        angle = 2 * math.pi * (x[:, None] + x)
        self.push = step * self.start(0.1 * (torch.sin(angle) + torch.cos(angle))[None])

    def start(self, w: Tensor) -> Tensor:
        return torch.fft.rfft2(w.to(self.dtype))

    def second(self, state: Tensor) -> Tensor:
        n = self.resolution
        for _ in range(round(1 / self.step)):
            u, w_x, v, w_y = torch.fft.irfft2(state * self.derive, s=(n, n))
            advection = torch.fft.rfft2(u * w_x + v * w_y).mul_(self.mask)
            state = self.push.sub(advection, alpha=self.step).add_(self.before * state).div_(self.after)
        return state

    def field(self, state: Tensor) -> Tensor:
        return torch.fft.irfft2(state, s=(self.resolution, self.resolution))


def default_step(viscosity: float) -> float:
    return NavierStokesFlow(**PUBLISHED[viscosity]).step


def runs() -> list[Run]:
    """The runs of the record, the wanted ones first."""
    found = []
    for viscosity, samples in SAMPLES.items():
        step, every = default_step(viscosity), range(samples)
        found += [Run("ours", viscosity, i, step, precision) for precision in ("float64", "float32") for i in every]
        finer = [step / 2 ** (halving + 1) for halving in range(HALVINGS[viscosity])]
        found += [Run("ours", viscosity, i, smaller, "float64") for smaller in finer for i in every]
        if viscosity == 1e-5:
            kinds = ("float64", "float32")
            found += [Run("published", viscosity, i, PUBLISHED_STEP, precision) for precision in kinds for i in every]
    return found


@torch.no_grad()
def frames_of(run: Run, folder: Path) -> tuple[np.ndarray, float]:
    """The frames of a run, (frames, h, w) in float64, and the seconds they took; goes on from what the folder holds."""
    flow, path = run.flow, folder / f"{run.name}.npz"
    scheme = Ours(flow) if run.scheme == "ours" else Published(flow, run.step)
    stride = flow.solver_resolution // flow.resolution
    if path.exists():
        with np.load(path) as kept:
            state, frames, seconds = torch.from_numpy(kept["state"]), list(kept["frames"]), float(kept["seconds"])
    else:
        exact = flow.model_copy(update={"precision": "float64"}).solver()
        w = exact.field_of(flow.initial_modes(run.sample, run.sample + 1, exact))
        state, frames, seconds = scheme.start(w), [], 0.0
    while len(frames) < flow.frames:
        begun = time.perf_counter()
        state = scheme.second(state)
        seconds += time.perf_counter() - begun
        frames.append(scheme.field(state)[0, ::stride, ::stride].double().numpy())
        buffer = io.BytesIO()
        np.savez(buffer, state=state.numpy(), frames=np.stack(frames), seconds=np.float64(seconds))
        storage.write_bytes(path, buffer.getvalue())
        print(f"{run.name}: t = {len(frames)}, {seconds:.0f} s", flush=True)
    return np.stack(frames), seconds


def relative_l2(found: np.ndarray, reference: np.ndarray) -> list[float]:
    """Frame by frame. (frames, h, w) -> frames"""
    axes = (-2, -1)
    return (np.linalg.norm(found - reference, axis=axes) / np.linalg.norm(reference, axis=axes)).tolist()


def rows(folder: Path) -> list[dict[str, Any]]:
    """One row for each run: its errors against the reference of its viscosity and sample."""
    made = {run: frames_of(run, folder) for run in runs()}
    found = []
    for run, (frames, seconds) in made.items():
        step = default_step(run.viscosity) / 2 ** HALVINGS[run.viscosity]
        reference = Run("ours", run.viscosity, run.sample, step, "float64")
        if run != reference:
            row = {"scheme": run.scheme, "precision": run.precision, "viscosity": run.viscosity, "sample": run.sample}
            errors = relative_l2(frames, made[reference][0])
            found.append({**row, "step": run.step, "rel_l2": errors, "seconds": round(seconds, 1)})
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print(f"expected one folder for the kept states; got {len(sys.argv) - 1} arguments", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    found = rows(folder)
    flow = NavierStokesFlow(**PUBLISHED[1e-5])
    settings = {
        "initial_fields": "samples of the seed, made in float64 up to the 2/3 cutoff, the same for all runs",
        "metric": "relative L2 on the strided frame in float64; rel_l2[i] is at t = i + 1",
        "published_scheme": "forward Euler and Crank-Nicolson, rfft2, products in physical space, 2/3 mask",
        "reference": {
            f"{viscosity:g}": f"ours in float64, step {default_step(viscosity) / 2**halvings:g}"
            for viscosity, halvings in HALVINGS.items()
        },
        "resolution": flow.resolution,
        "seconds": "of a machine busy with other work",
        "seed": flow.seed,
        "solver_resolution": flow.solver_resolution,
    }
    record = {
        "created": date.today().isoformat(),
        "device": device_name(torch.device("cpu")),
        "name": "navier_stokes_precision",
        "origin": "generated",
        "problem": "navier_stokes",
        "rows": found,
        "schema": 1,
        "settings": settings,
        "versions": versions(),
    }
    storage.write_json(RECORD, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
