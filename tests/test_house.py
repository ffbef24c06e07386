"""Rules of the house that a program can check."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_files_hold_one_idea() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {name: lines for name, lines in long.items() if lines > 400}


def test_nothing_is_unpickled() -> None:
    unsafe = re.compile(r"torch\.load\(|pickle\.load|allow_pickle=True|joblib\.load")
    assert not [path for path in SOURCES if unsafe.search(path.read_text())]


def test_importing_hofno_imports_neither_matplotlib_nor_pydantic() -> None:
    heavy = ("torch", "matplotlib", "pydantic", "typer", "rich")
    code = f"import sys, hofno; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_needs_few_packages() -> None:
    core = [line for line in requires("hofno") or [] if "extra ==" not in line]
    assert {re.split(r"[<>=!~ ]", line)[0] for line in core} == {
        *("torch", "numpy", "pydantic", "typer", "rich", "safetensors", "matplotlib"),
    }
    assert "==" not in next(line for line in core if line.startswith("torch")), "an installed torch is never replaced"
