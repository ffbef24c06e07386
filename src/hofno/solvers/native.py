"""Sources in C beside the solvers, compiled for this processor when they are first needed.

That takes a second or two, in each process anew: nothing is kept on disk that another processor or user could be given.
What comes of it is tried beside the plain solver before it is relied on. A machine without a C compiler (`cc`, `gcc`,
`clang`, or the one that CC names) solves in plain PyTorch, more slowly.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from hofno.triton_use import kernels_are_wanted

COMPILERS = "cc", "gcc", "clang"

OPTIONS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-shared", "-fPIC"]
"""Vectors, and none of the options that let a compiler break the arithmetic of float64."""

OWN_PROCESSOR = ("-march=native",), ("-mcpu=native",), ()
"""What makes code for this very processor, with one compiler or another."""


class NoCompilerError(Exception):
    """Why a source could not be compiled here."""


class Native:
    """A source of which the functions are used where it can be compiled and computes what it should.

    Args:
        source: name of the file in this folder.
        is_right: whether compiled functions give the numbers of the plain solver, on a small case.
    """

    def __init__(self, source: str, is_right: Callable[[ctypes.CDLL], bool]) -> None:
        self.source, self._is_right = source, is_right
        self._lock = threading.Lock()
        self._found: ctypes.CDLL | str = ""  # what was compiled, or why there is nothing

    def library(self) -> ctypes.CDLL | None:
        """Its functions; None where the plain solver is to be used."""
        return None if self.why_not() or isinstance(self._found, str) else self._found

    def why_not(self) -> str:
        """Why it is not used here; empty if it is."""
        if not kernels_are_wanted():
            return "the environment has HOFNO_KERNELS=off"
        with self._lock:  # other threads wait for the one that compiles
            if self._found == "":
                try:
                    found = compiled(self.source)
                    with torch.device("cpu"):  # whatever device the user has made the usual one
                        is_right = self._is_right(found)
                    self._found = found if is_right else "its compiled code gives other numbers than PyTorch"
                except NoCompilerError as error:
                    self._found = str(error)
            return self._found if isinstance(self._found, str) else ""

    def warn_where_plain(self, what: str) -> None:
        """Say, of work that takes minutes, that it is done in plain PyTorch, if it is."""
        if reason := self.why_not():
            warnings.warn(
                f"{what} are solved in plain PyTorch, about ten times as slowly as by compiled code: {reason}",
                RuntimeWarning,
                stacklevel=3,
            )


def compiled(source: str) -> ctypes.CDLL:
    """The functions of a source in this folder. Calls of them let other threads run meanwhile."""
    there = [found for found in map(shutil.which, COMPILERS) if found]
    try:
        compiler = shlex.split(os.environ.get("CC", "")) or there[:1]
    except ValueError as error:
        raise NoCompilerError(f"CC={os.environ['CC']} is no command: {error}; mend or unset it") from None
    if not compiler:
        raise NoCompilerError(f"no C compiler was found ({', '.join(COMPILERS)}, or CC); install one, such as gcc")
    try:
        with tempfile.TemporaryDirectory(prefix="hofno-", ignore_cleanup_errors=True) as folder:
            return _compiled(compiler, Path(__file__).with_name(source), Path(folder))
    except OSError as error:
        said = f"there is no folder for compiled code: {error}; name one that code may run from by TMPDIR"
        raise NoCompilerError(said) from None


def _compiled(compiler: list[str], source: Path, folder: Path) -> ctypes.CDLL:
    library, said = folder / f"{source.stem}.so", ""
    for own in OWN_PROCESSOR:
        command = [*compiler, *OPTIONS, *own, str(source), "-o", str(library), "-lm"]
        try:
            subprocess.run(
                command, capture_output=True, check=True, text=True, errors="replace", stdin=subprocess.DEVNULL
            )
        except subprocess.CalledProcessError as error:
            said = said or next((line for line in error.stderr.splitlines() if "error" in line), "it failed")
        except OSError as error:
            said = said or str(error)
        else:
            return ctypes.CDLL(str(library))
    raise NoCompilerError(f"{compiler[0]} does not compile {source.name}: {said}")
