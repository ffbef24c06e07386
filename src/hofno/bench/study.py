"""What the networks of a study cost here: a training epoch, predicting the test set, peak memory, parameters.

    training     seconds of a step on the whole grid, as training takes it (precision of the first epochs, CUDA graph,
                 optimiser, batch), times the steps of an epoch
    prediction   seconds of predicting every test sample once in float32, as `hofno evaluate` does; of a problem in
                 time, the whole rollout. A full batch and the last one are timed, times how many there are
    memory       peak while training: on a GPU what PyTorch allocated at most, on a CPU how much the high-water mark of
                 the process grows after a tiny network has loaded the libraries; one batch of data is in it

Times are medians over rounds, on random numbers in place of data, see `hofno.bench.rehearse`. Every network has a
process of its own, so that one that runs out of memory leaves the others alone; it trains first and predicts after.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hofno import fits, stages
from hofno import spec as specs
from hofno.bench.measure import conditions, timed
from hofno.bench.memory import grown, held_before, high_water_mark, two_steps
from hofno.bench.plain import ModelShape
from hofno.bench.rehearse import Rehearsal, epoch_of, random_split, rehearsal, same_steps
from hofno.bench.study_table import show_studies
from hofno.device import find_device
from hofno.errors import SpecError
from hofno.models.registry import parameter_counts
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.show import Show, showing
from hofno.solvers.memory import free_bytes
from hofno.spec import Spec, TrainSpec
from hofno.storage import write_json
from hofno.surrogate import Surrogate
from hofno.train.activations import saved_bytes
from hofno.train.phases import Phase, coarse_epochs, phase_of
from hofno.workers import EndedError, alone

ROUNDS, ROUND_SECONDS = 5, 0.2  # of a step or a prediction; a round lasts so long at least
PREDICTED = 32  # samples of a forward pass, as `hofno evaluate` has them
REFERENCE = "FNO"
NO_MEMORY, KILLED = "no memory", "killed, or no memory"
COMPARED = ("epoch_seconds", "predict_seconds", "peak_bytes")
TINY = ModelShape(points=8, modes=(2, 2), width=4, depth=1, order=2, expansion=1, in_channels=1)


@dataclass(frozen=True)
class Member:
    """A network to measure; `also` are the labels of others that take the same steps."""

    label: str
    spec: Spec
    also: tuple[str, ...] = ()
    coarse: bool = False  # whether it, or another that it stands for, has epochs on a coarser grid


@dataclass(frozen=True)
class Study:
    """What is compared, with whom, and published values by label, see `hofno.report.published.efficiency`."""

    spec: Spec
    members: list[Member]
    reference: str
    published: dict[str, dict[str, float]] = field(default_factory=dict)


def different(named: Sequence[tuple[str, Spec]]) -> list[Member]:
    """Members under their labels, those whose steps on the whole grid are the same once."""
    found: dict[str, Member] = {}
    for label, spec in named:
        key = same_steps(on_whole_grid(spec))
        first = found.get(key, Member(label, spec))
        new = () if label in (first.label, *first.also) else (label,)
        found[key] = Member(first.label, first.spec, (*first.also, *new), first.coarse or coarse_epochs(spec.train) > 0)
    return list(found.values())


def reference_of(members: Sequence[Member], wanted: str, name: str) -> str:
    """The label of the member that is called `wanted`; of FNO if nothing is, or of the first one."""
    asked = wanted or REFERENCE
    for member in members:
        if asked in (member.label, *member.also, member.spec.label):
            return member.label
    if wanted:
        there = "; ".join(label for member in members for label in (member.label, *member.also))
        raise SpecError(f"--reference {wanted!r} names no network of {name}; it has: {there}")
    return members[0].label


def run_studies(studies: Sequence[Study], json_path: Path | None, show: Show) -> dict[str, Any]:
    """Measure the networks of these studies and show them."""
    members = [member for study in studies for member in study.members]
    devices = {find_device(member.spec.device) for member in members}
    if len(devices) > 1:
        raise SpecError(
            f"networks are compared on one device; got {' and '.join(sorted(map(str, devices)))}; try --set device=auto"
        )
    state = conditions(devices.pop())
    records: list[dict[str, Any]] = []
    with showing(show):
        show.start("bench", len(members), 0, "network")
        for member in members:
            show.advance(len(records), f"measuring {member.label}")
            records.append(measure_alone(member, state["threads"]))
        show.advance(len(members), "")
    each = iter(records)
    results = [gathered(study, [next(each) for _ in study.members]) for study in studies]
    show_studies(results, state)
    record = {"what": "study", **state, "created": date.today().isoformat(), "results": results}
    if json_path is not None:
        write_json(json_path, record)
    return record


def gathered(study: Study, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a study: its members and how each compares with the reference."""
    reference = next(record for record in records if record["label"] == study.reference)
    return {
        "name": study.spec.name,
        "title": study.spec.title or study.spec.name,
        "problem": study.spec.data.problem,
        "spec_hash": study.spec.study_hash,
        "reference": study.reference,
        "members": [{**record, "relative": relative(record, reference)} for record in records],
        "published": study.published,
    }


def relative(record: dict[str, Any], reference: dict[str, Any]) -> dict[str, float | None]:
    """Each cost over that of the reference; None where one of them is not known."""
    pairs = {name: (record.get(name), reference.get(name)) for name in COMPARED}
    pairs["parameters"] = record["parameters"]["real"], reference["parameters"]["real"]
    return {name: one / other if one is not None and other else None for name, (one, other) in pairs.items()}


def measure_alone(member: Member, threads: int) -> dict[str, Any]:
    """What a network is, and what it costs as measured in a process of its own, or why it is left out."""
    spec, device = member.spec, find_device(member.spec.device)
    made = problem(spec.data.problem, spec.data.parameters)
    with torch.device("meta"):
        parameters = parameter_counts(stages.make_model(spec, *made.channels))
    record: dict[str, Any] = {
        "label": member.label,
        "also": list(member.also),
        "spec_hash": spec.run_hash,
        "model": spec.model.name,
        "parameters": parameters,
        "precision": first_phase(spec, device).policy,
        "cuda_graph": spec.train.cuda_graph and device.type == "cuda",
        "batch_size": spec.train.batch_size,
        "batches": epoch_of(made, spec.train).batches,
        "coarse": member.coarse,
        "test_samples": made.test * made.together,
    }
    try:
        return record | alone(_task, (spec.plain(), threads, ROUNDS, ROUND_SECONDS))
    except EndedError:
        return record | {"left_out": KILLED}


def _task(task: tuple[dict[str, Any], int, int, float]) -> dict[str, Any]:
    """What the process of its own does."""
    values, threads, rounds, seconds = task
    torch.set_num_threads(threads)
    try:
        return measure(specs.parse(values), rounds, seconds)
    except (MemoryError, RuntimeError) as error:
        if not is_memory(error):
            raise
        return {"left_out": NO_MEMORY}


def is_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, or it did while this was handled, as in a CUDA graph that is then not whole."""
    if error is None:
        return False
    told = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    found = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in told)
    return found or is_memory(error.__context__)


def on_whole_grid(spec: Spec) -> Spec:
    """The same run with all of its epochs on the whole grid."""
    fields = TrainSpec.model_fields
    whole = {key: fields[key].default for key in ("coarse_first", "coarse_by")}
    return spec.model_copy(update={"train": spec.train.model_copy(update=whole)})


def first_phase(spec: Spec, device: torch.device) -> Phase:
    """The phase that such a run begins with."""
    return phase_of(on_whole_grid(spec).train, 0, device)


def measure(spec: Spec, rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds of an epoch and of predicting the test split, with their rounds, and bytes at the peak of training."""
    device = find_device(spec.device)
    made = problem(spec.data.problem, spec.data.parameters)
    before = _held(device)
    ready = rehearsal(spec)
    if device.type == "cpu":
        refuse_too_large(ready, made, spec)
    steps = ready.step_rounds(first_phase(spec, device), rounds, seconds)
    top = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else high_water_mark()
    surrogate = ready.surrogate
    del ready  # with its graph and optimiser
    gc.collect()
    predicting, batches = predict_seconds(surrogate, made, device, rounds, seconds)
    return {
        "epoch_seconds": epoch_of(made, spec.train).batches * statistics.median(steps),
        "predict_seconds": predicting,
        "peak_bytes": grown(before, top),
        "step_rounds": steps,
        "predict_rounds": batches,
    }


def _held(device: torch.device) -> int | None:
    """Bytes from where the peak of a network counts."""
    if device.type == "cuda":
        torch.cuda.init()  # which no one has asked anything yet in this process
        return held_before(device)
    two_steps("hofno", TINY, TINY.points, 1, device)  # libraries are loaded
    return high_water_mark()


def refuse_too_large(ready: Rehearsal, made: Problem, spec: Spec) -> None:
    """Fail before a step that a CPU has no room for: short of memory, a system ends any process, not only this one."""
    model = ready.surrogate.model
    activations = epoch_of(made, spec.train).passes * saved_bytes(model, *fits.sample_shapes(made))
    if 5 * activations // 4 > (free_bytes("cpu") or math.inf):  # and gradients
        raise torch.OutOfMemoryError


def predict_seconds(
    surrogate: Surrogate, made: Problem, device: torch.device, rounds: int, seconds: float
) -> tuple[float, dict[str, list[float]]]:
    """Seconds of predicting the test split, and rounds of a batch by its size."""
    size = -(-PREDICTED // made.together) * made.together
    full, rest = divmod(made.test * made.together, size)
    total, found = 0.0, {}
    for samples, times in ((size, full), (rest, 1)):
        if samples and times:
            split = random_split(made, samples)
            predict = partial(surrogate.predict_tensor, split.x, PREDICTED, coords=split.coords)
            found[str(samples)] = timed(predict, device, rounds, seconds)
            total += times * statistics.median(found[str(samples)])
    return total, found
