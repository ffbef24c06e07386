"""The checkpoints of a run: folders `step-<n>`, the newest is the one with the largest n.

The clock is never asked. An incomplete checkpoint is passed over, a corrupt one is named and passed over,
and the one before it serves.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from hofno.errors import CheckpointError, HofnoError
from hofno.storage.files import is_stale_temporary, one_line, temporary_beside
from hofno.storage.folder import MANIFEST, check_sizes, read_manifest, verify_folder

_STEP = re.compile(r"step-([0-9]{1,18})")


def newest_checkpoint(folder: Path, report: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose every byte is right, or None; `report` gets one line per corrupt one."""
    for checkpoint in _newest_first(folder):
        if not os.path.lexists(checkpoint / MANIFEST):
            continue
        try:
            verify_folder(checkpoint)
        except CheckpointError as error:
            report(f"checkpoint {checkpoint.name} is refused, the one before it is tried: {error}")
        else:
            return checkpoint
    return None


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` complete checkpoints, and temporaries whose process is dead.

    Complete means a sound manifest and the right sizes. While none is complete, no checkpoint is deleted.
    A folder `step-<n>` without a manifest was not saved by hofno and is left alone.
    """
    if keep < 1:
        raise HofnoError(f"expected to keep at least 1 checkpoint, got keep={keep}")
    ours = [path for path in _newest_first(folder) if os.path.lexists(path / MANIFEST) and not path.is_symlink()]
    complete = [path for path in ours if _is_complete(path)]
    if complete:
        for path in ours:
            if path not in complete[:keep]:
                _delete(path)
    for path in _entries(folder):
        if is_stale_temporary(path.name):
            _delete(path)


def _newest_first(folder: Path) -> list[Path]:
    found = [(int(match[1]), path) for path in _entries(folder) if (match := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True) if path.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{folder} could not be read: {one_line(error)}; check the path") from error


def _is_complete(path: Path) -> bool:
    try:
        check_sizes(path, read_manifest(path))
    except CheckpointError:
        return False
    return True


def _delete(path: Path) -> None:
    """Remove in one step as far as readers can see: first out of sight, then file by file."""
    hidden = temporary_beside(path)
    try:
        os.rename(path, hidden)
        if hidden.is_dir() and not hidden.is_symlink():
            shutil.rmtree(hidden)
        else:
            hidden.unlink()
    except OSError as error:
        raise CheckpointError(f"{path} could not be deleted: {one_line(error)}; delete it by hand") from error
