"""A folder is committed whole, and one wrong byte anywhere in it is found and named."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.errors import CheckpointError, HofnoError
from hofno.storage import exchange, remove_damaged, save_folder, update_folder, verify_folder

FILES = {"weights.bin": bytes(range(256)), "note.txt": b"hello", "nothing": b""}
META = {"step": 12, "loss": 0.1, "name": "ü", "list": [1, None]}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model"
    save_folder(path, FILES, META)
    assert verify_folder(path) == META
    assert {name: (path / name).read_bytes() for name in FILES} == FILES
    assert sorted(os.listdir(path)) == sorted([*FILES, "manifest.json"])
    assert os.listdir(path.parent) == ["model"]


def test_manifest_says_schema_sizes_and_hashes(tmp_path: Path) -> None:
    save_folder(tmp_path / "a", {"x": b"abc"}, {"k": 1})
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["schema"] == "hofno/1"
    assert manifest["meta"] == {"k": 1}
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["files"] == {"x": {"bytes": 3, "sha256": sha}}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    save_folder(tmp_path / "a", FILES, META)
    save_folder(tmp_path / "b", dict(reversed(FILES.items())), dict(reversed(META.items())))
    update_folder(tmp_path / "c", FILES, META)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b") == snapshot(tmp_path / "c")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_hofno_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if not at_once:
        monkeypatch.setattr(exchange, "_exchange_at_once", lambda ours, theirs: False)
    path = tmp_path / "model"
    save_folder(path, FILES, META)
    save_folder(path, {"other": b"x"}, {"step": 13})
    assert verify_folder(path) == {"step": 13}
    assert sorted(os.listdir(path)) == ["manifest.json", "other"]
    assert os.listdir(tmp_path) == ["model"]


def test_a_failed_replacement_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    save_folder(path, FILES, META)
    monkeypatch.setattr(exchange, "_exchange_at_once", lambda ours, theirs: False)
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if target == path and (source / "other").exists():
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        save_folder(path, {"other": b"x"}, {})
    assert verify_folder(path) == META
    assert os.listdir(tmp_path) == ["model"]


def test_without_overwrite_an_earlier_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("model")
    for step, name in enumerate(("model", "model", "link")):
        save_folder(tmp_path / name, {"weights": bytes([step])}, {"step": step}, overwrite=False)
    assert sorted(os.listdir(tmp_path)) == ["link", "model", "model.1", "model.2"]
    kept = [(tmp_path / name / "weights").read_bytes() for name in ("model.1", "model.2", "model")]
    assert kept == [b"\x00", b"\x01", b"\x02"]
    verify_folder(tmp_path / "model.1")
    (tmp_path / "empty").mkdir()
    save_folder(tmp_path / "empty", FILES, META, overwrite=False)
    assert not (tmp_path / "empty.1").exists()


def test_only_what_cannot_be_read_is_removed(tmp_path: Path) -> None:
    save_folder(tmp_path / "data", FILES, META)
    remove_damaged(tmp_path / "data")
    assert verify_folder(tmp_path / "data") == META
    (tmp_path / "data" / "manifest.json").write_text("{")
    remove_damaged(tmp_path / "data")
    remove_damaged(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_two_processes_that_save_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is done between our look at the place and our taking it: the last one stays, whole."""
    real = os.rename

    def late(old: Path, new: Path) -> None:
        monkeypatch.setattr(os, "rename", real)
        save_folder(tmp_path / "data", {"a.bin": b"theirs"}, {})
        real(old, new)

    monkeypatch.setattr(os, "rename", late)
    save_folder(tmp_path / "data", {"a.bin": b"ours"}, {"kind": "data"})
    assert verify_folder(tmp_path / "data") == {"kind": "data"}
    assert (tmp_path / "data" / "a.bin").read_bytes() == b"ours"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_save_beside_an_earlier_one_loses_nothing(
    failing: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rename sets the earlier folder aside, the second gives the new one its name."""
    save_folder(tmp_path / "model", FILES, META)
    rename, renames = os.rename, []

    def fail(old: Path, new: Path) -> None:
        renames.append(new)
        if len(renames) == failing:
            raise error
        rename(old, new)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        save_folder(tmp_path / "model", {"other": b"x"}, {"step": 13}, overwrite=False)
    monkeypatch.undo()
    (kept,) = os.listdir(tmp_path)
    assert kept == ("model.1" if isinstance(error, KeyboardInterrupt) and failing == 2 else "model")
    assert verify_folder(tmp_path / kept) == META


def test_two_that_save_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the number, and then the name, between the question and the answer."""
    save_folder(tmp_path / "model", FILES, META)
    rename, others = os.rename, ["model.1", "model"]

    def late(old: Path, new: Path) -> None:
        if new.name in others:
            others.remove(new.name)
            with monkeypatch.context() as patch:
                patch.setattr(os, "rename", rename)
                save_folder(new, {"theirs": b"y"}, {"step": 99})
        rename(old, new)

    monkeypatch.setattr(os, "rename", late)
    save_folder(tmp_path / "model", {"ours": b"x"}, {"step": 13}, overwrite=False)
    found = {name: verify_folder(tmp_path / name)["step"] for name in os.listdir(tmp_path)}
    assert found == {"model": 13, "model.1": 99, "model.2": 12, "model.3": 99}


def test_an_empty_folder_and_a_link_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save_folder(tmp_path / "empty", FILES, META)
    (tmp_path / "link").symlink_to("empty")
    save_folder(tmp_path / "link", FILES, {"step": 13})
    assert (tmp_path / "link").is_symlink()
    assert verify_folder(tmp_path / "empty") == {"step": 13}


def foreign_folder(path: Path, content: dict[str, bytes]) -> None:
    path.mkdir()
    for name, data in content.items():
        (path / name).write_bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        {"thesis.tex": b"years of work"},
        {"weights.bin": b"mine"},
        {"manifest.json": b'{"name": "a browser extension"}'},
        {"manifest.json": b"[]"},
        {"manifest.json": b'{"schema": "hofno/2"}'},
        {"manifest.json": b"damaged", "thesis.tex": b"years of work"},
    ],
)
def test_a_foreign_folder_is_refused_and_not_touched(tmp_path: Path, content: dict[str, bytes]) -> None:
    foreign_folder(tmp_path / "mine", content)
    with pytest.raises(CheckpointError, match=r"mine exists and (is not a hofno folder|holds more)"):
        save_folder(tmp_path / "mine", FILES, META)
    assert snapshot(tmp_path) == {f"mine/{name}": data for name, data in content.items()}


def test_a_run_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    update_folder(tmp_path / "run", FILES, META)
    (tmp_path / "run" / "log.txt").write_bytes(b"kept")
    before = snapshot(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds more than hofno saved there \(log\.txt\)"):
        save_folder(tmp_path / "run", FILES, META)
    assert snapshot(tmp_path) == before


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="exists and is not a folder"):
        save_folder(tmp_path / "model", FILES, META)


def test_a_damaged_hofno_folder_can_be_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "step-3"
    for damage in (b"", b"\xff", b"{"):
        save_folder(path, FILES, META)
        (path / "manifest.json").write_bytes(damage)
        save_folder(path, FILES, META)
        assert verify_folder(path) == META


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "/abs", "a\\b", "a\0b", "manifest.json"])
@pytest.mark.parametrize("save", [save_folder, update_folder])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str, save: Any) -> None:
    with pytest.raises(HofnoError, match="expected plain file names"):
        save(tmp_path / "a", {name: b"x"}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("save", [save_folder, update_folder])
def test_meta_that_is_no_json_is_refused(tmp_path: Path, save: Any) -> None:
    with pytest.raises(HofnoError, match=r"manifest\.json cannot be written as JSON"):
        save(tmp_path / "a", FILES, {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


def test_update_keeps_what_else_lies_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    update_folder(run, FILES, META)
    (run / "log.txt").write_bytes(b"kept")
    update_folder(run, {"note.txt": b"changed"}, {"step": 13})
    assert verify_folder(run) == {"step": 13}
    assert snapshot(run) == {
        **FILES,
        "note.txt": b"changed",
        "log.txt": b"kept",
        "manifest.json": (run / "manifest.json").read_bytes(),
    }
    assert json.loads((run / "manifest.json").read_text())["files"].keys() == {"note.txt"}


@pytest.mark.parametrize("stop", range(len(FILES) + 1))
def test_an_interrupted_update_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    run = tmp_path / "run"
    update_folder(run, FILES, META)
    real, calls = os.replace, iter(range(100))

    def replace(source: Path, target: Path) -> None:
        if next(calls) == stop:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            update_folder(run, dict.fromkeys(FILES, b"new"), {"step": 13})
    with pytest.raises(CheckpointError, match="incomplete: the save was interrupted"):
        verify_folder(run)
    assert sorted(os.listdir(run)) == sorted(FILES)
    update_folder(run, FILES, META)
    assert verify_folder(run) == META


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        verify_folder(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert refusal(path).startswith(f"{path} is missing or no folder")

    save_folder(path, FILES, META)
    (path / "note.txt").unlink()
    assert refusal(path).startswith(f"{path}/note.txt is missing")

    save_folder(path, FILES, META)
    os.truncate(path / "weights.bin", 200)
    assert f"{path}/weights.bin is truncated (expected 256 bytes, found 200)" in refusal(path)

    save_folder(path, FILES, META)
    (path / "note.txt").write_bytes(b"hello!")
    assert f"{path}/note.txt is corrupt: longer than it was (expected 5 bytes, found 6)" in refusal(path)

    save_folder(path, FILES, META)
    (path / "note.txt").write_bytes(b"hellO")
    assert refusal(path).startswith(f"{path}/note.txt is corrupt: its SHA-256 differs")

    save_folder(path, FILES, META)
    (path / "note.txt").unlink()
    (path / "note.txt").mkdir()
    assert f"{path}/note.txt is not a file" in refusal(path)


def test_a_foreign_or_unfinished_folder_is_named(tmp_path: Path) -> None:
    foreign_folder(tmp_path / "a", {"weights.bin": b"x"})
    assert "incomplete: the save was interrupted, or the folder is foreign" in refusal(tmp_path / "a")
    foreign_folder(tmp_path / "b", {"manifest.json": b'{"schema": "other/9"}'})
    assert "is foreign: its manifest.json has schema 'other/9', expected 'hofno/1'" in refusal(tmp_path / "b")
    foreign_folder(tmp_path / "c", {"manifest.json": b"[1]"})
    assert "is foreign: its manifest.json has schema None" in refusal(tmp_path / "c")
    foreign_folder(tmp_path / "d", {"manifest.json": b"\x80\x04."})
    assert "manifest.json is not valid JSON" in refusal(tmp_path / "d")


@pytest.mark.parametrize(
    "change",
    [
        {"meta": {"step": 13}},
        {"files": {"../../etc/passwd": {"bytes": 1, "sha256": ""}}},
        {"files": {"note.txt": {"bytes": "5"}}},
        {"files": []},
        {"sha256": None},
        {"extra": 1},
    ],
)
def test_an_edited_manifest_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "a" / "manifest.json"
    save_folder(path.parent, FILES, META)
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, **change}, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    assert "manifest.json is corrupt" in refusal(path.parent)


@pytest.mark.parametrize("files", [{"../up": {"bytes": 0, "sha256": ""}}, {"a": {"bytes": 0}}, {"a": 1}, []])
def test_a_forged_manifest_is_refused(tmp_path: Path, files: Any) -> None:
    """The hash of the manifest guards against damage, not against intent: the form is checked as well."""
    import hashlib

    from hofno.storage.files import json_bytes

    path = tmp_path / "manifest.json"
    manifest: dict[str, Any] = {"schema": "hofno/1", "meta": {}, "files": files}
    manifest["sha256"] = hashlib.sha256(json_bytes(path, manifest)).hexdigest()
    path.write_bytes(json_bytes(path, manifest))
    assert "manifest.json is corrupt" in refusal(tmp_path)


@settings(max_examples=200, deadline=None)
@given(
    victim=st.sampled_from(["weights.bin", "note.txt", "manifest.json"]),
    place=st.integers(0, 2000),
    flip=st.integers(0, 255),
)
def test_any_flip_or_truncation_is_a_checkpoint_error(
    tmp_path_factory: pytest.TempPathFactory, victim: str, place: int, flip: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    if not path.exists():
        save_folder(path, FILES, META)
        shutil.copytree(path, path.with_name("pristine"))
    data = bytearray((path.with_name("pristine") / victim).read_bytes())
    place %= len(data)
    if flip == 0:
        del data[place:]
    else:
        data[place] ^= flip
    (path / victim).write_bytes(data)
    try:
        assert victim in refusal(path) or "foreign" in refusal(path)
    finally:
        shutil.copy(path.with_name("pristine") / victim, path / victim)
    assert verify_folder(path) == META
