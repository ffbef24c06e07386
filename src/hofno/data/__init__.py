"""Data: generate, read, normalise, and arrays of the user's own."""

from hofno.data.arrays import from_arrays
from hofno.data.dataset import Dataset, Split
from hofno.data.normalise import ChannelNormaliser
from hofno.data.store import generate, store_folder

__all__ = ["ChannelNormaliser", "Dataset", "Split", "from_arrays", "generate", "store_folder"]
