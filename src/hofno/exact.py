"""True and false are no numbers, and numbers are neither: one rule for specs, problems and the arguments of models.

Python counts true as 1 and false as 0, and pydantic takes 1, "yes" and "on" for true, so that a slip such as
`train.epochs=true` would be a run of one epoch. What else is taken for a number stays: 1e3 for a whole one, and those
of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, Literal, TypeGuard, get_args, get_origin

import numpy as np


def wanted_instead(kind: Any, value: Any) -> str:
    """What a value of this kind is, where true or false came for a number, or something else for true or false."""
    kinds, truths = {*_kinds(kind)}, [is_truth(part) for part in _parts(value)]
    if kinds == {bool}:
        return "" if all(truths) else "true or false"
    if any(truths) and kinds & {int, float} and bool not in kinds:
        number = "number" if float in kinds else "whole number"
        one = kind in (int, float) or get_origin(kind) is Literal
        return f"a {number}, neither true nor false" if one else f"{number}s, neither true nor false"
    return ""


def is_truth(value: object) -> bool:
    """Whether it is true or false, of Python or NumPy."""
    return isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray) and value.dtype == bool)


def is_whole(value: object) -> TypeGuard[Integral]:
    """Whether it is a whole number, of Python or NumPy, and neither true nor false."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _kinds(kind: Any) -> Iterator[type]:
    """Kinds of the single values in a type: int of tuple[int, ...], of Literal[1, 2] and of int | None."""
    if inner := get_args(kind):
        for part in inner:
            yield from _kinds(part)
    else:
        yield kind if isinstance(kind, type) else type(kind)


def _parts(value: Any) -> Iterator[Any]:
    """The single values of a list of them, of any depth."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _parts(part)
    else:
        yield value
