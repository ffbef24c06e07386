"""A Python process of its own for a test: Triton's interpreter must be chosen before Triton is first imported.

On a GPU kernels are tested directly, in `DEVICE`. Elsewhere the file of such tests runs itself again, `INTERPRETED`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hofno

SOURCE = Path(hofno.__file__).parents[1]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
runs_kernels = pytest.mark.skipif(
    not INTERPRETED and DEVICE == "cpu", reason="run by test_under_the_interpreter in a process of its own"
)


def in_own_process(*arguments: str, interpret: bool) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET" and not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCE), environment.get("PYTHONPATH", "")])
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def again_under_the_interpreter(file: str) -> None:
    """The tests of this file once more, in a process in which their kernels run."""
    finished = in_own_process("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, interpret=True)
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    assert finished.stdout.startswith("..."), finished.stdout  # none of the first ones was skipped
