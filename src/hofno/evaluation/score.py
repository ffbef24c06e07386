"""Score a trained operator on a split, in physical units."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from hofno.data.dataset import Split
from hofno.data.faint import faint, named
from hofno.errors import ShapeError
from hofno.evaluation.metrics import UNBOUNDED, known, known_square, mse, rel_l2
from hofno.evaluation.scales import ByScale
from hofno.geometry import Points
from hofno.surrogate import Surrogate, check_batch_size, surrogate_of

COVERAGE = 0.9
"""Part of the samples that a stated error bound is for."""

LEAST_KNOWN = 9
"""Validation errors that such a bound needs."""


@dataclass(frozen=True)
class Scores:
    """Per-sample values, each (n,) in float64; `size` is the norm of the targets."""

    rel_l2: Tensor
    mse: Tensor
    mse_standardised: Tensor
    size: Tensor

    def means(self) -> dict[str, float]:
        return {
            "rel_l2": float(self.rel_l2.mean()),
            "mse": float(self.mse.mean()),
            "mse_standardised": float(self.mse_standardised.mean()),
        }


def score(surrogate: Surrogate, split: Split, batch_size: int = 32, scales: ByScale | None = None) -> Scores:
    """Errors of every sample of a split, or of those that belong together; of a rollout, over all its frames.

    Targets that relative errors say nothing about are named in a warning. `scales` is given the predictions too.
    """
    scores = measure(surrogate, split, batch_size, scales)
    wrong = faint(scores.size).nonzero().flatten()
    if len(wrong) > 0:
        kind = "samples" if split.together == 1 else f"blocks of {split.together} samples"
        warnings.warn(
            f"the targets of {kind} {named(wrong)} are (nearly) zero everywhere: their relative error outweighs all "
            "others in the mean rel_l2; drop them, or go by mse",
            stacklevel=1,
        )
    return scores


def check_frames(surrogate: Surrogate, shape: tuple[int, ...]) -> None:
    """Refuse targets that are not whole frames of the fields that the model predicts."""
    fields = 1 if surrogate.rollout is None else surrogate.rollout.fields
    if shape[1] % fields:
        raise ShapeError(
            f"the model predicts frames of {fields} fields, and the targets have {shape[1]} channels in shape {shape}; "
            f"give {fields} of them for each frame"
        )


def measure(surrogate: Surrogate, split: Split, batch_size: int = 32, scales: ByScale | None = None) -> Scores:
    """As `score`, without a word about the targets."""
    check_batch_size(batch_size)
    channels, shape = surrogate.targets.mean.shape[0], tuple(split.parts.y.shape)
    steps = None if surrogate.rollout is None else shape[1] // surrogate.rollout.fields
    check_frames(surrogate, shape)
    if steps is None and shape[1] != channels:
        raise ShapeError(
            f"the model predicts {channels} channels and the targets have {shape[1]} in shape "
            f"{shape}; evaluate on the kind of data it was trained for"
        )
    at_points = split.parts.coords is not None
    if isinstance(surrogate.grid, Points) != at_points:
        kinds = ("a grid", "points") if at_points else ("points", "a grid")
        raise ShapeError(f"the model was trained on {kinds[0]} and these data are on {kinds[1]}; give data of its kind")
    split.refuse_broken_blocks()
    rows: list[tuple[Tensor, ...]] = []
    for part in split.batches(-(-batch_size // split.together) * split.together):
        y = part.y
        p = surrogate.predict_tensor(part.x, batch_size, steps, coords=part.coords, mask=part.mask)
        std = surrogate.targets.shaped(y.ndim - 2)[1].cpu()
        std = std if steps is None else std.repeat(steps, *(1,) * (std.ndim - 1))
        if split.together > 1:
            p, y = (fields.unflatten(0, (-1, split.together)) for fields in (p, y))
        if scales is not None:
            scales.add(*(part.flatten(1, 2) if split.together > 1 else part for part in (p, y)))
        errors = rel_l2(p, y), mse(p, y), mse(p / std, y / std)
        if part.mask is not None:  # both are 0 where no point is; means are over the points that are there
            share = part.mask.double().mean(1)
            errors = errors[0], errors[1] / share, errors[2] / share
        size = y.flatten(1).double().norm(dim=1)
        rows.append((known(errors[0]), known_square(errors[1]), known(errors[2]), size))
    return Scores(*(torch.cat(column) for column in zip(*rows, strict=True)))


def kept_bound(surrogate: Surrogate, scores: Scores, coverage: float = COVERAGE) -> dict[str, float]:
    """The error that so many samples should not exceed, by those of validation, and the part of these that do not.

    Empty where the operator knows of too few validation samples, or of other predictions than it makes now.
    """
    known = surrogate.experience
    if known is None or len(known.errors) < LEAST_KNOWN or not known.is_of(surrogate.symmetry):
        return {}
    bound = known.error_bound(coverage)
    if bound >= UNBOUNDED:
        return {}
    counts = {"validation_samples": len(known.errors), "test_samples": len(scores.rel_l2)}
    kept = float((scores.rel_l2 <= bound).double().mean())
    return {"coverage": coverage, "rel_l2": bound, "kept": kept, **counts, "selected": bool(known.selected)}


def evaluate(surrogate: Surrogate | object, split: Split, batch_size: int = 32) -> dict[str, float]:
    """Mean errors on a split: ``{'rel_l2': ..., 'mse': ..., 'mse_standardised': ...}``.

    Takes a `Surrogate` (from `hofno.load`) or the result of `hofno.fit`.
    """
    if not isinstance(split, Split):
        raise ShapeError(
            f"evaluate takes one split of a dataset; got {type(split).__name__}; give data.test, for example"
        )
    return score(surrogate_of(surrogate, "evaluate"), split, batch_size).means()
