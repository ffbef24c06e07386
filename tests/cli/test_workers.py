"""Work shared by processes: every result arrives, and an error or a death stops all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import Any

import pytest

from hofno import workers
from hofno.errors import HofnoError, SpecError
from hofno.workers import alone, share


def work(task: tuple[str, Any]) -> Any:
    """What the workers do; nothing heavy is imported for it."""
    kind, value = task
    if kind == "square":
        return value, value**2, os.getpid()
    if kind == "gpu":
        time.sleep(value)
        return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()
    if kind == "refuse":
        raise SpecError(value)
    if kind == "fault":
        raise KeyError(value)
    if kind == "die":
        os.kill(os.getpid(), 9)
    if kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "late":
        time.sleep(3)  # until others are at work
        raise SpecError(value)
    time.sleep(value)
    return None


def shared(tasks: list[tuple[str, Any]], count: int = 2) -> dict[int, Any]:
    found: dict[int, Any] = {}
    share(work, tasks, count, found.__setitem__)
    return found


def test_every_result_arrives_once() -> None:
    found = shared([("square", n) for n in range(7)])
    assert {index: result[:2] for index, result in found.items()} == {n: (n, n**2) for n in range(7)}
    pids = {result[2] for result in found.values()}
    assert os.getpid() not in pids
    assert len(pids) <= 2
    assert multiprocessing.active_children() == []


def test_every_process_sees_one_gpu_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-a,7")
    found: dict[int, Any] = {}
    share(work, [("gpu", 0.5)] * 3, 3, found.__setitem__, gpus=["4", "GPU-a"])
    assert sorted(gpu for gpu, _ in found.values()) == ["4", "4", "GPU-a"]
    assert len({pid for _, pid in found.values()}) == 3
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,GPU-a,7"
    share(work, [("gpu", 0)], 1, found.__setitem__)
    assert found[0][0] == "4,GPU-a,7"


@pytest.mark.parametrize(
    ("device", "count", "visible", "shared"),
    [
        ("auto", 2, None, ["0", "1"]),
        ("cuda", 2, "5, GPU-b ,-1", ["5", "GPU-b"]),
        ("cuda:1", 2, None, []),
        ("cuda", 1, None, []),
        ("cpu", 2, None, []),
    ],
)
def test_gpus_that_processes_are_spread_over(
    monkeypatch: pytest.MonkeyPatch, device: str, count: int, visible: str | None, shared: list[str]
) -> None:
    import torch

    from hofno.device import gpus_to_share

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_to_share(device) == shared


def test_nothing_to_do() -> None:
    assert shared([]) == {}


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        (("refuse", "not this one"), SpecError, "not this one"),
        (("fault", "missing"), RuntimeError, "KeyError: 'missing'"),
        (("die", None), HofnoError, "use fewer --workers"),
    ],
)
def test_the_first_error_stops_all(task: tuple[str, Any], error: type[Exception], text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(error, match=text):
        shared([task, ("sleep", 300), ("sleep", 300)])
    assert time.monotonic() - begun < 60
    assert multiprocessing.active_children() == []


def test_a_process_that_does_not_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "GRACE", 0.2)
    begun = time.monotonic()
    with pytest.raises(SpecError, match="too late"):
        shared([("deaf", 300), ("late", "too late")])
    assert time.monotonic() - begun < 60
    time.sleep(0.2)
    assert multiprocessing.active_children() == []


def test_a_death_is_told_in_the_words_of_its_command() -> None:
    with pytest.raises(HofnoError, match="killed or out of memory; lower --batch or choose a smaller --shape") as told:
        alone(work, ("die", None))
    assert "--workers" not in str(told.value)
