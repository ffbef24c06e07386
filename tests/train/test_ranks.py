"""Several processes train one network as one process would; two of them here, started by torchrun, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from together import SETTINGS, dataset, network, weights
from torch import Tensor
from typer.testing import CliRunner

import hofno
from hofno.cli.app import app
from hofno.train.feed import Resident
from hofno.train.ranks import Ranks
from hofno.train.tasks import Pairs
from own_process import SOURCE


def torchrun(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    start = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    return subprocess.run([*start, *command], env=environment, capture_output=True, text=True, timeout=300, check=False)


@given(
    count=st.integers(1, 4),
    each=st.integers(1, 3),
    items=st.integers(4, 30),
    data=st.data(),
)
def test_every_sample_of_a_batch_has_its_process(count: int, each: int, items: int, data: st.DataObject) -> None:
    order = torch.randperm(items, generator=torch.Generator().manual_seed(items))
    batches = list(order.split(count * each))
    first = data.draw(st.integers(0, len(batches)))
    x = torch.zeros(items, 1, 2)
    feed = Resident(Pairs(x, x), 0)
    shares = [list(Ranks(rank, count).shares(feed, order, count * each, first)) for rank in range(count)]
    assert {len(of_rank) for of_rank in shares} == {len(batches) - first}
    for batch, parts in zip(batches[first:], zip(*shares, strict=True), strict=True):
        counted = torch.cat([part.indices[: part.counted] for part in parts])
        assert sorted(counted.tolist()) == sorted(batch.tolist())
        assert {part.batch for part in parts} == {len(batch)}
        assert all(1 <= len(part.indices) <= each for part in parts)


def assert_near(found: Tensor, expected: Tensor, start: Tensor) -> None:
    """Weights after some training, beside how far they went."""
    assert float((found - expected).norm()) < 1e-4 * float((expected - start).norm())


def test_two_processes(tmp_path: Path) -> None:
    done = torchrun(str(Path(__file__).with_name("together.py")), str(tmp_path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["count"] == 2
    assert found["same"]
    assert found["seeds"][0] == 0 != found["seeds"][1]
    for rank in (0, 1):  # a request that one process is given stops both at the same step
        assert found[f"interrupted{rank}"].startswith("stopped at step 6 of 12")
        assert "by torchrun in 2 processes as before" in found[f"interrupted{rank}"]
        assert found[f"bits{rank}"]
    assert found["buffers"]
    assert found["either"]
    assert found["statistics"]
    assert "holds an earlier run" in found["taken folder"]
    assert "have different checkpoints" in found["other folder"]
    assert found["further"]
    for what in ("other model", "other data", "other start"):
        assert "have different data, settings or models" in found[what]
    assert "batch_size=3 is shared by 2 processes; make it a multiple of 2" in found["odd batch"]
    assert "1 training samples for 2 processes" in found["few samples"]
    torch.set_num_threads(1)
    alone = hofno.fit(network(), dataset(), out=tmp_path / "alone", **SETTINGS)
    together = hofno.load(tmp_path / "plain")
    start = torch.cat([p.detach().flatten() for p in network().parameters()])
    assert_near(torch.cat([p.flatten() for p in together.model.state_dict().values()]), weights(alone), start)
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("alone", "plain")
    ]
    for mine, theirs in zip(*rows, strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
        assert mine["valid_rel_l2"] == pytest.approx(theirs["valid_rel_l2"], rel=1e-4)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_DATA", str(tmp_path / "data"))
    sizes = (
        "data.train=6",
        "data.valid=2",
        "data.test=2",
        "data.resolution=40",
        "train.epochs=2",
        "train.batch_size=4",
    )
    settings = [word for size in sizes for word in ("--set", size)]
    done = torchrun("-m", "hofno", "train", "quick/poisson", "--out", str(tmp_path / "run"), *settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count("2 processes train together") == 1
    assert done.stdout.count("test rel_l2: ") == 1
    result = CliRunner().invoke(app, ["check", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output


def test_an_error_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = torchrun("-m", "hofno", "train", "quick/poisson", "--out", str(tmp_path / "file"))
    assert done.returncode != 0
    assert done.stderr.count("is a file, --out needs a folder") == 1
    assert "see what it said" not in done.stderr
    assert "gloo" not in done.stderr


def test_a_study_is_not_for_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["run", "quick/poisson", "--out", str(tmp_path / "study")])
    assert result.exit_code == 2
    assert "start it without torchrun" in result.output
    assert not (tmp_path / "study").exists()


def test_a_device_of_its_own_for_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    places = [Ranks(rank, 4, rank % 2).place(torch.device("cuda")) for rank in range(4)]
    assert [place.index for place in places] == [0, 1, 0, 1]
    assert Ranks().place(torch.device("cuda")).index is None
    with pytest.raises(hofno.errors.SpecError, match="each on a GPU of its own"):
        Ranks(0, 2).place(torch.device("cuda:1"))
