"""Tensors as safetensors: an eight-byte length, a JSON header, raw numbers. No code is stored, none is run.

    file = n (u64, little-endian) | header (n bytes, JSON) | data

Pickle files (`torch.save`, .pt, .pth, .pkl) run code when they are loaded; they are recognised and refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hofno.errors import CheckpointError, HofnoError
from hofno.storage.files import one_line, read_failure, regular_size

if TYPE_CHECKING:
    import torch

_PICKLE_SUFFIXES = {".pt", ".pth", ".pkl", ".pickle"}
_SMALLEST = 10  # bytes: the length and an empty header, {}
_RESERVED = "__metadata__"
_REMEDY = "restore it from a copy or make it again"


def tensor_bytes(tensors: dict[str, torch.Tensor]) -> bytes:
    """Serialise named tensors; equal tensors give equal bytes, in whatever order they come.

    Tensors that share memory (tied weights) are stored once under each name.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save

    plain: dict[str, torch.Tensor] = {}
    memory: set[int] = set()
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor) or name == _RESERVED:
            kind = type(tensor).__name__
            raise HofnoError(f"expected tensors under names other than {_RESERVED!r}, got {name!r}: {kind}")
        try:
            tensor = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        except (RuntimeError, NotImplementedError) as error:
            raise HofnoError(f"tensor {name!r} cannot be saved: {one_line(error)}; give a dense tensor") from error
        if tensor.untyped_storage().data_ptr() in memory:
            tensor = tensor.clone()
        memory.add(tensor.untyped_storage().data_ptr())
        plain[name] = tensor
    try:
        return save(plain)
    except (SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise HofnoError(
            f"the tensors cannot be saved: {one_line(error)}; give dense tensors of real numbers"
        ) from error


def read_tensors(path: Path, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Read a safetensors file; anything else is refused with the reason and never executed.

    Every tensor is copied into memory of its own, aligned as torch aligns it: the file may be replaced
    afterwards, and arithmetic on the tensors gives the same bits as before they were saved.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _refuse_foreign(path)
    try:
        mapped = load_file(path, device="cpu")
    except OSError as error:
        raise read_failure(path, error) from error
    except (SafetensorError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is truncated or corrupt: {one_line(error)}; {_REMEDY}") from error
    try:
        return {name: tensor.to(device, copy=True) for name, tensor in mapped.items()}
    except (RuntimeError, AssertionError) as error:
        raise HofnoError(f"{path} cannot be put on device {device!r}: {one_line(error)}; choose another") from error


def _refuse_foreign(path: Path) -> None:
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise read_failure(path, error) from error
    if size == 0:
        raise CheckpointError(f"{path} is empty, expected a safetensors file; {_REMEDY}")
    header = int.from_bytes(start[:8], "little")
    opens = start[8:9] == b"{"
    if opens and 8 + header <= size:
        return
    pickled = start[:2] == b"PK" or (start[0] == 0x80 and not opens)
    if pickled or (path.suffix.lower() in _PICKLE_SUFFIXES and not opens):
        raise CheckpointError(
            f"{path}: this is a pickle file; hofno never unpickles, since loading one can run any code: "
            "export the weights with safetensors and give that file"
        )
    if opens or size < _SMALLEST:
        expected = 8 + header if opens else _SMALLEST
        raise CheckpointError(
            f"{path} is truncated (expected at least {expected} bytes, found {size}) "
            f"or not a safetensors file; {_REMEDY}"
        )
    raise CheckpointError(f"{path} is not a safetensors file; export the weights with safetensors and give that file")
