"""A Python process of its own for a test: Triton's interpreter must be chosen before Triton is first imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hofno

SOURCE = Path(hofno.__file__).parents[1]


def in_own_process(*arguments: str, interpret: bool) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET" and not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCE), environment.get("PYTHONPATH", "")])
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
