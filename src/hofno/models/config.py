"""What a model was built from, as plain values: enough to build it again, and what a checkpoint keeps of it."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import numpy as np

from hofno.errors import SpecError
from hofno.exact import wanted_instead


def config_of(model: type, values: dict[str, Any]) -> dict[str, object]:
    """The arguments of a model's constructor, of its local names `values`, as `plain` has them.

    True and false for a number, or a number for these, are refused.
    """
    kinds, given = get_type_hints(model.__init__), {name: values[name] for name in inspect.signature(model).parameters}
    for name, value in given.items():
        if wanted := wanted_instead(kinds[name], value):
            raise SpecError(f"{name} of {model.__name__} should be {wanted}; got {value!r}; give such a one")
    return {name: plain(value) for name, value in given.items()}


def plain(value: Any) -> object:
    """A value as JSON has it: tuples become lists, and numbers of NumPy those of Python."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
