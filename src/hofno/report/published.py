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


@cache
def _poisson_file() -> dict[str, Any]:
    return json.loads(resources.files("hofno.report").joinpath("data", "poisson.json").read_text("utf-8"))


def poisson(degree: int) -> dict[tuple[int, int], dict[str, tuple[float, float]]]:
    """Test errors on the Poisson problem with a source of the given polynomial degree.

    Returns `{(order, depth): {"mse": (mean, std), "rel_l2": (mean, std)}}`; order 1 is the FNO, depth the
    number of layers. `mse` is on standardised targets, so it compares with our `mse_standardised`.
    """
    if degree not in POISSON_DEGREES:
        raise SpecError(f"expected a published degree, one of {POISSON_DEGREES}, got {degree!r}; choose one of these")
    cells = _poisson_file()["degrees"][str(degree)]["cells"]
    return {
        (cell["order"], cell["depth"]): {
            metric: (float(cell[metric][0]), float(cell[metric][1])) for metric in ("mse", "rel_l2")
        }
        for cell in cells
    }


def poisson_source() -> str:
    """Where the Poisson numbers come from and what they mean, as one paragraph."""
    file = _poisson_file()
    return f"{file['source']}. {file['note']}"
