"""The tables and figures of the paper that hold data: what each shows, its published numbers, and how it is made here.

The entries are data, `data/paper.json`. A results file of one of their specs gives the same table measured, and figures
are drawn from results files alone. Published and measured numbers stand in tables of their own.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from hofno.errors import DataError, SpecError
from hofno.report import figures, published, rollouts, tables
from hofno.report.digits import as_printed, number, plus_minus
from hofno.report.resolution import curves_of, error_against_resolution, records_of, resolution_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Mapping[str, Mapping[str, Any]]
"""Results files by the names of their specs."""

POISSON_TITLES = {"mse": "MSE on standardised targets", "rel_l2": "rel. L2"}


class Table(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One table or figure; `published` and `here` say the protocol of the paper and ours in a line each."""

    name: str
    place: str
    shows: str
    published: str
    here: str
    specs: list[str]
    commands: list[str]
    table: dict[str, Any] = field(default_factory=dict)
    """Which published numbers: first a key of `PUBLISHED`, with its argument; nothing where none are printed."""

    metrics: dict[str, str] = field(default_factory=lambda: {"rel_l2": "rel. L2"})
    """Measured metrics that belong to it, with their headings; none of a picture."""

    figure: str = ""
    """How it is drawn from results files, a key of `DRAWN`; empty where it is not."""

    costs: str = ""
    """Where its measured costs are looked for, a file of `hofno bench study`; empty where it has none."""

    @property
    def studies(self) -> list[str]:
        """Those of its specs whose results hold numbers of it."""
        return self.specs if self.metrics and not self.costs else []


@cache
def entries() -> dict[str, Entry]:
    """All of them, by name."""
    text = resources.files("hofno.report").joinpath("data", "paper.json").read_text("utf-8")
    return {found["name"]: Entry(**found) for found in json.loads(text)["entries"]}


def entry_of(name: str) -> Entry:
    """The entry of this name."""
    if (found := entries().get(name)) is not None:
        return found
    close = [other for other in entries() if name.lower() in other.split("_") or name.lower() == other]
    close = close or difflib.get_close_matches(name.lower(), entries(), n=1)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise SpecError(f"the paper has no table or figure {name!r} here; {hint}`hofno paper` lists all")


def published_tables(entry: Entry) -> list[Table]:
    """The numbers as printed; none of a figure whose numbers are not."""
    kind = next(iter(entry.table), None)
    return [] if kind is None else list(PUBLISHED[kind](entry.table))


def _poisson(asked: Mapping[str, Any]) -> Iterator[Table]:
    for degree in asked["poisson"]:
        for metric in asked["metrics"]:
            cells = published.poisson(degree)
            printed = {
                place: " ± ".join(f"{value:.{published.POISSON_DECIMALS}f}" for value in cell[metric])
                for place, cell in cells.items()
            }
            yield _by_depth(f"published, p = {degree}", metric, printed)


def _by_depth(title: str, metric: str, cells: Mapping[tuple[int, int], str]) -> Table:
    """Errors by number of layers, one column for each order."""
    orders = sorted({order for order, _ in cells})
    rows = [
        [str(depth), *(cells.get((order, depth), tables.MISSING) for order in orders)]
        for depth in sorted({depth for _, depth in cells})
    ]
    names = ["FNO (order 1)" if order == 1 else f"order {order}" for order in orders]
    return Table(f"{title}: test {POISSON_TITLES[metric]}", ["layers", *names], rows)


def _one_frame(asked: Mapping[str, Any]) -> Iterator[Table]:
    for viscosity in asked["one_frame"]:
        rows = [
            [row["label"], row["parameters"], *(_printed(row[key]) for key in ("mse", "rel_l2", "rollout"))]
            for row in published.navier_stokes_one_frame(viscosity)
        ]
        header = ["network", "parameters", "MSE, one step", "rel. L2, one step", "rollout"]
        yield Table(f"published, viscosity {viscosity:.0e}".replace("e-0", "e-"), header, rows)


def _column(asked: Mapping[str, Any]) -> Iterator[Table]:
    found = published.main_table(asked["main_table"])
    yield Table("published", ["network", "rel. L2"], [[label, f"{value:.4f}"] for label, value in found.items()])


def _bands(asked: Mapping[str, Any]) -> Iterator[Table]:
    found = published.bands(asked["bands"])
    names = list(next(iter(found.values())))
    yield Table("published, rel. L2", ["network", *names], tables.printed_rows(found, names))


def _structures(_: Mapping[str, Any]) -> Iterator[Table]:
    rows = [[label, f"{value:.4f}"] for label, value in published.structures().items()]
    yield Table("published", ["factors", "error"], rows)


def _sphere(_: Mapping[str, Any]) -> Iterator[Table]:
    windows = list(published.sphere_windows())
    rows = tables.printed_rows(published.sphere(), ("mse", "rel_l2", *windows, "rollout"))
    named = [f"rollout {name}" for name in windows]
    yield Table("published", ["network", "MSE, one step", "rel. L2, one step", *named, "rollout"], rows)


def _efficiency(asked: Mapping[str, Any]) -> Iterator[Table]:
    for problem in asked["efficiency"]:
        found = published.efficiency(problem)
        rows = [[label, *(f"{cost:.2f}" for cost in values.values())] for label, values in found.items()]
        title = f"published, {problem.replace('_', ' ')}, on {published.efficiency_device()}"
        yield Table(title, ["network", "training, s an epoch", "prediction, s", "memory, GB"], rows)


def _printed(value: float | None) -> str:
    return tables.MISSING if value is None else as_printed(value)


PUBLISHED = {
    "poisson": _poisson,
    "one_frame": _one_frame,
    "main_table": _column,
    "bands": _bands,
    "structures": _structures,
    "sphere": _sphere,
    "efficiency": _efficiency,
}


def measured_tables(entry: Entry, results: Mapping[str, Any]) -> list[Table]:
    """What a results file of one of the entry's specs holds of it."""
    tables.check_results(results)
    title = f"measured: {results['title']}"
    if entry.figure == "resolution":
        records = records_of(results)
        return [Table(title, *resolution_rows(*curves_of(records)))] if records else []
    if "poisson" in entry.table and {"model.order", "model.depth"} <= results["spec"].get("sweep", {}).keys():
        found = tables.poisson_cells(results)
        cells = {
            metric: {place: plus_minus(*cell[metric]) for place, cell in found.items()}
            for metric in entry.table["metrics"]
        }
        return [_by_depth(title, metric, printed) for metric, printed in cells.items()]
    windows = published.sphere_windows() if "sphere" in entry.table else {}
    rows = tables.summarise(results["runs"])
    shown = {key: heading for key, heading in entry.metrics.items() if any(key in row.metrics for row in rows)}
    if not shown:
        return []
    *first, last = shown.values()  # windows of a rollout stand before the whole of it
    cells = []
    for row in rows:
        inside = tables.window_cells(results, row.label, windows.values()) if windows else []
        errors = [tables.metric_cell(row, key) for key in shown]
        counts = [f"{row.parameters['real']:,}", str(len(row.seeds))]
        cells.append([row.label, *errors[:-1], *inside, errors[-1], *counts])
    header = ["network", *first, *(f"rollout {name}" for name in windows), last, "parameters", "seeds"]
    return [Table(title, header, cells)]


def cost_tables(entry: Entry, record: Mapping[str, Any]) -> list[Table]:
    """What `hofno bench study` has measured of the problems of an entry, with memory in the unit of the paper."""
    what = record.get("what") if isinstance(record, Mapping) else type(record).__name__
    if what != "study":
        raise DataError(f"expected a file of `hofno bench study`, got one of {what!r}; measure it again")
    found = []
    for result in record["results"]:
        if result["problem"] not in entry.table["efficiency"]:
            continue
        rows = []
        for member in result["members"]:
            costs = [member.get(key) for key in ("epoch_seconds", "predict_seconds")]
            costs.append(member["peak_bytes"] / 1e9 if member.get("peak_bytes") else None)
            cells = [tables.MISSING if cost is None else number(cost) for cost in costs]
            rows.append([member["label"], *([member["left_out"], *cells[1:]] if "left_out" in member else cells)])
        header = ["network", "training, s an epoch", "prediction, s", "memory, GB"]
        found.append(Table(f"measured: {result['title']}, on {record['device_name']}", header, rows))
    return found


def draw(entry: Entry, results: Results) -> Figure:
    """The figure of an entry, from what there is of its results files."""
    if not entry.figure:
        drawn = ", ".join(name for name, other in entries().items() if other.figure)
        raise SpecError(
            f"--out does not draw {entry.name}; `hofno paper {entry.name}` shows the commands that make it; drawn are: "
            f"{drawn}"
        )
    return DRAWN[entry.figure](entry, results)


def _draw_depth(entry: Entry, results: Results) -> Figure:
    printed = {degree: published.poisson(degree) for degree in entry.table["poisson"]}
    measured = {int(found["spec"]["data"]["degree"]): tables.poisson_cells(found) for found in results.values()}
    return figures.error_against_depth(measured, printed, entry.table["metrics"][0])


def _draw_resolution(entry: Entry, results: Results) -> Figure:
    records = [record for found in results.values() for record in records_of(found)]
    if not records:
        raise DataError(_nothing(entry))
    return error_against_resolution(*curves_of(records))


def _draw_spectra(entry: Entry, results: Results) -> Figure:
    """Of the first of its specs whose runs have spectra; one run of each label."""
    for found in results.values():
        records: dict[str, Any] = {}
        for run in found["runs"]:
            record = run.get("rollout", run)
            if "spectra" in record:
                records.setdefault(run["label"], record)
        if records:
            return rollouts.spectra(records)
    raise DataError(_nothing(entry))


def _draw_mixing(entry: Entry, results: Results) -> Figure:
    from hofno.report.mixing import measure
    from hofno.report.mixing_figure import mode_mixing

    return mode_mixing(measure())


DRAWN = {
    "depth": _draw_depth,
    "resolution": _draw_resolution,
    "spectra": _draw_spectra,
    "mode_mixing": _draw_mixing,
}


def _nothing(entry: Entry) -> str:
    return (
        f"expected results of {' or '.join(entry.specs)} to draw {entry.name} from, got none that hold it; run its "
        f"commands (`hofno paper {entry.name}` shows them), or give another --results"
    )
