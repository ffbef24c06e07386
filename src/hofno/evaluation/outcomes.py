"""How far what comes of predicted fields is from what comes of true ones: lift, largest stress, numbers of one's own.

Bounds are conformal, as those of whole fields: of n validation errors the k-th smallest, k = ceil((n + 1) p).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hofno.data.dataset import Dataset, Split
from hofno.data.experience import exceeded_by_few
from hofno.errors import ShapeError, SpecError
from hofno.evaluation.metrics import UNBOUNDED_SQUARE
from hofno.evaluation.score import COVERAGE, LEAST_KNOWN, measure
from hofno.problems.outcomes import Outcome
from hofno.surrogate import Surrogate, surrogate_of

Asked = Mapping[str, Outcome | Callable[[Tensor, Tensor], Tensor]]
"""Names and what gives their numbers, see `Outcome`."""


class Outcomes:
    """Numbers of truths and of predictions, one batch after the other."""

    def __init__(self, asked: Asked) -> None:
        if wrong := [name for name, how in asked.items() if not isinstance(how, Outcome) and not callable(how)]:
            raise SpecError(
                f"outcome {wrong[0]!r} must be a function of inputs and fields, lambda x, y: ..; got "
                f"{asked[wrong[0]]!r}"
            )
        self.asked = {name: how if isinstance(how, Outcome) else Outcome(how) for name, how in asked.items()}
        self._found: dict[str, list[Tensor]] = {name: [] for name in self.asked}  # (2, n) each

    def add(self, part: Split, prediction: Tensor) -> None:
        """Those of some samples, and of what is predicted for them."""
        for name, outcome in self.asked.items():
            both = [_numbers(name, outcome, part.x, y) for y in (part.y, prediction)]
            self._found[name].append(torch.stack(both))

    def all(self) -> dict[str, Tensor]:
        """By name, of truths and predictions so far, (2, n) in float64."""
        return {name: torch.cat(found, 1) for name, found in self._found.items()}


def _numbers(name: str, outcome: Outcome, x: Tensor, y: Tensor) -> Tensor:
    found = torch.as_tensor(outcome.of(x, y))
    if tuple(found.shape) != (len(y),):
        raise ShapeError(
            f"outcome {name!r} must be one number for each of {len(y)} samples, of shape ({len(y)},); got "
            f"{tuple(found.shape)}; reduce over channels and points: y.amax((1, 2, 3)) on a grid of two axes"
        )
    limit = UNBOUNDED_SQUARE  # what no table or file can hold
    return found.detach().double().cpu().nan_to_num(nan=limit, posinf=limit, neginf=-limit)


@dataclass(frozen=True)
class Found:
    """One outcome on a test split. `truth` and `prediction` (n,) are of all samples, float64.

    `bound` is what the error of 9 in 10 samples stays below, by validation samples; None where too few of them are
    known. Where samples belong together, as the frames of a block do, it is for the largest error of each block.
    """

    unit: str
    truth: Tensor
    prediction: Tensor
    together: int
    bound: float | None

    @property
    def errors(self) -> Tensor:
        """Absolute, (n,)."""
        return (self.prediction - self.truth).abs()

    def record(self) -> dict[str, Any]:
        """Its means, as plain values."""
        errors, by_block = self.errors, largest_of_each(self.errors, self.together)
        deviation = float(self.truth.std()) if len(self.truth) > 1 else 0.0
        found = {
            "unit": self.unit,
            "mean_error": float(errors.mean()),
            "largest_error": float(errors.max()),
            "bias": float((self.prediction - self.truth).mean()),
            "deviation_of_truth": deviation,
        }
        if self.bound is None:
            return found
        return found | {"bound": self.bound, "kept": float((by_block <= self.bound).double().mean())}

    def per_sample(self) -> dict[str, list[float]]:
        """Truths and predictions, as plain values."""
        return {"truth": self.truth.tolist(), "prediction": self.prediction.tolist()}


def largest_of_each(errors: Tensor, together: int) -> Tensor:
    """The largest error of each block of so many samples."""
    return errors.view(-1, together).amax(1)


def outcomes_of(operator: Surrogate | object, data: Dataset, asked: Asked, batch_size: int = 32) -> dict[str, Found]:
    """What comes of the predictions on the test split, with bounds by the validation split.

    Args:
        operator: what `hofno.load` or `hofno.fit` returns.
        data: a dataset, whose validation samples the operator was not trained on.
        asked: names, and functions of inputs and fields that give one number for each sample:
            ``{"peak": lambda x, y: y.amax((1, 2, 3))}``.
        batch_size: samples in a forward pass.
    """
    surrogate, test = surrogate_of(operator, "ask"), Outcomes(asked)
    measure(surrogate, data.test, batch_size, outcomes=test)
    return beside_validation(surrogate, data, test, batch_size)


def predicted_outcomes(
    operator: Surrogate | object,
    x: Any,
    asked: Asked,
    coords: Any = None,
    *,
    mask: Any = None,
    fixed: Any = None,
    batch_size: int = 32,
) -> dict[str, Any]:
    """What comes of the predictions from these inputs, whose truth is not known: by name (n,), or a number for one.

    Args:
        operator: what `hofno.load` or `hofno.fit` returns.
        x: inputs as `predict` takes them, with coords, mask and fixed.
        asked: names and functions, as for `outcomes_of`, which says what errors to expect of these numbers.
        batch_size: samples in a forward pass.
    """
    surrogate = surrogate_of(operator, "ask")
    surrogate.check_call(batch_size)
    batch = surrogate.asked(x, coords, mask, fixed)
    y = surrogate.predict_tensor(batch.fields, batch_size, coords=batch.coords, mask=batch.inside)
    return {name: batch.numbers(found) for name, found in numbers_of(asked, batch.fields, y).items()}


def numbers_of(asked: Asked, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """By name, of raw inputs (n, c, *grid) and fields (n, c', *grid), true or predicted: (n,) each, float64."""
    return {name: _numbers(name, outcome, x, y) for name, outcome in Outcomes(asked).asked.items()}


def beside_validation(surrogate: Surrogate, data: Dataset, test: Outcomes, batch_size: int = 32) -> dict[str, Found]:
    """Outcomes of the test split, which were gathered already, with bounds by those of the validation split."""
    together, known = data.test.together, {}
    if test.asked and len(data.valid) // together >= LEAST_KNOWN:
        valid = Outcomes(test.asked)
        measure(surrogate, data.valid, batch_size, outcomes=valid)
        for name, (truth, prediction) in valid.all().items():
            errors = largest_of_each((prediction - truth).abs(), together)
            known[name] = exceeded_by_few(errors.sort().values, COVERAGE)
    return {
        name: Found(test.asked[name].unit, *both, together=together, bound=known.get(name))
        for name, both in test.all().items()
    }
