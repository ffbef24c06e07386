"""What runs in a forked process: one command, its output in a file."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path


@dataclass
class Child:
    """A command that runs in a process of its own."""

    process: BaseProcess
    log: Path

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end; returns the exit code."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running: {self.log.read_text()}"
        return self.process.exitcode

    def wait_for(self, path: Path, seconds: float = 30.0) -> None:
        """Wait until a file is there."""
        limit = time.monotonic() + seconds
        while not path.exists():
            assert self.process.is_alive(), f"it ended early: {self.log.read_text()}"
            assert time.monotonic() < limit, f"no {path} in time"
            time.sleep(0.002)

    @property
    def output(self) -> str:
        return self.log.read_text()


def run_program(arguments: tuple[str, ...], folder: str, store: str, log: str) -> None:
    """The program `hofno` with the given arguments, in the given working directory."""
    import torch

    from hofno.cli import app

    torch.set_num_threads(1)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    os.environ["HOFNO_DATA"] = store
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app(list(arguments))
