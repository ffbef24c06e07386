r"""How a model in time does: step by step, one step at a time, past the horizon, and by scale.

rel_l2 (t)   ||p_t - y_t|| / ||y_t|| of frame t of a rollout, for each sample
rollout      its mean over the frames
one step     the model given true frames: rel_l2 and mse of the next frame, mean over the frames
past         the rollout goes on to twice its horizon. Is it finite, and does the power mean(p^2) / 2 (of vorticity:
             the enstrophy) stay below `BOUND` times the largest that the truth has? Where frames after the horizon
             are known, errors are measured there too.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hofno.data.dataset import Split
from hofno.data.faint import faint, named
from hofno.data.ondisk import Values
from hofno.errors import ShapeError
from hofno.evaluation.metrics import known, known_square, mse, rel_l2
from hofno.evaluation.own import check_data
from hofno.evaluation.scales import ByScale, Spectra, band_metrics, plain, plain_spectra
from hofno.evaluation.score import errors_by_field, field_metrics
from hofno.evaluation.spectrum import energy_spectrum, power_kinds
from hofno.surrogate import Surrogate, check_batch_size, surrogate_of

BOUND = 4.0
"""A rollout whose power exceeds the largest of the truth by this factor counts as unbounded."""


@dataclass(frozen=True)
class RolloutScores:
    """Per-sample values in float64; t counts the frames of the horizon, s those of the longer rollout."""

    rel_l2_per_step: Tensor  # (n, t)
    one_step_rel_l2: Tensor  # (n,)
    one_step_mse: Tensor  # (n,)
    bands: dict[str, Tensor]  # (n,) each
    by_field: Tensor  # (n, fields), over all frames
    power: Tensor  # (n, s), of the prediction
    true_power: Tensor  # (n, known frames)
    later_rel_l2: Tensor  # (n, frames known after the horizon), possibly none
    spectra: Spectra  # of the last frame of the horizon

    def metrics(self) -> dict[str, float]:
        """Mean errors that stand beside `rel_l2`."""
        found = {
            "rollout": float(self.rel_l2_per_step.mean()),
            "one_step_rel_l2": float(self.one_step_rel_l2.mean()),
            "one_step_mse": float(self.one_step_mse.mean()),
        }
        return found | band_metrics(self.bands) | field_metrics(self.by_field)

    def bounded(self) -> Tensor:
        """Whether each sample's long rollout is finite and of bounded power, (n,)."""
        return (self.power <= BOUND * self.true_power.max()).all(1)  # NaN compares as false

    def record(self) -> dict[str, Any]:
        """Curves and spectra as plain values; what is not finite becomes None."""
        return {
            "rel_l2_per_step": plain(self.rel_l2_per_step.mean(0)),
            "later_rel_l2": plain(self.later_rel_l2.mean(0)),
            "past": {
                "steps": self.power.shape[1],
                "finite": float(self.power.isfinite().all(1).double().mean()),
                "bounded": float(self.bounded().double().mean()),
                "power": plain(self.power.mean(0)),
                "true_power": plain(self.true_power.mean(0)),
            },
            "spectra": plain_spectra(self.spectra),
        }


class Rolled:
    """What is measured of rollouts over a split to twice its frames, one batch of samples after the other.

    Arguments are those of `score_rollout`.
    """

    def __init__(
        self, surrogate: Surrogate, later: Values | None = None, *, vorticity: bool = False, batch_size: int = 32
    ) -> None:
        if surrogate.rollout is None:
            raise ShapeError("the model was not trained on trajectories; score it with hofno.evaluate")
        kinds = power_kinds(surrogate.grid) | ({"energy": energy_spectrum} if vorticity else {})
        self.surrogate, self.later, self.batch_size = surrogate, later, batch_size
        self.fields, self.scales = surrogate.rollout.fields, ByScale(kinds)
        self.horizon, self.rows, self.count = 0, list[tuple[Tensor, ...]](), 0

    def add(self, part: Split, long: Tensor) -> None:
        """The next samples, and their frames predicted to twice those of their targets."""
        x, y, fields, start = part.x, part.y, self.fields, self.count
        scored, self.count = y.shape[1], start + len(part)  # channels of all frames of the horizon
        self.horizon = scored // fields
        after = y[:, :0] if self.later is None else self.later[start : self.count][:, :scored]
        p, truth = long[:, :scored], torch.cat((y, after), 1)
        taught = one_step(self.surrogate, x, y, self.batch_size)
        self.rows.append(
            (
                _per_step(p, y, fields),
                _per_step(taught, y, fields).mean(1),
                known_square(mse(taught, y)),
                _power(long, fields),
                _power(truth, fields),
                _per_step(long[:, scored : scored + after.shape[1]], after, fields),
                errors_by_field(p, y, fields)[0],
            )
        )
        self.scales.add_bands(p, y)
        self.scales.add_spectra(p[:, -fields:], y[:, -fields:])

    def scores(self) -> RolloutScores:
        """Of all samples so far; frames that relative errors say nothing about are named in a warning."""
        joined_rows = (torch.cat(column) for column in zip(*self.rows, strict=True))
        per_step, taught_l2, taught_mse, power, true_power, later_l2, by_field = joined_rows
        wrong = faint(true_power[:, : self.horizon].sqrt()).any(1).nonzero().flatten()
        if len(wrong) > 0:
            samples = f"sample{'s' * (len(wrong) > 1)} {named(wrong)}"
            warnings.warn(
                f"true frames of {samples} are (nearly) zero everywhere: their relative error outweighs all others in "
                "the means; drop them, or go by one_step_mse",
                stacklevel=2,
            )
        bands, spectra = self.scales.bands(), self.scales.spectra()
        return RolloutScores(per_step, taught_l2, taught_mse, bands, by_field, power, true_power, later_l2, spectra)


def score_rollout(
    surrogate: Surrogate | object,
    split: Split,
    later: Values | None = None,
    *,
    vorticity: bool = False,
    batch_size: int = 32,
) -> RolloutScores:
    """Roll a model out over a split, to its frames and on to twice as many.

    Args:
        surrogate: what `hofno.load` or `hofno.fit` returns, of a model that was trained on trajectories.
        split: x (n, history, *grid) and y (n, t, *grid); of several fields, that many channels for each frame. Fixed
            fields are the first channels of x.
        later: frames that follow y, where they are known, (n, rest, *grid).
        vorticity: whether the frames are vorticity in the plane, so that they have an energy spectrum too.
        batch_size: samples in a forward pass.
    """
    operator = surrogate_of(surrogate, "score_rollout")
    rolled = Rolled(operator, later, vorticity=vorticity, batch_size=batch_size)
    check_batch_size(batch_size)
    check_data(operator, split)
    steps = 2 * split.parts.y.shape[1] // rolled.fields
    for part in split.batches(batch_size):
        rolled.add(part, operator.predict_tensor(part.x, batch_size, steps))
    return rolled.scores()


def one_step(surrogate: Surrogate, x: Tensor, y: Tensor, batch_size: int = 32) -> Tensor:
    """Every frame of y (n, t, *grid) predicted from the true ones before it, the first from x (n, history, *grid).

    What x holds before its frames, the fixed fields, is given with all of them.
    """
    assert surrogate.rollout is not None
    taken, fields = surrogate.rollout.taken, surrogate.rollout.fields
    fixed, true = x[:, :-taken], torch.cat((x[:, -taken:], y), 1)
    states = (torch.cat((fixed, true[:, c : c + taken]), 1) for c in range(0, y.shape[1], fields))
    return torch.cat([surrogate.predict_tensor(state, batch_size, 1) for state in states], 1)


def _per_step(prediction: Tensor, target: Tensor, fields: int) -> Tensor:
    """Relative L2 error of every frame, (n, t fields, *grid) -> (n, t)."""
    if target.shape[1] == 0:
        return target.new_zeros((len(target), 0), dtype=torch.float64)
    p, y = (part.unflatten(1, (-1, fields)).flatten(0, 1) for part in (prediction, target))
    return known(rel_l2(p, y)).view(len(target), -1)


def _power(frames: Tensor, fields: int) -> Tensor:
    """mean(w^2) / 2 of every frame, (n, t fields, *grid) -> (n, t), float64."""
    return 0.5 * frames.double().square().unflatten(1, (-1, fields)).flatten(2).mean(2)
