"""All that is measured of an operator on the test split of a dataset, its own or another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hofno.data.dataset import Dataset
from hofno.evaluation.outcomes import Asked, Found, Outcomes, beside_validation
from hofno.evaluation.rollout import Rolled
from hofno.evaluation.scales import ByScale, band_metrics, plain_spectra
from hofno.evaluation.score import Scores, kept_bound, score
from hofno.evaluation.spectrum import power_kinds
from hofno.evaluation.spread import spreads_of
from hofno.geometry import Points, Surface
from hofno.surrogate import Surrogate


@dataclass(frozen=True)
class Measured:
    """Errors of every sample, their means, and what has no single value."""

    scores: Scores
    metrics: dict[str, float]
    curves: dict[str, Any]  # errors by frame, spectra and outcomes, as plain values
    bound: dict[str, Any]  # see `kept_bound`
    outcomes: dict[str, Found]

    def per_sample(self) -> dict[str, Any]:
        """What is kept of every sample, as plain values."""
        errors = {"rel_l2": self.scores.rel_l2.tolist(), "mse": self.scores.mse.tolist()}
        outcomes = {name: found.per_sample() for name, found in self.outcomes.items()}
        return errors | ({"outcomes": outcomes} if outcomes else {})


def measure_test(
    surrogate: Surrogate, data: Dataset, *, vorticity: bool = False, outcomes: Asked | None = None
) -> Measured:
    """Errors, on grids those by scale, and in time those of single steps, of each frame and past the horizon.

    `vorticity`: frames are vorticity in the plane, so that they have an energy spectrum too. `outcomes`: numbers that
    are asked of the fields.
    """
    steady = data.rollout is None and not isinstance(surrogate.grid, Points | Surface)
    scales = ByScale(power_kinds(surrogate.grid)) if steady else None
    spreads = spreads_of(surrogate)
    rolled = None if data.rollout is None else Rolled(surrogate, data.later, vorticity=vorticity)
    asked = Outcomes(outcomes or {})
    scores = score(surrogate, data.test, scales=scales, spreads=spreads, rolled=rolled, outcomes=asked)
    metrics, curves = scores.means() | scores.in_units(), {}
    if scales is not None:
        metrics, curves = metrics | band_metrics(scales.bands()), {"spectra": plain_spectra(scales.spectra())}
    if surrogate.symmetry is not None:
        metrics["rel_l2_one_view"] = score(replace(surrogate, symmetry=None), data.test).means()["rel_l2"]
    if rolled is not None:
        found = rolled.scores()
        metrics, curves = {**metrics, **found.metrics()}, {"rollout": found.record()}
    if known := beside_validation(surrogate, data, asked):
        curves["outcomes"] = {name: one.record() for name, one in known.items()}
    return Measured(scores, metrics, curves, kept_bound(surrogate, scores, spreads), known)
