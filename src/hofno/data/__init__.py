"""Data: generate, read, normalise, and arrays of the user's own."""

from hofno.data.arrays import from_arrays
from hofno.data.dataset import Dataset, Rollout, Split
from hofno.data.normalise import ChannelNormaliser
from hofno.data.read import read
from hofno.data.series import from_trajectories
from hofno.data.store import generate, store_folder

__all__ = [
    "ChannelNormaliser",
    "Dataset",
    "Rollout",
    "Split",
    "from_arrays",
    "from_trajectories",
    "generate",
    "read",
    "store_folder",
]
