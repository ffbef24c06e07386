"""`hofno evaluate RUN --set data.KEY=VALUE`: which other data a run may be tested on."""

from __future__ import annotations

from pathlib import Path

from hofno.data import known
from hofno.errors import SpecError
from hofno.problems.known import moved_cuts, other_samples
from hofno.problems.registry import problem
from hofno.spec import Spec
from hofno.surrogate import Surrogate


def refuse_known_samples(spec: Spec, changed: Spec) -> bool:
    """Refuse changes by which samples that the run was trained or validated on would be test samples.

    Splits that have random streams of their own never share samples. Of those that are cut out of one set, the cut must
    be that of the run, unless the set is another one. Returns whether it is that of the run.
    """
    own, other = (problem(each.data.problem, each.data.parameters) for each in (spec, changed))
    moved = moved_cuts(own, other)
    if moved is None:
        return False
    given = [key for key in moved if spec.data.parameters.get(key) != changed.data.parameters.get(key)]
    for key in given or moved:
        before, now = moved[key]
        raise SpecError(
            f"data.{key} of the run is {before}; with {now}, samples it was trained or validated on could be test "
            f"samples: leave data.{key} out, or {other_samples(own)}"
        )
    return True


def refuse_samples_of_start(spec: Spec, changed: Spec, operator: Surrogate) -> None:
    """Refuse other data than those of a run of which the operator it started with may have seen test samples."""
    if changed.data_hash != spec.data_hash:
        now = known.stamp_before(problem(changed.data.problem, changed.data.parameters))
        known.refuse_known_samples(operator.stamp.get("start", {}), now, "the operator that the run started with")


def refuse_unseen_motions(run: Path, changed: Spec) -> None:
    """Refuse predictions from moved samples by a run that has seen none; only training could mend that."""
    if changed.train.symmetric and not changed.train.augment:
        raise SpecError(
            f"train.symmetric=true predicts from moved samples too, and {run} was trained without them; leave it out, "
            "or train another run with train.augment=true"
        )
