"""What a model was built from, as plain values: enough to build it again, and what a checkpoint keeps of it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np


def config_of(model: type, values: dict[str, Any]) -> dict[str, object]:
    """The arguments of a model's constructor, of its local names `values`, as `plain` has them."""
    return {name: plain(values[name]) for name in inspect.signature(model).parameters}


def plain(value: Any) -> object:
    """A value as JSON has it: tuples become lists, and numbers of NumPy those of Python."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
