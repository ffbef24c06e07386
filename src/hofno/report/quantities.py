"""Errors of each quantity alone, relative and in its unit, and those of the mean of the training targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hofno.problems.quantities import Quantity
from hofno.report import tables
from hofno.report.digits import number
from hofno.report.page import Page

FIELD, IN_UNITS = "rel_l2_field_", "rmse_field_"
WEIGHTS = "All other errors are over the fields as they are, so that large numbers weigh most."

MEAN = "mean of the training targets"
"""What stands in tables as a model that is given no input."""


def from_to(values: Sequence[float]) -> str:
    """A number, or the least and the largest of those that are told apart."""
    ends = dict.fromkeys(map(number, (min(values), max(values))))
    return " to ".join(ends)


def errors_of_mean(runs: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """What the mean of the training targets scores on the data of each run, where it was measured."""
    return [run["mean_target"][key] for run in runs if key in run.get("mean_target", {})]


def errors_of_fields(
    page: Page, runs: Sequence[Mapping[str, Any]], rows: Sequence[tables.Summary], targets: Sequence[Quantity]
) -> None:
    """Where there are several fields, the errors of each alone, relative and in its unit."""
    relative = _of_fields(rows, FIELD, [target.name for target in targets])
    absolute = _of_fields(rows, IN_UNITS, list(map(str, targets)))
    for title, fields in (("rel. L2 of one field", relative), ("root mean square error", absolute)):
        if fields:
            cells = [[row.label, *(tables.metric_cell(row, key) for key in fields)] for row in rows]
            known = [errors_of_mean(runs, key) for key in fields]
            cells += [[MEAN, *map(from_to, known)]] if all(known) else []
            page.table([title, *fields.values()], cells)
    if relative:
        order = "" if len(targets) == len(relative) else "Fields are the target channels, in their order. "
        frames = "Over all frames of a rollout. " * ("rollout" in rows[0].metrics)
        units = "Root mean squares are over points and test samples. " * bool(absolute)
        page.text(f"{order}{frames}{units}{WEIGHTS}")


def _of_fields(rows: Sequence[tables.Summary], key: str, names: Sequence[str]) -> dict[str, str]:
    """Names of the fields that have errors of this kind, by their metrics; where some are not known, their numbers."""
    found = sorted({int(name.removeprefix(key)) for row in rows for name in row.metrics if name.startswith(key)})
    known = len(names) >= max(found, default=0)
    return {f"{key}{place}": names[place - 1] if known else f"field {place}" for place in found}
