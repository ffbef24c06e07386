"""The README is true: every Python snippet and every hofno command in it runs, and its tables are those of results/."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SMALLER = [
    *("data.train=8", "data.valid=2", "data.test=2"),
    *("train.epochs=1", "model.width=8"),
]


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in snippets("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("hofno ")]


def test_python_snippets_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = snippets("python")
    assert len(found) >= 3
    for text in found:
        exec(compile(text, "README.md", "exec"), names)
    assert (tmp_path / "my_model" / "model.safetensors").exists()
    assert isinstance(names["y"], np.ndarray)


def test_commands_run_in_order(tmp_path: Path) -> None:
    """Each command as written, with sizes lowered by --set where it takes a spec to train."""
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    np.save(tmp_path / "input.npy", np.zeros((2, 3, 32, 32), np.float32))
    found = commands()
    assert {words[1] for words in found} >= {"list", "show", "train", "evaluate", "predict", "run", "bench"}
    for words in found:
        lowered = list(words)
        if words[1] in ("train", "run") and "--resume" not in words:
            for setting in SMALLER:
                lowered += ["--set", setting]
        done = subprocess.run(
            [sys.executable, "-m", "hofno", *lowered[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-500:])
    assert (tmp_path / "report" / "index.html").exists()
    assert np.load(tmp_path / "output.npy").shape == (2, 1, 32, 32)


def test_the_make_targets_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(snippets("sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "tables.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
