"""The report of a study: from `results.json` and the run folders to one page a person can open.

The spec's own run stands first and is compared with the others: a bar for each, learning curves, the same test sample
seen by all of them, the spread over the test set, and, where the spec names a published table, that table beside ours.
Models in time are shown in time: a film, the error of each frame, what a longer rollout does, and spectra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hofno import spec as specs
from hofno import storage
from hofno.data.dataset import Split
from hofno.errors import SpecError
from hofno.models.registry import check_arguments
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.report import bodies, figures, published, rollouts, tables, walls
from hofno.report.digits import number
from hofno.report.film import make_film
from hofno.report.page import Page, check_page_folder, is_page_folder
from hofno.report.scenes import Scene, scene_of
from hofno.spec import Spec
from hofno.stages import make_data, read_history
from hofno.storage.files import is_temporary
from hofno.study import member_folder, name_of
from hofno.surrogate import load

SHOWN_AT_MOST = 6
FILMED_AT_MOST = 3
SAMPLE = 0


def write_report(out: Path, results: dict[str, Any]) -> Path:
    """Write OUT/index.html and OUT/report.md and return the page's path."""
    check_page_folder(out)
    spec = specs.parse(results["spec"], f"{out / 'results.json'}")
    page = Page(results["title"], _lead(results, spec))
    rows = tables.summarise(results["runs"])
    _headline(page, rows, spec)
    page.section("Test errors")
    page.figure(
        figures.error_bars(rows),
        "Relative L2 error on the test set, mean over its samples; shorter is better (log scale)",
    )
    page.table(*tables.comparison_rows(results))
    if note := _different_conditions(results):
        page.text(note)
    if diverged := results.get("diverged"):
        lines = [f"- {run['label']}, seed {run['seed']}: {run['reason']}" for run in diverged]
        page.text("\n".join(("Diverged, and left out:\n", *lines)))
    if spec.published == "poisson" and "degree" in spec.data.parameters:
        _published(page, results, spec)
    if rows and "rollout" in rows[0].metrics:
        _rollout_errors(page, rows)
    if spec.published == "navier_stokes":
        _published_flows(page, rows, spec)
    elif spec.published in published.benchmarks():
        page.section("Beside the published numbers")
        _main_table(page, rows, spec.published)
    if not _runs(page, out, spec):
        records: dict[str, Any] = {}
        for run in results["runs"]:
            if "rollout" in run and len(records) < SHOWN_AT_MOST:
                records.setdefault(run["label"], run["rollout"])
        if records:
            page.section("Rollouts")
            _rollout_records(page, records, _first_time(problem(spec.data.problem, spec.data.parameters)))
    page.section("How these numbers were made")
    page.facts(_conditions(results, spec))
    return page.write(out)


def check_report_folder(out: Path) -> None:
    """Refuse a folder that holds neither a study nor an earlier report, or files that the report would replace."""
    is_known = is_page_folder(out) or any((out / name).exists() for name in ("runs", "results.json"))
    if not is_known and out.is_dir() and any(not is_temporary(entry.name) for entry in out.iterdir()):
        raise SpecError(f"{out} exists and holds neither a study nor a report; choose another --out")
    check_page_folder(out)


def _lead(results: dict[str, Any], spec: Spec) -> str:
    data = ", ".join(f"{key} {value}" for key, value in spec.data.parameters.items())
    count, missing = len(results["runs"]), len(spec.members()) - len(results["runs"])
    runs = f"{count} run{'s' * (count > 1)}"
    if missing > 0:
        runs = f"{count} of the {count + missing} runs of this study ({missing} missing or not finished)"
    epochs = sorted({run.get("epochs", spec.train.epochs) for run in results["runs"]})
    return (
        f"{runs} on data generated here from the PDE (`{spec.data.problem}`: {data}). "
        f"Trained for {_either(epochs)} epochs on {results['device']}. "
        "Errors are on the test split, which training and the choice of weights never see."
    )


def _either(numbers: list[int]) -> str:
    """1, 2 or 3"""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


ALIKE = 1.05
"""Errors whose ratio is less are not called different."""

NOTHING_LEARNT = 0.95
"""Relative errors from here on are those of a constant."""


def _headline(page: Page, rows: list[tables.Summary], spec: Spec) -> None:
    """The spec's own run against those it is compared with; of a sweep, or without that run, the lowest error."""
    whole = "Every error here" if len(rows) > 1 else "This error"
    note = (
        f" {whole} is about 1: no better than predicting the mean." if min(map(_error, rows)) >= NOTHING_LEARNT else ""
    )
    if not spec.compare or len(rows) < 2 or rows[0].label != name_of(*spec.members()[0]):
        best = min(rows, key=_error)
        cells = f"The lowest of {len(rows)} cells; " if len(rows) > 1 else ""
        detail = f"{cells}mean over the test set and {len(best.seeds)} seed{'s' * (len(best.seeds) > 1)}."
        page.headline(f"{best.label}: relative L2 error {number(_error(best))}", detail[0].upper() + detail[1:] + note)
        return
    own, others = rows[0], rows[1:]
    first, nearest = others[0], min(others, key=_error)
    errors = f"Relative L2 error {number(_error(own))} against {number(_error(first))}."
    sizes = f"Parameters (real numbers): {own.parameters['real']:,} against {first.parameters['real']:,}"
    if nearest is first:
        detail = f"{errors} {sizes}."
    else:
        detail = (
            f"{errors} The best of the others, {nearest.label}, has {number(_error(nearest))}: "
            f"{_times(own, nearest, 'ours is')} that. {sizes} and {nearest.parameters['real']:,}."
        )
    page.headline(f"{own.label}: {_times(own, first, 'error')} {first.label}", detail + note)


def _error(row: tables.Summary) -> float:
    return row.metrics["rel_l2"].mean


def _times(own: tables.Summary, other: tables.Summary, subject: str) -> str:
    """How much lower or higher the error of `own` is, in words; `subject` stands before a number."""
    factor = _error(other) / _error(own)
    if max(factor, 1 / factor) < ALIKE:
        return "no clear difference from"
    digits = 1 if max(factor, 1 / factor) >= 1.2 else 2
    words = f"{factor:.{digits}f} times lower" if factor >= 1 else f"{1 / factor:.{digits}f} times higher"
    return f"{subject} {words} than"


def _different_conditions(results: dict[str, Any]) -> str:
    """Where runs were timed on different devices or with different numbers of threads: which; else nothing."""
    devices: dict[str, list[str]] = {}
    for run in results["runs"]:
        labels = devices.setdefault(run.get("device", results["device"]), [])
        labels += [] if run["label"] in labels else [run["label"]]
    if len(devices) < 2:
        return ""
    lines = "".join(f"\n- {device}: {'; '.join(labels)}" for device, labels in devices.items())
    return f"Seconds in this table are not comparable: devices or numbers of threads differ.\n{lines}"


def _published(page: Page, results: dict[str, Any], spec: Spec) -> None:
    """Ours beside the published table of the same degree."""
    degree = int(spec.data.parameters["degree"])
    if degree not in published.POISSON_DEGREES:
        return
    page.section("Beside the published numbers")
    page.text(_comparability(spec))
    cells = _depth_cells(results, spec)
    page.figure(
        figures.error_against_depth({degree: cells}, {degree: published.poisson(degree)}, "rel_l2"),
        "Error against depth: ours solid, published dashed with hollow markers.",
    )
    if "model.depth" in spec.sweep and "model.order" in spec.sweep:
        for metric in ("mse", "rel_l2"):
            table = tables.poisson_depth_rows(results, degree, metric)
            page.table(table.header, table.rows)
            page.text(table.note)


def _depth_cells(results: dict[str, Any], spec: Spec) -> tables.DepthCells:
    """Measured errors by order and depth, whatever keys tell the members apart."""
    places = {}
    for member, _ in spec.members():
        arguments = check_arguments(member.model.name, {**member.model.arguments, "in_channels": 1, "out_channels": 1})
        places[member.run_hash] = (arguments.get("order", 1), arguments["depth"])
    runs: dict[tuple[int, int], list[dict[str, float]]] = {}
    for run in results["runs"]:
        if run["spec_hash"] in places:
            runs.setdefault(places[run["spec_hash"]], []).append(run["metrics"])
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


def _runs(page: Page, out: Path, spec: Spec) -> bool:
    """Curves, fields and spread of the members whose run folders are there; the first seed of each, a few at most.

    False: there are none.
    """
    shown: dict[str, tuple[Spec, Path]] = {}
    for member, cell in spec.members():
        folder = member_folder(out, member)
        if (folder / "evaluation.json").exists():
            shown.setdefault(name_of(member, cell), (member, folder))
    if not shown:
        return False
    few = dict(list(shown.items())[:SHOWN_AT_MOST])
    page.section("Training")
    histories = {label: read_history(folder) for label, (_, folder) in few.items()}
    page.figure(figures.learning_curves(histories), "Training loss and validation error by epoch.")
    page.section("What the models predict")
    evaluations = {label: storage.read_json(folder / "evaluation.json") for label, (_, folder) in few.items()}
    data = make_data(next(iter(few.values()))[0])
    made = problem(spec.data.problem, spec.data.parameters)
    shown_sample = data.test[SAMPLE * made.together : (SAMPLE + 1) * made.together]
    x, y, coords = shown_sample.x, shown_sample.y, shown_sample.coords
    if data.rollout is None:
        predictions = {label: load(folder).predict(x, coords).numpy() for label, (_, folder) in few.items()}
        show_sample(page, shown_sample, predictions, scene_of(made))
    else:
        truth = y if data.later is None else torch.cat((y, data.later[SAMPLE : SAMPLE + 1]), 1)
        _rollouts(page, x, truth, {label: folder for label, (_, folder) in few.items()}, evaluations, spec)
    page.section("Every test sample")
    errors = {label: found["per_sample"]["rel_l2"] for label, found in evaluations.items()}
    page.figure(figures.per_sample(errors), "Share of the test samples with a relative L2 error below the given value.")
    return True


def show_sample(page: Page, shown: Split, predictions: dict[str, Any], scene: Scene) -> None:
    """One test sample where it lies, and what each model makes of it."""
    x, y = shown.x.numpy(), shown.y.numpy()
    if scene.motion is None:
        places = None if shown.coords is None or shown.coords.shape[1] != 2 else shown.coords.numpy()
        line = f" White line: {scene.level[1]}." if scene.level is not None else ""
        page.figure(
            figures.fields(x, y, predictions, places=places, scene=scene),
            f"Test sample {SAMPLE}: inputs, solution, and each model's prediction and error, in physical units; errors "
            f"on one scale.{line}",
        )
        if scene.wall:
            line = f"; dotted: {scene.level[1]}" if scene.level is not None else ""
            page.figure(
                walls.along_wall(x[0], y[0], {label: found[0] for label, found in predictions.items()}, scene),
                f"The same sample along both sides of the {scene.wall}{line}.",
            )
        return
    few = list(predictions.items())[:FILMED_AT_MOST]
    seen = bodies.pressing(x, y, dict(few), scene.motion)
    page.film(
        bodies.body_film(seen),
        f"Test sample {SAMPLE}, each body on the nodes that were computed or predicted, errors on the computed ones.",
    )
    page.figure(bodies.body_frames(seen), "The same sample at a few times; grey: the tool.")


def _rollouts(
    page: Page, x: Tensor, truth: Tensor, folders: dict[str, Path], evaluations: dict[str, Any], spec: Spec
) -> None:
    """Film, frames, error by step and spectra of models in time."""
    made = problem(spec.data.problem, spec.data.parameters)
    start = _first_time(made)
    filmed = dict(list(folders.items())[:FILMED_AT_MOST])
    steps = truth.shape[1]
    predictions = {label: load(folder).predict(x, steps=steps)[0].numpy() for label, folder in filmed.items()}
    times = [f"t = {start + index}" for index in range(steps)]
    beyond = made.rollout.horizon if made.rollout is not None else steps
    later = f" Frames from t = {start + beyond} on lie beyond the horizon of training." if beyond < steps else ""
    page.film(
        make_film(truth[0].numpy(), predictions, times, *scene_of(made).targets[:1]),
        f"Test sample {SAMPLE}, rolled out from true frames up to t = {start - 1}.{later}",
    )
    page.figure(rollouts.frames(truth[0].numpy(), predictions, start), "The same sample at a few times.")
    _rollout_records(page, {label: found["rollout"] for label, found in evaluations.items()}, start)


def _first_time(made: Problem) -> int:
    """Time of the first predicted frame; frame 0 is t = 1."""
    return getattr(made, "start", 0) + 1


def _rollout_records(page: Page, records: dict[str, Any], start: int) -> None:
    """Error by step, what a longer rollout does, and spectra, of one run of each label."""
    page.figure(
        rollouts.error_by_step(records, start),
        "Error of each predicted frame, mean over the test set, and the power of the frames when the rollout goes on "
        "to twice its horizon.",
    )
    page.table(*_past_rows(records))
    page.figure(
        rollouts.spectra(records),
        "The last frame of the horizon by shells of wavenumbers, mean over the test set: what is there, and how wrong.",
    )


def _past_rows(records: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What becomes of rollouts that go on to twice their horizon."""
    header = ["model", "steps", "finite", "bounded", "rel. L2, first step", "last of the horizon", "last known"]
    rows = []
    for label, record in records.items():
        past, errors = record["past"], record["rel_l2_per_step"]
        shares = [f"{100 * past[key]:.0f} %" for key in ("finite", "bounded")]
        last = [*errors, *record["later_rel_l2"]][-1]
        rows.append([label, str(past["steps"]), *shares, number(errors[0]), number(errors[-1]), number(last)])
    return header, rows


def _rollout_errors(page: Page, rows: list[tables.Summary]) -> None:
    """Single steps, rollouts, and bands of wavenumbers."""
    names = {
        "one_step_rel_l2": "one step, rel. L2",
        "one_step_mse": "one step, MSE",
        "rollout": "rollout, mean rel. L2 of a frame",
        "rel_l2_low": "low |k|",
        "rel_l2_medium": "medium |k|",
        "rel_l2_high": "high |k|",
    }
    shown = {key: name for key, name in names.items() if key in rows[0].metrics}
    cells = [[row.label, *(tables.metric_cell(row, key) for key in shown)] for row in rows]
    page.table(["model", *shown.values()], cells)
    page.text(
        "One step: each frame from the true ones before it. The rel. L2 above is of all frames of a rollout together. "
        "Bands are the parts of these frames with |k| up to 4, from 5 to 12, and above; a band in which the truth has "
        "next to nothing is left out."
    )


def _published_flows(page: Page, rows: list[tables.Summary], spec: Spec) -> None:
    """Ours beside the published table of the same protocol and viscosity."""
    made = problem(spec.data.problem, spec.data.parameters).parameters()
    viscosity, history = made.get("viscosity"), made.get("history")
    if viscosity not in published.NAVIER_STOKES_VISCOSITIES or history not in (1, 10):
        return
    if history == 10 and viscosity != 1e-5:
        return
    page.section("Beside the published numbers")
    if history == 1:
        page.text(f"{published.navier_stokes_source('one_frame')} Published data are not ours: the flows are redrawn.")
        header = ["model", "MSE, one step", "rel. L2, one step", "rollout"]
        measured = ("one_step_mse", "one_step_rel_l2", "rollout")
        cells = [[f"{row.label} (ours)", *(tables.metric_cell(row, key) for key in measured)] for row in rows]
        for row in published.navier_stokes_one_frame(viscosity):
            values = [row[key] for key in ("mse", "rel_l2", "rollout")]
            cells.append([row["label"], *(tables.MISSING if v is None else number(v, 2) for v in values)])
    else:
        _main_table(page, rows, "navier_stokes")
        return
    page.table(header, cells)


def _main_table(page: Page, rows: list[tables.Summary], benchmark: str) -> None:
    """Ours beside a column of the published main table."""
    page.text(f"{published.main_table_source(benchmark)} Published data are not ours: the samples are redrawn.")
    cells = [[f"{row.label} (ours)", tables.metric_cell(row, "rel_l2")] for row in rows]
    cells += [[label, f"{value:.4f}"] for label, value in published.main_table(benchmark).items()]
    page.table(["model", "rel. L2"], cells)


def _conditions(results: dict[str, Any], spec: Spec) -> dict[str, str]:
    seeds = sorted({run["seed"] for run in results["runs"]})
    versions = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    return {
        "Device": "; ".join(dict.fromkeys(run.get("device", results["device"]) for run in results["runs"])),
        "Versions": versions,
        "Seeds": ", ".join(str(seed) for seed in seeds),
        "Data": f"{results['origin']}, problem {results['problem']}, seed {spec.data.parameters.get('seed', 0)}",
        "Training time": f"{sum(run['seconds'] or 0.0 for run in results['runs']):.0f} s in all runs",
        "Date": results["created"],
        "Spec hash": results["spec_hash"],
    }
