"""The stages of one run, each a function with one artefact on disk: spec -> data -> model -> train -> evaluate.

A run folder:

    spec.toml           what the run is
    data.json           what is in data that were not generated, see `hofno.train.same_data`
    checkpoints/        where it stands, see `hofno.train.state`
    metrics.jsonl       a row for each epoch
    model.safetensors, normalisers.safetensors, experience.safetensors, model.json, manifest.json
                        the trained operator
    evaluation.json     its errors on the test split
    resolution.json     its errors on other grids, if it was evaluated there
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hofno import fits, storage
from hofno import spec as specs
from hofno.data.dataset import Dataset
from hofno.data.stamps import changed_sources
from hofno.data.store import data_folder, generate, generate_again, store_folder
from hofno.device import find_device
from hofno.errors import CheckpointError, HofnoError, SpecError
from hofno.evaluation.earlier import with_earlier
from hofno.evaluation.mean import errors_of_mean
from hofno.evaluation.resolution import longer_by, score_on, strided
from hofno.evaluation.score import Scores
from hofno.evaluation.whole import Measured, measure_test
from hofno.geometry import Grid, Points, Surface
from hofno.models.registry import (
    build,
    parameter_counts,
)
from hofno.problems.base import Problem, Progress, ignore_progress
from hofno.problems.registry import PROBLEMS, problem, problem_class
from hofno.saved import load, resume_command
from hofno.show import Show
from hofno.spec import Spec
from hofno.storage.files import is_temporary
from hofno.storage.lock import LOCK
from hofno.storage.runs import instead_of_a_run
from hofno.surrogate import Surrogate
from hofno.train.loop import Folder, Run, train
from hofno.train.ranks import join
from hofno.train.same_data import describe_data, remember_data
from hofno.train.start import note_of, opened, refuse_known
from hofno.train.state import device_name
from hofno.train.track import Tracker, make_trackers
from hofno.versions import versions


def predict_as(spec: Spec, surrogate: Surrogate) -> None:
    """Let a trained operator predict by the mean over its problem's symmetries, or not, as the spec says."""
    surrogate.symmetry = problem(spec.data.problem, spec.data.parameters).symmetry if spec.train.symmetric else None


def is_made(made: Problem) -> bool:
    """Whether data are only to be read: from files, or from the store."""
    return bool(made.sources) or made.is_kept(data_folder(made.name, made.parameters(), store_folder()))


def make_data(spec: Spec, progress: Progress = ignore_progress, *, again: bool = False) -> Dataset:
    """The data of a spec, from the store if they are there, unless `again`; its progress says what is counted."""
    name, parameters, store = spec.data.problem, spec.data.parameters, store_folder()
    made = problem(name, parameters)
    kept = not again and made.is_kept(data_folder(name, parameters, store))
    stage = f"{'read' if kept else 'generate'} {'samples' if made.rollout is None else 'frames'}"

    def told(_: str, done: int, total: int) -> None:
        progress(stage, done, total)

    if again:
        return generate_again(name, parameters, store, told, spec.device)
    return generate(name, store=store, progress=told, device=spec.device, **parameters)


def make_test_data(spec: Spec, progress: Progress = ignore_progress) -> Dataset:
    """The data of a spec whose test split alone is asked for: with one sample in each of the others, where that does.

    Pairs that are generated have a random stream for each split, so that the test samples need no others beside them.
    """
    made = problem(spec.data.problem, spec.data.parameters)
    whole = made.rollout is not None or made.origin != "generated"
    if whole or made.is_kept(data_folder(spec.data.problem, spec.data.parameters, store_folder())):
        return make_data(spec, progress)

    def of_test(_: str, done: int, total: int) -> None:
        progress("generate test samples", max(0, done - 2), total - 2)

    return make_data(specs.override(spec, {"data.train": 1, "data.valid": 1}), of_test)


def make_model(spec: Spec, in_channels: int, out_channels: int) -> nn.Module:
    """The model of a spec with weights drawn from its seed."""
    with torch.random.fork_rng([]):
        torch.manual_seed(spec.seed)
        channels = {"in_channels": in_channels, "out_channels": out_channels}
        return build(spec.model.name, {**channels, **spec.model.arguments})


def check_new_folder(path: Path) -> None:
    """Refuse a folder in which a process works, or that holds another run or anything else."""
    if (path / LOCK).is_file():
        storage.RunLock(path).refuse_living_owner()
    _refuse_content(path)


def _refuse_content(path: Path) -> None:
    if (path / "spec.toml").exists():
        if (path / "model.safetensors").exists():
            raise SpecError(f"{path} holds a finished run; choose another --out, or delete it")
        if _is_only_begun(path):
            return
        raise SpecError(
            f"{path} holds an unfinished run; continue it with: {resume_command(path)}; with other settings, choose "
            "another --out, or delete it"
        )
    if path.exists() and not path.is_dir():
        raise SpecError(f"{path} is a file, --out needs a folder; choose another --out")
    if path.exists() and any(entry.name != LOCK and not is_temporary(entry.name) for entry in path.iterdir()):
        raise SpecError(f"{path} exists and is not a run folder; choose another --out")


def _is_only_begun(path: Path) -> bool:
    """Whether nothing was trained in a run folder, as by a run that diverged at once: no checkpoint, nothing else."""
    left = [entry.name for entry in path.iterdir() if entry.name != LOCK and not is_temporary(entry.name)]
    if not {*left} <= {"spec.toml", "data.json", "metrics.jsonl", "checkpoints", "tensorboard", "wandb"}:
        return False
    if (path / "checkpoints").exists() and any((path / "checkpoints").iterdir()):
        return False
    try:  # a spec.toml that somebody wrote by hand is not replaced
        return specs.to_toml(read_spec(path).plain()) == (path / "spec.toml").read_text(encoding="utf-8")
    except (OSError, HofnoError):
        return False


def start_folder(spec: Spec, path: Path) -> None:
    """Make a run folder for a new run; its lock may be held, by the caller."""
    _refuse_content(path)
    path.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(path / "spec.toml", specs.to_toml(spec.single().plain()).encode())


def read_spec(path: Path) -> Spec:
    """The spec of a run folder."""
    file = path / "spec.toml"
    if not file.exists():
        raise CheckpointError(f"{path} is not a run folder of hofno train: {instead_of_a_run(path)}")
    try:
        return specs.parse(tomllib.loads(file.read_text(encoding="utf-8")), str(file))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CheckpointError(
            f"{file} cannot be read ({error}); restore it from the spec the run was started with"
        ) from None


def train_run(spec: Spec, data: Dataset, path: Path, *, resume: bool, show: Show, track: tuple[str, ...] = ()) -> Run:
    """Train in a run folder, a new one or from its newest checkpoint, and save the operator there.

    Of processes that train together each calls this, and the first one writes.
    """
    device = find_device(spec.device)
    ranks = join(device)
    contents = None if data.origin == "generated" else describe_data(data)  # another device may round those otherwise
    if (start := opened(spec.train)) is not None:
        refuse_known(start, data.stamp)

    def begin() -> list[Tracker]:
        held.enter_context(storage.RunLock(path))
        if not resume:
            start_folder(spec, path)
        if noted := (contents or {}) | note_of(start):
            remember_data(noted, path)
        return make_trackers(track, path, spec.name, spec.plain())

    with ExitStack() as held:
        rows = ranks.by_first(begin)
        model, name = make_model(spec, data.in_channels, data.out_channels), spec.label or spec.name
        folder = Folder(path, spec.run_hash, resume, resume_command(path))
        run = train(
            model,
            data,
            spec.train,
            seed=spec.seed,
            device=device,
            folder=folder,
            show=show,
            trackers=rows,
            label=name,
            contents=contents,
            start=start,
        )
        run.surrogate.stamp |= {"spec_hash": spec.run_hash, "seed": spec.seed}
        if ranks.first:
            storage.update_folder(path, run.surrogate.files(), {"kind": "run", "run_hash": spec.run_hash})
    return run


def evaluate_run(
    spec: Spec, data: Dataset, path: Path, surrogate: Surrogate | None = None
) -> tuple[dict[str, Any], Scores]:
    """Score a finished run on its test split and write `evaluation.json`, unless its files are others by now."""
    surrogate = surrogate or load(path, spec.device)
    is_changed = warn_of_changed_sources(surrogate, data.stamp)
    found = measure(spec, data, surrogate)
    history = storage.read_history(path)
    record = {
        "label": spec.label or spec.name,
        "seed": spec.seed,
        "metrics": found.metrics,
        "parameters": parameter_counts(surrogate.model),
        "seconds": history[-1]["seconds"] if history else None,
        "epochs": spec.train.epochs,
        "valid_rel_l2": _validated(spec, history),
        "spec_hash": spec.run_hash,
        "device": device_name(find_device(spec.device)),
        "versions": versions(),
        **found.curves,
        **({"bound": found.bound} if found.bound else {}),
        **({"mean_target": errors_of_mean(data)} if _is_whole(spec, data) else {}),
    }
    if not is_changed:
        record = with_earlier(record, path / "evaluation.json")
        storage.write_json(path / "evaluation.json", {**record, "per_sample": found.per_sample()})
    return record, found.scores


def _is_whole(spec: Spec, data: Dataset) -> bool:
    """Whether the training samples of a run are there: its test samples may have been made alone."""
    made = problem(spec.data.problem, spec.data.parameters)
    return len(data.train) == made.train * made.together


def measure(spec: Spec, data: Dataset, surrogate: Surrogate) -> Measured:
    """What is measured of an operator on the test split of a spec's data, which may be on another grid."""
    if not isinstance(surrogate.grid, Points | Surface):
        _warn_of_other_periods(surrogate, [data.test.parts.y.shape[2]])
    made = problem(spec.data.problem, spec.data.parameters)
    return measure_test(surrogate, data, vorticity=made.vorticity, outcomes=made.outcomes)


def warn_of_changed_sources(surrogate: Surrogate, now: dict[str, Any]) -> bool:
    """Whether a file that a run was trained on is another one by the stamp of its data now; a warning says which."""
    changed = changed_sources(surrogate.stamp.get("data"), now)
    if changed:
        warnings.warn(
            f"{', '.join(changed)} changed since the run was trained: its test samples may be others, and some of them "
            "trained on",
            stacklevel=3,
        )
    return bool(changed)


def _validated(spec: Spec, history: list[dict[str, Any]]) -> float | None:
    """Validation error of the weights that are kept; None without validation samples."""
    errors = [row["valid_rel_l2"] for row in history if "valid_rel_l2" in row]
    return (min(errors) if spec.train.select == "best" else errors[-1]) if errors else None


def check_resolutions(spec: Spec, surrogate: Surrogate, resolutions: Sequence[int]) -> list[int]:
    """The resolutions to evaluate a run at, its own among them; fail before any data are made."""
    made = problem_class(spec.data.problem)
    if "resolution" not in made.model_fields:
        if "rows" in made.model_fields:
            raise SpecError(
                f"problem {spec.data.problem!r} has rows and columns in place of a resolution, and is solved again for "
                "others: hofno evaluate RUN --set data.rows=ROWS --set data.columns=COLUMNS"
            )
        have = ", ".join(k for k, v in PROBLEMS.items() if "resolution" in v.model_fields and v.has_other_grids)
        raise SpecError(f"the grid of problem {spec.data.problem!r} is fixed; runs on other grids are for: {have}")
    own = surrogate.grid.shape[0]
    for resolution in resolutions:
        changed = specs.override(spec, {"data.resolution": resolution})
        fits.check(changed, learns=False)
        fits.check_channels(changed, surrogate)
    return sorted({own, *resolutions})


def evaluate_resolutions(
    spec: Spec, surrogate: Surrogate, resolutions: Sequence[int], progress: Progress = ignore_progress
) -> dict[str, Any]:
    """Score a finished run on its test functions sampled on other grids, as plain values."""
    resolutions = check_resolutions(spec, surrogate, resolutions)
    made, found = problem(spec.data.problem, spec.data.parameters), {}
    _warn_of_other_functions(made, resolutions)
    _warn_of_other_periods(surrogate, resolutions)
    fine = None
    if made.strided:
        finest = specs.override(spec, {"data.resolution": made.parameters()["solver_resolution"]})
        fine = make_test_data(finest, progress)
    for resolution in resolutions:
        if fine is not None:
            assert isinstance(fine.grid, Grid)
            test = strided(fine.test, fine.grid, resolution)
        else:
            test = make_test_data(specs.override(spec, {"data.resolution": resolution}), progress).test
        scores = score_on(surrogate, test)
        per_sample = {"rel_l2": scores.rel_l2.tolist()}
        found[str(resolution)] = {"metrics": scores.means(), "per_sample": per_sample}
    return {
        "label": spec.label or spec.name,
        "seed": spec.seed,
        "trained_at": surrogate.grid.shape[0],
        "resolutions": found,
        "spec_hash": spec.run_hash,
        "device": device_name(find_device(spec.device)),
        "versions": versions(),
    }


def _warn_of_other_functions(made: Problem, resolutions: Sequence[int]) -> None:
    """One warning where the errors at other resolutions are not those of one operator at more or fewer points."""
    reasons = {resolution: made.differs_at(resolution) for resolution in resolutions}
    for reason in filter(None, dict.fromkeys(reasons.values())):
        told = ", ".join(str(resolution) for resolution, found in reasons.items() if found == reason)
        warnings.warn(f"errors at resolution {told} are against other functions: {reason}", stacklevel=3)


def _warn_of_other_periods(surrogate: Surrogate, resolutions: Sequence[int]) -> None:
    """One warning where the padding of a network makes it another operator on other grids."""
    if apart := longer_by(surrogate, resolutions):
        told = ", ".join(f"{100 * change:+.2g} % at {n}" for n, change in sorted(apart.items()))
        warnings.warn(
            f"the padded domain of the network is longer or shorter than on its own grid, {told}, which costs accuracy "
            "there; train with model.padded_by='length', and a domain_padding of which all grids hold whole intervals",
            stacklevel=3,
        )
