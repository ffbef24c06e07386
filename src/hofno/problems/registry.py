"""Every benchmark by name."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import ValidationError

from hofno.errors import SpecError
from hofno.problems.airfoil import Airfoil
from hofno.problems.base import Problem
from hofno.problems.darcy import Darcy
from hofno.problems.elasticity import Elasticity
from hofno.problems.navier_stokes import NavierStokes
from hofno.problems.own import OwnArrays, OwnTrajectories
from hofno.problems.pipe import Pipe
from hofno.problems.plasticity import Plasticity
from hofno.problems.poisson import Poisson
from hofno.problems.shallow_water import ShallowWater
from hofno.problems.surface_poisson import SurfacePoisson

PROBLEMS: dict[str, type[Problem]] = {
    "airfoil": Airfoil,
    "darcy": Darcy,
    "elasticity": Elasticity,
    "navier_stokes": NavierStokes,
    "pipe": Pipe,
    "plasticity": Plasticity,
    "poisson": Poisson,
    "shallow_water": ShallowWater,
    "surface_poisson": SurfacePoisson,
    "arrays": OwnArrays,
    "trajectories": OwnTrajectories,
}


def problem_class(name: str) -> type[Problem]:
    """The class registered under `name`."""
    if name not in PROBLEMS:
        close = difflib.get_close_matches(name.lower(), PROBLEMS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SpecError(f"unknown problem {name!r}; there are: {', '.join(sorted(PROBLEMS))}{hint}")
    return PROBLEMS[name]


def problem(name: str, parameters: dict[str, Any]) -> Problem:
    """The benchmark `name` with the given parameters, checked."""
    kind = problem_class(name)
    try:
        return kind(**parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            close = difflib.get_close_matches(key, kind.model_fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(kind.model_fields)}"
            raise SpecError(f"problem {name!r} has no parameter {key!r}; {hint}") from None
        message = first["msg"].removeprefix("Value error, ")
        where = f"{name}.{key}" if key else name
        shown = f"; got {first.get('input')!r}" if key else ""
        raise SpecError(f"{where}: {message}{shown}") from None
