"""Parts that take the place of others: killed at any moment, all samples are there."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hofno import storage
from hofno.problems.kept_parts import drop_replaced, drop_temporaries, part_name, parts_in
from hofno.problems.kept_samples import EVERY, KeptSamples, Sample
from hofno.storage import files

SAMPLES: list[Sample] = [("train", 0), ("train", 1)]


class KilledError(BaseException):
    """The process dies."""


@pytest.fixture
def killed_while_removing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part that is removed loses its manifest and nothing else."""

    def half(place: Path, **_: object) -> None:
        if (place / "manifest.json").exists():
            (place / "manifest.json").unlink()
            raise KilledError

    monkeypatch.setattr(shutil, "rmtree", half)


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on: one that finds what this one has left, which is dead."""
    monkeypatch.undo()
    monkeypatch.setattr(files, "_PROCESS_TOKEN", "0" * 8)


def values(kept: KeptSamples) -> list[float]:
    return [float(row[0]) for _, found in kept.read(SAMPLES) for row in found["value"]]


def test_a_sample_made_again_is_there_when_the_old_part_is_half_removed(
    tmp_path: Path, killed_while_removing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    KeptSamples(tmp_path, {}).write(SAMPLES, {"value": np.zeros((2, 1))})
    with pytest.raises(KilledError):
        KeptSamples(tmp_path, {}, again=True).write(SAMPLES, {"value": np.ones((2, 1))})
    another_process(monkeypatch)
    assert values(KeptSamples(tmp_path, {})) == [1, 1]
    assert os.listdir(tmp_path) == ["part-000001"]


def test_trajectories_made_again_are_there_when_the_old_part_is_half_removed(
    tmp_path: Path, killed_while_removing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By smaller groups, whose names the old one would hide."""
    old, *new = (tmp_path / part_name(*ends) for ends in ((0, 4), (0, 2), (2, 4)))
    for part in (old, *new):
        storage.save_folder(part, {"frames": b"0"}, {})
    with pytest.raises(KilledError):
        drop_replaced({0: (4, old)}, set(new), 4)
    another_process(monkeypatch)
    assert parts_in(tmp_path) == {0: (2, new[0]), 2: (4, new[1])}
    drop_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [part.name for part in new]


def test_what_is_half_way_is_put_aside_every_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over one that was damaged meanwhile."""
    now, kept = [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    begun = KeptSamples(tmp_path, {}).begun(SAMPLES, "way")

    def state() -> dict[str, torch.Tensor]:
        kept.append(now[0])
        return {"value": torch.tensor(now[0])}

    for now[0] in (1.0, EVERY, EVERY + 1, 2 * EVERY):
        begun.keep(state)
    assert kept == [EVERY, 2 * EVERY]
    (tmp_path / "begun-train-000000" / "manifest.json").unlink()
    assert begun.read() == {}
    now[0] = 3 * EVERY
    begun.keep(state)
    assert float(begun.read()["value"]) == 3 * EVERY
