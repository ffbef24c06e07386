"""One file: replaced whole or not at all, and every refusal is one line that names it."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.errors import CheckpointError, HofnoError
from hofno.storage import disk_has_room, files, read_json, write_bytes, write_json

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


def test_bytes_round_trip_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "a.bin"
    for data in (b"", b"first", bytes(3_000_000), b"last"):
        write_bytes(path, data)
        assert path.read_bytes() == data
    assert os.listdir(path.parent) == ["a.bin"]


def test_a_path_is_tried_before_the_work_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("new/folders/a.json", "file", "link", "other"):
        files.check_writable(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    for name, why in (("file/a.json", "Not a directory"), ("file/b/a.json", "Not a directory"), ("", "Is a directory")):
        with pytest.raises(CheckpointError, match=f"cannot be written: {why}; give the path of another file"):
            files.check_writable(tmp_path / name)


def test_a_folder_without_permission_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CheckpointError, match=r"a\.json cannot be written: Permission denied"):
        files.check_writable(tmp_path / "a.json")


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    write_bytes(tmp_path / "a", bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


def test_data_reach_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    write_bytes(tmp_path / "a", b"x")
    assert calls == ["write", "fsync", "replace", "fsync"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space and run again"),
        (errno.EDQUOT, "free some space and run again"),
        (errno.EIO, "check the disk and run again"),
        (errno.EROFS, "make the folder writable or choose another and run again"),
    ],
)
def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(code, "injected")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CheckpointError) as caught:
        write_bytes(path, b"newer")
    message = str(caught.value)
    assert message == (
        f"{path} (5 bytes) could not be written: {os.strerror(code)}; {remedy}; what was saved before is kept"
    )
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "a", b"old")

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_file_systems_that_cannot_sync_folders_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "injected")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_bytes(tmp_path / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for path in (tmp_path / "file" / "a", tmp_path / "folder"):
        with pytest.raises(CheckpointError, match="choose another path"):
            write_bytes(path, b"x")


@settings(max_examples=50, deadline=None)
@given(obj=PLAIN)
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, obj: object) -> None:
    path = tmp_path_factory.getbasetemp() / "round.json"
    write_json(path, obj)
    assert read_json(path) == obj


def test_json_is_sorted_indented_utf8_with_a_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"ü": 1, "a": [1.5]})
    write_json(tmp_path / "b", {"a": [1.5], "ü": 1})
    assert (tmp_path / "a").read_bytes() == '{\n "a": [\n  1.5\n ],\n "ü": 1\n}\n'.encode()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, object(), b"bytes", "\ud800", {1: 0, "a": 0}])
def test_what_is_no_json_is_refused_on_write(tmp_path: Path, value: object) -> None:
    path = tmp_path / "a.json"
    write_json(path, "old")
    with pytest.raises(HofnoError, match=r"a\.json cannot be written as JSON") as caught:
        write_json(path, {"key": value})
    assert "\n" not in str(caught.value)
    assert read_json(path) == "old"


def test_endless_nesting_is_refused_on_write(tmp_path: Path) -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(HofnoError, match="cannot be written as JSON"):
        write_json(tmp_path / "a.json", endless)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"NaN", b"[Infinity]", b"[" * 200_000, b"1 2", b"9" * 9000])
def test_what_is_no_json_is_refused_on_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"a\.json is not valid JSON") as caught:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


def test_large_missing_and_special_files_are_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(CheckpointError, match=r"large\.json has 67108865 bytes, expected at most 67108864"):
        read_json(tmp_path / "large.json")
    with pytest.raises(CheckpointError, match=r"none\.json is missing"):
        read_json(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(CheckpointError, match="is not a file"):
            read_json(tmp_path / name)


def test_disk_has_room(tmp_path: Path) -> None:
    place = tmp_path / "not" / "yet"
    assert disk_has_room(place, 1)
    assert not disk_has_room(place, 2**62)
    assert not place.parent.exists()


def test_messages_stay_on_one_line() -> None:
    assert files.one_line("a\nb\x1b[31m\tc") == "a b?[31m c"
    assert len(files.one_line("x" * 1000)) == 203


def test_written_json_is_read_by_any_reader(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"x": 0.1, "large": 2**60})
    assert json.loads((tmp_path / "a").read_text("utf-8")) == {"x": 0.1, "large": 2**60}


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name in ("there", "not_yet"):
        (tmp_path / name).symlink_to(f"disk/{name}")
    (tmp_path / "disk" / "there").write_bytes(b"old")
    for name in ("there", "not_yet"):
        write_bytes(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "disk" / name).read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path / "disk")) == ["not_yet", "there"]


def test_pipes_and_devices_are_left_alone(tmp_path: Path) -> None:
    """A file in the place of /dev/null would do harm to all programs."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(CheckpointError, match=f"{name} is a pipe or a device, and a file is written") as told:
            write_bytes(tmp_path / name, b"new")
        assert "\n" not in str(told.value)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]
