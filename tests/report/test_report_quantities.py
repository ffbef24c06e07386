"""Errors of single fields: of every model that has some, with names and units as far as they are known."""

from __future__ import annotations

from typing import Any

from hofno.problems.quantities import called
from hofno.report.page import Page
from hofno.report.quantities import errors_of_fields
from hofno.report.tables import summarise

FIELDS = {"rel_l2_field_1": 0.1, "rel_l2_field_2": 0.2, "rmse_field_1": 3.0, "rmse_field_2": 6.0}


def run(label: str, **errors: float) -> dict[str, Any]:
    metrics = {"rel_l2": 0.1, "mse": 0.01, **errors}
    parameters = {"real": 1, "complex_once": 1}
    return {
        **{"label": label, "cell": {"label": label}, "seed": 0, "seconds": 1.0},
        **{"metrics": metrics, "parameters": parameters},
    }


def told(runs: list[dict[str, Any]], *targets: str) -> list[str]:
    """The lines of its tables."""
    page = Page("t", "l")
    errors_of_fields(page, runs, summarise(runs), called(*targets))
    return [line for line in page.markdown().splitlines() if line.startswith("| ") and "---" not in line]


def test_relative_errors_have_no_unit_and_others_have_that_of_their_field() -> None:
    assert told([run("A", **FIELDS)], "head (m)", "flux") == [
        *("| rel. L2 of one field | head | flux |", "| A | 0.100 | 0.200 |"),
        *("| root mean square error | head (m) | flux |", "| A | 3.00 | 6.00 |"),
    ]


def test_fields_that_only_later_models_have_are_told() -> None:
    """As in a sweep over `data.pressure`; names that are not those of all fields are no help."""
    assert told([run("A"), run("B", **FIELDS)], "Mach number")[:3] == [
        "| rel. L2 of one field | field 1 | field 2 |",
        "| A | – | – |",
        "| B | 0.100 | 0.200 |",
    ]


def test_of_one_field_nothing_is_told() -> None:
    assert told([run("A")], "head (m)") == []
