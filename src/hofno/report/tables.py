"""Tables of a results file: mean ± sample standard deviation over seeds, per cell of a study.

A results file holds one run per (cell, seed). `summarise` groups the runs by cell,

    mean = Σ e_i / n,   std = sqrt(Σ (e_i - mean)² / (n - 1))   (unknown for one seed),

and the tables show these with three significant digits. Both parameter counts stand wherever one does: `real`
counts a complex weight as two numbers, `complex_once` counts it as one. Seconds are averaged over runs that were
measured alike: with the same work beside them, on the same device.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hofno.errors import DataError
from hofno.report.digits import as_printed, number, plus_minus
from hofno.report.markup import cell_markdown
from hofno.report.published import POISSON_DECIMALS, POISSON_DEPTHS, POISSON_ORDERS
from hofno.report.published import poisson as published_poisson

MARK = "\n**above**"
NARROW = 13
"""Letters of a line in a column of numbers."""

MISSING = "\N{EN DASH}"
MEASURED_AS = {"mse": "mse_standardised", "rel_l2": "rel_l2"}
"""Name of a published Poisson metric -> name of the measured metric that means the same."""
RUN_KEYS = frozenset({"label", "cell", "seed", "metrics", "parameters", "seconds"})

DepthCells = dict[tuple[int, int], dict[str, tuple[float, float | None]]]


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean and sample standard deviation (None for one value) of `n` values, and the values themselves."""

    mean: float
    std: float | None
    n: int
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Summary:
    """All runs of one cell of a study: the same spec but for the seed."""

    label: str
    cell: dict[str, Any]
    metrics: dict[str, Statistic]
    parameters: dict[str, int]
    seconds: dict[str, Statistic]
    """By the conditions they were measured under, "" where nothing is said of them."""

    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DepthTable:
    """Measured and published errors of one metric: one row per depth, one column per order."""

    header: list[str]
    rows: list[list[str]]
    measured: int
    above: int

    @property
    def note(self) -> str:
        """One line that counts the cells."""
        return (
            f"{self.measured} of {len(self.rows) * (len(self.header) - 1)} cells measured; "
            f"{self.above} above the published mean plus one published standard deviation."
        )


def statistic(values: Sequence[float]) -> Statistic:
    """Mean and sample standard deviation of finite values."""
    if not values or not all(math.isfinite(value) for value in values):
        raise DataError(f"expected finite numbers to average, got {list(values)}; run the failed seeds again")
    std = statistics.stdev(values) if len(values) > 1 else None
    return Statistic(statistics.fmean(values), std, len(values), tuple(values))


def grouped(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Runs by cell, in order of first appearance."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(run["cell"].items())), []).append(run)
    return list(groups.values())


def summarise(runs: Sequence[Mapping[str, Any]]) -> list[Summary]:
    """Each cell's mean and spread, in order of first appearance."""
    return [_summary(group) for group in grouped(runs)]


def _summary(group: Sequence[Mapping[str, Any]]) -> Summary:
    first = group[0]
    for key in ("label", "parameters"):
        if any(run[key] != first[key] for run in group):
            found = sorted({str(run[key]) for run in group})
            raise DataError(f"expected one {key} per cell, got {found} for {first['cell']}; keep such runs apart")
    shared = [name for name in first["metrics"] if all(name in run["metrics"] for run in group)]  # newer runs have more
    if "rel_l2" not in shared:
        raise DataError(f"expected rel_l2 in every run of {first['label']!r}; evaluate its runs again")
    seeds = tuple(run["seed"] for run in group)
    if len(set(seeds)) < len(seeds):
        raise DataError(f"expected one run per seed of {first['label']!r}, got seeds {seeds}; remove the repeats")
    return Summary(
        label=first["label"],
        cell=dict(first["cell"]),
        metrics={name: statistic([run["metrics"][name] for run in group]) for name in shared},
        parameters=dict(first["parameters"]),
        seconds=_seconds(group),
        seeds=seeds,
    )


def validation_errors(runs: Sequence[Mapping[str, Any]]) -> list[Statistic | None]:
    """Validation errors of each cell, in the order of `summarise`; None where one of its runs has none."""
    found = [[run.get("valid_rel_l2") for run in group] for group in grouped(runs)]
    known = [[value for value in values if isinstance(value, int | float)] for values in found]
    return [statistic(part) if len(part) == len(values) else None for part, values in zip(known, found, strict=True)]


def _seconds(group: Sequence[Mapping[str, Any]]) -> dict[str, Statistic]:
    """Seconds of the runs of one cell by their conditions; means over unlike ones say nothing."""
    devices = {run.get("device", "") for run in group}  # named in a run where it is not that of the file
    found: dict[str, list[float]] = {}
    for run in group:
        told = (run.get("beside", ""), run.get("device", "") if len(devices) > 1 else "")
        found.setdefault(", ".join(filter(None, told)), []).append(run["seconds"])
    return {how: statistic(seconds) for how, seconds in found.items()}


def seconds_cell(summary: Summary, told: str = "") -> str:
    """Mean seconds of a run, with the conditions in brackets but for those that are `told` elsewhere."""
    cells = []
    for how, found in summary.seconds.items():
        bracket = textwrap.wrap(f"({how})", NARROW) if how and how != told else []
        cells.append("\n".join((number(found.mean), *bracket)))
    return ",\n".join(cells)


def beside(rows: Sequence[Summary]) -> str:
    """The conditions that the seconds of all rows were measured under; nothing if they differ, or are not known."""
    found = {how for row in rows for how in row.seconds}
    return found.pop() if len(found) == 1 else ""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A GitHub table; columns of numbers are aligned right. Cells may hold `code` and **bold**."""
    for row in rows:
        if len(row) != len(header):
            raise DataError(f"expected {len(header)} cells per row, got {len(row)} in {list(row)}; fill the gaps")
    numeric = numeric_columns(rows, len(header))
    rule = ["---:" if right else "---" for right in numeric]
    lines = [[cell_markdown(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, rule)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def numeric_columns(rows: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Per column: does every cell start like a number (or stand empty), and at least one hold a digit?"""
    columns = [[row[index] for row in rows] for index in range(width)]
    return [
        all(re.match(rf"[-+]?[.\d]|{MISSING}|$", cell) for cell in column)
        and re.search(r"\d", "".join(column)) is not None
        for column in columns
    ]


def comparison_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of `comparison_table`, for a page."""
    check_results(results)
    summaries = summarise(results["runs"])
    alike = beside(summaries)
    seconds = f"seconds ({alike})" if alike else "seconds"
    header = ["model", "rel. L2", "MSE", "parameters (real)", "parameters (complex once)", seconds, "seeds"]
    rows = [
        [
            summary.label,
            metric_cell(summary, "rel_l2"),
            metric_cell(summary, "mse"),
            _count(summary.parameters, "real"),
            _count(summary.parameters, "complex_once"),
            seconds_cell(summary, alike),
            str(len(summary.seeds)),
        ]
        for summary in summaries
    ]
    return header, rows


def comparison_table(results: Mapping[str, Any]) -> str:
    """Any results file as Markdown: one row per cell, with the conditions under which it was measured."""
    header, rows = comparison_rows(results)
    conditions = f"Data: {results['origin']}. Device: {results['device']}. Date: {results['created']}. "
    reading = "Test errors are mean ± sample standard deviation over seeds; seconds are means over runs measured alike."
    return f"{markdown(header, rows)}\n{conditions}{reading}\n"


def poisson_cells(results: Mapping[str, Any]) -> DepthCells:
    """Measured errors in the shape of `published.poisson`: `{(order, depth): {"mse": ..., "rel_l2": ...}}`.

    `mse` is our `mse_standardised`, which is what the published tables call MSE.
    """
    check_results(results)
    if results["problem"] != "poisson":
        raise DataError(f"expected results of the problem poisson, got {results['problem']!r}; use comparison_table")
    cells: DepthCells = {}
    for summary in summarise(results["runs"]):
        place = _setting(results, summary, "model.order"), _setting(results, summary, "model.depth")
        if place in cells:
            raise DataError(f"expected one cell per (order, depth), got two for {place}; give a study without others")
        cells[place] = {}
        for name, measured_name in MEASURED_AS.items():
            if measured_name not in summary.metrics:
                raise DataError(f"expected the metric {measured_name} in {summary.label!r}; evaluate its runs again")
            cells[place][name] = (summary.metrics[measured_name].mean, summary.metrics[measured_name].std)
    return cells


def poisson_depth_rows(results: Mapping[str, Any], degree: int, metric: str) -> DepthTable:
    """Measured (published) errors of one `metric`, "mse" or "rel_l2", by depth and order."""
    if metric not in MEASURED_AS:
        raise DataError(
            f"expected a published metric, one of {tuple(MEASURED_AS)}, got {metric!r}; choose one of these"
        )
    ours, theirs = poisson_cells(results), published_poisson(degree)
    rows, measured, above = [], 0, 0
    for depth in POISSON_DEPTHS:
        row = [str(depth)]
        for order in POISSON_ORDERS:
            mean, std = theirs[order, depth][metric]
            printed = f"({plus_minus(mean, std, POISSON_DECIMALS)})"
            if (order, depth) not in ours:
                row.append(f"{MISSING}\n{printed}")
                continue
            our_mean, our_std = ours[order, depth][metric]
            is_above = our_mean > mean + std
            measured, above = measured + 1, above + is_above
            row.append(f"{plus_minus(our_mean, our_std)}\n{printed}{MARK if is_above else ''}")
        rows.append(row)
    names = ["FNO (order 1)" if order == 1 else f"order {order}" for order in POISSON_ORDERS]
    return DepthTable(["layers", *names], rows, measured, above)


def poisson_depth_table(results: Mapping[str, Any], degree: int) -> str:
    """Two Markdown tables, MSE on standardised targets and rel. L2: measured, and published in brackets."""
    parts = []
    for metric, title in (("mse", "Test MSE on standardised targets"), ("rel_l2", "Test rel. L2")):
        table = poisson_depth_rows(results, degree, metric)
        heading = f"**{title}**, p = {degree}: measured on {results['origin']} data (published)"
        parts.append(f"{heading}\n\n{markdown(table.header, table.rows)}\n{table.note}\n")
    return "\n".join(parts)


def check_results(results: Mapping[str, Any]) -> None:
    """Refuse what is not a results file of this version, or an empty one."""
    if results.get("schema") != 1:
        raise DataError(f"expected a results file of schema 1, got schema {results.get('schema')!r}; measure it again")
    if not results.get("runs"):
        raise DataError(f"expected at least one run in {results.get('name')!r}, got none; run the study first")
    for index, run in enumerate(results["runs"]):
        if missing := sorted(RUN_KEYS - run.keys()):
            raise DataError(f"expected {missing} in run {index} of {results.get('name')!r}; measure it again")


def _setting(results: Mapping[str, Any], summary: Summary, path: str) -> int:
    """A dotted spec key of this cell: from the cell where the study varies it, else from the spec."""
    value: Any = summary.cell.get(path)
    if value is None:
        value = results["spec"]
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, int):
        raise DataError(f"expected a whole number for {path} of {summary.label!r}, got {value!r}; set it in the spec")
    return value


def _count(parameters: Mapping[str, int], name: str) -> str:
    return f"{parameters[name]:,}" if name in parameters else MISSING


def metric_cell(summary: Summary, name: str) -> str:
    """A measured metric with its spread, or a dash where it was not measured."""
    found = summary.metrics.get(name)
    return MISSING if found is None else plus_minus(found.mean, found.std)


def printed_rows(published: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> list[list[str]]:
    """A row for each model of a published table, with the numbers of these names as they are printed."""
    return [[model, *(as_printed(values[name]) for name in names)] for model, values in published.items()]


def window_cells(results: Mapping[str, Any], label: str, windows: Iterable[tuple[int, int]]) -> list[str]:
    """Means over windows of the steps of the rollouts of a label."""
    curves = [run["rollout"]["rel_l2_per_step"] for run in results["runs"] if run["label"] == label]
    return [window_cell(curves, window) for window in windows]


def window_cell(curves: Sequence[Sequence[float | None]], window: tuple[int, int]) -> str:
    """Mean over a window of steps, with its spread over runs; a dash where rollouts are shorter or not finite."""
    parts = [curve[slice(*window)] for curve in curves]
    whole = [[value for value in part if value is not None] for part in parts]
    if any(len(part) < window[1] - window[0] for part in whole):
        return MISSING
    found = statistic([statistics.fmean(part) for part in whole])
    return plus_minus(found.mean, found.std)
