"""Errors a user can put right. Each message is one line: what was expected, what came, what to do."""

from __future__ import annotations


class HofnoError(ValueError):
    """Base of every error that the command line prints as one line instead of a traceback."""


class SpecError(HofnoError):
    """A spec, or an argument of a public function, that does not describe a run."""


class ShapeError(HofnoError):
    """A tensor that does not fit the layer, model or data it was given to."""


class DataError(HofnoError):
    """Data that cannot be read or must not be trained on."""


class CheckpointError(HofnoError):
    """A saved model or checkpoint that is incomplete, corrupt, foreign or of another version."""


class DivergedError(HofnoError):
    """Training met a loss that is not finite."""


class SolverError(HofnoError):
    """A simulation that cannot be trusted: an unstable step, values that are not finite, an impossible equation."""
