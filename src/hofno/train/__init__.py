"""Training: the loop and its parts."""

from hofno.train.fit import fit
from hofno.train.loop import Run, train

__all__ = ["Run", "fit", "train"]
