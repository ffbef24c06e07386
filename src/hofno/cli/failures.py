"""How errors and warnings are told: one line on stderr, of errors with an exit code; no traceback unless asked for.

    2     the user can put it right: a spec, a file, memory, the disk
    130   the run was interrupted (Ctrl-C, SIGTERM)

What is not foreseen here is a fault of the program and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from hofno.cli.plain_help import PlainGroup
from hofno.errors import HofnoError

WRONG = 2
INTERRUPTED = 130
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_UNAVAILABLE = "busy or unavailable"
_HELD = (
    "another program holds it alone, or its MPS server has stopped; look with nvidia-smi, free it and run again, or "
    "compute on the CPU (--set device=cpu)"
)
_MEMORY = "use fewer samples, a smaller train.batch_size, or a smaller model, and run again"


def explain(error: BaseException, command: str | None = None) -> tuple[str, int] | None:
    """The line and exit code of an error that is told in one line; None for a fault of the program."""
    from hofno.workers import LESS_TO_MEASURE

    remedy = LESS_TO_MEASURE if command == "bench" else _MEMORY
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "interrupted", INTERRUPTED
    if isinstance(error, HofnoError):
        return str(error), WRONG
    if isinstance(error, MemoryError):
        return f"there is not enough memory; {remedy}", WRONG
    if _is_torch_memory(error):
        return f"there is not enough memory on the device; {remedy}", WRONG
    if isinstance(error, RuntimeError) and _UNAVAILABLE in str(error):  # as torch says it of a GPU
        return f"the GPU cannot be used: {_HELD}", WRONG
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        place = f"{error.filename}: " if error.filename is not None else ""
        free = "free some space" if error.errno in _NO_SPACE else "check the path and its permissions"
        return f"{place}{reason}; {free} and run again", WRONG
    return None


def _is_torch_memory(error: BaseException) -> bool:
    """Out of memory as torch says it: a class of its own on a GPU, a RuntimeError on the CPU."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def one_line_warning(message: Warning | str, *where: object) -> str:
    """A warning as errors are told, for `warnings.formatwarning`: what is meant, not the line of code it came from."""
    return f"hofno: warning: {' '.join(str(message).split())}\n"


class OneLineErrors(PlainGroup):
    """The group of all commands; an error of any of them is told here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            in_full = ctx.params.get("debug") and not isinstance(error, KeyboardInterrupt)
            told = None if in_full else explain(error, ctx.invoked_subcommand)
            if told is None:
                raise
            message, code = told
            print(f"hofno: {' '.join(message.split())}", file=sys.stderr, flush=True)
            raise SystemExit(code) from None
