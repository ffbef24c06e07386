"""What the channels of a spec's data are called: as the spec says, or else as its problem does."""

from __future__ import annotations

from hofno.errors import HofnoError, SpecError
from hofno.problems.base import Problem
from hofno.problems.quantities import Quantities, called
from hofno.problems.registry import problem
from hofno.spec import Spec


def quantities_of(spec: Spec) -> Quantities:
    """Names and units as far as they are known; data whose files are gone have those of the spec alone."""
    try:
        known = problem(spec.data.problem, spec.data.parameters).quantities
    except HofnoError:
        known = Quantities()
    return Quantities(called(*spec.inputs) or known.inputs, called(*spec.targets) or known.targets)


def check_names(spec: Spec, made: Problem) -> None:
    """Refuse more names than there are channels; of those of a mesh, its coordinates come last.

    Inputs in time are fixed fields and frames, and frames are called as the targets are.
    """
    inputs, targets = made.channels
    if made.rollout is not None:
        inputs = made.fixed_fields
    for key, given, count, what in (
        ("inputs", spec.inputs, inputs, "input channels" if made.rollout is None else "fixed fields"),
        ("targets", spec.targets, targets, "target channels"),
    ):
        if len(given) > count:
            remedy = 'give one name for each, such as "u_x (mm)"' if count else "leave them out"
            raise SpecError(
                f"{key} of the spec names {len(given)} channels, and the data have {count} {what}; {remedy}"
            )
