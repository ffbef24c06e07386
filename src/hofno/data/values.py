"""Numbers of the user's own as float32: arrays, tensors and nested lists, and arrays mapped from files."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor

from hofno.data.ondisk import FileArray, JoinedArray, Values
from hofno.errors import DataError


def as_float32(values: object, name: str, *, masked: bool = False) -> Tensor:
    """A float32 CPU tensor from a NumPy array, tensor or nested list of real numbers.

    Numbers too large for it are refused, unless a mask may leave them out: then they become infinite.
    """
    if isinstance(values, Tensor):
        if values.is_complex():
            raise _complex(name, values.dtype)
        made = values.detach().cpu().float()
        given = values.numpy(force=True) if values.dtype == torch.float64 else None
    else:
        array = _array(values, name)
        with np.errstate(over="ignore"):  # infinite, which is refused
            made = torch.from_numpy(np.require(array, np.float32, ["C", "W"]))
        given = array if array.dtype.kind == "f" and array.dtype.itemsize > 4 else None
    if given is not None and not masked and not bool(made.isfinite().all()):
        _refuse_too_large(given, made.numpy(), name)
    return made


def refuse_masked(values: object, name: str) -> None:
    """Refuse numbers that NumPy leaves out, as readers of files with land or obstacles do: what is below is a filling.

    An array without any is one like others. Those in a list are looked at one by one: a list of them keeps no mask.
    """
    if isinstance(values, list | tuple):
        for index, part in enumerate(values):
            if isinstance(part, list | tuple | np.ma.MaskedArray):
                refuse_masked(part, f"{name}[{index}]")
    elif isinstance(values, np.ma.MaskedArray) and (count := int(np.ma.count_masked(values))) > 0:
        raise DataError(
            f"{name} is a masked array that leaves {count} of {values.size} values out, and fields need them all; say "
            f"what they are, such as {name}.filled(0), and give the mask as a field of its own where it matters"
        )


def _array(values: object, name: str) -> np.ndarray:
    refuse_masked(values, name)
    if values is None or isinstance(values, str | bytes | os.PathLike):
        what = "None; give its values" if values is None else f"{values!r}; give what is in the file: numpy.load(..)"
        raise DataError(f"{name} is an array or a tensor; got {what}")
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{name} must be one array; got rows of different lengths; make them equally long") from None
    if array.dtype.kind == "c":
        raise _complex(name, f"dtype {array.dtype}")
    if array.dtype.kind not in "fiub":
        if array.dtype == object and array.ndim == 1 and all(isinstance(part, np.ndarray) for part in array):
            raise DataError(
                f"{name} must be one array; got an array of {len(array)} arrays; samples at points may differ in their "
                f"number of these as lists: list({name})"
            )
        what = "" if isinstance(values, np.ndarray) else f"{type(values).__name__} of "
        raise DataError(
            f"{name} must hold real numbers; got {what}dtype {array.dtype}; convert it, e.g. with .astype('float32')"
        )
    return array


def _complex(name: str, kind: object) -> DataError:
    return DataError(
        f"{name} must hold real numbers; got {kind}; split it into real and imaginary channels: {name}.real and "
        f"{name}.imag, joined along axis 1"
    )


def _refuse_too_large(given: np.ndarray, made: np.ndarray, name: str) -> None:
    lost = np.isfinite(given) & np.isinf(made)
    if lost.any():
        raise DataError(
            f"{name} holds {int(lost.sum())} numbers too large for float32, which ends at 3.4e38; the largest is "
            f"{float(np.abs(given[lost]).max()):.3g}; rescale them, by another unit"
        )


def as_values(values: object, name: str, *, masked: bool = False) -> Values:
    """An array mapped from a file as it lies there, anything else as a float32 tensor."""
    if isinstance(values, FileArray | JoinedArray):
        return values
    refuse_masked(values, name)
    return FileArray.of(values) or as_float32(values, name, masked=masked)


def as_mask(values: object) -> Tensor:
    """Which points are there, from numbers of any kind: those that are not 0."""
    made = as_float32(values, "mask")
    if bool(made.isnan().any()):
        raise DataError("the mask holds NaN, which says neither yes nor no; give true or false for each point")
    return made != 0
