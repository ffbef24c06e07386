"""Original files in NumPy's format: opened where they lie, nothing in them executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hofno.errors import CheckpointError, DataError
from hofno.storage.files import one_line, read_failure, regular_size


def open_npy(path: Path, axes: int | None = None, kinds: str = "f", remedy: str = "get the file again") -> np.ndarray:
    """An array of real numbers as it lies in its file.

    Args:
        path: the file.
        axes: how many it must have.
        kinds: of numbers that it may hold, by NumPy's letters.
        remedy: what to do about a file that is none.
    """
    try:
        regular_size(path)
        values = np.lib.format.open_memmap(path, mode="r")
    except CheckpointError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(str(read_failure(path, error))) from None
    except Exception as error:  # a header can be wrong in many ways
        raise DataError(f"{path} {_fault(path, error)}; {remedy}") from None
    if values.dtype.kind == "c" and "i" in kinds:
        raise DataError(
            f"{path} holds complex numbers, and fields are real; save real and imaginary parts as two channels"
        )
    if values.dtype.kind not in kinds or values.ndim < 1 or axes not in (None, values.ndim):
        wanted = "" if axes is None else f" on {axes} axes"
        raise DataError(f"{path} must hold real numbers{wanted}; got {values.dtype} {values.shape}; {remedy}")
    return values


def _fault(path: Path, error: Exception) -> str:
    """What is wrong with a file that is no array in NumPy's format."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return "is an archive, as of numpy.savez, and one array is needed"
    if "Python objects" in str(error):
        return "holds Python objects, not numbers: samples of different shapes, or words"
    return f"could not be read ({one_line(error, 100)})"
