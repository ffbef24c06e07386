"""Tensors: exact round trips, the same bytes each time, and nothing foreign is ever run."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.errors import CheckpointError, HofnoError
from hofno.storage import read_tensors, tensor_bytes, write_bytes


def sample() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weight": torch.randn(3, 4, 2, generator=generator),
        "double": torch.randn(5, generator=generator, dtype=torch.float64),
        "half": torch.randn(7, generator=generator).bfloat16(),
        "state": torch.arange(11, dtype=torch.uint8),
        "step": torch.tensor(3),
        "empty": torch.zeros(0, 3),
        "bool": torch.tensor([True, False, True]),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_round_trip_is_exact_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_bytes(path, tensor_bytes(sample()))
    read = read_tensors(path)
    assert read.keys() == sample().keys()
    for name, tensor in sample().items():
        assert read[name].dtype == tensor.dtype
        assert read[name].shape == tensor.shape
        assert bits(read[name]) == bits(tensor)


def test_bytes_depend_on_the_tensors_alone() -> None:
    tensors = sample()
    reference = tensor_bytes(tensors)
    assert tensor_bytes(dict(reversed(tensors.items()))) == reference
    assert (
        tensor_bytes({name: t.clone().requires_grad_(t.is_floating_point()) for name, t in tensors.items()})
        == reference
    )
    transposed = {**tensors, "weight": tensors["weight"].permute(2, 0, 1).contiguous().permute(1, 2, 0)}
    assert not transposed["weight"].is_contiguous()
    assert tensor_bytes(transposed) == reference
    assert tensor_bytes({**tensors, "weight": tensors["weight"] + 1}) != reference


def test_shared_memory_is_stored_under_each_name(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    write_bytes(tmp_path / "a", tensor_bytes({"all": base, "again": base, "view": base[1:3], "empty": base[:0]}))
    read = read_tensors(tmp_path / "a")
    assert read["all"].tolist() == read["again"].tolist() == [0, 1, 2, 3, 4, 5]
    assert read["view"].tolist() == [1, 2]
    assert tensor_bytes({"x": base, "y": base}) == tensor_bytes({"x": base, "y": base.clone()})


def test_read_tensors_are_aligned_and_free_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, tensor_bytes(sample()))
    read = read_tensors(path)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in read.values())
    path.write_bytes(b"")  # in place: a mapped tensor would now be gone
    assert bits(read["weight"]) == bits(sample()["weight"])


def test_what_cannot_be_saved_is_refused() -> None:
    with pytest.raises(HofnoError, match="'a': list"):
        tensor_bytes({"a": [1.0]})  # pyright: ignore[reportArgumentType]
    with pytest.raises(HofnoError, match="__metadata__"):
        tensor_bytes({"__metadata__": torch.zeros(1)})
    with pytest.raises(HofnoError, match="cannot be saved"):
        tensor_bytes({"s": torch.zeros(3, 3).to_sparse()})
    with pytest.raises(HofnoError, match="'m' cannot be saved"):
        tensor_bytes({"m": torch.zeros(3, device="meta")})


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", tensor_bytes(sample()))
    with pytest.raises(HofnoError, match="cannot be put on device 'abacus'"):
        read_tensors(tmp_path / "a", device="abacus")


class Bomb:
    """Touches the canary the moment it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.canary,))


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.pkl", "w.safetensors"])
@pytest.mark.parametrize("kind", ["zip", "legacy", 0, 1, 2, 3, 4, 5])
def test_pickle_bombs_are_refused_and_do_not_go_off(tmp_path: Path, name: str, kind: str | int) -> None:
    canary, path = tmp_path / "canary", tmp_path / name
    content = io.BytesIO()
    if isinstance(kind, int):
        pickle.dump({"weight": Bomb(canary)}, content, protocol=kind)
    else:
        torch.save({"weight": Bomb(canary)}, content, _use_new_zipfile_serialization=kind == "zip")
    path.write_bytes(content.getvalue())
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)
    assert not canary.exists()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    text_pickle = kind in (0, 1) and name == "w.safetensors"  # no mark at the start, no telling name
    assert ("this is a pickle file; hofno never unpickles" in message) == (not text_pickle)
    assert "export the weights with safetensors" in message


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "canary")))
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\x08\x00", "is truncated"),
        (b"just some text, longer than a header", "is not a safetensors file"),
        ((2**40).to_bytes(8, "little") + b"{}", "is truncated"),
        ((2).to_bytes(8, "little") + b"{]", "is truncated or corrupt"),
        ((2**62).to_bytes(8, "little") + b"\0" * 99, "is not a safetensors file"),
    ],
)
def test_foreign_content_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=reason) as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none is missing"):
        read_tensors(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is not a file"):
        read_tensors(tmp_path)


def test_a_header_length_that_looks_like_a_pickle_is_read(tmp_path: Path) -> None:
    """640 = 0x0280 is stored as the bytes 80 02, which is also how pickles of protocol 2 begin."""
    starts = set()
    for extra in range(200, 800, 4):
        data = tensor_bytes({"x" * extra: torch.ones(1)})
        starts.add(data[:2])
        if data[:2] == b"\x80\x02":
            write_bytes(tmp_path / "a", data)
            assert read_tensors(tmp_path / "a")["x" * extra].item() == 1
    assert b"\x80\x02" in starts


@settings(deadline=None)
@given(cut=st.integers(0, 10_000))
def test_every_truncation_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    data = tensor_bytes(sample())
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    path.write_bytes(data[: cut % len(data)])
    with pytest.raises(CheckpointError, match=r"truncated|empty"):
        read_tensors(path)


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255), tail=st.binary(max_size=3))
def test_damage_raises_nothing_but_checkpoint_errors(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int, tail: bytes
) -> None:
    data = bytearray(tensor_bytes(sample()))
    data[place % len(data)] ^= flip
    path = tmp_path_factory.getbasetemp() / "flip.safetensors"
    path.write_bytes(bytes(data) + tail)
    try:
        read = read_tensors(path)
    except CheckpointError:
        return
    assert not tail
    assert all(isinstance(tensor, torch.Tensor) for tensor in read.values())
