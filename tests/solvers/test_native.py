"""Sources in C: compiled once, tried beside the plain solver, and left alone where they cannot be relied on."""

from __future__ import annotations

import ctypes
import re
import tempfile
import threading
import warnings
from pathlib import Path

import pytest
from changed_source import compiles

from hofno.solvers.native import Native, NoCompilerError, compiled

SOURCES = "euler_steps.c", "plasticity_steps.c"


def right(library: ctypes.CDLL) -> bool:
    return True


@compiles
@pytest.mark.parametrize("source", SOURCES)
def test_sources_compile_without_a_warning(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.solvers.native.OPTIONS", ["-O0", "-Wall", "-Wextra", "-Werror", "-std=c99", "-shared",
                                                         "-fPIC", "-fopenmp-simd"])  # fmt: skip
    assert isinstance(compiled(source), ctypes.CDLL)


def test_a_switch_forbids_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_KERNELS", "off")
    given = Native("plasticity_steps.c", right)
    assert given.library() is None
    assert given.why_not() == "the environment has HOFNO_KERNELS=off"


def test_without_a_compiler_long_work_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    given = Native("plasticity_steps.c", right)
    assert given.library() is None
    with pytest.warns(RuntimeWarning, match=r"plain PyTorch.*: no C compiler was found \(cc, .*, or CC\); install one"):
        given.warn_where_plain("blocks")


@compiles
def test_with_one_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Native("plasticity_steps.c", right).warn_where_plain("blocks")


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'fatal error: no headers' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", f"{broken} -m64")
    with pytest.raises(NoCompilerError, match=r"broken does not compile plasticity_steps\.c: fatal error: no headers"):
        compiled("plasticity_steps.c")
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    with pytest.raises(NoCompilerError, match="missing does not compile"):
        compiled("plasticity_steps.c")


def test_what_else_goes_wrong_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that is none, one that says what is no text, and no folder to compile in; plain work goes on."""
    monkeypatch.setenv("CC", "gcc 'x")
    given = Native("plasticity_steps.c", right)
    assert given.library() is None
    assert given.why_not() == "CC=gcc 'x is no command: No closing quotation; mend or unset it"
    strange = tmp_path / "strange"
    strange.write_text("#!/bin/sh\nprintf 'error: \\377\\376' >&2\nexit 1\n")
    strange.chmod(0o755)
    monkeypatch.setenv("CC", str(strange))
    assert "does not compile plasticity_steps.c: error: " in Native("plasticity_steps.c", right).why_not()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert "there is no folder for compiled code" in Native("plasticity_steps.c", right).why_not()


def test_a_folder_that_code_may_not_run_from_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a disk that is mounted without that right."""
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexit 0\n")
    idle.chmod(0o755)
    monkeypatch.setenv("CC", str(idle))
    monkeypatch.setattr(ctypes, "CDLL", mounted_without)
    assert re.search("operation not permitted; name one .* TMPDIR", Native("plasticity_steps.c", right).why_not())


def mounted_without(path: str) -> None:
    raise OSError(f"{path}: operation not permitted")


@compiles
def test_threads_wait_for_the_one_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []
    monkeypatch.setattr("hofno.solvers.native.compiled", lambda source: times.append(source) or compiled(source))
    given, found = Native("plasticity_steps.c", right), list[ctypes.CDLL | None]()
    threads = [threading.Thread(target=lambda: found.append(given.library())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1
    assert [library is found[0] is not None for library in found] == [True] * 4


@compiles
def test_other_numbers_than_the_plain_ones_are_not_used() -> None:
    given = Native("plasticity_steps.c", lambda library: False)
    assert given.library() is None
    assert given.why_not() == "its compiled code gives other numbers than PyTorch"
