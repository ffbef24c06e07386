"""Sources in C beside the solvers, compiled for this processor when they are first needed.

That takes a second, in each process anew: nothing is kept on disk that another processor or user could be given. A
machine without a C compiler (`cc`, `gcc`, `clang`, or the one that CC names) solves in plain PyTorch, more slowly.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

COMPILERS = "cc", "gcc", "clang"

OPTIONS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-shared", "-fPIC"]
"""Vectors, and none of the options that let a compiler break the arithmetic of float64."""

OWN_PROCESSOR = ("-march=native",), ("-mcpu=native",), ()
"""What makes code for this very processor, with one compiler or another."""


class NoCompilerError(Exception):
    """Why a source could not be compiled here."""


def compiled(source: str) -> ctypes.CDLL:
    """The functions of a source in this folder. Calls of them let other threads run meanwhile."""
    there = [found for found in map(shutil.which, COMPILERS) if found]
    compiler = shlex.split(os.environ.get("CC", "")) or there[:1]
    if not compiler:
        raise NoCompilerError(f"no C compiler was found ({', '.join(COMPILERS)}, or CC); install one, such as gcc")
    path, said = Path(__file__).with_name(source), ""
    with tempfile.TemporaryDirectory(prefix="hofno-", ignore_cleanup_errors=True) as folder:
        library = Path(folder) / f"{path.stem}.so"
        for own in OWN_PROCESSOR:
            command = [*compiler, *OPTIONS, *own, str(path), "-o", str(library), "-lm"]
            try:
                subprocess.run(command, capture_output=True, check=True, text=True, stdin=subprocess.DEVNULL)
                return ctypes.CDLL(str(library))
            except subprocess.CalledProcessError as error:
                said = said or next((line for line in error.stderr.splitlines() if "error" in line), "it failed")
            except OSError as error:
                said = said or str(error)
    raise NoCompilerError(f"{compiler[0]} does not compile {source}: {said}")
