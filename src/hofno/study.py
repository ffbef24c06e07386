"""A study: the runs that a spec's `[[compare]]` and `[sweep]` describe, trained, evaluated and gathered in one file.

    OUT/runs/<label>-<hash>/   a run folder for each member, see `hofno.stages`
    OUT/results.json           all measured numbers with their conditions, written again whenever a member is done

A member that is done is not done again; one that was interrupted goes on; one that diverged is noted and left out.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from hofno import fits, storage
from hofno import spec as specs
from hofno.data.dataset import Dataset
from hofno.data.files import stamps_of
from hofno.data.stamps import changed_sources
from hofno.data.store import generate, store_folder
from hofno.device import find_device, gpus_to_share
from hofno.errors import DataError, DivergedError, HofnoError, SpecError
from hofno.problems.base import ignore_progress
from hofno.problems.registry import problem
from hofno.show import Show, Silent, progress_on, showing
from hofno.spec import Spec
from hofno.stages import (
    evaluate_run,
    is_made,
    make_data,
    read_spec,
    train_run,
)
from hofno.storage.runs import is_finished
from hofno.study_results import SCHEMA, check_results, owned
from hofno.train.start import note_of, opened
from hofno.train.state import device_name
from hofno.versions import versions
from hofno.workers import share

RESOLUTION = "resolution.json"
"""What `hofno evaluate --resolution` writes to the folder of a run."""
NAME_AT_MOST = 60
"""Letters of a run's label in the name of its folder."""

Outcome = dict[str, Any] | str
"""What came of a member: what was measured, or how its training diverged."""


def member_folder(out: Path, spec: Spec) -> Path:
    """A folder name a person can read, made unique by the run's hash."""
    name = re.sub(r"[^a-z0-9]+", "-", (spec.label or spec.name).lower()).strip("-")
    name = name[:NAME_AT_MOST].strip("-")
    return out / "runs" / f"{name}-{spec.run_hash[:8]}"


def read_member(spec: Spec, out: Path) -> dict[str, Any] | None:
    """What was measured of a member; None while it is not done."""
    path = member_folder(out, spec)
    if not is_finished(path) or (record := _own_record(path / "evaluation.json", spec)) is None:
        return None
    kept = {key: value for key, value in record.items() if key != "per_sample"}
    elsewhere = _own_record(path / RESOLUTION, spec)
    return {**kept, "resolutions": means_by_resolution(elsewhere)} if elsewhere else kept


def means_by_resolution(record: dict[str, Any]) -> dict[str, Any]:
    """What a results file tells of a run on other grids: `{trained_at, rel_l2: {points along each axis: mean}}`."""
    means = {n: found["metrics"]["rel_l2"] for n, found in record["resolutions"].items()}
    return {"trained_at": record["trained_at"], "rel_l2": means}


def _own_record(file: Path, spec: Spec) -> dict[str, Any] | None:
    """What a file of a run's folder holds, if it is of this run."""
    record = storage.read_json(file) if file.exists() else {}
    return record if record.get("spec_hash") == spec.run_hash else None


def run_member(spec: Spec, out: Path, show: Show, data: Dataset | None = None) -> dict[str, Any]:
    """Train and evaluate one member, or read what is there already."""
    path = member_folder(out, spec)
    if (record := read_member(spec, out)) is not None:
        return record
    data = data or _data_of(spec, show)
    if is_finished(path):
        return evaluate_run(spec, data, path)[0]
    resume = (path / "spec.toml").exists()
    if resume and read_spec(path).run_hash != spec.run_hash:
        raise SpecError(f"{path} belongs to another spec; delete it or choose another --out")
    run = train_run(spec, data, path, resume=resume, show=show)
    return evaluate_run(spec, data, path, run.surrogate)[0]


def _data_of(spec: Spec, show: Show) -> Dataset:
    """The data of a member; that they are made is shown, which may take hours, and that they are read is not."""
    made = problem(spec.data.problem, spec.data.parameters)
    return make_data(spec, ignore_progress if is_made(made) else progress_on(show))


def try_member(spec: Spec, out: Path, show: Show, data: Dataset | None = None) -> Outcome:
    """As `run_member`, but training that diverges is an outcome and no error."""
    try:
        return run_member(spec, out, show, data)
    except DivergedError as error:
        return str(error)


@lru_cache(maxsize=4)
def _data_once(problem: str, parameters: str, device: str, store: str) -> Dataset:
    """Data shared by the members a worker process runs."""
    return generate(problem, store=store, device=device, **json.loads(parameters))


def _worker(task: tuple[dict[str, Any], str]) -> Outcome:
    """Run one member in a worker process."""
    values, out = task
    torch.set_num_threads(1)
    spec = specs.parse(values)
    parameters = json.dumps(spec.data.parameters, sort_keys=True)
    data = _data_once(spec.data.problem, parameters, spec.device, str(store_folder()))
    return try_member(spec, Path(out), Silent(), data)


def checked_members(spec: Spec) -> list[tuple[Spec, dict[str, Any]]]:
    """The members of a study, each of which can be, and no two of which are the same run or have one name."""
    members = spec.members()
    first: dict[str, str] = {}
    labels = [variant.label for variant in spec.compare]
    for member, cell in members:
        name = f"{name_of(member, cell)}, seed {member.seed}"
        try:
            fits.check(member)
        except HofnoError as error:
            if len(members) == 1:
                raise
            remedy = "; change its [compare.set], or leave comparisons out: --set compare=[]" if "label" in cell else ""
            raise type(error)(f"member {name_of(member, cell)!r} of the study: {error}{remedy}") from None
        if member.run_hash in first:
            raise SpecError(
                f"two members of the study are one run, {first[member.run_hash]!r} and {name!r}: same data, model, "
                "training and seed; change or drop one of them in compare or sweep"
            )
        if name in first.values() or labels.count(cell.get("label", "")) > 1:
            raise SpecError(
                f"two members of the study are called {name_of(member, cell)!r}, and tables tell them apart by that; "
                "give each [[compare]] a label of its own"
            )
        first[member.run_hash] = name
    return members


def chosen_members(spec: Spec, only: Sequence[str]) -> list[int]:
    """Which members `only` names, by a label or a whole name, or one of these and its seed; all if it names none."""
    names = [
        {label := member.label or member.name, name := name_of(member, cell)}
        | {f"{known}, seed {member.seed}" for known in (label, name)}
        for member, cell in spec.members()
    ]
    for asked in only:
        if not any(asked in name for name in names):
            there = "; ".join(dict.fromkeys(max(name, key=len) for name in names))
            raise SpecError(f"--only {asked!r} names no run of the study; it has: {there}")
    return [index for index, name in enumerate(names) if not only or name & set(only)]


def run_study(spec: Spec, out: Path, show: Show, workers: int = 1, only: Sequence[str] = ()) -> dict[str, Any]:
    """Run every member, or `only` those so called, and write `results.json`.

    With several workers, members are trained by processes, which share the GPUs there are, or the device of the spec.
    """
    members = checked_members(spec)
    chosen = chosen_members(spec, only)
    begun = time.perf_counter()
    own: dict[str, Outcome] = {}

    def write() -> dict[str, Any]:
        """What is known at this moment: other processes may run other members, or evaluate them on other grids."""
        with owned(out / "results.json"):
            known = {**diverged_earlier(out), **own}
            outcomes = [read_member(member, out) or known.get(member.run_hash) for member, _ in members]
            found = gather(spec, outcomes, time.perf_counter() - begun)
            storage.write_json(out / "results.json", found)
        return found

    def keep(index: int, outcome: Outcome) -> str:
        own[members[index][0].run_hash] = outcome
        write()
        return outcome if isinstance(outcome, str) else f"test rel_l2 {outcome['metrics']['rel_l2']:.4g}"

    if workers <= 1:
        for index in chosen:
            member, cell = members[index]
            told = keep(index, try_member(member, out, show))
            show.note(f"{name_of(member, cell)}: {told}  (seed {member.seed})")
    else:
        for member in {members[index][0].data_hash: members[index][0] for index in chosen}.values():
            _data_of(member, show)
        _run_in_processes(spec, members, chosen, out, show, workers, keep)
    return write()


def _run_in_processes(
    spec: Spec,
    members: list[tuple[Spec, dict[str, Any]]],
    chosen: list[int],
    out: Path,
    show: Show,
    workers: int,
    keep: Callable[[int, Outcome], str],
) -> None:
    """Train the chosen members in `workers` processes, the longest first, so that the last ones are short."""
    order = sorted(chosen, key=lambda i: -int(members[i][0].model.arguments.get("depth", 1)))
    count = 0

    def done(position: int, outcome: Outcome) -> None:
        nonlocal count
        count += 1
        index = order[position]
        member, cell = members[index]
        show.advance(count, f"{name_of(member, cell)} seed {member.seed}: {keep(index, outcome)}")

    with showing(show):
        show.start(spec.title or spec.name, len(order), 0, "run")
        tasks = [(members[i][0].plain(), str(out)) for i in order]
        devices = {members[i][0].device for i in order}  # a member may have one of its own
        share(_worker, tasks, workers, done, gpus=gpus_to_share(devices.pop()) if len(devices) == 1 else ())


def diverged_earlier(out: Path) -> dict[str, str]:
    """The runs of a study's folder that diverged, by their hashes, and how."""
    if not (out / "results.json").exists():
        return {}
    results = storage.read_json(out / "results.json")
    check_results(results, str(out / "results.json"))
    return {run["spec_hash"]: run["reason"] for run in results.get("diverged", [])}


def refuse_diverged(results: dict[str, Any]) -> None:
    """Say which runs of a study diverged, if any did, and how they are run again."""
    if diverged := results.get("diverged"):
        names = ", ".join(f"{run['label']!r} (seed {run['seed']})" for run in diverged)
        raise DivergedError(
            f"{len(diverged)} of {len(results['runs']) + len(diverged)} runs diverged, the others are done: {names}; "
            f"{diverged[0]['reason']}; then give the same hofno run again"
        )


def name_of(member: Spec, cell: dict[str, Any]) -> str:
    """How a member is called in tables: its label and the swept keys."""
    keys = [f"{key.rsplit('.', 1)[-1]} {value}" for key, value in cell.items() if key not in ("label", "seed")]
    return ", ".join([member.label or member.name, *keys])


def gather(spec: Spec, outcomes: Sequence[Outcome | None], seconds: float) -> dict[str, Any]:
    """The results file of a study; members whose outcome is None are not done yet and left out.

    Those that diverged stand apart, under `diverged`. A run that was measured on another device, or with another number
    of threads, than the first one says so.
    """
    runs, diverged = [], []
    first = next((outcome for outcome in outcomes if isinstance(outcome, dict)), {})
    device = first.get("device") or device_name(find_device(spec.device))
    sets = {variant.label: variant.set for variant in spec.compare}
    for record, (member, cell) in zip(outcomes, spec.members(), strict=True):
        if record is None:
            continue
        label = name_of(member, cell)
        if isinstance(record, str):
            told = {"label": label, "seed": member.seed, "spec_hash": member.run_hash, "reason": record}
            diverged.append(told)
            continue
        # all that tells the run apart from the spec's own, but for the seed; FNO is the network of order 1
        shown = {**sets.get(cell.get("label", ""), {}), **cell}
        shown |= {"model.order": 1} if member.model.name == "fno" else {}
        shown.pop("seed", None)
        same = ("device", "versions") if record.get("device", device) == device else ("versions",)
        kept = {key: value for key, value in record.items() if key not in same}
        runs.append({**kept, "label": label, "cell": shown})
    return {
        "schema": SCHEMA,
        "name": spec.name,
        "title": spec.title or spec.name,
        "problem": spec.data.problem,
        "origin": problem(spec.data.problem, spec.data.parameters).origin,
        "device": device,
        "versions": first.get("versions") or versions(),
        "created": date.today().isoformat(),
        "seconds": round(seconds, 1),
        "spec": spec.plain(),
        "spec_hash": spec.study_hash,
        **({"remark": spec.remark.strip()} if spec.remark.strip() else {}),
        "runs": runs,
        **({"diverged": diverged} if diverged else {}),
    }


def check_study_folder(out: Path, spec: Spec) -> None:
    """Refuse a folder that holds something else than this study, or than another part of its sweep."""
    if out.exists() and not out.is_dir():
        raise SpecError(f"{out} is a file, --out needs a folder; choose another --out")
    known = ("runs", "results.json")
    if out.exists() and any(out.iterdir()) and not any((out / name).exists() for name in known):
        raise SpecError(f"{out} exists and holds no study; choose another --out")
    members = [_settings(member) for member, _ in spec.members()]
    swept = {".".join(specs.key_path(key)) for key in spec.sweep}
    for found in map(_settings, _earlier_members(out)):
        apart = [[k for k in {**own, **found} if k not in swept and own.get(k) != found.get(k)] for own in members]
        index, keys = min(enumerate(apart), key=lambda item: len(item[1]))
        if keys:
            was, now = (values.get(keys[0], "nothing") for values in (found, members[index]))
            raise SpecError(
                f"{out} holds a study of other settings: {keys[0]} was {was} and is {now}; choose another --out, or "
                "the settings it was started with"
            )
    refuse_changed_files(out, spec)
    refuse_changed_start(out, spec)


def refuse_changed_files(out: Path, spec: Spec) -> None:
    """Refuse to go on with a study whose files changed since one of its runs was trained: runs on others do not mix."""
    made = [problem(member.data.problem, member.data.parameters) for member, _ in spec.members()]
    now = {str(sorted(each.sources.items())): each for each in made if each.sources}
    stamps = {sources: {"files": stamps_of(each)} for sources, each in now.items()}
    for file in sorted(out.glob("runs/*/model.json")) if stamps else ():
        run = read_spec(file.parent)
        sources = str(sorted(problem(run.data.problem, run.data.parameters).sources.items()))
        before = storage.read_json(file).get("stamp", {}).get("data")
        if changed := changed_sources(before, stamps.get(sources)):
            raise DataError(
                f"{', '.join(changed)} changed since {file.parent} was trained, and runs on other data make no study; "
                "put the files back, or choose another --out"
            )


def refuse_changed_start(out: Path, spec: Spec) -> None:
    """Refuse to go on with a study whose operator to start with is another one than its runs started with."""
    settings = {member.train.start: member.train for member, _ in spec.members() if member.train.start}
    now = {path: note_of(opened(train)) for path, train in settings.items()}
    for file in sorted(out.glob("runs/*/model.json")) if now else ():
        path = read_spec(file.parent).train.start
        before = storage.read_json(file).get("stamp", {}).get("start", {}).get("digest")
        if path in now and now[path] != {"start": before}:
            raise DataError(
                f"{path} is another operator than {file.parent} was started with, and such runs make no study; put it "
                "back, or choose another --out"
            )


def _earlier_members(out: Path) -> list[Spec]:
    """The runs of a study's folder, or those its results tell of where the runs themselves are gone.

    Those that diverged are left out: they may be given other settings.
    """
    diverged = diverged_earlier(out)
    runs = [read_spec(file.parent) for file in sorted(out.glob("runs/*/spec.toml"))]
    if not runs and (out / "results.json").exists():
        results = storage.read_json(out / "results.json")
        runs = [member for member, _ in specs.parse(results["spec"]).members()] if "spec" in results else []
    return [run for run in runs if run.run_hash not in diverged]


def _settings(spec: Spec) -> dict[str, Any]:
    """All that makes a run's numbers, by dotted keys."""
    sections = {name: getattr(spec, name).model_dump(mode="json") for name in ("data", "model", "train")}
    return {"seed": spec.seed} | {f"{name}.{key}": v for name, part in sections.items() for key, v in part.items()}
