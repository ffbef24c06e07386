"""Children that use `hofno.storage` alone, started in a few milliseconds because nothing else is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hofno.storage

_PACKAGE = Path(hofno.storage.__file__).parents[1]
_PRELUDE = f"""
import sys, types
package = types.ModuleType("hofno")
package.__path__ = [{str(_PACKAGE)!r}]
sys.modules["hofno"] = package
from pathlib import Path
from hofno.storage import *
"""


@pytest.fixture
def start_child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start_child(code, *arguments)`: a process that runs `code`, killed in the end if it still lives."""
    children: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*command, sys.executable, "-c", _PRELUDE + code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()
