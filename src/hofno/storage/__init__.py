"""Crash-safe storage: a reader sees the old content or the new content, never something in between.

- `files`: one file, replaced in one step; JSON on top of it.
- `tensors`: tensors as safetensors bytes; nothing that is read is ever executed.
- `folder`: many files committed together, each with its size and SHA-256 in a manifest.
- `checkpoints`: which of the folders `step-<n>` is the newest sound one, and which may go.
- `lock`: one process per run folder.
- `runs`: which folders are runs and studies.
"""

from __future__ import annotations

from hofno.storage.checkpoints import newest_checkpoint, prune_checkpoints
from hofno.storage.files import check_writable, disk_has_room, fingerprint, read_json, write_bytes, write_json
from hofno.storage.folder import (
    left_by_interrupted_save,
    read_manifest,
    remove_damaged,
    save_folder,
    update_folder,
    verify_file,
    verify_folder,
)
from hofno.storage.lock import InUseError, RunLock
from hofno.storage.runs import read_history
from hofno.storage.tensors import read_tensors, tensor_bytes

__all__ = [
    "InUseError",
    "RunLock",
    "check_writable",
    "disk_has_room",
    "fingerprint",
    "left_by_interrupted_save",
    "newest_checkpoint",
    "prune_checkpoints",
    "read_history",
    "read_json",
    "read_manifest",
    "read_tensors",
    "remove_damaged",
    "save_folder",
    "tensor_bytes",
    "update_folder",
    "verify_file",
    "verify_folder",
    "write_bytes",
    "write_json",
]
