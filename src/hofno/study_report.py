"""The report of a study: from `results.json` and the run folders to one page a person can open.

The spec's own run stands first and is compared with the others: a mark for each, learning curves, the same test sample
seen by all of them, the spread over the test set, the error against what is swept, other grids where they were
evaluated there, and, where the spec names a published table, that table beside ours. Models in time are shown in time:
a film, the error of each frame, what a longer rollout does, and spectra.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hofno import spec as specs
from hofno import storage
from hofno.data.dataset import Split
from hofno.data.names import quantities_of
from hofno.data.stamps import changed_sources
from hofno.errors import SpecError
from hofno.evaluation.rollout import BOUND
from hofno.evaluation.score import LEAST_KNOWN
from hofno.geometry import Sphere
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.report import bodies, chapters, figures, rollouts, tables, walls
from hofno.report.film import make_film
from hofno.report.outcomes import outcomes_chapter
from hofno.report.page import Page, check_page_folder, is_page_folder
from hofno.report.quantities import errors_of_mean
from hofno.report.resolution import records_of
from hofno.report.scenes import Scene, scene_of
from hofno.report.sweeps import add_sweeps, side_by_side
from hofno.saved import load
from hofno.spec import Spec
from hofno.stages import make_data
from hofno.storage.files import is_temporary
from hofno.study import member_folder, name_of
from hofno.study_published import add_published, drawn_by_depth

SHOWN_AT_MOST = 6
FILMED_AT_MOST = 3
ONE_SCALE = "The errors of all models have one scale."

ORIGINS = {
    "generated": "data generated here from the PDE",
    "original": "the published data",
    "user": "data of your own",
}


def write_report(out: Path, results: dict[str, Any]) -> Path:
    """Write OUT/index.html and OUT/report.md and return the page's path."""
    check_page_folder(out)
    spec = specs.parse(results["spec"], f"{out / 'results.json'}")
    page = Page(results["title"], _lead(results, spec))
    rows = tables.summarise(results["runs"])
    valid = tables.validation_errors(results["runs"])
    judged = side_by_side(rows, valid, spec.sweep) if spec.compare else []
    few = [rows[index] for index in judged]
    known = errors_of_mean(results["runs"], "rel_l2")
    chapters.headline(page, few or rows, few[0].label if few else None, [valid[i] for i in judged] or valid, known)
    remarks = dict.fromkeys(str(remark).strip() for remark in (results.get("remark", ""), spec.remark))
    if remark := "\n\n".join(filter(None, remarks)):
        page.remark(remark)
    chapters.errors(page, results, rows, quantities_of(spec).targets)
    if rows and "rollout" in rows[0].metrics:
        chapters.rollout_errors(page, rows)
    add_published(page, results, rows, spec)
    add_sweeps(page, rows, spec.sweep, spec.label or spec.name, drawn_by_depth(spec))
    if sure := [run for run in results["runs"] if "bound" in run]:
        chapters.expectations(page, sure)
    elif results["origin"] == "original" and spec.data.parameters.get("valid") == 0:
        chapters.nothing_to_expect(page)
    if any("rel_l2_low" in row.metrics and "rollout" not in row.metrics for row in rows):
        chapters.by_scale(page, rows, _of_each_label(results, "spectra"))
    if any("outcomes" in run for run in results["runs"]):
        made = problem(spec.data.problem, spec.data.parameters)
        outcomes_chapter(page, results["runs"], _records(out, spec), LEAST_KNOWN, made.together)
    records = {label: run["rollout"] for label, run in _of_each_label(results, "rollout").items()}
    if not _runs(page, out, spec) and records:
        page.section("Rollouts")
        if note := chapters.drawn_of(rows, records):
            page.text(note)
        start = _first_time(problem(spec.data.problem, spec.data.parameters))
        chapters.rollout_records(page, records, start, BOUND)
    _resolutions(page, results, spec, [row.label for row in rows])
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
    parameters = spec.data.parameters.items()
    data = ", ".join(f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in parameters)
    count, missing = len(results["runs"]), len(spec.members()) - len(results["runs"])
    runs = f"{count} run{'s' * (count > 1)}"
    if missing > 0:
        diverged = min(missing, len(results.get("diverged", [])))
        left = (
            f"{diverged} diverged" * (diverged > 0),
            f"{missing - diverged} missing or not finished" * (missing > diverged),
        )
        runs = f"{count} of the {count + missing} runs of this study ({', '.join(filter(None, left))})"
    epochs = sorted({run.get("epochs", spec.train.epochs) for run in results["runs"]})
    return (
        f"{runs} on {ORIGINS.get(results['origin'], results['origin'])} (`{spec.data.problem}`: {data}). "
        f"Trained for {_either(epochs)} epoch{'s' * (epochs != [1])} on {results['device']}. "
        "Errors are on the test split, which training and the choice of weights never see."
    )


def _either(numbers: list[int]) -> str:
    """1, 2 or 3"""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _of_each_label(results: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """The first run of each label that holds a key, a few at most."""
    found: dict[str, dict[str, Any]] = {}
    for run in results["runs"]:
        if key in run and len(found) < SHOWN_AT_MOST:
            found.setdefault(run["label"], run)
    return found


def _records(out: Path, spec: Spec) -> dict[str, Any]:
    """What was measured of the first seed of each label whose run folder is there, a few at most."""
    found: dict[str, Any] = {}
    for member, cell in spec.members():
        file = member_folder(out, member) / "evaluation.json"
        if len(found) < SHOWN_AT_MOST and name_of(member, cell) not in found and file.exists():
            found[name_of(member, cell)] = storage.read_json(file)
    return found


def _runs(page: Page, out: Path, spec: Spec) -> bool:
    """Curves, fields and spread of the members whose run folders are there; the first seed of each, a few at most.

    False: there are none.
    """
    shown, runs = dict[str, tuple[Spec, Path]](), 0
    for member, cell in spec.members():
        folder = member_folder(out, member)
        if (folder / "evaluation.json").exists():
            shown.setdefault(name_of(member, cell), (member, folder))
            runs += 1
    if not shown:
        return False
    few = dict(list(shown.items())[:SHOWN_AT_MOST])
    page.section("Training")
    if note := _shown_here([member for member, _ in few.values()], len(shown), runs):
        page.text(note)
    histories = {label: storage.read_history(folder) for label, (_, folder) in few.items()}
    validated = any("valid_rel_l2" in row for history in histories.values() for row in history)
    caption = f"Training loss {'and validation error ' * validated}by epoch."
    page.figure(figures.learning_curves(histories), caption)
    page.section("What the models predict")
    evaluations = {label: storage.read_json(folder / "evaluation.json") for label, (_, folder) in few.items()}
    first, _ = next(iter(few.values()))
    folders = {label: folder for label, (member, folder) in few.items() if _has_samples_of(first, member)}
    own = next(iter(folders))
    if len(folders) < len(few):
        page.text(f"The sample is of the data of {own}; models whose data have other samples are left out.")
    data = make_data(first)
    _warn_of_changed_sources(data.stamp, list(folders.values()))
    made = problem(first.data.problem, first.data.parameters)
    scene = scene_of(made, quantities_of(first))
    errors = evaluations[own]["per_sample"]["rel_l2"][: len(data.test) // made.together]
    sample = middle(errors)
    said = f"Number {sample} of {len(errors)} test samples, at which {own} has its median error"
    said = said if len(errors) > 1 else "The only test sample"
    shown_sample = data.test[sample * made.together : (sample + 1) * made.together]
    x, y, coords, mask = shown_sample.x, shown_sample.y, shown_sample.coords, shown_sample.mask
    if data.rollout is None:
        found = {label: load(folder).predict_tensor(x, coords=coords, mask=mask) for label, folder in folders.items()}
        there = slice(None) if mask is None else mask[0]
        predictions = {label: values[..., there].numpy() for label, values in found.items()}
        show_sample(page, _where_points_are(shown_sample), predictions, scene, said)
    else:
        truth = y if data.later is None else torch.cat((y, data.later[sample : sample + 1]), 1)
        name = next(iter(scene.targets), "fields")
        _rollouts(page, x, truth, folders, evaluations, made, name, said)
    chapters.every_sample(page, evaluations, len(errors))
    return True


def _has_samples_of(first: Spec, other: Spec) -> bool:
    """Whether the data of two runs have the same test samples.

    These may have a random stream of their own, whatever the counts of others; else all splits are cut out of one set.
    """
    made = [problem(spec.data.problem, spec.data.parameters) for spec in (first, other)]
    free = {"train", "valid"} if made[0].one_set is None else set[str]()
    told = [{key: value for key, value in one.parameters().items() if key not in free} for one in made]
    return first.data.problem == other.data.problem and told[0] == told[1]


def _where_points_are(shown: Split) -> Split:
    """One sample without the points that its mask leaves out."""
    if shown.mask is None or shown.coords is None:
        return shown
    x, y, coords = (part[..., shown.mask[0]] for part in (shown.x, shown.y, shown.coords))
    return Split(x, y, coords)


def _warn_of_changed_sources(now: dict[str, Any], folders: list[Path]) -> None:
    """Say so where the sample that is shown is not from the files that runs were trained on."""
    stamps = [storage.read_json(folder / "model.json").get("stamp", {}).get("data") for folder in folders]
    if names := dict.fromkeys(name for stamp in stamps for name in changed_sources(stamp, now)):
        warnings.warn(
            f"{', '.join(names)} changed since the runs were trained: the sample in the report is of the changed file, "
            "the numbers are not",
            stacklevel=2,
        )


def _shown_here(members: list[Spec], labels: int, runs: int) -> str:
    """Which runs are drawn, where not all of them are."""
    seeds = sorted({member.seed for member in members})
    first = f"one run of each model, with seed {_either(seeds)}" if runs > labels else ""
    few = f"the first {len(members)} of {labels} models" if labels > len(members) else ""
    told = ", ".join(filter(None, (few, first)))
    return f"Curves and samples below are of {told}." if told else ""


def show_sample(
    page: Page, shown: Split, predictions: dict[str, Any], scene: Scene, said: str = "One test sample"
) -> None:
    """One test sample where it lies, and what each model makes of it; `said` is which one that is."""
    x, y = shown.x.numpy(), shown.y.numpy()
    if scene.motion is None:
        places = None if shown.coords is None or scene.surface is not None else shown.coords.numpy()
        line = f" White line: {scene.level[1]}." if scene.level is not None else ""
        line += " Points in space are drawn by their number." if places is not None and places.shape[1] != 2 else ""
        line += " Each field is seen from two opposite sides." if scene.surface is not None else ""
        in_colour = scene.surface is not None or (y.ndim > 3 if places is None else places.shape[1] == 2)
        beyond = " Predictions have the colours of the truth; what lies beyond has the last one." * in_colour
        own = f" {ONE_SCALE}" * (len(predictions) > 1)
        page.figure(
            figures.fields(x, y, predictions, places=places, scene=scene),
            f"{said}: inputs, solution, each model's prediction and error, in physical units.{beyond}{own}{line}",
        )
        if scene.wall:
            line = f"; dotted: {scene.level[1]}" if scene.level is not None else ""
            for channel, drawn in scene.coefficients.items():
                if drawn.downwards and channel < y.shape[1]:
                    line += f"; the {drawn.name} grows downwards, as is usual"
            page.figure(
                walls.along_wall(x[0], y[0], {label: found[0] for label, found in predictions.items()}, scene),
                f"The same sample along both sides of the {scene.wall}{line}.",
            )
        return
    few = list(predictions.items())[:FILMED_AT_MOST]
    seen = bodies.pressing(x, y, dict(few), scene.motion)
    page.film(
        bodies.body_film(seen),
        f"{said}: each body on the nodes that were computed or predicted, errors on the computed ones. "
        f"Axes are in {scene.motion.units[0]}; dashed: where the true body is.",
    )
    page.figure(
        bodies.body_frames(seen),
        f"The same sample at a few times; grey: the tool; dashed: where the true body is. {ONE_SCALE}",
    )


def middle(errors: Sequence[float]) -> int:
    """The place of the median, of an even number of errors the lower one."""
    return sorted(range(len(errors)), key=lambda place: errors[place])[(len(errors) - 1) // 2]


def _rollouts(
    page: Page,
    x: Tensor,
    truth: Tensor,
    folders: dict[str, Path],
    evaluations: dict[str, Any],
    made: Problem,
    name: str,
    said: str,
) -> None:
    """Film and frames of models in time, if these are in the plane; error by step and spectra.

    `name` is what the first field of a frame is.
    """
    start = _first_time(made)
    if truth.ndim == 4:
        _filmed(page, x, truth, dict(list(folders.items())[:FILMED_AT_MOST]), made, name, said)
    chapters.rollout_records(page, {label: found["rollout"] for label, found in evaluations.items()}, start, BOUND)


def _filmed(
    page: Page, x: Tensor, truth: Tensor, folders: dict[str, Path], made: Problem, name: str, said: str
) -> None:
    """One sample, moving and at a few times."""
    fields = 1 if made.rollout is None else made.rollout.fields
    start, steps, truth = _first_time(made), truth.shape[1] // fields, as_drawn(truth[:, ::fields], made)
    predictions = {
        label: as_drawn(load(folder).predict_tensor(x, steps=steps)[0, ::fields], made).numpy()
        for label, folder in folders.items()
    }
    times = [f"t = {start + index}" for index in range(steps)]
    beyond = made.rollout.horizon if made.rollout is not None else steps
    later = f" Frames from t = {start + beyond} on lie beyond the horizon of training." if beyond < steps else ""
    one_field = f", the first of its {fields} fields" if fields > 1 else ""
    page.film(
        make_film(truth[0].numpy(), predictions, times, name),
        f"{said}{one_field}, rolled out from true frames up to t = {start - 1}.{later}",
    )
    page.figure(
        rollouts.frames(truth[0].numpy(), predictions, start, name),
        f"The same sample at a few times. {ONE_SCALE}",
    )


def as_drawn(frames: Tensor, made: Problem) -> Tensor:
    """Frames with their first axis to the right and their second one upwards: a sphere eastwards and northwards."""
    return frames.mT.flip(-1) if isinstance(made.grid_geometry, Sphere) else frames


def _first_time(made: Problem) -> int:
    """Time of the first predicted frame; frame 0 is t = 1."""
    return getattr(made, "start", 0) + 1


def _resolutions(page: Page, results: dict[str, Any], spec: Spec, labels: list[str]) -> None:
    """The runs that were evaluated on other grids too."""
    if records := records_of(results):
        made = problem(spec.data.problem, spec.data.parameters)
        asked = sorted({int(n) for _, record in records for n in record["rel_l2"]})
        reasons = {n: made.differs_at(n) for n in asked}
        chapters.other_resolutions(page, records, labels, {n: reason for n, reason in reasons.items() if reason})


def _conditions(results: dict[str, Any], spec: Spec) -> dict[str, str]:
    seeds = sorted({run["seed"] for run in results["runs"]})
    versions = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    return {
        "Device": "; ".join(dict.fromkeys(run.get("device", results["device"]) for run in results["runs"])),
        "Versions": versions,
        "Seeds": ", ".join(str(seed) for seed in seeds),
        "Data": f"{results['origin']}, problem {results['problem']}, seed {spec.data.parameters.get('seed', 0)}",
        "Training time": _training_time(results["runs"]),
        "Date": results["created"],
        "Spec hash": results["spec_hash"],
    }


def _training_time(runs: list[dict[str, Any]]) -> str:
    """Seconds of all runs together, those measured under other conditions apart."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.get("beside", ""), []).append(run["seconds"])
    if list(found) == [""]:
        return f"{sum(found['']):.0f} s in all runs"
    return "; ".join(
        f"{sum(s):.0f} s in {len(s)} run{'s' * (len(s) > 1)}, {how or 'conditions unknown'}" for how, s in found.items()
    )
