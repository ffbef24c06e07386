"""Published test errors, as data: (mean, standard deviation) per model order and number of layers.

The numbers are copied as printed and carry their source with them. They were measured on the authors' own
data, so they stand beside a measured number, never in one average with it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from hofno.errors import SpecError

POISSON_DEGREES = (1, 2, 3, 5)
POISSON_ORDERS = (1, 2, 3, 5)
POISSON_DEPTHS = (1, 2, 4, 8, 16)
POISSON_DECIMALS = 5
"""Decimals printed in the Poisson tables; more digits than these are not known."""


NAVIER_STOKES_VISCOSITIES = (1e-3, 1e-4, 1e-5)


@cache
def _file(name: str) -> dict[str, Any]:
    return json.loads(resources.files("hofno.report").joinpath("data", f"{name}.json").read_text("utf-8"))


def poisson(degree: int) -> dict[tuple[int, int], dict[str, tuple[float, float]]]:
    """Test errors on the Poisson problem with a source of the given polynomial degree.

    Returns `{(order, depth): {"mse": (mean, std), "rel_l2": (mean, std)}}`; order 1 is the FNO, depth the
    number of layers. `mse` is on standardised targets, so it compares with our `mse_standardised`.
    """
    if degree not in POISSON_DEGREES:
        raise SpecError(f"expected a published degree, one of {POISSON_DEGREES}, got {degree!r}; choose one of these")
    cells = _file("poisson")["degrees"][str(degree)]["cells"]
    return {
        (cell["order"], cell["depth"]): {
            metric: (float(cell[metric][0]), float(cell[metric][1])) for metric in ("mse", "rel_l2")
        }
        for cell in cells
    }


def poisson_source() -> str:
    """Where the Poisson numbers come from and what they mean, as one paragraph."""
    file = _file("poisson")
    return f"{file['source']}. {file['note']}"


def navier_stokes_one_frame(viscosity: float) -> list[dict[str, Any]]:
    """Rows of the table of one frame to the next: label, order, parameters, and mse, rel_l2, rollout (None: not given).

    mse and rel_l2 are of single steps, so they compare with our one_step_mse and one_step_rel_l2.
    """
    if viscosity not in NAVIER_STOKES_VISCOSITIES:
        raise SpecError(
            f"expected a published viscosity, one of {NAVIER_STOKES_VISCOSITIES}, got {viscosity!r}; choose one of them"
        )
    rows = _file("navier_stokes")["one_frame"]["viscosities"]
    return [dict(row) for key, found in rows.items() if float(key) == viscosity for row in found]


def benchmarks() -> tuple[str, ...]:
    """Problems of the main table, in its order."""
    return tuple(_file("main_table")["benchmarks"])


def main_table(problem: str) -> dict[str, float]:
    """Relative L2 error on a benchmark of the main table, by model; the best first."""
    file = _file("main_table")
    if problem not in benchmarks():
        known = ", ".join(benchmarks())
        raise SpecError(f"expected a benchmark of the main table, one of {known}, got {problem!r}; choose one of these")
    found = {model: values[problem] for model, values in file["models"].items() if problem in values}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def main_table_source(problem: str) -> str:
    """Where the main table comes from and what its column means."""
    file = _file("main_table")
    return f"{file['source']}. {file['benchmarks'][problem]} {file['note']}"


def navier_stokes_source() -> str:
    """Where the numbers of one frame to the next come from and what they mean."""
    file = _file("navier_stokes")
    return f"{file['source']}, {file['one_frame']['table']}. {file['one_frame']['note']}"


def bands(problem: str) -> dict[str, dict[str, float]]:
    """Relative errors by band of wavenumbers: model -> full, low, medium, high; nothing of most problems."""
    return {model: dict(values) for model, values in _file("bands")["rel_l2"].get(problem, {}).items()}


def structures() -> dict[str, float]:
    """Errors of an order-2 HO-FNO on Darcy by the structure of its factors, in the order of the table."""
    return dict(_file("darcy_structure")["rel_l2"])


def sphere() -> dict[str, dict[str, float]]:
    """Rows of the table of the sphere by model: mse, rel_l2 of single steps, each window of steps, rollout."""
    return {model: dict(values) for model, values in _file("shallow_water")["models"].items()}


def sphere_windows() -> dict[str, tuple[int, int]]:
    """Windows of the steps of a rollout, as half-open ranges that count from 0, under the names of the table."""
    return {name: (int(first), int(end)) for name, (first, end) in _file("shallow_water")["windows"].items()}


def efficiency(problem: str) -> dict[str, dict[str, float]]:
    """Cost on a problem by network: seconds of an epoch of training and of prediction, and memory in GB."""
    problems = _file("efficiency")["problems"]
    if problem not in problems:
        raise SpecError(
            f"expected a problem whose cost is published, one of {', '.join(problems)}, got {problem!r}; choose one of "
            "these, or leave published out"
        )
    return {network: dict(values) for network, values in problems[problem].items()}


def efficiency_device() -> str:
    """What the published costs were measured on."""
    return _file("efficiency")["device"]


def source(name: str) -> str:
    """Where the numbers of a file ("bands", "darcy_structure", "efficiency", "shallow_water") come from, and a note."""
    file = _file(name)
    return f"{file['source']}. {file['note']}"
