"""The engine's bench: every way takes the same network's step, and one that gives something else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hofno.bench import bench_command, engine
from hofno.bench.engine import Way, bench_way, run_engine, ways
from hofno.bench.measure import ParityError
from hofno.bench.plain import ModelShape
from hofno.storage import read_json

TINY = ModelShape(points=8, modes=(3, 3), width=6, depth=1, order=2, expansion=2, in_channels=2)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("way", ways("cpu"), ids=lambda way: way.form)
def test_a_way_is_timed_once_its_output_is_known(way: Way) -> None:
    found = bench_way(TINY, way, batch=3, rounds=4)
    assert len(found["seconds"]) == 4
    assert all(seconds > 0 for seconds in found["seconds"])
    assert found["output_error"] < 1e-5
    assert found["peak_bytes"] is None


def test_another_function_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.LARGEST_ERROR, "fp32", 0.0)
    with pytest.raises(ParityError, match=r"differs by .*; nothing was timed"):
        bench_way(TINY, Way("hofno", "fp32"), batch=1, rounds=2)


def test_on_a_gpu_every_policy_is_there_and_the_plain_form_first() -> None:
    found = ways("cuda")
    assert found[0] == Way("plain", "fp32")
    assert (
        {way.policy for way in found if way.form == "hofno"}
        == {"fp32", "tf32", "mixed", "bf16"}
        == set(engine.LARGEST_ERROR)
    )
    assert len({(way.form, way.label) for way in found}) == len(found)
    assert Way("hofno", "mixed", graph=True, compiled=True).label == "mixed, compiled, CUDA graph"


def test_the_table_and_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(shape: ModelShape, way: Way, batch: int, rounds: int) -> dict[str, object]:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine, "alone", lambda work, task: work(task))
    run_engine({"tiny": TINY}, 2, 3, tmp_path / "engine.json")
    record = read_json(tmp_path / "engine.json")
    plain, ours = record["results"]["tiny"]["ways"]
    assert (plain["form"], ours["form"]) == ("plain", "hofno")
    assert record["results"]["tiny"]["batch"] == 2
    assert plain["spread"][0] <= plain["median"] <= plain["spread"][1]
    assert "plain" in capsys.readouterr().out
    monkeypatch.setattr(engine, "bench_way", no_memory)
    run_engine({"tiny": TINY}, 2, 3, tmp_path / "engine.json")
    assert "no memory" in capsys.readouterr().out


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.bench.SHAPES", {"tiny": TINY})
    record = bench_command("engine", "tiny", 1, tmp_path / "engine.json")
    assert record["what"] == "engine"
    assert [one["form"] for one in record["results"]["tiny"]["ways"]] == ["plain", "hofno"]


def test_what_does_not_fit_into_memory_is_left_out_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 2**20
    monkeypatch.setattr(engine, "free_bytes", lambda device: free)
    with pytest.raises(torch.OutOfMemoryError):
        engine.bench_way(TINY, Way("plain", "fp32"), 4000, 1)
    assert "seconds" in engine.bench_way(TINY, Way("plain", "fp32"), 1, 1)
