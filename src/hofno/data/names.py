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
    """Refuse more names than there are channels; of those of a mesh, its coordinates come last."""
    for key, given, count in zip(("inputs", "targets"), (spec.inputs, spec.targets), made.channels, strict=True):
        if len(given) > count:
            raise SpecError(
                f"{key} of the spec names {len(given)} channels, and the data have {count} {key[:-1]} channels; give "
                'one name for each, such as "u_x (mm)"'
            )
