"""Training that begins with a trained operator in place of random weights.

The network begins as the map that the operator is: with its weights and its statistics of inputs and targets, at points
in its box. What was learnt from many cheap samples, as on a coarser grid or of another viscosity, is then corrected by
the few that matter. The operator itself stays as it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hofno.data.dataset import Dataset
from hofno.data.known import refuse_known_samples
from hofno.data.normalise import Normaliser
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import ShapeError, SpecError
from hofno.evaluation.resolution import is_bound_elsewhere
from hofno.geometry import Geometry, Points, Surface, kind_of
from hofno.models.registry import networks_of
from hofno.problems.base import Rollout
from hofno.saved import load
from hofno.spec import TrainSpec
from hofno.surrogate import Surrogate

OF_TRAINING = frozenset({"drop_path"})
"""Arguments of models that change how they are trained and not what they compute."""

KEPT = ("data", "start")
"""What is kept of the stamp of an operator in those that started with it."""

FAR = 3.0
"""How often farther from training inputs than any validation input was, inputs are told to be unlike them."""


def opened(spec: TrainSpec) -> Surrogate | None:
    """The operator that the settings name, on the CPU."""
    return load(spec.start) if spec.start else None


def check_start(
    start: Surrogate,
    spec: TrainSpec,
    model: nn.Module,
    channels: tuple[int, int],
    grid: Geometry,
    rollout: Rollout | None,
) -> None:
    """Refuse an operator that is not what the model would be, or whose fields are not those of the data."""
    if (count := len(networks_of(start.model))) > 1:
        raise SpecError(
            f"the operator to start with joins {count} networks, and one is trained; start with one of them"
        )
    if type(model) is not type(start.model):
        was, now = (type(one).__name__ for one in (start.model, model))
        raise SpecError(f"the operator to start with is a {was} and the model a {now}; give the same model")
    own = start.inputs.mean.shape[0], start.targets.mean.shape[0]
    if own != channels:
        raise ShapeError(
            f"the operator to start with takes {own[0]} input channels and predicts {own[1]}; these data have "
            f"{channels[0]} and {channels[1]}; start with one that was trained on fields like these"
        )
    before, now = ({} if one is None else _steps(one) for one in (start.rollout, rollout))
    if before != now:
        raise ShapeError(
            f"the operator to start with predicts {_told(before)}, and these data ask for {_told(now)}; start with one "
            "that was trained on data like these"
        )
    _check_places(start, grid)
    _check_arguments(start.model, model)
    for key, used in (("inputs", spec.normalise_inputs), ("targets", spec.normalise_targets)):
        _check_statistics(key, getattr(start, key), spec.normaliser if used else "none")


def refuse_known(start: Surrogate, data: dict[str, Any]) -> None:
    """Refuse data, by their stamp, of which the operator may have seen test samples, as far as that is known."""
    refuse_known_samples(start.stamp, data, "the operator to start with")


def placed(data: Dataset, start: Surrogate) -> Dataset:
    """The data in the box of the operator, where they are at points."""
    if isinstance(data.grid, Points) and isinstance(start.grid, Points):
        return replace(data, grid=replace(data.grid, low=start.grid.low, high=start.grid.high))
    return data


def statistics_of(start: Surrogate) -> tuple[Normaliser, Normaliser]:
    """Those of inputs and of targets, on the CPU."""
    cpu = torch.device("cpu")
    return start.inputs.to(cpu), start.targets.to(cpu)


def unlike_training(start: Surrogate, data: Dataset) -> str | None:
    """A note where the operator knows no inputs like these, as in other units."""
    if start.experience is None:
        return None
    some = data.train[: 8 * data.train.together]
    coords = some.coords if isinstance(start.grid, Points) else None
    strange = float(start.experience.strangeness(some.x, coords, some.mask).median())
    if strange <= FAR:
        return None
    return (
        f"inputs are {strange:.2g} times farther from those that the operator to start with was trained on than its "
        "validation inputs were: other units, or another problem, of which it may know nothing"
    )


def digest_of(start: Surrogate) -> str:
    """The first 16 hexadecimal digits of a hash of all that training takes from the operator."""
    return _digest({**start.model.state_dict(), **_statistics(start)}, start.grid)


def digest_of_statistics(start: Surrogate | None) -> str:
    """That of all but the weights."""
    return "" if start is None else _digest(_statistics(start), start.grid)


def note_of(start: Surrogate | None) -> dict[str, str]:
    """What a run notes of the operator it started with, beside its data."""
    return {} if start is None else {"start": digest_of(start)}


def stamp_of_start(start: Surrogate | None) -> dict[str, Any]:
    """What a trained operator remembers of the one it started with, and of the one which that started with."""
    if start is None:
        return {}
    return {"start": {"digest": digest_of(start), "data": {}} | {k: start.stamp[k] for k in KEPT if k in start.stamp}}


def _statistics(start: Surrogate) -> dict[str, Any]:
    return {**start.inputs.tensors("inputs"), **start.targets.tensors("targets")}


def _digest(tensors: dict[str, Any], grid: Geometry) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name]
        if not isinstance(values, Tensor):  # what a network of the user's own keeps beside its weights
            found.update(f"{name} {values!r} ".encode())
            continue
        found.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        found.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    if isinstance(grid, Points):
        found.update(f"{grid.low} {grid.high}".encode())
    return found.hexdigest()[:16]


def _steps(rollout: Rollout) -> dict[str, int]:
    return {"history": rollout.history, "fields": rollout.fields, "fixed": rollout.fixed}


def _told(steps: dict[str, int]) -> str:
    return "the next frame, " + ", ".join(f"{k}={v}" for k, v in steps.items()) if steps else "targets in one pass"


def _check_places(start: Surrogate, grid: Geometry) -> None:
    places = [(kind_of(one), one.dim if isinstance(one, Points) else len(one.shape)) for one in (start.grid, grid)]
    if places[0] != places[1] or (isinstance(grid, Surface) and grid != start.grid):
        raise ShapeError(
            f"the operator to start with is on {start.grid}, and these data on {grid}; start with one on the same kind "
            "of places, of as many axes, on a surface the same triangles"
        )
    if is_bound_elsewhere(start, grid.shape):
        raise ShapeError(
            f"the operator to start with has statistics of the places of its grid {tuple(start.grid.shape)}, and these "
            f"data lie on {tuple(grid.shape)}; train it with train.normaliser='channel'"
        )


def _check_arguments(before: nn.Module, model: nn.Module) -> None:
    """Refuse a model that is another function of its weights."""
    was, now = (getattr(one, "config", None) for one in (before, model))
    if not isinstance(was, dict) or not isinstance(now, dict):
        return
    for key in sorted({*was, *now} - OF_TRAINING):
        if (old := was.get(key)) != (new := now.get(key)):
            raise SpecError(f"model.{key} is {new} and that of the operator to start with {old}; set model.{key}={old}")


def _check_statistics(key: str, normaliser: Normaliser, asked: str) -> None:
    """Refuse settings that are not how the operator standardises its fields: it goes on as it was trained."""
    mean, std = normaliser.mean, normaliser.std
    if mean.shape[0] == 0:
        return
    kinds = ["channel"]
    if isinstance(normaliser, PointwiseNormaliser):
        leading = max(mean.shape[1:-1], default=0)
        kinds = ["pixel", "column"] if leading == 0 else ["pixel"] if leading > 1 else ["column"]  # one on a line
    elif bool((mean == 0).all()) and bool((std == 1).all()):
        kinds = ["none"]
    if asked in kinds:
        return
    kind = kinds[0]
    used = f"train.normalise_{key}"
    remedy = f"{used}=false" if kind == "none" else f"{used}=true and train.normaliser={kind!r}"
    how = {"none": "as they are", "channel": "by statistics of channels"}
    told = [how.get(one, f"by statistics of each {one}") for one in (kind, asked)]
    raise SpecError(f"the operator to start with takes {key} {told[0]}, and the settings {told[1]}; set {remedy}")
