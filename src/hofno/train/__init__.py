"""Training: the loop and its parts."""

from hofno.train.combine import combine
from hofno.train.fit import fit
from hofno.train.loop import Run, train

__all__ = ["Run", "combine", "fit", "train"]
