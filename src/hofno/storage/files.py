"""One file replaced in one step: temporary name, write, fsync, rename, fsync of the folder.

At every instant `path` names the whole old file or the whole new one, whatever dies in between: the
process (the temporary is left over and ignored) or the power (the data reach the disk before the name does).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from hofno.errors import CheckpointError, HofnoError
from hofno.storage.processes import is_alive

LARGEST_JSON = 64 * 2**20  # bytes

_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.tmp-(?P<pid>[0-9]{1,10})(?:-(?P<host>[0-9a-f]{8}))?-(?P<token>[0-9a-f]{16})", re.DOTALL
)
_PROCESS_TOKEN = secrets.token_hex(4)  # tells this process from an earlier one that had the same pid
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP}  # file systems that order their names themselves
_NO_ACCESS = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path`, making missing folders; on failure the file that was there stays as it was.

    A link stays, and what it leads to is replaced. Pipes and devices are no files and are refused.
    """
    _refuse_special(path)
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = temporary_beside(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_synced(temporary, data)
        os.replace(temporary, place)
        sync_folder(place.parent)
    except OSError as error:
        raise write_failure(path, len(data), error) from error
    finally:
        remove_file(temporary)


def check_writable(path: Path) -> None:
    """Refuse a path that no file can be written to, before the work for it is done; nothing is made there."""
    _refuse_special(path)
    place = Path(os.path.realpath(path))
    folder = place.parent
    while not folder.exists():
        folder = folder.parent
    fault = errno.EISDIR if place.is_dir() else 0 if folder.is_dir() else errno.ENOTDIR
    fault = fault or (0 if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES)
    if fault:
        raise CheckpointError(f"{path} cannot be written: {os.strerror(fault)}; give the path of another file")


def write_json(path: Path, obj: Any) -> None:
    """Write plain values as JSON with sorted keys, so that equal objects give equal bytes."""
    write_bytes(path, json_bytes(path, obj))


def read_json(path: Path) -> Any:
    """Read a JSON file of at most 64 MiB."""
    return parse_json(path, read_bytes(path, LARGEST_JSON))


def disk_has_room(path: Path, bytes: int) -> bool:
    """Whether the disk that holds `path` (which need not exist yet) has `bytes` free."""
    existing = Path(os.path.abspath(path))
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    return usage.total == 0 or usage.free >= bytes  # a total of 0: the file system does not say


def json_bytes(path: Path, obj: Any) -> bytes:
    """The bytes of `obj` as they will stand in `path`, which only the error message uses."""
    try:
        text = json.dumps(obj, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise HofnoError(
            f"{path} cannot be written as JSON: {one_line(error)}; "
            "expected finite numbers, text, booleans, lists and dicts with text keys"
        ) from error


def parse_json(path: Path, data: bytes) -> Any:
    """The object in `data`, the content of `path`; NaN and infinities are no JSON."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON: {one_line(error)}; restore it from a copy or make it again"
        ) from error


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file; its size is checked against `limit` bytes before memory is asked for."""
    try:
        size = regular_size(path)
        if size > limit:
            raise CheckpointError(
                f"{path} has {size} bytes, expected at most {limit}; it is not a file that hofno wrote"
            )
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise read_failure(path, error) from error


def regular_size(path: Path) -> int:
    """Size in bytes of a regular file; folders, pipes and devices are refused before they are opened."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError(f"{path} is not a file (a folder, pipe or device); give the path of a file")
    return found.st_size


def _refuse_special(path: Path) -> None:
    """Refuse what a file in its place would do away with, such as /dev/null; a folder the system refuses itself."""
    with suppress(OSError):
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise CheckpointError(f"{path} is a pipe or a device, and a file is written; give the path of a file")


def write_synced(path: Path, data: bytes) -> None:
    """Create `path`, which must not exist, and return when its content is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Return when the names in `folder` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove a temporary if it is there; one that cannot be removed is left to `prune_checkpoints`."""
    with suppress(OSError):
        os.unlink(path)


def temporary_beside(path: Path) -> Path:
    """A fresh name `.<name>.tmp-<pid>-<host>-<random>` in the folder of `path`."""
    return path.parent / f".{path.name}.tmp-{os.getpid()}-{this_host()}-{_PROCESS_TOKEN}{secrets.token_hex(4)}"


def this_host() -> str:
    """Eight digits that tell this host from others that share its disks: pids say nothing about theirs."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def is_stale_temporary(name: str, of: str | None = None) -> bool:
    """Whether `name` is a temporary, for the name `of` if one is given, that no living process will finish.

    Whether processes of another host live is not known. Names that earlier versions gave have no host and count as of
    this one.
    """
    match = _TEMPORARY.fullmatch(name)
    if match is None or of not in (None, match["name"]):
        return False
    if match["host"] not in (None, this_host()):
        return False
    pid = int(match["pid"])
    if pid == os.getpid():
        return not match["token"].startswith(_PROCESS_TOKEN)
    return not is_alive(pid)


def write_failure(
    path: Path, size: int, error: OSError, state: str = "what was saved before is kept"
) -> CheckpointError:
    """One line for a write that was refused: which file, how many bytes, why, the remedy, what is left."""
    if error.errno in _NO_SPACE:
        remedy = "free some space and run again"
    elif error.errno in _NO_ACCESS:
        remedy = "make the folder writable or choose another and run again"
    elif error.errno in _NO_PLACE:
        remedy = "choose another path and run again"
    else:
        remedy = "check the disk and run again"
    return CheckpointError(f"{path} ({size} bytes) could not be written: {_reason(error)}; {remedy}; {state}")


def taken_from(path: Path) -> str:
    """Where a relative path begins, to end a remark on the path; nothing of an absolute one."""
    return "" if path.is_absolute() else f", which is taken from the folder hofno runs in: {Path.cwd()}"


def read_failure(path: Path, error: OSError) -> CheckpointError:
    """One line for a read that the system refused."""
    if isinstance(error, FileNotFoundError):
        return CheckpointError(f"{path} is missing; check the path{taken_from(path)}")
    if isinstance(error, NotADirectoryError) and path.parent.is_file():
        return CheckpointError(f"{path.parent} is a file, and {path.name} is looked for in it; give the folder of it")
    return CheckpointError(f"{path} could not be read: {_reason(error)}; check the path and its permissions")


def one_line(value: object, longest: int = 200) -> str:
    """Text from outside made fit for a one-line message."""
    text = " ".join(str(value).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= longest else text[:longest] + "..."


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno is not None else one_line(error)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def fingerprint(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a plain value: a name for what is made of it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
