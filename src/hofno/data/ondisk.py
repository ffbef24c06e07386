"""Samples that stay in their file until some of them are asked for.

    values[rows] -> (len(rows), c, *grid), float32, in memory

`Values` are a tensor or an array on disk; both have a shape and give the rows they are asked for. Samples that lie in
one piece are read straight into their place, others through a map that is open for the moment of a reading only: memory
holds what was asked for and nothing else, however large the file is.
"""

from __future__ import annotations

import io
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hofno.errors import DataError
from hofno.solvers.memory import free_bytes, gibibytes

SHARE = 0.5
"""Data are kept in a memory (the computer's, or a GPU's) if they take at most this share of what is free there."""
PIECE = 2**21
"""Numbers in memory at a time where all samples are gone through."""
LARGE_SAMPLE = 2**12
"""Bytes, a page, from which on samples are read one by one."""


def fits(needed: int, device: str | torch.device = "cpu") -> bool:
    """Whether so many bytes are to be kept in the memory of a device."""
    free = free_bytes(device)
    return free is None or needed <= SHARE * free


class FileArray:
    """Numbers in a file, (n, ...), as NumPy would describe a view of them; `rows` are the samples taken, in order."""

    def __init__(
        self,
        path: Path,
        dtype: np.dtype,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        rows: np.ndarray | None = None,
        owner: object = None,
    ) -> None:
        self.path, self.dtype, self.offset, self.strides, self.rows = path.absolute(), dtype, offset, strides, rows
        self.owner = owner  # a temporary file lives as long as the array that it was made for
        self.held = shape
        self.shape = shape if rows is None else (len(rows), *shape[1:])
        far = sum(max(0, (length - 1) * stride) for length, stride in zip(shape, strides, strict=True))
        self.end = offset + far + dtype.itemsize if math.prod(shape) else offset

    @classmethod
    def of(cls, array: object) -> FileArray | None:
        """The file behind a NumPy array that views a mapped one; None for other arrays.

        A map opened for copy on write (mode "c") may differ from its file and counts as an array in memory.
        """
        owner = array
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        if not isinstance(owner, np.memmap) or not isinstance(array, np.ndarray):
            return None
        mapped, name = owner._mmap, owner.filename  # pyright: ignore[reportAttributeAccessIssue]
        if mapped is None or name is None or owner.mode == "c" or array.dtype.kind not in "fiub" or array.ndim == 0:
            return None
        first = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY  # byte of the file at which the map begins
        begin = np.frombuffer(mapped, np.uint8).ctypes.data
        made = cls(Path(name), array.dtype, first + array.ctypes.data - begin, array.shape, array.strides, None, owner)
        return made if made.path.is_file() and made.path.stat().st_size >= made.end else None

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Tensor) -> FileArray:
        """Some of the samples; nothing is read."""
        kept = rows.numpy() if self.rows is None else self.rows[rows.numpy()]
        return FileArray(self.path, self.dtype, self.offset, self.held, self.strides, kept, self.owner)

    def channels(self, start: int, stop: int) -> FileArray:
        """A range of axis 1; nothing is read."""
        shape = (self.held[0], stop - start, *self.held[2:])
        first = self.offset + start * self.strides[1]
        return FileArray(self.path, self.dtype, first, shape, self.strides, self.rows, self.owner)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return _read(self, rows)

    def sources(self, rows: np.ndarray) -> list[tuple[FileArray | np.ndarray, np.ndarray]]:
        return [(self, rows if self.rows is None else self.rows[rows])]

    def read(self, places: np.ndarray, target: np.ndarray) -> None:
        """Put samples of the file, by their places in it, into an array (len(places), ...), in the order they lie."""
        if target.size == 0:
            return
        order = np.argsort(places, kind="stable")
        try:
            with self.path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.end:
                    raise DataError(
                        f"{self.path} holds {size} bytes and {self.end} are needed; it was cut since it was opened: "
                        "restore it"
                    )
                if self._lies_in_one_piece() and target[0].nbytes >= LARGE_SAMPLE:
                    self._read_one_by_one(file, places, target, order)
                else:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    held = np.ndarray(self.held, self.dtype, mapped, self.offset, self.strides)
                    target[order] = held[places[order]]
        except OSError as error:
            raise DataError(f"{self.path} could not be read: {error.strerror}; restore it") from None

    def _lies_in_one_piece(self) -> bool:
        """Whether the numbers of a sample follow each other in the file."""
        step = self.dtype.itemsize
        for length, stride in zip(reversed(self.held[1:]), reversed(self.strides[1:]), strict=True):
            if length > 1 and stride != step:
                return False
            step *= length
        return True

    def _read_one_by_one(self, file: io.FileIO, places: np.ndarray, target: np.ndarray, order: np.ndarray) -> None:
        begins = [self.offset + place * self.strides[0] for place in places.tolist()]
        each = math.prod(self.held[1:]) * self.dtype.itemsize
        if hasattr(os, "posix_fadvise"):  # the system may fetch all of them at once
            for row in order.tolist():
                os.posix_fadvise(file.fileno(), begins[row], each, os.POSIX_FADV_WILLNEED)
        straight = self.dtype == target.dtype
        room = np.empty(self.held[1:], self.dtype)
        for row in order.tolist():
            into = target[row] if straight and target[row].flags.c_contiguous else room
            rest = memoryview(into.reshape(-1).view(np.uint8).data)
            file.seek(begins[row])
            while rest:
                got = file.readinto(rest)
                if not got:
                    raise DataError(f"{self.path} ended while it was read; restore it")
                rest = rest[got:]
            if into is room:
                target[row] = room


class JoinedArray:
    """Channels of several values side by side, (n, c1 + c2 + ..., *grid)."""

    def __init__(self, parts: Sequence[Values], rows: np.ndarray | None = None) -> None:
        self.parts, self.rows = tuple(parts), rows
        count = parts[0].shape[0] if rows is None else len(rows)
        self.shape = (count, sum(part.shape[1] for part in parts), *parts[0].shape[2:])

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Tensor) -> JoinedArray:
        """Some of the samples; nothing is read."""
        return JoinedArray(self.parts, rows.numpy() if self.rows is None else self.rows[rows.numpy()])

    def channels(self, start: int, stop: int) -> JoinedArray:
        """A range of axis 1; nothing is read."""
        found: list[Values] = []
        for part in self.parts:
            low, high = max(start, 0), min(stop, part.shape[1])
            if low < high:
                found.append(channels_of(part, low, high))
            start, stop = start - part.shape[1], stop - part.shape[1]
        return JoinedArray(found, self.rows)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return _read(self, rows)

    def sources(self, rows: np.ndarray) -> list[tuple[FileArray | np.ndarray, np.ndarray]]:
        places = rows if self.rows is None else self.rows[rows]
        return [source for part in self.parts for source in _sources(part, places)]


Values = Tensor | FileArray | JoinedArray


def in_memory(values: Values) -> Tensor:
    """All samples as a tensor: the tensor itself, or what an array on disk holds, if there is room for it."""
    if isinstance(values, Tensor):
        return values
    needed, free = bytes_of(values), free_bytes("cpu")
    if free is not None and needed > free:
        raise DataError(
            f"{values.shape[0]} samples on disk need {gibibytes(needed)} of memory and {gibibytes(free)} are free; "
            "take some of them: split[:100], or split.batches(100)"
        )
    return values[:]


def joined(*parts: Values) -> Values:
    """Channels side by side; a copy where all are in memory."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    return torch.cat(tensors, 1) if len(tensors) == len(parts) else JoinedArray(parts)


def taken(values: Values, rows: slice | Tensor) -> Values:
    """Some of the samples: of a tensor, by a slice, a view; of an array on disk, nothing is read."""
    if isinstance(values, Tensor):
        return values[rows]
    return values.take(torch.arange(len(values))[rows] if isinstance(rows, slice) else rows)


def channels_of(values: Values, start: int, stop: int) -> Values:
    """A range of channels; of an array on disk, nothing is read."""
    return values[:, start:stop] if isinstance(values, Tensor) else values.channels(start, stop)


def bytes_of(values: Values) -> int:
    """Bytes of all samples in memory."""
    return math.prod(values.shape) * (values.element_size() if isinstance(values, Tensor) else 4)


def ranges(shape: Sequence[int]) -> Iterator[slice]:
    """Rows that go through all samples, about `PIECE` numbers at a time. They depend on the shape alone."""
    step = max(1, PIECE // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def pieces_of(values: Values) -> Iterator[Tensor]:
    """All samples in order, some at a time."""
    for rows in ranges(values.shape):
        yield values[rows]


def fill(out: Tensor, values: Values, rows: np.ndarray, first: np.ndarray | None = None) -> None:
    """Put samples into a tensor in memory, (len(rows), c, ...).

    With `first`, row i of `out` gets as many channels as it has of sample rows[i], from channel first[i] on.
    """
    target, begin = out.numpy(), 0
    for source, places in _sources(values, rows):
        end = begin + source.shape[1]
        if first is None:
            _copy(source, places, target[:, begin:end])
        else:
            for row in np.argsort(rows, kind="stable").tolist():
                low, high = max(begin, int(first[row])), min(end, int(first[row]) + target.shape[1])
                if low < high:
                    part = slice(low - int(first[row]), high - int(first[row]))
                    _copy(
                        _channels(source, low - begin, high - begin), places[row : row + 1], target[row : row + 1, part]
                    )
        begin = end


def _copy(source: FileArray | np.ndarray, places: np.ndarray, target: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused
        if isinstance(source, FileArray):
            source.read(places, target)
        else:
            target[...] = source[places]


def _channels(source: FileArray | np.ndarray, start: int, stop: int) -> FileArray | np.ndarray:
    return source.channels(start, stop) if isinstance(source, FileArray) else source[:, start:stop]


def _sources(values: Values, rows: np.ndarray) -> list[tuple[FileArray | np.ndarray, np.ndarray]]:
    """Arrays whose channels make up the values, in memory or in a file, each with the places of `rows` in it."""
    return [(values.numpy(), rows)] if isinstance(values, Tensor) else values.sources(rows)


def _read(values: FileArray | JoinedArray, rows: slice | Tensor) -> Tensor:
    wanted = np.arange(values.shape[0])[rows] if isinstance(rows, slice) else rows.numpy()
    if wanted.dtype == bool:
        wanted = wanted.nonzero()[0]
    out = torch.empty(len(wanted), *values.shape[1:], dtype=torch.float32)
    fill(out, values, wanted)
    return out
