"""Sources in C with a line that computes something else, which a trial at first use must tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hofno.solvers import native
from hofno.solvers.native import Native

COMPILER = next(filter(None, map(shutil.which, native.COMPILERS)), None)
compiles = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def changed(given: Native, line: str, wrong: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Native:
    """As `given` in a new process, with one place of its source, or of what that includes, replaced."""
    places = 0
    for path in sorted(Path(native.__file__).parent.glob("*.[ch]")):
        text = path.read_text()
        places += text.count(line)
        (folder / path.name).write_text(text.replace(line, wrong))
    assert places == 1, f"{line} is there {places} times"
    monkeypatch.setattr(native, "__file__", str(folder / "native.py"))
    return Native(given.source, given._is_right)
