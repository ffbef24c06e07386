"""Speed on this machine, measured side by side.

`model`: HOFNO against the plain form of the same network with the same weights, as the published code writes it. Both
must agree, outputs and gradients, before either is timed; then they take turns, so that whatever else the machine does
hits both.

`transform`: matrix products against the FFT over sizes, modes, dimensions and paddings, and how often `choose_method`
picks the faster. Its weight in `hofno.transforms.fourier` was set with this.
"""

from __future__ import annotations

from pathlib import Path

from hofno.bench.models import SHAPES, run_models
from hofno.bench.transforms import model_case, run_transforms, transform_cases
from hofno.errors import HofnoError
from hofno.geometry import choose

FORWARD_ROUNDS, STEP_ROUNDS, TRANSFORM_ROUNDS = 15, 9, 9


def bench_command(what: str, shape: str, batch: int, json_path: Path | None) -> None:
    """Measure, print a table, and write the numbers to `json_path` if there is one."""
    choose(what, ("model", "transform"), "what")
    choose(shape, ("all", *SHAPES), "shape")
    if batch < 1:
        raise HofnoError(f"batch must be at least 1; got {batch}")
    names = list(SHAPES) if shape == "all" else [shape]
    if what == "model":
        run_models({name: SHAPES[name] for name in names}, batch, (FORWARD_ROUNDS, STEP_ROUNDS), json_path)
    else:
        cases = [model_case(SHAPES[name]) for name in names] + (transform_cases() if shape == "all" else [])
        run_transforms(cases, batch, TRANSFORM_ROUNDS, json_path)
