"""One array of numbers out of a MATLAB file, without executing or following anything that the file names.

    v5:   128 bytes of header, then elements (tag, bytes), possibly zlib streams; read through scipy
    v7.3: HDF5 with a user block; read through h5py, axes reversed, since MATLAB counts the first axis fastest

What a file claims is compared with what it holds and with the free memory before numbers are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hofno.errors import CheckpointError, DataError
from hofno.solvers.memory import free_bytes, gibibytes
from hofno.storage.files import one_line, regular_size

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HDF5_OFFSETS = (0, 512, 1024, 2048)
_HDF5_FILTERS = {1, 2, 3}  # deflate, shuffle, fletcher32: what MATLAB writes; others would load foreign code
_INSTALL = "install it with: pip install 'hofno[files]'"
_REMEDY = "it is cut, damaged or not the published file: get it again"


def read_mat(path: Path, name: str, order: tuple[int, ...]) -> np.ndarray:
    """The variable `name` as float32, its MATLAB axes rearranged to `order` as by numpy.transpose.

    Real numbers of exactly len(order) axes are accepted, nothing else; all of them must be finite.
    """
    values = _parsed(path, _read_v5, _read_hdf5, name, order)
    for part in values:  # one slice at a time, so that the check needs no second array
        if not np.isfinite(part).all():
            raise DataError(f"{path}: {name!r} holds values that are not finite; {_REMEDY}")
    return values


def shape_in_mat(path: Path, name: str, axes: int) -> tuple[int, ...]:
    """The shape of the variable `name` as MATLAB counts, by the head of the file; refused as `read_mat` would."""
    return _parsed(path, _shape_v5, _shape_hdf5, name, tuple(range(axes)))


def _parsed(path: Path, of_v5: Callable[..., Any], of_hdf5: Callable[..., Any], *asked: Any) -> Any:
    """What one of two parsers makes of a file, by its first bytes."""
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            head = file.read(_HDF5_OFFSETS[-1] + len(_HDF5_SIGNATURE))
    except CheckpointError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror}; check the path") from None
    try:
        if any(head[offset:].startswith(_HDF5_SIGNATURE) for offset in _HDF5_OFFSETS):
            return of_hdf5(path, *asked)
        if head[126:128] in (b"IM", b"MI"):
            return of_v5(path, size, *asked)
        raise DataError(f"{path} is no MATLAB file (version 5 or 7.3); {_REMEDY}")
    except (DataError, MemoryError):
        raise
    except Exception as error:  # the parsers fail in many ways on damaged files
        raise DataError(f"{path} could not be read ({one_line(error, 100)}); {_REMEDY}") from None


def _check_claim(path: Path, name: str, shape: tuple[int, ...], order: tuple[int, ...], copies: int) -> None:
    if len(shape) != len(order) or min(shape) < 1:
        raise DataError(f"{path}: expected {name!r} with {len(order)} axes, got shape {shape}; {_REMEDY}")
    needed, free = copies * 4 * math.prod(shape), free_bytes("cpu")
    if free is not None and needed > free:
        raise DataError(
            f"{path}: {name!r} of shape {shape} needs {gibibytes(needed)} of memory and {gibibytes(free)} are free; "
            "free some memory or use a larger machine"
        )


def _shape_v5(path: Path, size: int, name: str, order: tuple[int, ...]) -> tuple[int, ...]:
    try:
        from scipy.io import whosmat
    except ImportError:
        raise DataError(f"reading {path} needs scipy; {_INSTALL}") from None
    held = {key: (shape, kind) for key, shape, kind in whosmat(path)}
    if name not in held:
        raise DataError(f"{path} holds {sorted(held)}, expected a variable {name!r}; {_REMEDY}")
    shape, kind = held[name]
    if kind not in ("single", "double"):
        raise DataError(f"{path}: expected {name!r} of single or double numbers, got {kind}; {_REMEDY}")
    _check_claim(path, name, shape, order, copies=3)  # the numbers as doubles, and the result
    # a deflate stream expands at most 1032 times; MATLAB may store numbers in one byte each
    if math.prod(shape) > 1032 * size:
        raise DataError(f"{path} claims {name!r} of shape {shape}, more than its {size} bytes can hold; {_REMEDY}")
    return tuple(shape)


def _read_v5(path: Path, size: int, name: str, order: tuple[int, ...]) -> np.ndarray:
    shape = _shape_v5(path, size, name, order)
    from scipy.io import loadmat

    values: Any = loadmat(path, variable_names=[name])[name]
    if values.dtype.kind != "f" or values.shape != shape:
        raise DataError(f"{path}: expected {name!r} as real numbers of shape {shape}, got {values.dtype}; {_REMEDY}")
    return np.ascontiguousarray(values.transpose(order), dtype=np.float32)


@contextmanager
def _in_hdf5(path: Path, name: str, order: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The variable in its open file, and its shape as MATLAB counts."""
    try:
        import h5py
    except ImportError:
        raise DataError(f"reading {path} needs h5py; {_INSTALL}") from None
    with h5py.File(path, "r") as file:
        if name not in file:
            raise DataError(f"{path} holds {sorted(file)[:9]}, expected a variable {name!r}; {_REMEDY}")
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise DataError(f"{path}: {name!r} is a link to another place, which is not followed; {_REMEDY}")
        data = file[name]
        if not isinstance(data, h5py.Dataset) or data.dtype.kind != "f":
            raise DataError(f"{path}: expected {name!r} as an array of real numbers; {_REMEDY}")
        if data.external or data.is_virtual:
            raise DataError(f"{path}: the numbers of {name!r} lie in other files, which are not opened; {_REMEDY}")
        _check_stored(path, name, data)
        shape = tuple(reversed(data.shape))  # as MATLAB counts
        _check_claim(path, name, shape, order, copies=2)
        yield data, shape


def _shape_hdf5(path: Path, name: str, order: tuple[int, ...]) -> tuple[int, ...]:
    with _in_hdf5(path, name, order) as (_, shape):
        return shape


def _read_hdf5(path: Path, name: str, order: tuple[int, ...]) -> np.ndarray:
    with _in_hdf5(path, name, order) as (data, shape):
        values = np.empty([shape[axis] for axis in order], np.float32)
        in_file = values.transpose([order.index(axis) for axis in reversed(range(len(order)))])  # a view, file's axes
        for index in range(len(data)):
            in_file[index] = data[index]
    return values


def _check_stored(path: Path, name: str, data: Any) -> None:
    """Every number is in the file: HDF5 itself would read missing chunks as zeros."""
    plan = data.id.get_create_plist()
    filters = {plan.get_filter(index)[0] for index in range(plan.get_nfilters())}
    if not filters <= _HDF5_FILTERS:
        raise DataError(f"{path}: {name!r} is packed with HDF5 filters {sorted(filters)}, which are not run; {_REMEDY}")
    if data.chunks is not None:
        expected = math.prod(-(-length // chunk) for length, chunk in zip(data.shape, data.chunks, strict=True))
        whole = data.id.get_num_chunks() == expected
    else:
        whole = data.id.get_storage_size() == math.prod(data.shape) * data.dtype.itemsize
    if not whole:
        raise DataError(f"{path}: {name!r} of shape {data.shape} is not stored in full; {_REMEDY}")
