"""Several trained operators as one, whose predictions are the means of theirs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from hofno.data.dataset import Dataset
from hofno.data.normalise import Normaliser
from hofno.errors import SpecError
from hofno.models.ensemble import Ensemble
from hofno.models.registry import networks_of
from hofno.surrogate import Surrogate, surrogate_of
from hofno.train.experience import gain_experience
from hofno.train.same_data import are_same, stamp_of_data


def combine(operators: Sequence[Any], data: Dataset | None = None) -> Surrogate:
    """One operator of several that were trained on the same data, as with other seeds or by other networks.

    Its predictions are the means of those of all networks in them, which usually err less than each, at as many times
    the cost; how far they lie apart (`spread`) tells where it is not sure. Networks are copied.

    Args:
        operators: two or more of what `hofno.fit` or `hofno.load` returns.
        data: what they were trained on. Errors of its validation samples then give `error_bound`, that of every single
            prediction too; without, the operator knows nothing of its errors.
    """
    if isinstance(operators, str | bytes) or not isinstance(operators, Sequence):
        raise SpecError(f"combine takes a list of operators; got {type(operators).__name__}; give [run_1, run_2]")
    members = [surrogate_of(one, "combine") for one in operators]
    if len(members) < 2:
        raise SpecError(f"combine joins two operators or more; got {len(members)}; train another, with another seed")
    for number, other in enumerate(members[1:], 2):
        for before, known in enumerate(members[: number - 1], 1):
            if fault := _cannot_join(known, other):
                raise SpecError(f"operators {before} and {number} cannot be joined: {fault}")
    first = members[0]
    if data is not None and not are_same(first.stamp, stamp_of_data(data)):
        raise SpecError("the data are not those that the operators were trained on; give these, or none")
    device = next((weight.device for weight in first.model.parameters()), torch.device("cpu"))
    networks = [copy.deepcopy(network).to(device) for one in members for network in networks_of(one.model)]
    known = {key: first.stamp[key] for key in ("data", "contents") if key in first.stamp}
    stamp = {**known, "members": [one.stamp for one in members]}
    joined = replace(first, model=Ensemble(networks).eval(), stamp=stamp, experience=None)
    if data is not None:
        selected = any(one.experience is not None and bool(one.experience.selected) for one in members)
        joined.experience = gain_experience(joined, data, selected=selected)
    return joined


def _cannot_join(first: Surrogate, other: Surrogate) -> str:
    """Why the mean of two operators means nothing; empty where it does."""
    if first.grid != other.grid:
        return f"one is on {first.grid}, the other on {other.grid}; train them on the same data"
    if first.rollout != other.rollout:
        steps = ["one pass" if one is None else f"steps of {asdict(one)}" for one in (first.rollout, other.rollout)]
        return f"one predicts in {steps[0]}, the other in {steps[1]}; train them on the same data"
    if first.symmetry != other.symmetry:
        return "their means over symmetries differ; train both with the same train.symmetric"
    if not (_alike(first.inputs, other.inputs) and _alike(first.targets, other.targets)):
        return (
            "they standardise fields by other statistics; train them on the same data, with the same train.normaliser, "
            "normalise_inputs and normalise_targets"
        )
    if not are_same(first.stamp, other.stamp):
        return "they were trained on other data, so that validation samples of one may be known to the other"
    if any(_same_weights(a, b) for a in networks_of(first.model) for b in networks_of(other.model)):
        return "the same network is in both; give each once"
    return ""


def _alike(one: Normaliser, other: Normaliser) -> bool:
    a, b = one.tensors(""), other.tensors("")
    return type(one) is type(other) and a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.cpu(), b.cpu()))


def _same_weights(first: nn.Module, other: nn.Module) -> bool:
    a, b = first.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
