"""Original files in NumPy's format: opened where they lie, nothing in them executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hofno.errors import CheckpointError, DataError
from hofno.storage.files import one_line, read_failure, regular_size


def open_npy(path: Path, axes: int | None = None) -> np.ndarray:
    """An array of real numbers as it lies in its file; `axes` is how many it must have."""
    try:
        regular_size(path)
        values = np.lib.format.open_memmap(path, mode="r")
    except CheckpointError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(str(read_failure(path, error))) from None
    except Exception as error:  # a header can be wrong in many ways
        raise DataError(f"{path} could not be read ({one_line(error, 100)}); get the file again") from None
    if values.dtype.kind != "f" or values.ndim < 1 or axes not in (None, values.ndim):
        wanted = "" if axes is None else f" on {axes} axes"
        raise DataError(f"{path} must hold real numbers{wanted}; got {values.dtype} {values.shape}; get the file again")
    return values
