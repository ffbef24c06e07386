"""Score a trained operator on a split, in physical units."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Protocol

import torch
from torch import Tensor

from hofno.data.dataset import Split, refuse_not_finite
from hofno.data.faint import faint, named
from hofno.evaluation.metrics import UNBOUNDED, known, known_square, mse, rel_l2
from hofno.evaluation.own import check_data, split_for
from hofno.evaluation.scales import ByScale
from hofno.evaluation.spread import Spreads
from hofno.surrogate import Surrogate, check_batch_size, surrogate_of

COVERAGE = 0.9
"""Part of the samples that a stated error bound is for."""

LEAST_KNOWN = 9
"""Validation errors that such a bound needs."""


class Longer(Protocol):
    """What is given rollouts past the horizon, as `hofno.evaluation.rollout.Rolled`."""

    def add(self, part: Split, long: Tensor) -> None: ...


class Asking(Protocol):
    """What is given every prediction, as `hofno.evaluation.outcomes.Outcomes`."""

    def add(self, part: Split, prediction: Tensor) -> None: ...


@dataclass(frozen=True)
class Scores:
    """Per-sample values in float64; `size` is the norm of the targets, and fields are their channels in a frame."""

    rel_l2: Tensor  # (n,)
    mse: Tensor  # (n,)
    mse_standardised: Tensor  # (n,)
    size: Tensor  # (n,)
    by_field: Tensor  # (n, fields): rel_l2 of each alone, over all frames of a rollout
    field_size: Tensor  # (n, fields)
    field_mse: Tensor  # (n, fields)

    def means(self) -> dict[str, float]:
        return {
            "rel_l2": float(self.rel_l2.mean()),
            "mse": float(self.mse.mean()),
            "mse_standardised": float(self.mse_standardised.mean()),
            **field_metrics(self.by_field),
        }

    def in_units(self) -> dict[str, float]:
        """Root mean square error of each field over samples and points; of one field it is the root of its `mse`."""
        several = self.field_mse.shape[1] > 1
        return {f"rmse_field_{i}": float(e) for i, e in enumerate(self.field_mse.mean(0).sqrt(), 1) if several}

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Of all samples, one part after the other."""
        return cls(*(torch.cat([getattr(part, item.name) for part in parts]) for item in dataclass_fields(cls)))


def field_metrics(by_field: Tensor) -> dict[str, float]:
    """Mean errors of each field, (n, fields), as they stand beside `rel_l2`; none where there is one field."""
    several = by_field.shape[1] > 1
    return {f"rel_l2_field_{i}": float(error) for i, error in enumerate(by_field.mean(0), 1) if several}


def errors_by_field(prediction: Tensor, target: Tensor, fields: int) -> tuple[Tensor, Tensor, Tensor]:
    """Relative L2 error, norm and mean squared error of each field of (n, t fields, *grid) alone, over all frames.

    (n, fields) each.
    """
    p, y = (part.unflatten(1, (-1, fields)).transpose(1, 2).flatten(0, 1) for part in (prediction, target))
    size = y.flatten(1).double().norm(dim=1)
    relative, square = known(rel_l2(p, y)), mse(p, y)
    return relative.view(-1, fields), size.view(-1, fields), square.view(-1, fields)


def in_blocks(prediction: Tensor, part: Split) -> tuple[Tensor, Tensor]:
    """Predictions and targets of some samples with those that belong together as frames of one, (n, t c, *grid)."""
    if part.together == 1:
        return prediction, part.y
    p, y = (values.unflatten(0, (-1, part.together)).flatten(1, 2) for values in (prediction, part.y))
    return p, y


def errors_of(prediction: Tensor, part: Split, fields: int, std: Tensor | float = 1.0) -> Scores:
    """Errors of predictions (n, t fields, *grid) of some samples, in whole blocks where samples belong together.

    `std` is the unit of `mse_standardised`, broadcast against a sample.
    """
    p, y = in_blocks(prediction, part)
    standardised = mse(prediction / std, part.y / std).view(-1, part.together).mean(1)
    relative, size, square = known(rel_l2(p, y)), y.flatten(1).double().norm(dim=1), mse(p, y)
    by_field, field_size, field_square = relative[:, None], size[:, None], square[:, None]
    if fields > 1:
        by_field, field_size, field_square = errors_by_field(p, y, fields)
    if part.mask is not None:  # both are 0 where no point is; means are over the points that are there
        share = part.mask.double().mean(1)
        square, standardised, field_square = square / share, standardised / share, field_square / share[:, None]
    squares = known_square(square), known(standardised)
    return Scores(relative, *squares, size, by_field, field_size, known_square(field_square))


def score(
    surrogate: Surrogate | object,
    split: Split,
    batch_size: int = 32,
    scales: ByScale | None = None,
    spreads: Spreads | None = None,
    rolled: Longer | None = None,
    outcomes: Asking | None = None,
) -> Scores:
    """Errors of every sample of a split, or of those that belong together; of a rollout, over all its frames.

    Targets that relative errors say nothing about are named in a warning. `scales` is given the predictions too, and
    `spreads` how far those lie apart whose means they are, and `outcomes` the samples with them. Of a model in time
    `rolled` is given rollouts to twice the frames of the targets.
    """
    scores = measure(surrogate_of(surrogate, "score"), split, batch_size, scales, spreads, rolled, outcomes)
    if bool((scores.rel_l2 >= UNBOUNDED).any()):  # by the model, or by data that are no numbers
        for name, part in zip(("x", "y", "coords"), split.parts[:3], strict=True):
            if part is not None:
                refuse_not_finite(part, name)
    wrong = faint(scores.size)
    _warn_of_faint(wrong, split.together)
    for field, size in enumerate(scores.field_size.T, 1):
        _warn_of_faint(faint(size) & ~wrong, split.together, field)
    return scores


def _warn_of_faint(wrong: Tensor, together: int, field: int = 0) -> None:
    rows = wrong.nonzero().flatten()
    if len(rows) > 0:
        kind = ("sample" if together == 1 else "block") + "s" * (len(rows) > 1)
        which = f"{kind} {named(rows)}" + f" of {together} samples" * (together > 1)
        subject, verb, whose, metric = f"the targets of {which}", "are", "their", "rel_l2"
        if field:
            subject, verb, whose, metric = f"field {field} of {subject}", "is", "its", f"rel_l2_field_{field}"
        warnings.warn(
            f"{subject} {verb} (nearly) zero everywhere: {whose} relative error outweighs all others in the mean "
            f"{metric}; drop the {kind}, or go by mse",
            stacklevel=2,
        )


def measure(
    surrogate: Surrogate,
    split: Split,
    batch_size: int = 32,
    scales: ByScale | None = None,
    spreads: Spreads | None = None,
    rolled: Longer | None = None,
    outcomes: Asking | None = None,
) -> Scores:
    """As `score`, without a word about the targets."""
    check_batch_size(batch_size)
    check_data(surrogate, split)
    fields = surrogate.targets.mean.shape[0]
    steps = None if surrogate.rollout is None else split.parts.y.shape[1] // fields
    split.refuse_broken_blocks()
    found: list[Scores] = []
    for part in split.batches(-(-batch_size // split.together) * split.together):
        y = part.y
        given, places = (part.x, batch_size), {"coords": part.coords, "mask": part.mask}
        if rolled is not None and steps is not None:
            long = surrogate.predict_tensor(*given, 2 * steps, **places)
            rolled.add(part, long)
            p = long[:, : y.shape[1]].contiguous()
            if spreads is not None:
                spreads.add(surrogate.spread_tensor(*given, steps, **places), split.together)
        elif spreads is not None:
            p, moments = surrogate.predict_apart(*given, steps, **places)
            spreads.add(moments, split.together)
        else:
            p = surrogate.predict_tensor(*given, steps, **places)
        if outcomes is not None:
            outcomes.add(part, p)
        std = surrogate.targets.shaped(y.ndim - 2)[1].cpu()
        std = std if steps is None else std.repeat(steps, *(1,) * (std.ndim - 1))
        if scales is not None:
            scales.add(*in_blocks(p, part))
        found.append(errors_of(p, part, fields, std))
    return Scores.joined(found)


def kept_bound(
    surrogate: Surrogate, scores: Scores, spreads: Spreads | None = None, coverage: float = COVERAGE
) -> dict[str, Any]:
    """The error that so many samples should not exceed, by those of validation, and the part of these that do not.

    With the relative spreads of their predictions also those that each should not, as ``each``, with the correlation of
    the logarithms of spreads and errors. Empty where the operator knows of too few validation samples, or of other
    predictions than it makes now.
    """
    experience = surrogate.experience
    if experience is None or len(experience.errors) < LEAST_KNOWN or not experience.is_of(surrogate.symmetry):
        return {}
    bound = experience.error_bound(coverage)
    if bound >= UNBOUNDED:
        return {}
    counts = {"validation_samples": len(experience.errors), "test_samples": len(scores.rel_l2)}
    kept = float((scores.rel_l2 <= bound).double().mean())
    found = {"coverage": coverage, "rel_l2": bound, "kept": kept, **counts, "selected": bool(experience.selected)}
    if spreads is None or len(experience.ratios) == 0 or (factor := experience.spread_bound(coverage)) >= UNBOUNDED:
        return found
    each = known(factor * spreads.all())  # a rollout without a bound has none here either
    share = float((scores.rel_l2 <= each).double().mean())
    middle = {"lowest": float(each.min()), "median": float(each.median()), "highest": float(each.max())}
    return found | {"each": {"kept": share, "spreads": factor, **middle, "correlation": _in_logs(each, scores.rel_l2)}}


def _in_logs(a: Tensor, b: Tensor) -> float | None:
    """Correlation of the logarithms of positive numbers; None where it has no value."""
    found = float(torch.corrcoef(torch.stack((a, b)).log())[0, 1]) if len(a) > 1 else math.nan
    return found if math.isfinite(found) else None


def evaluate(surrogate: Surrogate | object, split: Split | Sequence[Any], batch_size: int = 32) -> dict[str, float]:
    """Mean errors on a split: ``{'rel_l2': ..., 'mse': ..., 'mse_standardised': ...}``.

    Where targets have several channels, ``'rel_l2_field_1'`` and so on are errors of each alone.

    Args:
        surrogate: what `hofno.load` or `hofno.fit` returns.
        split: a split of a dataset, such as data.test; or raw arrays (x, y), on a mesh or at points (x, y, coords), and
            with a mask (x, y, coords, mask), in the forms that `from_arrays` takes. Of a model in time, x holds the
            `history` frames that it is given and y those that follow; with fixed fields, (x, y, fixed).
        batch_size: samples in a forward pass.
    """
    operator = surrogate_of(surrogate, "evaluate")
    return score(operator, split_for(operator, split), batch_size).means()
