"""Speed on this machine, measured side by side.

`model`: HOFNO against the plain form of the same network with the same weights, as the published code writes it. Both
must agree, outputs and gradients, before either is timed; then they take turns, so that whatever else the machine does
hits both.

`peers`: the same and neuraloperator's FNO of equal work, over resolution and batch, with memory and a plot of how cost
grows. Needs the extra `bench`.

`engine`: the training step as training takes it, in each precision, with CUDA graphs and memory, beside the plain form.

`transform`: matrix products against the FFT over sizes, modes, dimensions and paddings, and how often `choose_method`
picks the faster. Its weight in `hofno.transforms.fourier` was set with this.

`study`: what the networks of a study cost, each as it is trained and evaluated, see `hofno.bench.study`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hofno.bench.models import SHAPES, run_models
from hofno.bench.transforms import model_case, run_transforms, transform_cases
from hofno.errors import HofnoError
from hofno.geometry import choose
from hofno.storage import check_writable

FORWARD_ROUNDS, STEP_ROUNDS, TRANSFORM_ROUNDS = 15, 9, 9


def bench_command(what: str, shape: str, batch: int, json_path: Path | None) -> dict[str, Any]:
    """Measure, print a table, write the numbers to `json_path` if there is one, and return them."""
    choose(what, ("model", "engine", "peers", "transform"), "what")
    choose(shape, ("all", *SHAPES), "shape")
    if batch < 1:
        raise HofnoError(f"batch must be at least 1; got {batch}")
    if json_path is not None:
        check_writable(json_path)
    names = list(SHAPES) if shape == "all" else [shape]
    if what == "model":
        return run_models({name: SHAPES[name] for name in names}, batch, (FORWARD_ROUNDS, STEP_ROUNDS), json_path)
    if what == "engine":
        from hofno.bench.engine import run_engine

        return run_engine({name: SHAPES[name] for name in names}, batch, STEP_ROUNDS, json_path)
    if what == "peers":
        from hofno.bench.peers import Sweep, run_peers

        return run_peers({name: SHAPES[name] for name in names}, batch, Sweep(), json_path)
    cases = [model_case(SHAPES[name]) for name in names] + (transform_cases() if shape == "all" else [])
    return run_transforms(cases, batch, TRANSFORM_ROUNDS, json_path)
