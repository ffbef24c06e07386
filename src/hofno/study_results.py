"""Results files of studies: what must be in them, and how runs measured in parts, or by several processes, join in one.

    {schema, name, title, problem, ..., spec, runs: [{label, cell, seed, metrics, ...}], diverged: [...]}

A run is told by its spec hash and seed. Other files of measured numbers, of benchmarks or of single checks, have other
forms and are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hofno import spec as specs
from hofno import storage
from hofno.errors import CheckpointError, SpecError

SCHEMA = 1
PATIENCE = 60.0
"""Seconds to wait for another process that writes the same file."""

Kinds = dict[str, Any]
NUMBER = int | float
MERGED: Kinds = {"name": str, "problem": str, "seconds": NUMBER}
MERGED_RUN: Kinds = {"spec_hash": str, "seed": int}
DIVERGED_RUN: Kinds = {**MERGED_RUN, "label": str, "reason": str}
REPORTED: Kinds = {
    **MERGED,
    **dict.fromkeys(("title", "origin", "device", "created", "spec_hash"), str),
    **dict.fromkeys(("versions", "spec"), dict),
}
REPORTED_RUN: Kinds = {
    **MERGED_RUN,
    **{"label": str, "seconds": NUMBER},
    **dict.fromkeys(("cell", "metrics", "parameters"), dict),
}


def check_results(results: Any, where: str, needed: Kinds | None = None, of_runs: Kinds | None = None) -> None:
    """Refuse what is not the results file of a study with the keys that are needed, of it and of each of its runs."""
    if fault := _fault(results, needed or {}, of_runs or {}):
        raise CheckpointError(
            f"{where} is not a results file of a study: {fault}; give the results.json that hofno run wrote"
        )


def _fault(results: Any, needed: Kinds, of_runs: Kinds) -> str:
    """What is wrong with a file, in words; nothing if it is right."""
    if not isinstance(results, dict):
        return f"expected a table of keys, found a {type(results).__name__}"
    if results.get("schema") != SCHEMA:
        return f"expected schema {SCHEMA}, found {results.get('schema')!r}"
    runs, diverged = results.get("runs"), results.get("diverged", [])
    if not isinstance(runs, list) or not isinstance(diverged, list):
        return "it holds no list of runs"
    parts = [("it", results, needed)]
    parts += [(f"run {index}", run, of_runs) for index, run in enumerate(runs)]
    parts += [(f"diverged run {index}", run, DIVERGED_RUN) for index, run in enumerate(diverged)]
    for name, part, keys in parts:
        if not isinstance(part, dict):
            return f"{name} is a {type(part).__name__}"
        for key, kind in keys.items():
            if not isinstance(part.get(key), kind):
                return f"{name} lacks {key!r}" if key not in part else f"{key!r} of {name} is {part[key]!r:.40}"
    return ""


def check_reportable(results: Any, where: str) -> None:
    """Refuse what lacks anything that a report is made from."""
    check_results(results, where, REPORTED, REPORTED_RUN)
    fault = "" if results["runs"] else "it holds no run"
    for run in results["runs"]:
        numbers = [run["metrics"].get("rel_l2"), run["parameters"].get("real"), *run["metrics"].values()]
        if not all(isinstance(value, NUMBER) for value in numbers):
            fault = fault or f"{run['label']!r} lacks its test error rel_l2, or its count of parameters"
    if not fault and (labels := _of_one_cell(results["runs"])):
        fault = f"its runs {labels} are trials that labels alone tell apart, and no study; read them in the file itself"
    if fault:
        raise CheckpointError(
            f"{where} cannot be reported: {fault}; give the results.json of a study with at least one finished run"
        )


def _of_one_cell(runs: list[dict[str, Any]]) -> str:
    """Two labels of runs that have the same cell; nothing where there are none."""
    first: dict[str, str] = {}
    for run in runs:
        label = first.setdefault(repr(sorted(run["cell"].items())), run["label"])
        if label != run["label"]:
            return f"{label!r} and {run['label']!r}"
    return ""


def check_mergeable(path: Path, nothing_yet: dict[str, Any]) -> None:
    """Fail early: `nothing_yet`, the results of a study before its first run, can be merged into a file and written."""
    with owned(path):
        if path.exists():
            merge_results(storage.read_json(path), nothing_yet, str(path))


def merge_into(path: Path, new: dict[str, Any]) -> None:
    """Merge results into a file as it is at this moment; processes that do so at once take turns."""
    with owned(path):
        storage.write_json(path, merge_results(storage.read_json(path), new, str(path)) if path.exists() else new)


def owned(path: Path) -> storage.RunLock:
    """The lock of one results file, for those who read it and write it again; others are waited for."""
    return storage.RunLock(path.parent, f".{path.name}.lock", PATIENCE)


def merge_results(old: dict[str, Any], new: dict[str, Any], where: str = "the file to merge into") -> dict[str, Any]:
    """The new results with the runs of `old` that were not measured again.

    A run that is kept keeps its conditions: where device or versions differ from the new ones, they stand in the run; a
    remark on the old results stays, before that on the new ones. Runs stand as in the study, whichever ended first.
    """
    check_results(old, where, MERGED, MERGED_RUN)
    for key in ("name", "problem"):
        if old[key] != new[key]:
            raise SpecError(f"{where} has {key} {old[key]!r}, these results have {new[key]!r}; choose another file")
    measured = {_identity(run) for run in new["runs"]}
    conditions = {key: old[key] for key in ("device", "versions", "created") if key in old and old[key] != new[key]}
    kept = [{**conditions, **run} for run in old["runs"] if _identity(run) not in measured]
    seconds = round(new["seconds"] + (old["seconds"] if kept else 0.0), 1)
    merged = {**new, "seconds": seconds, "runs": [*kept, *new["runs"]]}
    if kept and (remark := _both(old.get("remark", ""), new.get("remark", ""))):
        merged["remark"] = remark
    measured |= {_identity(run) for run in kept}
    told = {_identity(run): run for run in [*old.get("diverged", []), *new.get("diverged", [])]}
    merged["diverged"] = [run for key, run in told.items() if key not in measured]
    if not merged["diverged"]:
        del merged["diverged"]
    if kept and "spec" in old and "spec" in new:
        sweep = specs.parse(old["spec"], where).sweep
        both = specs.parse({**new["spec"], "sweep": _union(sweep, new["spec"]["sweep"])})
        places = {member.run_hash: place for place, (member, _) in enumerate(both.members())}
        runs = sorted(merged["runs"], key=lambda run: places.get(run["spec_hash"], -1))
        merged |= {"spec": both.plain(), "spec_hash": both.study_hash, "runs": runs}
    return merged


def _both(old: str, new: str) -> str:
    """Two remarks as one; what stands in the first already is not said again."""
    return old if new.strip() in old else f"{old.rstrip()}\n\n{new}".strip()


def _identity(run: dict[str, Any]) -> tuple[str, int]:
    return run["spec_hash"], run["seed"]


def _union(old: dict[str, list[Any]], new: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Every swept key with the values of both, so that a table measured in parts is described as a whole."""
    first = {key: old.get(key, []) for key in dict.fromkeys([*old, *new])}
    return {key: [*values, *(v for v in new.get(key, []) if v not in values)] for key, values in first.items()}
