"""What a model was built from, as plain values: enough to build it again, and what a checkpoint keeps of it."""

from __future__ import annotations

import inspect
from typing import Any


def config_of(model: type, values: dict[str, Any]) -> dict[str, object]:
    """The arguments of a model's constructor, of its local names `values`; tuples become lists."""
    return {name: _plain(values[name]) for name in inspect.signature(model).parameters}


def _plain(value: Any) -> object:
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
