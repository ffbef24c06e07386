"""Chapters of a report that numbers alone make: the finding, errors, rollouts, other grids, published tables.

Each function adds to a `Page`, with the words that a reader needs to understand what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hofno.problems.quantities import Quantity
from hofno.report import figures, published, rollouts, tables
from hofno.report.digits import number, plus_minus
from hofno.report.page import Page
from hofno.report.quantities import MEAN, errors_of_fields, errors_of_mean, from_to
from hofno.report.resolution import Records, curves_of, error_against_resolution, resolution_rows

ALIKE = 1.05
"""Errors whose ratio is less are not called different."""

UNCERTAIN = 2.0
"""Means over seeds that are fewer standard errors of their difference apart are not called different."""

NOTHING_LEARNT = 0.95
"""Relative errors from here on are those of a constant."""

FAR_OFF = 1.5
"""Relative errors from here on are not called about 1."""

BANDS = {"rel_l2_low": "low |k|", "rel_l2_medium": "medium |k|", "rel_l2_high": "high |k|"}

IN_BANDS = (
    "with |k| (on a sphere: degrees) up to 4, from 5 to 12, and above; a band in which the truth has next to nothing "
    "is left out."
)

SAMPLES = {
    "generated": "Published data are not ours: the samples are redrawn.",
    "original": "Ours are on the published files too.",
}
"""By the origin of our data, how they compare with the published ones."""


Errors = Sequence[tables.Statistic | None]


def headline(
    page: Page, rows: Sequence[tables.Summary], own: str | None, valid: Errors = (), of_mean: Sequence[float] = ()
) -> None:
    """The spec's `own` run against those it is compared with; of a sweep, or without that run, the best of all.

    The best is that of the lowest validation error, of `valid` for each row, where these are known, else of test error.
    `of_mean` are the errors of the mean of the training targets, one for each set of data.
    """
    whole = "Every error here" if len(rows) > 1 else "This error"
    more = " or more" if max(map(_error, rows)) >= FAR_OFF else ""
    note = f" Predicting the {MEAN}: {from_to(of_mean)}." if of_mean else ""
    if min(map(_error, rows)) >= NOTHING_LEARNT * min(of_mean, default=1.0):
        about = f" is about 1{more}:" if not of_mean else " is"
        note += f" {whole}{about} no better than {'predicting the mean' if not of_mean else 'that'}."
    if own is None or len(rows) < 2 or rows[0].label != own:
        known = [found.mean for found in valid if found is not None]
        best, by = min(rows, key=_error), "this very error"
        if known and len(known) == len(rows):
            best, by = rows[known.index(min(known))], "the validation error"
        several = f"The best of {len(rows)} settings by {by}; " if len(rows) > 1 else ""
        detail = f"{several}mean over the test set and {len(best.seeds)} seed{'s' * (len(best.seeds) > 1)}."
        page.headline(f"{best.label}: relative L2 error {number(_error(best))}", detail[0].upper() + detail[1:] + note)
        return
    first, nearest = rows[1], min(rows[1:], key=_error)
    errors = f"Relative L2 error {number(_error(rows[0]))} against {number(_error(first))}."
    sizes = f"Parameters (real numbers): {rows[0].parameters['real']:,} against {first.parameters['real']:,}"
    if nearest is first:
        detail = f"{errors} {sizes}."
    else:
        detail = (
            f"{errors} The best of the others, {nearest.label}, has {number(_error(nearest))}: "
            f"{_times(rows[0], nearest, 'ours is')} that. {sizes} and {nearest.parameters['real']:,}."
        )
    words = f"{rows[0].label}: {_times(rows[0], first, 'error')} {first.label}"
    page.headline(f"{words}{_single(rows[0], first)}", f"{detail}{_scatter(rows[0], first)}{note}")


def _error(row: tables.Summary) -> float:
    return row.metrics["rel_l2"].mean


def _times(own: tables.Summary, other: tables.Summary, subject: str) -> str:
    """How much lower or higher the error of `own` is, in words; `subject` stands before a number."""
    factor = _error(other) / _error(own)
    if max(factor, 1 / factor) < ALIKE or abs(_error(other) - _error(own)) < UNCERTAIN * _deviation(own, other):
        return "no clear difference from"
    digits = 1 if max(factor, 1 / factor) >= 1.2 else 2
    words = f"{factor:.{digits}f} times lower" if factor >= 1 else f"{1 / factor:.{digits}f} times higher"
    return f"{subject} {words} than"


def _deviation(own: tables.Summary, other: tables.Summary) -> float:
    """Standard error of the difference of two means over seeds; 0 where one of them has a single seed."""
    found = [row.metrics["rel_l2"] for row in (own, other)]
    if any(each.std is None for each in found):
        return 0.0
    return math.sqrt(sum((each.std or 0.0) ** 2 / each.n for each in found))


def _single(own: tables.Summary, other: tables.Summary) -> str:
    """Which of the two has one seed, whose scatter is not known."""
    single = [row.label for row in (own, other) if len(row.seeds) == 1]
    return {0: "", 1: f" (one seed of {''.join(single)})", 2: " (one seed each)"}[len(single)]


def _scatter(own: tables.Summary, other: tables.Summary) -> str:
    """What seeds say of the difference."""
    if (deviation := _deviation(own, other)) == 0.0:
        return "" if _single(own, other) == "" else " How much seeds scatter is not known."
    apart = abs(_error(other) - _error(own)) / deviation
    return f" The means over seeds are {apart:.1f} standard errors of their difference apart."


def errors(
    page: Page, results: Mapping[str, Any], rows: Sequence[tables.Summary], targets: Sequence[Quantity] = ()
) -> None:
    """The test error of each model, drawn and in numbers, and what cannot be compared.

    `targets` are what the target channels hold, as far as it is known.
    """
    page.section("Test errors")
    several = any(len(row.seeds) > 1 for row in rows)
    seeds = " Large marks and lines: mean and standard deviation over seeds; small dots: the seeds." if several else ""
    page.figure(
        figures.error_dots(rows),
        f"Relative L2 error on the test set, mean over its samples; further left is better (log scale).{seeds}",
    )
    header, cells = tables.comparison_rows(results)
    valid = [found and plus_minus(found.mean, found.std) for found in tables.validation_errors(results["runs"])]
    choice = ""
    if known := errors_of_mean(results["runs"], "rel_l2"):
        squares = errors_of_mean(results["runs"], "mse")
        cells.append([MEAN, from_to(known), from_to(squares), *[""] * (len(header) - 3)])
        valid.append(None)
    if len(rows) > 1 and any(valid):
        header = [header[0], "validation rel. L2", "test rel. L2", *header[2:]]
        cells = [[row[0], found or tables.MISSING, *row[1:]] for row, found in zip(cells, valid, strict=True)]
        choice = "Choose among these by the validation error: of many settings the lowest test error flatters. "
    page.table(header, cells)
    spread = "Errors are mean ± sample standard deviation over seeds. " if several else ""
    page.text(
        f"{choice}{spread}MSE is in physical units. "
        "Parameters: complex weights are counted as two real numbers, or once. "
        f"Seconds are those of training one run{', means over runs measured alike' * several}."
    )
    if known:
        page.text(
            f"The {MEAN} is given for every test sample, whatever the input: what a model is better by, it has learnt "
            "from the inputs."
        )
    errors_of_fields(page, results["runs"], rows, targets)
    if note := _different_devices(results):
        page.text(note)
    if diverged := results.get("diverged"):
        lines = [f"- {run['label']}, seed {run['seed']}: {run['reason']}" for run in diverged]
        page.text("\n".join(("Diverged, and left out:\n", *lines)))


def _different_devices(results: Mapping[str, Any]) -> str:
    """Where runs were timed on different devices or with different numbers of threads: which; else nothing."""
    devices: dict[str, list[str]] = {}
    for run in results["runs"]:
        labels = devices.setdefault(run.get("device", results["device"]), [])
        labels += [] if run["label"] in labels else [run["label"]]
    if len(devices) < 2:
        return ""
    lines = "".join(f"\n- {device}: {'; '.join(labels)}" for device, labels in devices.items())
    return f"Seconds in this table are not comparable: devices or numbers of threads differ.\n{lines}"


def rollout_errors(page: Page, rows: Sequence[tables.Summary]) -> None:
    """Single steps, rollouts, and bands of wavenumbers."""
    names = {
        "one_step_rel_l2": "one step, rel. L2",
        "one_step_mse": "one step, MSE",
        "rollout": "rollout, mean rel. L2 of a frame",
    } | BANDS
    shown = {key: name for key, name in names.items() if key in rows[0].metrics}
    cells = [[row.label, *(tables.metric_cell(row, key) for key in shown)] for row in rows]
    page.table(["model", *shown.values()], cells)
    page.text(
        "One step: each frame from the true ones before it. The rel. L2 above is of all frames of a rollout together. "
        f"Bands are the parts of these frames {IN_BANDS}"
    )


def by_scale(page: Page, rows: Sequence[tables.Summary], records: Mapping[str, Any]) -> None:
    """Errors by band of wavenumbers of fields that are not in time, and spectra of one run of each label.

    `records` holds, by label, what `evaluation.json` does: its spectra are drawn.
    """
    page.section("Errors by scale")
    shown = {key: name for key, name in BANDS.items() if any(key in row.metrics for row in rows)}
    cells = [[row.label, *(tables.metric_cell(row, key) for key in ("rel_l2", *shown))] for row in rows]
    page.table(["model", "all", *shown.values()], cells)
    page.text(
        f"Rel. L2 of the parts of the fields {IN_BANDS} Wavenumbers are waves along the axes of the grid or mesh as it "
        "is stored; where fields are not periodic, the jump between their two ends is part of all scales."
    )
    if records:
        words, told = rollouts.in_words(next(iter(records.values()))), drawn_of(rows, records)
        page.figure(
            rollouts.spectra(records),
            f"Test fields by {words['shells']}, means over the test set.{told and f' {told}'} Left: what a shell "
            "holds; all shells together are half the mean square of the fields, in squared units of the data. Right: "
            "the error of a shell relative to the truth in it.",
        )


def drawn_of(rows: Sequence[tables.Summary], records: Mapping[str, Any]) -> str:
    """Which models and runs curves are of, where a table beside them has more."""
    few = f"the first {len(records)} of {len(rows)} models" if len(records) < len(rows) else ""
    first = "one run of each model" if any(len(row.seeds) > 1 for row in rows) else ""
    told = ", ".join(filter(None, (few, first)))
    return f"Curves are of {told}." if told else ""


def every_sample(page: Page, records: Mapping[str, Any], count: int) -> None:
    """The errors of so many test samples; `records` holds, by label, what `evaluation.json` does."""
    page.section("Every test sample")
    page.figure(
        figures.per_sample({label: record["per_sample"]["rel_l2"] for label, record in records.items()}),
        f"Share of the {count} test samples with a relative L2 error up to the given value. Marks: the medians."
        if count > 1
        else "The relative L2 error of the only test sample.",
    )


def expectations(page: Page, runs: Sequence[Mapping[str, Any]]) -> None:
    """The bounds that runs set to their own errors by validation samples, and how many test samples kept them."""
    page.section("What to expect of a prediction")
    cells = [
        [
            run["label"],
            str(run["seed"]),
            number(run["bound"]["rel_l2"]),
            f"{run['bound']['kept']:.0%}",
            str(run["bound"]["validation_samples"]),
        ]
        for run in runs
    ]
    coverage = runs[0]["bound"]["coverage"]
    fewest = [min(run["bound"][key] for run in runs) for key in ("validation_samples", "test_samples")]
    scatter = math.sqrt(coverage * (1 - coverage) * sum(1 / count for count in fewest))
    header = ["model", "seed", f"bound for {coverage:.0%}", "test samples within", "validation samples"]
    if own := any("each" in run["bound"] for run in runs):
        header += ["bounds of single samples", "within their own", "correlation"]
        cells = [row + _bounds_of_each(run["bound"].get("each")) for row, run in zip(cells, runs, strict=True)]
    page.table(header, cells)
    chosen = " Weights were chosen by the same samples, so that it is exceeded a little more often."
    page.text(
        f"The bound is the relative L2 error that {coverage:.0%} of samples should not exceed, by the errors of the "
        "validation samples (split conformal prediction); test samples only count how many do not, and with "
        f"{fewest[0]} and {fewest[1]} of them that share scatters by about {scatter:.0%}."
        f"{chosen * any(run['bound']['selected'] for run in runs)} It holds for inputs drawn as these were: "
        "`load(RUN).error_bound(0.9)` gives it, `load(RUN).strangeness(x)` says which inputs are unlike those of "
        "training."
        + " Where a prediction is the mean of several, how far these lie apart gives each sample a bound of its own, "
        "lowest to highest, with the same guarantee: `load(RUN).error_bound(0.9, x)`. The correlation is that of the "
        "logarithms of spreads and errors." * own
    )


def _bounds_of_each(each: Mapping[str, Any] | None) -> list[str]:
    if each is None:
        return ["-", "-", "-"]
    correlation = "-" if each["correlation"] is None else f"{each['correlation']:.2f}"
    return [f"{number(each['lowest'])} to {number(each['highest'])}", f"{each['kept']:.0%}", correlation]


def nothing_to_expect(page: Page) -> None:
    """What stands in place of bounds where no sample was kept for them."""
    page.section("What to expect of a prediction")
    page.text(
        "There are no validation samples (`data.valid = 0`, as published), so that no bound of the error of a "
        "prediction is known, and settings cannot be chosen without looking at test errors."
    )


def rollout_records(page: Page, records: Mapping[str, Any], start: int, bound: float) -> None:
    """Error by step, what a longer rollout does, and spectra, of one run of each label.

    `start` is the time of the first predicted frame, `bound` how often the largest square of the truth one may have.
    """
    words = rollouts.in_words(next(iter(records.values())))
    square = f"{words['square']} {words['formula']}"
    page.figure(
        rollouts.error_by_step(records, start),
        f"Left: error of each predicted frame. Right: {square} of each frame, rolled on to twice the horizon; the "
        "truth as far as it is known. Means over the test set.",
    )
    header, cells = _past_rows(records)
    page.table(header, cells)
    last = max(len(record["rel_l2_per_step"]) + len(record["later_rel_l2"]) for record in records.values())
    known = f" Last known: the last frame whose truth is known, t = {start + last - 1}." if len(header) > 6 else ""
    page.text(
        "Steps: frames predicted, twice the horizon. Finite: test samples whose predicted frames are all finite. "
        f"Bounded: those whose {square} also stays below {bound:g} times the largest of all true frames; one that "
        f"fades away is bounded.{known}"
    )
    page.figure(
        rollouts.spectra(records, "last frame of the horizon"),
        f"The last frame of the horizon by {words['shells']}, means over the test set. Left: what a shell holds; all "
        f"shells together are {words['sum']}. Right: the error of a shell relative to the truth in it.",
    )


def _past_rows(records: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What becomes of rollouts that go on to twice their horizon."""
    header = ["model", "steps", "finite", "bounded", "rel. L2, first step", "last of the horizon"]
    further = any(record["later_rel_l2"] for record in records.values())
    rows = []
    for label, record in records.items():
        past, errors = record["past"], record["rel_l2_per_step"]
        shares = [f"{100 * past[key]:.0f} %" for key in ("finite", "bounded")]
        last = [number([*errors, *record["later_rel_l2"]][-1])] if further else []
        rows.append([label, str(past["steps"]), *shares, number(errors[0]), number(errors[-1]), *last])
    return [*header, *(["last known"] if further else [])], rows


def other_resolutions(page: Page, records: Records, among: Sequence[str], other: Mapping[int, str]) -> None:
    """Errors on grids that the runs were not trained on.

    `among` are all labels of the study; `other` says, by resolution, why errors there are not of the same functions.
    """
    curves, trained = curves_of(records)
    page.section("On other grids")
    page.figure(
        error_against_resolution(curves, trained, among),
        "The trained networks, as they are, on the test functions sampled on other grids. Larger marks: the grid of "
        "training; bands: one standard deviation over seeds.",
    )
    page.table(*resolution_rows(curves, trained))
    for reason in dict.fromkeys(other.values()):
        told = ", ".join(str(n) for n, found in other.items() if found == reason)
        page.text(f"Errors at resolution {told} are against other functions: {reason}.")


def one_frame_table(page: Page, rows: Sequence[tables.Summary], viscosity: float, origin: str) -> None:
    """Ours beside the published flows of one frame to the next."""
    page.section("Beside the published numbers")
    page.text(" ".join(filter(None, (published.navier_stokes_source(), SAMPLES.get(origin)))))
    measured = ("one_step_mse", "one_step_rel_l2", "rollout")
    cells = [[f"{row.label} (ours)", *(tables.metric_cell(row, key) for key in measured)] for row in rows]
    for row in published.navier_stokes_one_frame(viscosity):
        values = [row[key] for key in ("mse", "rel_l2", "rollout")]
        cells.append([row["label"], *(tables.MISSING if v is None else number(v, 2) for v in values)])
    page.table(["model", "MSE, one step", "rel. L2, one step", "rollout"], cells)


def main_table(page: Page, rows: Sequence[tables.Summary], benchmark: str, origin: str) -> None:
    """Ours beside a column of the published main table."""
    page.section("Beside the published numbers")
    page.text(" ".join(filter(None, (published.main_table_source(benchmark), SAMPLES.get(origin)))))
    cells = [[f"{row.label} (ours)", tables.metric_cell(row, "rel_l2")] for row in rows]
    cells += [[label, f"{value:.4f}"] for label, value in published.main_table(benchmark).items()]
    page.table(["model", "rel. L2"], cells)
    if found := published.bands(benchmark):
        names = ("full", "low", "medium", "high")
        page.text(published.source("bands"))
        page.table(["model, published", *names], tables.printed_rows(found, names))


def structure_table(page: Page, rows: Sequence[tables.Summary], origin: str) -> None:
    """Ours beside the published errors by structure of the factors, under the same labels."""
    page.section("Beside the published numbers")
    page.text(" ".join(filter(None, (published.source("darcy_structure"), SAMPLES.get(origin)))))
    ours = {row.label: tables.metric_cell(row, "rel_l2") for row in rows}
    known = published.structures()
    cells = [[label, f"{value:.4f}", ours.get(label, tables.MISSING)] for label, value in known.items()]
    cells += [[label, tables.MISSING, cell] for label, cell in ours.items() if label not in known]
    page.table(["factors", "published", "ours"], cells)


def sphere_table(page: Page, results: Mapping[str, Any], rows: Sequence[tables.Summary]) -> None:
    """Ours beside the published table of the sphere: single steps, windows of a rollout, all of it."""
    page.section("Beside the published numbers")
    page.text(" ".join(filter(None, (published.source("shallow_water"), SAMPLES.get(results["origin"])))))
    windows = published.sphere_windows()
    cells = []
    for row in rows:
        inside = tables.window_cells(results, row.label, windows.values())
        single = [tables.metric_cell(row, key) for key in ("one_step_mse", "one_step_rel_l2")]
        cells.append([f"{row.label} (ours)", *single, *inside, tables.metric_cell(row, "rollout")])
    cells += tables.printed_rows(published.sphere(), ("mse", "rel_l2", *windows, "rollout"))
    page.table(
        ["model", "MSE, one step", "rel. L2, one step", *(f"rollout {name}" for name in windows), "rollout"], cells
    )
