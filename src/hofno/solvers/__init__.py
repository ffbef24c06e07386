"""Numerical engines: no learning here, only equations, each proven by exact solutions and measured orders."""

from hofno.solvers.etdrk import ETDRK4, phi
from hofno.solvers.vorticity import VorticitySolver

__all__ = ["ETDRK4", "VorticitySolver", "phi"]
