"""`hofno evaluate RUN --resolution N`: a run, or all runs of a study, on other grids than they were trained on."""

from __future__ import annotations

import shlex
import statistics
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hofno import spec as specs
from hofno import stages, storage
from hofno.cli.options import print_table
from hofno.cli.other_data import refuse_known_samples, refuse_samples_of_start, refuse_unseen_motions
from hofno.data.files import stamps_of
from hofno.errors import CheckpointError, SpecError
from hofno.problems.registry import problem
from hofno.report.drawing import in_any_script
from hofno.report.resolution import curves_of, error_against_resolution
from hofno.saved import load
from hofno.show import choose_show, progress_on
from hofno.storage.runs import is_finished
from hofno.study import RESOLUTION as FILE
from hofno.study import means_by_resolution
from hofno.study_results import check_results, owned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hofno.spec import Spec

FIGURE = "resolution.svg"


def evaluate_resolutions(run: Path, resolutions: list[int], changes: dict[str, Any]) -> None:
    """Print the errors at each resolution, and write them and their figure unless something was changed."""
    if "data.resolution" in changes:
        raise SpecError("--resolution and --set data.resolution contradict each other; leave one of them out")
    labels = _labels(run)
    folders, read = _in_order(_folders(run), labels)
    members = [specs.override(spec, changes) if changes else spec for spec in read]
    for folder, spec, member in zip(folders, read, members, strict=True):
        refuse_unseen_motions(folder, member)
        refuse_known_samples(spec, member)
    operators = [load(folder, member.device) for folder, member in zip(folders, members, strict=True)]
    for spec, member, operator in zip(read, members, operators, strict=True):  # all that can fail early, before solving
        refuse_samples_of_start(spec, member, operator)
        stages.check_resolutions(member, operator, resolutions)
        stages.predict_as(member, operator)
    own = all(member.run_hash == spec.run_hash for member, spec in zip(members, read, strict=True))
    for member, operator in zip(members, operators, strict=True) if own else ():
        files = stamps_of(problem(member.data.problem, member.data.parameters))
        own = not stages.warn_of_changed_sources(operator, {"files": files}) and own
    records: list[dict[str, Any]] = []
    for folder, member, operator in zip(folders, members, operators, strict=True):
        records.append(stages.evaluate_resolutions(member, operator, resolutions, progress_on(choose_show(True))))
        _print(folder, records[-1])
        if own:
            storage.write_json(folder / FILE, records[-1])
    if not own:
        typer.echo("other data or predictions than the run's own: nothing is written")
        return
    buffer = BytesIO()
    with in_any_script():
        _figure(read, folders, records, labels).savefig(buffer, format="svg", facecolor="white")
    storage.write_bytes(run / FIGURE, buffer.getvalue())
    typer.echo(f"figure: {run / FIGURE}")
    own_files = f"{run / FILE}" if folders == [run] else f"{FILE} in the folder of each run, under {run / 'runs'}"
    typer.echo(f"numbers: {own_files}")
    if labels:
        _note_in_results(run / "results.json", records)
        typer.echo(f"means: {run / 'results.json'}")
        typer.echo(f"to have both in the study's report: hofno report {shlex.quote(str(run))}")


def _folders(run: Path) -> list[Path]:
    """The run itself, or the finished runs of a study."""
    if not (run / "runs").is_dir():
        return [run]
    found = sorted(path for path in (run / "runs").iterdir() if path.is_dir() and is_finished(path))
    if not found:
        again = f"hofno run SPEC --out {shlex.quote(str(run))}"
        raise CheckpointError(f"the study {run} has no finished run; go on with it: {again}")
    return found


def _labels(run: Path) -> dict[str, str]:
    """What the runs of a study are called in its report, in its order, by their hashes; none of a single run."""
    file = run / "results.json"
    if not file.is_file():
        return {}
    results = storage.read_json(file)
    check_results(results, str(file), of_runs={"spec_hash": str, "label": str})
    return {found["spec_hash"]: found["label"] for found in results["runs"]}


def _note_in_results(file: Path, records: list[dict[str, Any]]) -> None:
    """Write the mean errors of each run to the results of its study."""
    found = {record["spec_hash"]: means_by_resolution(record) for record in records}
    with owned(file):
        results = storage.read_json(file)
        for run in results["runs"]:
            run |= {"resolutions": found[run["spec_hash"]]} if run["spec_hash"] in found else {}
        storage.write_json(file, results)


def _in_order(folders: list[Path], labels: dict[str, str]) -> tuple[list[Path], list[Spec]]:
    """Folders with their specs: those of a study in its order, others behind."""
    read = {folder: stages.read_spec(folder) for folder in folders}
    known = list(labels)
    places = {
        folder: known.index(spec.run_hash) if spec.run_hash in labels else len(known) for folder, spec in read.items()
    }
    ordered = sorted(folders, key=lambda folder: places[folder])
    return ordered, [read[folder] for folder in ordered]


def _print(folder: Path, record: dict[str, Any]) -> None:
    errors = {int(n): found["per_sample"]["rel_l2"] for n, found in record["resolutions"].items()}
    trained = statistics.fmean(errors[record["trained_at"]])
    rows = [
        [
            f"{n}{' (trained)' if n == record['trained_at'] else ''}",
            f"{statistics.fmean(values):.4g}",
            f"{statistics.median(values):.4g}",
            f"{max(values):.4g}",
            f"{statistics.fmean(values) / trained:.3f}" if trained > 0 else "-",
        ]
        for n, values in errors.items()
    ]
    title = f"{folder}: rel_l2 of {len(errors[record['trained_at']])} test samples"
    print_table(title, ["points along each axis", "mean", "median", "worst", "ratio to the training grid"], rows)


def _figure(read: list[Spec], folders: list[Path], records: list[dict[str, Any]], labels: dict[str, str]) -> Figure:
    """Runs that differ in their seed alone are one curve; curves of one label are told apart by their folders."""
    groups: dict[str, list[int]] = {}
    for index, spec in enumerate(read):
        groups.setdefault(spec.model_copy(update={"seed": 0}).run_hash, []).append(index)
    firsts = [group[0] for group in groups.values()]
    names = [labels.get(read[first].run_hash) or str(records[first]["label"]) for first in firsts]
    named: list[tuple[str, dict[str, Any]]] = []
    for name, group in zip(names, groups.values(), strict=True):
        label = name if names.count(name) == 1 else f"{name} ({folders[group[0]].name})"
        named += [(label, means_by_resolution(records[index])) for index in group]
    return error_against_resolution(*curves_of(named), list(labels.values()))
