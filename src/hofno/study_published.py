"""The chapter of a report that has the published table beside ours, where the spec of a study names one."""

from __future__ import annotations

from typing import Any

from hofno.models.registry import check_arguments
from hofno.problems.registry import problem
from hofno.report import chapters, figures, published, tables
from hofno.report.page import Page
from hofno.report.paper import POISSON_TITLES
from hofno.spec import Spec


def add_published(page: Page, results: dict[str, Any], rows: list[tables.Summary], spec: Spec) -> None:
    """Ours beside the published table that the spec names."""
    if spec.published == "poisson" and "degree" in spec.data.parameters:
        _published_degree(page, results, spec)
    elif spec.published == "navier_stokes":
        _published_flows(page, rows, spec, results["origin"])
    elif spec.published == "darcy_structure":
        chapters.structure_table(page, rows, results["origin"])
    elif spec.published == "shallow_water":
        chapters.sphere_table(page, results, rows)
    elif spec.published in published.benchmarks():
        chapters.main_table(page, rows, spec.published, results["origin"])


def drawn_by_depth(spec: Spec) -> bool:
    """Whether the errors of a study are drawn against depth, beside the published ones of the same degree."""
    degree = spec.data.parameters.get("degree")
    return spec.published == "poisson" and degree in published.POISSON_DEGREES


def _published_degree(page: Page, results: dict[str, Any], spec: Spec) -> None:
    """Ours beside the published table of the same degree."""
    if not drawn_by_depth(spec):
        return
    degree = int(spec.data.parameters["degree"])
    page.section("Beside the published numbers")
    page.text(_comparability(spec))
    cells = depth_cells(results, spec)
    page.figure(
        figures.error_against_depth({degree: cells}, {degree: published.poisson(degree)}, "rel_l2"),
        "Error against depth: ours solid, published dashed with hollow markers.",
    )
    if "model.depth" in spec.sweep and "model.order" in spec.sweep:
        for metric in ("mse", "rel_l2"):
            table = tables.poisson_depth_rows(results, degree, metric)
            page.text(f"**Test {POISSON_TITLES[metric]}** by layers and order, in brackets the published values.")
            page.table(table.header, table.rows)
            page.text(table.note)


def depth_cells(results: dict[str, Any], spec: Spec) -> tables.DepthCells:
    """Measured errors by order and depth, whatever keys tell the members apart.

    Runs that are no members of the spec, as those of another precision, are placed by their recorded cell.
    """
    places: dict[str, tuple[int, int]] = {}
    for member, _ in spec.members():
        arguments = check_arguments(member.model.name, {**member.model.arguments, "in_channels": 1, "out_channels": 1})
        places[member.run_hash] = (arguments.get("order", 1), arguments["depth"])
    runs: dict[tuple[int, int], list[dict[str, float]]] = {}
    order, depth = next(iter(places.values()))
    for run in results["runs"]:
        recorded = run["cell"].get("model.order", order), run["cell"].get("model.depth", depth)
        runs.setdefault(places.get(run["spec_hash"], recorded), []).append(run["metrics"])
    cells: tables.DepthCells = {}
    for place, found in runs.items():
        cells[place] = {}
        for name, measured in tables.MEASURED_AS.items():
            value = tables.statistic([metrics[measured] for metrics in found])
            cells[place][name] = (value.mean, value.std)
    return cells


def _comparability(spec: Spec) -> str:
    grid = spec.data.parameters.get("grid", "periodic")
    if grid == "published":
        text = "Generated on the published end-point grid with the published distribution; the samples are ours."
    else:
        text = (
            "The published data live on a grid that repeats the periodic end point; ours on the true periodic grid, "
            "which is an easier map. Read the dashed lines as orientation, not as a target under equal conditions."
        )
    given = spec.data.parameters
    as_published = (given.get("resolution", 64), given.get("train", 1000), spec.train.epochs) == (64, 1000, 100)
    if as_published:
        return text
    return f"{text} These runs are smaller or shorter than the published ones (1000 samples, 64 x 64, 100 epochs)."


def _published_flows(page: Page, rows: list[tables.Summary], spec: Spec, origin: str) -> None:
    """Ours beside the published table of the same protocol and viscosity."""
    made = problem(spec.data.problem, spec.data.parameters).parameters()
    viscosity, history = made.get("viscosity"), made.get("history")
    if history == 1 and viscosity in published.NAVIER_STOKES_VISCOSITIES:
        chapters.one_frame_table(page, rows, viscosity, origin)
    elif history == 10 and viscosity == 1e-5:
        chapters.main_table(page, rows, "navier_stokes", origin)
