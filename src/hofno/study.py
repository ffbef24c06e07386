"""A study: the runs that a spec's `[[compare]]` and `[sweep]` describe, trained, evaluated and gathered in one file.

    OUT/runs/<hash>/     a run folder for each member, see `hofno.stages`
    OUT/results.json     all measured numbers with their conditions, written again whenever a member is done

A member that is done is not done again; one that was interrupted goes on.
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

from hofno import spec as specs
from hofno import storage
from hofno.data.dataset import Dataset
from hofno.data.store import generate, store_folder
from hofno.errors import CheckpointError, SpecError
from hofno.spec import Spec
from hofno.stages import (
    check,
    evaluate_run,
    is_finished,
    make_data,
    read_spec,
    start_folder,
    train_run,
)
from hofno.surrogate import find_device
from hofno.train.show import Show, Silent, showing
from hofno.train.state import device_name
from hofno.versions import versions
from hofno.workers import share

SCHEMA = 1


def member_folder(out: Path, spec: Spec) -> Path:
    """A folder name a person can read, made unique by the run's hash."""
    name = re.sub(r"[^a-z0-9]+", "-", (spec.label or spec.name).lower()).strip("-")
    return out / "runs" / f"{name}-{spec.run_hash[:8]}"


def read_member(spec: Spec, out: Path) -> dict[str, Any] | None:
    """What was measured of a member; None while it is not done."""
    path = member_folder(out, spec)
    evaluation = path / "evaluation.json"
    if evaluation.exists() and is_finished(path):
        record = storage.read_json(evaluation)
        if record.get("spec_hash") == spec.run_hash:
            return {key: value for key, value in record.items() if key != "per_sample"}
    return None


def run_member(spec: Spec, out: Path, show: Show, data: Dataset | None = None) -> dict[str, Any]:
    """Train and evaluate one member, or read what is there already."""
    path = member_folder(out, spec)
    if (record := read_member(spec, out)) is not None:
        return record
    data = data or make_data(spec)
    if is_finished(path):
        return evaluate_run(spec, data, path)[0]
    resume = (path / "spec.toml").exists()
    if resume and read_spec(path).run_hash != spec.run_hash:
        raise SpecError(f"{path} belongs to another spec; delete it or choose another --out")
    if not resume:
        start_folder(spec, path)
    run = train_run(spec, data, path, resume=resume, show=show)
    return evaluate_run(spec, data, path, run.surrogate)[0]


@lru_cache(maxsize=4)
def _data_once(problem: str, parameters: str, device: str, store: str) -> Dataset:
    """Data shared by the members a worker process runs."""
    return generate(problem, store=store, device=device, **json.loads(parameters))


def _worker(task: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """Run one member in a worker process."""
    values, out = task
    torch.set_num_threads(1)
    spec = specs.parse(values)
    parameters = json.dumps(spec.data.parameters, sort_keys=True)
    data = _data_once(spec.data.problem, parameters, spec.device, str(store_folder()))
    return run_member(spec, Path(out), Silent(), data)


def checked_members(spec: Spec) -> list[tuple[Spec, dict[str, Any]]]:
    """The members of a study, each of which can be, and no two of which are the same run."""
    members = spec.members()
    first: dict[str, str] = {}
    for member, cell in members:
        check(member)
        name = f"{name_of(member, cell)}, seed {member.seed}"
        if member.run_hash in first:
            raise SpecError(
                f"two members of the study are one run, {first[member.run_hash]!r} and {name!r}: same data, model, "
                "training and seed; change or drop one of them in compare or sweep"
            )
        first[member.run_hash] = name
    return members


def run_study(spec: Spec, out: Path, show: Show, workers: int = 1) -> dict[str, Any]:
    """Run every member and write `results.json`; with several workers, members share the device as processes."""
    members = checked_members(spec)
    begun = time.perf_counter()
    records = [read_member(member, out) for member, _ in members]

    def keep(index: int, record: dict[str, Any]) -> None:
        records[index] = record
        storage.write_json(out / "results.json", gather(spec, records, time.perf_counter() - begun))

    if workers <= 1:
        for index, (member, cell) in enumerate(members):
            record = run_member(member, out, show)
            keep(index, record)
            told = record["metrics"]
            show.note(f"{name_of(member, cell)}: test rel_l2 {told['rel_l2']:.4g}  (seed {member.seed})")
    else:
        for member in {member.data_hash: member for member, _ in members}.values():
            make_data(member)
        _run_in_processes(spec, members, out, show, workers, keep)
    results = gather(spec, records, time.perf_counter() - begun)
    storage.write_json(out / "results.json", results)
    return results


def _run_in_processes(
    spec: Spec,
    members: list[tuple[Spec, dict[str, Any]]],
    out: Path,
    show: Show,
    workers: int,
    keep: Callable[[int, dict[str, Any]], None],
) -> None:
    """Train members in `workers` processes, the longest first, so that the last ones are short."""
    order = sorted(range(len(members)), key=lambda i: -int(members[i][0].model.arguments.get("depth", 1)))
    count = 0

    def done(position: int, record: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        index = order[position]
        member, cell = members[index]
        keep(index, record)
        rel_l2 = record["metrics"]["rel_l2"]
        show.advance(count, f"{name_of(member, cell)} seed {member.seed}: rel_l2 {rel_l2:.4g}")

    with showing(show):
        show.start(spec.title or spec.name, len(members), 0)
        share(_worker, [(members[i][0].plain(), str(out)) for i in order], workers, done)


def name_of(member: Spec, cell: dict[str, Any]) -> str:
    """How a member is called in tables: its label and the swept keys."""
    keys = [f"{key.rsplit('.', 1)[-1]} {value}" for key, value in cell.items() if key not in ("label", "seed")]
    return ", ".join([member.label or member.name, *keys])


def gather(spec: Spec, records: Sequence[dict[str, Any] | None], seconds: float) -> dict[str, Any]:
    """The results file of a study; members whose record is None are not done yet and left out.

    A run that was measured on another device, or with another number of threads, than the first one says so.
    """
    runs = []
    first = next(record for record in records if record is not None)
    device = first.get("device") or device_name(find_device(spec.device))
    sets = {variant.label: variant.set for variant in spec.compare}
    for record, (member, cell) in zip(records, spec.members(), strict=True):
        if record is None:
            continue
        label = name_of(member, cell)
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
        "origin": "generated",
        "device": device,
        "versions": first.get("versions") or versions(),
        "created": date.today().isoformat(),
        "seconds": round(seconds, 1),
        "spec": spec.plain(),
        "spec_hash": spec.study_hash,
        "runs": runs,
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


def _earlier_members(out: Path) -> list[Spec]:
    """The runs of a study's folder, or those its results tell of where the runs themselves are gone."""
    runs = [read_spec(file.parent) for file in sorted(out.glob("runs/*/spec.toml"))]
    if runs or not (out / "results.json").exists():
        return runs
    results = storage.read_json(out / "results.json")
    check_results(results, str(out / "results.json"))
    return [member for member, _ in specs.parse(results["spec"]).members()] if "spec" in results else []


def _settings(spec: Spec) -> dict[str, Any]:
    """All that makes a run's numbers, by dotted keys."""
    sections = {name: getattr(spec, name).model_dump(mode="json") for name in ("data", "model", "train")}
    return {"seed": spec.seed} | {f"{name}.{key}": v for name, part in sections.items() for key, v in part.items()}


def check_results(results: Any, where: str) -> None:
    """Refuse a file that is not the results file of a study."""
    if not isinstance(results, dict) or results.get("schema") != SCHEMA or not isinstance(results.get("runs"), list):
        found = results.get("schema") if isinstance(results, dict) else type(results).__name__
        raise CheckpointError(
            f"{where} is not a results file of schema {SCHEMA} (found {found!r}); make one with: hofno run SPEC"
        )


def merge_results(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new results with the runs of `old` that were not measured again; a run is told by its spec hash and seed.

    A run that is kept keeps its conditions: where device or versions differ from the new ones, they stand in the run.
    """
    check_results(old, "the file to merge into")
    for key in ("name", "problem"):
        if old.get(key) != new[key]:
            raise SpecError(
                f"the file to merge into has {key} {old.get(key)!r}, these results have {new[key]!r}; choose another"
            )
    measured = {(run["spec_hash"], run["seed"]) for run in new["runs"]}
    conditions = {key: old[key] for key in ("device", "versions", "created") if key in old and old[key] != new[key]}
    kept = [{**conditions, **run} for run in old["runs"] if (run["spec_hash"], run["seed"]) not in measured]
    seconds = round(new["seconds"] + (old["seconds"] if kept else 0.0), 1)
    merged = {**new, "seconds": seconds, "runs": [*kept, *new["runs"]]}
    if kept and "spec" in old and "spec" in new:
        both = specs.parse({**new["spec"], "sweep": _union(old["spec"]["sweep"], new["spec"]["sweep"])})
        merged |= {"spec": both.plain(), "spec_hash": both.study_hash}
    return merged


def _union(old: dict[str, list[Any]], new: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Every swept key with the values of both, so that a table measured in parts is described as a whole."""
    keys = dict.fromkeys([*old, *new])
    return {key: list(dict.fromkeys([*old.get(key, []), *new.get(key, [])])) for key in keys}
