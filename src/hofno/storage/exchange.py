"""Two folders change names in one step, so that there is no instant at which one of the names is missing.

Linux has this as renameat2 with RENAME_EXCHANGE. Where it is missing, three renames do the same, and only a
kill exactly between the first two leaves `theirs` under a temporary name.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from hofno.storage.files import temporary_beside

_HERE = -100  # AT_FDCWD: relative paths start at the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(ours: Path, theirs: Path) -> None:
    """Afterwards `theirs` names what was `ours`, and the reverse."""
    if _exchange_at_once(ours, theirs):
        return
    aside = temporary_beside(theirs)
    os.rename(theirs, aside)
    try:
        os.rename(ours, theirs)
    except BaseException:
        os.rename(aside, theirs)
        raise
    os.rename(aside, ours)


def _exchange_at_once(ours: Path, theirs: Path) -> bool:
    """Whether the system could do it in one step; errors other than "not supported" are raised."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    if renameat2(_HERE, os.fsencode(ours), _HERE, os.fsencode(theirs), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(theirs))
