"""NumPy files: read without executing anything, and without asking for memory that the file does not fill.

    file = magic | version | header {descr, fortran_order, shape} | raw numbers

A header of 80 bytes can claim any shape, so the size it claims is compared with the size of the file first.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hofno.data.ondisk import FileArray
from hofno.errors import DataError
from hofno.storage.files import one_line, read_failure, regular_size


def npy_bytes(array: np.ndarray) -> bytes:
    """The .npy file of an array."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npy(path: Path) -> np.ndarray:
    """Read an array of plain numbers; anything else is refused with the reason and never executed."""
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            shape, fortran_order, dtype = _header(path, file, size)
            values = np.frombuffer(bytearray(file.read(size)), dtype)
    except OSError as error:
        raise read_failure(path, error) from None
    return values.reshape(shape, order="F" if fortran_order else "C")


def npy_on_disk(path: Path) -> FileArray:
    """The array of such a file, left where it is."""
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            shape, fortran_order, dtype = _header(path, file, size)
            first, step = file.tell(), dtype.itemsize
            counted = range(len(shape)) if fortran_order else reversed(range(len(shape)))  # axes, the fastest first
            strides = dict.fromkeys(range(len(shape)), 0)
            for axis in counted:
                strides[axis], step = step, step * shape[axis]
            return FileArray(path, dtype, first, shape, tuple(strides.values()))
    except OSError as error:
        raise read_failure(path, error) from None


def _header(path: Path, file: BinaryIO, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the numbers, which begin where the file then stands and fill its `size` bytes."""
    try:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran_order, dtype = read_header(file)
    except OSError:
        raise
    except Exception as error:  # the header is Python source, which can be wrong in many ways
        raise DataError(
            f"{path} is not a NumPy .npy file of plain numbers ({one_line(error, 100)}); "
            "write it with numpy.save, pickles and archives are not read"
        ) from None
    if dtype.hasobject or dtype.kind not in "fiub":
        raise DataError(f"{path} must hold real numbers; got dtype {dtype}; convert it with .astype('float32')")
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if claimed != held or any(length < 0 for length in shape):
        raise DataError(
            f"{path} claims shape {shape} of {dtype}, {claimed} bytes, and holds {held}; "
            "it is truncated or forged: write it again"
        )
    return shape, fortran_order, dtype
