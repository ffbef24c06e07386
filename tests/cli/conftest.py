"""A tiny study in a folder of its own, and three ways to run the program on it.

- `hofno(...)`: in this process, fast;
- `start(...)`: in a forked process that has torch imported already, to be killed at any moment;
- `program(...)`: the real program, for what only it can show.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_children import Child, run_program
from typer.testing import CliRunner, Result

from hofno.cli import app

TINY = """
title = "tiny study"
label = "HO-FNO"

[data]
problem = "poisson"
degree = 2
resolution = 16
k_min = 2
k_max = 4
waves = 8
train = 20
valid = 4
test = 6

[model]
name = "hofno"
modes = [4, 4]
width = 8
depth = 1
order = 2

[train]
epochs = 2
batch_size = 8
"""


@pytest.fixture(scope="session")
def data_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def folder(tmp_path: Path, data_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test, with `tiny.toml` in it; the data store is shared by all tests."""
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOFNO_DATA", str(data_store))
    monkeypatch.delenv("HOFNO_DEBUG", raising=False)
    return tmp_path


Hofno = Callable[..., Result]


@pytest.fixture
def hofno(folder: Path) -> Hofno:
    """Run a command in this process."""

    def run(*arguments: object) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def refused(hofno: Hofno) -> Callable[..., str]:
    """Run a command that must fail in one line with exit code 2; returns the line."""

    def run(*arguments: object) -> str:
        result = hofno(*arguments)
        assert result.exit_code == 2, (result.output, result.exception)
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("hofno: ")
        assert "Traceback" not in result.output
        return lines[0]

    return run


@pytest.fixture
def program(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the real program; it is killed in the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*before, sys.executable, "-m", "hofno", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Child]]:
    """Start a command in a forked process; it is killed in the end if it still runs."""
    context = multiprocessing.get_context("forkserver")
    # the first step of an optimiser imports torch._dynamo
    context.set_forkserver_preload(["hofno.cli", "hofno.study", "hofno.study_report", "torch._dynamo"])
    started: list[Child] = []

    def begin(*arguments: object) -> Child:
        log = folder / f"log-{len(started)}"
        arguments = tuple(map(str, arguments))
        process = context.Process(target=run_program, args=(arguments, str(folder), os.environ["HOFNO_DATA"], str(log)))
        process.start()
        started.append(Child(process, log))
        return started[-1]

    yield begin
    for child in started:
        child.process.kill()
        child.process.join()
