"""Samples on their way to the device: whole sets and single batches give the same weights, bit for bit."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hofno import HOFNO, Dataset, GeoFNO, Run, evaluate, fit, from_arrays, generate
from hofno.data import ondisk
from hofno.data.dataset import Split
from hofno.data.ondisk import FileArray
from hofno.spec import TrainSpec
from hofno.train.feed import Resident, Streamed, make_feed
from hofno.train.loop import Interrupted
from hofno.train.step import Step
from hofno.train.tasks import normalisers

CPU = torch.device("cpu")


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setattr(ondisk, "LARGE_SAMPLE", 1)  # samples are read one by one, as large ones are
    return lambda: monkeypatch.setattr(ondisk, "SHARE", 0.0)


def left_on_disk(data: Dataset, folder: Path) -> Dataset:
    """The same data in files."""

    def left(name: str, part: Tensor | None) -> FileArray | None:
        if part is None:
            return None
        np.save(folder / f"{name}.npy", part.numpy())
        return FileArray.of(np.load(folder / f"{name}.npy", mmap_mode="r"))

    def split(name: str) -> Split:
        x, y, coords, mask = getattr(data, name).parts
        found = left(f"{name}-x", x), left(f"{name}-y", y), left(f"{name}-coords", coords)
        return Split(found[0] or x, found[1] or y, found[2], mask)

    return replace(data, train=split("train"), valid=split("valid"), test=split("test"))


def flow() -> Dataset:
    small = {"viscosity": 1e-2, "resolution": 8, "solver_resolution": 8, "frames": 6, "step": 0.1}
    return generate("navier_stokes", samples=9, valid=2, test=2, history=2, start=3, horizon=3, device="cpu", **small)


def cloud(ragged: bool) -> Dataset:
    rng = np.random.default_rng(0)
    counts = rng.integers(5, 9, 14) if ragged else [8] * 14
    coords = [rng.random((2, count)) for count in counts]
    x, y = [place[:1] ** 2 for place in coords], [place.sum(0, keepdims=True) for place in coords]
    return from_arrays(x, y, coords, split=(0.6, 0.2, 0.2))


def plane(data: Dataset) -> nn.Module:
    return HOFNO(data.in_channels, data.out_channels, (3, 3), width=6, depth=1, order=2)


def points(data: Dataset) -> nn.Module:
    return GeoFNO(data.in_channels, 1, (3, 3), width=6, depth=1)


CASES: dict[str, tuple[Callable[[], Dataset], Callable[[Dataset], nn.Module], dict[str, Any]]] = {
    "darcy": (
        lambda: generate("darcy", resolution=9, solver_resolution=17, train=7, valid=2, test=2),
        plane,
        {"normaliser": "column", "loss": "rel_l2_gradient"},
    ),
    "pixel": (
        lambda: generate("darcy", resolution=9, solver_resolution=17, train=7, valid=2, test=2),
        plane,
        {"normaliser": "pixel", "ema": 0.5},
    ),
    "teacher": (flow, plane, {}),
    "windows": (flow, plane, {"batch_of": "windows"}),
    "free": (flow, plane, {"forcing": "free"}),
    "cloud": (lambda: cloud(False), points, {}),
    "ragged": (lambda: cloud(True), points, {}),
}


def weights(run: Run) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.surrogate.model.parameters()])


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_either_way(case: str, tmp_path: Path, streamed: Callable[[], None]) -> None:
    make, model, settings = CASES[case]
    data = make()

    def trained(on: Dataset) -> Run:
        torch.manual_seed(0)
        return fit(model(data), on, epochs=2, batch_size=3, device="cpu", progress=False, **settings)

    expected = trained(data)
    streamed()
    for other in (data, left_on_disk(data, tmp_path)):
        found = trained(other)
        assert torch.equal(weights(found), weights(expected))
        told = [{k: v for k, v in row.items() if k != "seconds"} for row in found.history]
        assert told == [{k: v for k, v in row.items() if k != "seconds"} for row in expected.history]
        assert evaluate(found, other.test) == evaluate(expected, data.test)


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    data = generate("darcy", resolution=9, solver_resolution=17, train=7, valid=2, test=2)
    spec = TrainSpec(batch_size=3)  # pyright: ignore[reportCallIssue]
    needed = 7 * 2 * 81 * 4
    for free, kind in ((2 * needed, Resident), (2 * needed - 1, Streamed)):
        monkeypatch.setattr(ondisk, "free_bytes", lambda device, free=free: free)
        found = make_feed(data, spec, *normalisers(data, spec), CPU)
        assert type(found) is kind
        assert found.items == 7
    assert "read from memory (over 50% of what is free on cpu)" in found.place
    assert found.task.items == 3  # room for a batch


def test_it_is_told(capsys: pytest.CaptureFixture[str], streamed: Callable[[], None]) -> None:
    data = generate("darcy", resolution=9, solver_resolution=17, train=4, valid=2, test=2)
    fit(plane(data), data, epochs=1, device="cpu")
    assert "training set" not in capsys.readouterr().out  # nothing to tell where all is as usual
    streamed()
    fit(plane(data), data, epochs=1, device="cpu")
    assert "read from memory" in capsys.readouterr().out


def test_it_resumes_in_the_middle_of_an_epoch(
    trained: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = trained()  # two epochs of three steps
    monkeypatch.setattr(ondisk, "SHARE", 0.0)
    threads, run, count = threading.active_count(), Step._run, [0]

    def counted(self: Step, indices: Tensor) -> None:
        run(self, indices)
        count[0] += 1
        if count[0] == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Step, "_run", counted)
    with pytest.raises(Interrupted, match="stopped at step 4 of 6"):
        trained(out=tmp_path)
    assert threading.active_count() == threads  # the reader has ended
    assert torch.equal(weights(trained(out=tmp_path, resume=True)), weights(unbroken))


LARGE = """
import sys, threading, time
from pathlib import Path
import numpy as np, torch
import hofno
from hofno.data import ondisk

folder, samples = sys.argv[1], int(sys.argv[2])
ondisk.SHARE = 0.0
x, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "xy")

def once(n):
    data = hofno.from_arrays(x[:n], y[:n], split=(0.8, 0.1, 0.1))
    assert data.train.on_disk
    run = hofno.fit(torch.nn.Conv2d(1, 1, 1), data, epochs=1, batch_size=8, device="cpu", progress=False)
    return hofno.evaluate(run, data.test)["rel_l2"]

def own():  # MiB; pages of files that are mapped are the system's, which keeps them while it has room
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024

def most(n):  # while n samples go through all of it
    ended, seen = threading.Event(), []
    def watch():
        while not ended.wait(0.005):
            seen.append(own())
    watching = threading.Thread(target=watch)
    watching.start()
    error = once(n)
    ended.set()
    watching.join()
    return error, max(seen)

_, before = most(samples // 8)  # libraries are loaded, and pieces have their size
error, after = most(samples)
print(error, after - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_set_larger_than_the_memory_it_takes(tmp_path: Path) -> None:
    """320 MB of samples, through an epoch, validation and evaluation; in memory all of it would take 500."""
    samples, side = 2560, 128
    rng = np.random.default_rng(0)
    for name in "xy":
        file = np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, (samples, 1, side, side))
        for row in file:
            row[:] = rng.standard_normal((side, 1), np.float32) + rng.standard_normal(side, np.float32)
        file.flush()
        del file
    assert sum(file.stat().st_size for file in tmp_path.glob("*.npy")) > 320e6
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path), str(samples)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    error, grown = map(float, done.stdout.split())
    assert 0 < error < 10
    assert grown < 160, f"{grown} MiB"
