"""Files that belong together: committed as one folder, with a manifest that is written last.

    manifest.json = {schema, meta, files: {name: {bytes, sha256}}, sha256 of the three}

No manifest means that the save was interrupted. Any other change of one byte, in a file or in the manifest
itself, contradicts a size or a hash, and `verify_folder` names the file.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import Any

from hofno.errors import CheckpointError, HofnoError
from hofno.storage.exchange import exchange
from hofno.storage.files import (
    LARGEST_JSON,
    is_stale_temporary,
    is_temporary,
    json_bytes,
    one_line,
    parse_json,
    read_bytes,
    read_failure,
    regular_size,
    remove_file,
    sync_folder,
    temporary_beside,
    write_failure,
    write_synced,
)

SCHEMA = "hofno/1"
MANIFEST = "manifest.json"
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY}
_REMEDY = "restore it from a copy or save it again"


def save_folder(path: Path, files: dict[str, bytes], meta: dict[str, Any], *, overwrite: bool = True) -> None:
    """Commit `files` and `meta` as the folder `path`, all at once; an earlier hofno folder there is replaced.

    Without `overwrite` the earlier one gets another name first, `path`.1 or the next number that is free, and nothing
    is ever removed. A folder that hofno did not save, or one that holds other files as well, is refused and left alone.
    """
    contents = {**files, MANIFEST: _manifest_bytes(path, files, meta)}
    place = Path(os.path.realpath(path))
    _may_be_replaced(path, place, files)  # refused before anything is written
    total = sum(map(len, contents.values()))
    staged = temporary_beside(place)
    try:
        try:
            staged.mkdir(parents=True)
            for name, data in contents.items():
                _stage(staged / name, path / name, data)
            sync_folder(staged)
            if overwrite:
                _name_instead(staged, path, place, files)
            else:
                _name_beside(staged, place)
            sync_folder(place.parent)
        except OSError as error:
            raise write_failure(path, total, error) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # what was staged in vain, or what was replaced


def update_folder(path: Path, files: dict[str, bytes], meta: dict[str, Any]) -> None:
    """Write `files` and a manifest of them into `path`, beside whatever else lies there.

    Everything is on the disk under temporary names before the first file changes its name, so a full disk
    leaves the old state whole. A kill while the names change leaves no manifest: an interrupted save.
    """
    contents = {**files, MANIFEST: _manifest_bytes(path, files, meta)}  # the manifest is the last
    staged = {name: temporary_beside(path / name) for name in contents}
    state = "what was saved before is kept"
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name, data in contents.items():
                _stage(staged[name], path / name, data)
            (path / MANIFEST).unlink(missing_ok=True)
            state = "the folder may be incomplete until then"
            for name in contents:
                os.replace(staged[name], path / name)
            sync_folder(path)
        except OSError as error:
            raise write_failure(path, sum(map(len, contents.values())), error, state) from error
    finally:
        for temporary in staged.values():
            remove_file(temporary)


def verify_folder(path: Path) -> dict[str, Any]:
    """Check the size and the SHA-256 of every file against the manifest; return the manifest's meta."""
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    for name in manifest["files"]:
        _check_digest(path, name, manifest)
    return manifest["meta"]


def remove_damaged(path: Path) -> None:
    """Remove a folder of ours whose manifest cannot be read: no one can use it, and a save there would be refused."""
    if path.exists():
        try:
            read_manifest(path)
        except CheckpointError:
            shutil.rmtree(path, ignore_errors=True)


def verify_file(path: Path, name: str) -> None:
    """Check the size and the SHA-256 of one file of a folder against the manifest."""
    manifest = read_manifest(path)
    check_sizes(path, {"files": {name: manifest["files"][name]}})
    _check_digest(path, name, manifest)


def _check_digest(path: Path, name: str, manifest: dict[str, Any]) -> None:
    try:
        with (path / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise read_failure(path / name, error) from error
    if found != manifest["files"][name]["sha256"]:
        raise CheckpointError(f"{path / name} is corrupt: its SHA-256 differs from the manifest's; {_REMEDY}")


def check_sizes(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse a file that is missing or has another size than `manifest` says; cheap, nothing is read."""
    for name, expected in manifest["files"].items():
        try:
            size = regular_size(path / name)
        except FileNotFoundError as error:
            raise CheckpointError(f"{path / name} is missing, the manifest lists it; {_REMEDY}") from error
        except OSError as error:
            raise read_failure(path / name, error) from error
        if size != expected["bytes"]:
            state = "truncated" if size < expected["bytes"] else "corrupt: longer than it was"
            raise CheckpointError(
                f"{path / name} is {state} (expected {expected['bytes']} bytes, found {size}); {_REMEDY}"
            )


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a hofno folder, itself checked to the byte."""
    place = path / MANIFEST
    if not path.is_dir():
        raise CheckpointError(f"{path} is missing or no folder, expected one that hofno saved; check the path")
    if not os.path.lexists(place):
        raise CheckpointError(
            f"{path} is incomplete: the save was interrupted, or the folder is foreign, not saved by hofno "
            f"(there is no {MANIFEST}); save it again or check the path"
        )
    data = read_bytes(place, LARGEST_JSON)
    manifest = parse_json(place, data)
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise CheckpointError(
            f"{path} is foreign: its {MANIFEST} has schema {one_line(repr(schema), 40)}, "
            f"expected {SCHEMA!r}; check the path, or use the version of hofno that saved it"
        )
    if not _is_sound(place, manifest, data):
        raise CheckpointError(f"{place} is corrupt: its content differs from its own SHA-256; {_REMEDY}")
    return manifest


def _manifest_bytes(path: Path, files: dict[str, bytes], meta: dict[str, Any]) -> bytes:
    for name in files:
        if not _is_plain(name):
            raise HofnoError(f"expected plain file names other than {MANIFEST} for {path}, got {name!r}")
    listed = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    manifest: dict[str, Any] = {"schema": SCHEMA, "meta": meta, "files": listed}
    manifest["sha256"] = hashlib.sha256(json_bytes(path / MANIFEST, manifest)).hexdigest()
    return json_bytes(path / MANIFEST, manifest)


def _is_sound(place: Path, manifest: dict[str, Any], data: bytes) -> bool:
    """Whether `data` is exactly what was written: canonical, true to its own hash, and of the right form."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    try:
        if json_bytes(place, manifest) != data:
            return False
        if hashlib.sha256(json_bytes(place, body)).hexdigest() != manifest.get("sha256"):
            return False
    except HofnoError:
        return False
    listed = body.get("files")
    return (
        isinstance(body.get("meta"), dict)
        and isinstance(listed, dict)
        and all(_is_plain(name) and _is_entry(entry) for name, entry in listed.items())
    )


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..", MANIFEST) and not any(mark in name for mark in "/\\\0")


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)


def left_by_interrupted_save(path: Path) -> list[Path]:
    """Whole folders that were meant for `path`, or were there, when a process died between two changes of names.

    The numbered ones that earlier saves were given are among them.
    """
    place = Path(os.path.realpath(path))
    try:
        names = sorted(os.listdir(place.parent))
    except OSError:
        return []
    numbered = re.compile(re.escape(place.name) + r"\.[1-9][0-9]*")
    beside = [n for n in names if is_stale_temporary(n, of=place.name) or numbered.fullmatch(n)]
    return [place.parent / name for name in beside if _is_whole(place.parent / name)]


def _is_whole(path: Path) -> bool:
    try:
        verify_folder(path)
    except HofnoError:
        return False
    return True


def _name_instead(staged: Path, path: Path, place: Path, files: dict[str, bytes]) -> None:
    """Give `staged` the name `place`, and what has that name its own: another process may have saved there by now."""
    while not _may_be_replaced(path, place, files):
        try:
            os.rename(staged, place)
            return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    exchange(staged, place)


def _name_beside(staged: Path, place: Path) -> None:
    """Give `staged` the name `place`; what has that name gets the first of place.1, place.2, ... that is free.

    Another process may do the same at any moment. If it cannot be done, `place` is what it was.
    """
    while True:
        kept = _set_aside(place)
        try:
            os.rename(staged, place)
            return
        except OSError as error:
            if error.errno in _TAKEN:
                continue
            if kept is not None:
                os.rename(kept, place)
            raise


def _set_aside(place: Path) -> Path | None:
    """Give the folder `place` a numbered name, if it is there and not empty; the new name."""
    for number in itertools.count(1):
        name = place.with_name(f"{place.name}.{number}")
        if os.path.lexists(name):
            continue
        try:
            if not os.listdir(place):
                os.rmdir(place)
                return None
            os.rename(place, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _TAKEN:
                continue
            raise
        return name
    raise AssertionError("numbers end")


def _may_be_replaced(path: Path, place: Path, files: dict[str, bytes]) -> bool:
    """False: nothing is there. True: an empty folder or a hofno folder is. Anything else is refused.

    A hofno folder with a damaged manifest counts when it holds only files that are about to be written.
    """
    if not os.path.lexists(place):
        return False
    if not place.is_dir():
        raise CheckpointError(f"{path} exists and is not a folder; choose another path")
    try:
        present = {name for name in os.listdir(place) if not is_temporary(name)}
    except OSError as error:
        raise read_failure(path, error) from error
    if not present:
        return True
    if not (place / MANIFEST).is_file() or not (own := _names_of(place, files)):
        raise CheckpointError(f"{path} exists and is not a hofno folder; choose another path or empty it")
    if others := sorted(present - own):
        raise CheckpointError(
            f"{path} exists and holds more than hofno saved there ({one_line(others[0], 80)}); "
            "choose another path or move that away"
        )
    return True


def _names_of(place: Path, files: dict[str, bytes]) -> set[str]:
    """The names that hofno put into the folder `place`; none when its manifest is someone else's."""
    try:
        manifest = parse_json(place, read_bytes(place / MANIFEST, LARGEST_JSON))
    except CheckpointError:
        return {MANIFEST, *files}
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return set()
    listed = manifest.get("files")
    return {MANIFEST, *files, *(listed if isinstance(listed, dict) else {})}


def _stage(temporary: Path, final: Path, data: bytes) -> None:
    """Write one file under its temporary name; a failure speaks of the name it was meant for."""
    try:
        write_synced(temporary, data)
    except OSError as error:
        raise write_failure(final, len(data), error) from error
