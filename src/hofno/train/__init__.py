"""Training: the loop and its parts."""

from hofno.train.combine import combine
from hofno.train.fit import fit
from hofno.train.loop import Interrupted, Run, train

__all__ = ["Interrupted", "Run", "combine", "fit", "train"]
