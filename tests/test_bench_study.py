"""What the networks of a study cost: who is measured, how costs follow from rounds, what is told and drawn of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hofno import spec as specs
from hofno.bench import measure as measuring
from hofno.bench import study
from hofno.bench.bars import bars, draw_studies, group_names
from hofno.bench.study import Member, Study, different, gathered, measure, reference_of, relative, run_studies
from hofno.bench.study_table import memory_unit, notes, study_rows
from hofno.cli.options import find_spec
from hofno.device import find_device
from hofno.errors import SpecError
from hofno.models.registry import parameter_counts
from hofno.problems.registry import problem
from hofno.report import published
from hofno.show import Silent
from hofno.stages import make_model
from hofno.storage import read_json
from hofno.study import checked_members, name_of
from hofno.surrogate import Surrogate
from hofno.train.phases import Phase
from hofno.workers import EndedError

CPU = torch.device("cpu")
POISSON = {"problem": "poisson", "degree": 2, "resolution": 16, "k_min": 2, "k_max": 4, "train": 20, "test": 35}
MODEL = {"name": "hofno", "modes": [3, 3], "width": 8, "depth": 1}


def spec_of(**changes: Any) -> specs.Spec:
    values = {"name": "tiny", "label": "HO-FNO", "device": "cpu", "data": POISSON, "model": MODEL, **changes}
    return specs.parse({"train": {"batch_size": 8}, **values})


def members_of(spec: specs.Spec) -> list[Member]:
    return different([(name_of(member, cell), member) for member, cell in spec.members()])


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_those_that_differ_in_seed_or_length_are_measured_once() -> None:
    longer = {"label": "longer", "set": {"train.epochs": 200}}
    fno = {"label": "FNO", "set": {"model.name": "fno"}}
    found = members_of(spec_of(compare=[longer, fno], sweep={"seed": [0, 1], "model.depth": [1, 2]}))
    assert [member.label for member in found] == ["HO-FNO, depth 1", "HO-FNO, depth 2", "FNO, depth 1", "FNO, depth 2"]
    assert [member.also for member in found] == [("longer, depth 1",), ("longer, depth 2",), (), ()]
    assert found[0].spec.train.epochs == 100


def test_epochs_on_a_coarser_grid_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is an epoch on the whole grid, the same with and without them."""
    coarse = {"label": "coarse", "set": {"train.coarse_first": 0.5, "train.coarse_by": 4}}
    found = members_of(spec_of(compare=[coarse]))
    assert [(member.label, member.also, member.coarse) for member in found] == [("HO-FNO", ("coarse",), True)]
    phases: list[Phase] = []
    monkeypatch.setattr(study.Rehearsal, "step_rounds", lambda _, phase, *__: phases.append(phase) or [1.0])
    measure(spec_of(train={"batch_size": 8, "coarse_first": 0.5}), 1, 0.0)
    assert phases == [Phase("fp32")]


def test_what_changes_the_step_is_another_member() -> None:
    compare = [{"label": key, "set": {f"train.{key}": value}} for key, value in (("batch_size", 4), ("ema", 0.9))]
    assert len(members_of(spec_of(compare=compare))) == 3


def test_whom_others_are_compared_with() -> None:
    fno = {"label": "FNO", "set": {"model.name": "fno"}}
    swept = members_of(spec_of(compare=[fno], sweep={"model.depth": [1, 2]}))
    assert reference_of(swept, "", "tiny") == "FNO, depth 1"
    assert reference_of(swept, "FNO, depth 2", "tiny") == "FNO, depth 2"
    assert reference_of(swept, "HO-FNO", "tiny") == "HO-FNO, depth 1"
    assert reference_of(members_of(spec_of()), "", "tiny") == "HO-FNO"
    longer = members_of(spec_of(compare=[{"label": "longer", "set": {"train.epochs": 200}}]))
    assert reference_of(longer, "longer", "tiny") == "HO-FNO"
    with pytest.raises(SpecError, match="'U-Net' names no network of tiny; it has: HO-FNO; longer"):
        reference_of(longer, "U-Net", "tiny")


def test_costs_over_those_of_the_reference() -> None:
    one = {"parameters": {"real": 30}, "epoch_seconds": 3.0, "predict_seconds": 0.5, "peak_bytes": None}
    other = {"parameters": {"real": 20}, "epoch_seconds": 2.0, "predict_seconds": 2.0, "peak_bytes": 7}
    ratios = {"parameters": 1.5, "epoch_seconds": 1.5, "predict_seconds": 0.25, "peak_bytes": None}
    assert relative(one, other) == ratios
    assert relative(other, {**one, "peak_bytes": 0})["peak_bytes"] is None
    assert relative(one, {"parameters": {"real": 20}})["epoch_seconds"] is None


def test_rounds_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call is slow and does not count; a round has calls for a second."""
    now, lengths = [0.0], iter([100.0, 0.25, *[0.3] * 4, *[0.2] * 4])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(lengths)

    assert measuring.timed(call, CPU, 2, 1.0) == pytest.approx([0.3, 0.2])
    lengths = iter([100.0, 5.0, 4.0, 6.0])
    assert measuring.timed(call, CPU, 3, 1.0) == pytest.approx([5.0, 4.0, 6.0])


PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "poisson": (POISSON, MODEL, 3),
    "elasticity": (
        {"problem": "elasticity", "train": 20, "valid": 1, "test": 35},
        {"name": "pointho", "width": 8, "depth": 1, "tokens": 4},
        3,
    ),
    "navier_stokes": (
        {"problem": "navier_stokes", "samples": 55, "test": 35, "resolution": 8, "frames": 6, "history": 2},
        MODEL,
        3,
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_epoch_and_the_whole_test_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model, batches = PROBLEMS[name]
    spec = spec_of(data=data, model=model)
    made, shapes = problem(name, spec.data.parameters), []
    predict = Surrogate.predict_tensor

    def watched(*arguments: Any, **named: Any) -> torch.Tensor:
        shapes.append(tuple((found := predict(*arguments, **named)).shape))
        return found

    monkeypatch.setattr(Surrogate, "predict_tensor", watched)
    found = measure(spec, 1, 0.0)
    steps, predicted = found["step_rounds"], found["predict_rounds"]
    assert len(steps) == len(predicted["32"]) == 1
    assert found["epoch_seconds"] == batches * steps[0] > 0
    assert found["predict_seconds"] == pytest.approx(predicted["32"][0] + predicted["3"][0])
    frames = made.rollout.horizon if made.rollout else 1
    assert set(shapes) == {(samples, frames, *made.grid_geometry.shape) for samples in (32, 3)}
    assert found["peak_bytes"] >= 0


def test_batches_of_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `hofno evaluate` has them: samples that belong together stay so."""
    asked: list[int] = []
    split = SimpleNamespace(x=None, coords=None)
    monkeypatch.setattr(study, "random_split", lambda _, samples: asked.append(samples) or split)
    monkeypatch.setattr(study, "timed", lambda *_: [3.0, 1.0, 2.0] if asked[-1] == 40 else [0.5])
    surrogate: Any = SimpleNamespace(predict_tensor=print)
    made: Any = SimpleNamespace(test=5, together=20)
    total, rounds = study.predict_seconds(surrogate, made, CPU, 3, 0.0)
    assert (total, list(rounds), asked) == (2 * 2.0 + 0.5, ["40", "20"], [40, 20])
    made.test = 4
    assert study.predict_seconds(surrogate, made, CPU, 3, 0.0)[0] == 4.0


def test_memory_that_ran_out() -> None:
    whole = RuntimeError("operation failed due to a previous error during capture")
    assert not study.is_memory(whole)
    whole.__context__ = torch.OutOfMemoryError("CUDA out of memory")
    assert study.is_memory(whole)
    assert study.is_memory(MemoryError())
    assert study.is_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))


def test_memory_of_a_gpu_counts_from_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own nobody has woken the GPU, whose counters cannot be set back before."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "init", lambda: asked.append("init"))
    monkeypatch.setattr(study, "held_before", lambda _: asked.append("held") or 7)
    assert study._held(torch.device("cuda")) == 7
    assert asked == ["init", "held"]


def test_no_step_is_begun_that_a_cpu_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "free_bytes", lambda _: 1000)
    monkeypatch.setattr(study.Rehearsal, "step_rounds", lambda *_: pytest.fail("took a step"))
    assert study._task((spec_of().plain(), torch.get_num_threads(), 1, 0.0)) == {"left_out": study.NO_MEMORY}


def test_other_faults_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(study, "measure", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        study._task((spec_of().plain(), torch.get_num_threads(), 1, 0.0))


COSTS = {"epoch_seconds": 2.0, "predict_seconds": 0.5, "peak_bytes": 2**31}
ROUNDS = {"step_rounds": [1.0, 1.0], "predict_rounds": {"32": [1.0, 1.0, 2.0, 2.0]}}


def four(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Study:
    """HO-FNO at twice the cost of FNO, one network that does not fit, and one whose process is killed."""
    compare = [
        {"label": "FNO", "set": {"model.name": "fno"}},
        {"label": "deep", "set": {"model.depth": 3}},
        {"label": "wide", "set": {"model.width": 32}},
    ]

    def stand_in(_: object, task: tuple[dict[str, Any], object]) -> dict[str, Any]:
        model = task[0]["model"]
        if model["width"] == 32:
            raise EndedError("a process ended without a result")
        if model["depth"] == 3:
            return {"left_out": study.NO_MEMORY}
        part = 1 if model["name"] == "hofno" else 2
        return {**{key: value / part for key, value in COSTS.items()}, **ROUNDS}

    monkeypatch.setattr(study, "alone", stand_in)
    spec = spec_of(compare=compare, **changes)
    return Study(spec, members_of(spec), "FNO", {"FNO": {"training": 12.01, "prediction": 0.83, "memory": 13.85}})


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = four(monkeypatch)
    record = run_studies([given, given], tmp_path / "a.json", Silent())
    assert read_json(tmp_path / "a.json") == record
    assert {"device", "device_name", "threads", "versions", "created"} <= set(record)
    assert record["versions"]["torch"] == torch.__version__
    first, second = record["results"]
    assert first == second
    assert (first["spec_hash"], first["reference"], first["problem"]) == (given.spec.study_hash, "FNO", "poisson")
    ours, fno, deep, wide = first["members"]
    assert ours["spec_hash"] == given.members[0].spec.run_hash
    assert (ours["batches"], ours["batch_size"], ours["test_samples"]) == (3, 8, 35)
    assert (ours["precision"], ours["cuda_graph"]) == ("fp32", False)
    for key in COSTS:
        assert (ours[key], ours["relative"][key], fno["relative"][key]) == (COSTS[key], 2.0, 1.0)
        assert deep["relative"][key] is None
    assert (deep["left_out"], wide["left_out"]) == (study.NO_MEMORY, study.KILLED)
    assert wide["parameters"]["real"] > ours["parameters"]["real"] > 0
    assert wide["relative"]["parameters"] == wide["parameters"]["real"] / fno["parameters"]["real"]
    told = capsys.readouterr().out
    assert told.count("published: Higher-Order Fourier") == 1
    assert "no memory" in told


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_studies([four(monkeypatch)], None, Silent())["results"][0]
    headings, rows = study_rows(result)
    assert headings[2:] == ("training, s an epoch", "prediction, s", "peak memory, GiB")
    assert rows[0][2:] == ("2 (2.00x)", "0.5 (2.00x)", "2 (2.00x)")
    assert rows[2] == ("  A100, published", "", "12.01 (1.00x)", "0.83 (1.00x)", "13.85 GB (1.00x)")
    assert rows[3][2:] == ("no memory", "-", "-")
    assert len(rows) == 5, "published values of networks that have them"
    told = notes(result, "cpu")
    assert told[0].startswith("in brackets: relative to FNO")
    assert "training in fp32, 3 steps an epoch, batch 8; prediction of 35 samples in fp32" in told
    assert "rounds of one network differ by up to 67% between their quartiles" in told
    assert any("PyTorch allocated" in note for note in notes(result, "cuda"))
    other = {**result, "members": [{**m, "batch_size": i, "also": ["x"]} for i, m in enumerate(result["members"])]}
    assert "deep: training in fp32, 3 steps an epoch, batch 2; prediction of 35 samples in fp32" in notes(other, "cpu")
    assert "FNO stands for x too, of another length or seed" in notes(other, "cpu")
    other["members"][0]["coarse"] = True
    assert "FNO stands for x too, of another length or seed, or with epochs on a coarser grid" in notes(other, "cpu")
    assert any(note.startswith("training: an epoch on the whole grid;") for note in notes(other, "cpu"))


def test_small_peaks_are_told_in_mebibytes() -> None:
    small = {"members": [{"peak_bytes": 2**21}, {"peak_bytes": None}, {"left_out": "no memory"}], "published": {}}
    assert memory_unit([small]) == (2**20, "MiB")
    assert memory_unit([small, {**small, "published": {"FNO": {}}}]) == (2**30, "GiB")


def test_networks_are_compared_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    given = four(monkeypatch)
    there = Member("there", given.spec.model_copy(update={"device": "cuda"}))
    monkeypatch.setattr(study, "find_device", torch.device)
    with pytest.raises(SpecError, match="one device; got cpu and cuda"):
        run_studies([Study(given.spec, [*given.members, there], "FNO")], None, Silent())
    assert find_device("cpu") == CPU


def test_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run_studies([four(monkeypatch), four(monkeypatch, name="other")], None, Silent())
    figure = bars(record)
    training, _, memory = figure.axes
    assert [axis.get_title() for axis in figure.axes][::2] == ["training, s an epoch", "peak memory, GiB"]
    heights = [bar.get_height() for group in training.containers for bar in group]  # pyright: ignore[reportAttributeAccessIssue]
    assert heights == [2.0, 2.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], "measured values alone, a group for each study"
    assert [text.get_text() for text in memory.texts] == [
        *("2.00x", "2.00x", "1.00x", "1.00x"),
        *("no memory", "no memory", "killed, or no memory", "killed, or no memory"),
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["HO-FNO", "FNO", "deep", "wide"]
    assert figure.get_suptitle().endswith("relative to FNO")
    assert [label.get_text() for label in training.get_xticklabels()] == ["tiny", "other"]
    assert group_names(record["results"][:1]) == ["poisson"]
    draw_studies(record, tmp_path / "bars.svg")
    assert (tmp_path / "bars.svg").stat().st_size > 10_000


def test_a_study_whose_reference_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = four(monkeypatch)
    records = [study.measure_alone(member, 1) for member in given.members]
    result = gathered(Study(given.spec, given.members, "deep"), records)
    assert [member["relative"]["epoch_seconds"] for member in result["members"]] == [None] * 4
    assert study_rows(result)[1][0][2:] == ("2", "0.5", "2")


PRINTED = {  # in percent of FNO: training, inference, memory
    "navier_stokes": {"LaMO": (-5.3, 22.8, -38.0), "HO-FNO order 2": (1.8, 0.4, 0.2), "Transolver": (5.2, 53.6, 58.5)},
    "airfoil": {"LaMO": (69.2, 113.3, 18.7), "HO-FNO order 2": (6.2, 4.8, 18.1), "Transolver": (86.9, 113.3, 16.0)},
    "pipe": {"LaMO": (215.9, 258.0, 30.4), "HO-FNO order 2": (10.4, 15.9, 18.7), "Transolver": (215.9, 258.0, 22.4)},
}


@pytest.mark.parametrize("name", PRINTED)
def test_published_costs_as_printed(name: str) -> None:
    """The printed percentages follow from the values."""
    found = published.efficiency(name)
    for network, changes in PRINTED[name].items():
        for what, change in zip(("training", "prediction", "memory"), changes, strict=True):
            assert 100 * (found[network][what] / found["FNO"][what] - 1) == pytest.approx(change, abs=0.1)


def test_costs_that_are_not_published() -> None:
    with pytest.raises(SpecError, match="one of navier_stokes, airfoil, pipe, got 'darcy'"):
        published.efficiency("darcy")


SIZES = {  # real parameters of HO-FNO, FNO, LaMO and Transolver; of the last two as their authors' programs have them
    "navier_stokes": (7_362_049, 6_835_713, 10.1e6 - 32 * 32 * 256, 11.2e6),
    "airfoil": (6_235_905, 6_103_809, 1.14e6, 2.81e6),
    "pipe": (6_235_905, 6_103_809, 4.0e6, 3.07e6),
}


@pytest.mark.parametrize("name", SIZES)
def test_specs_of_the_published_comparison(name: str) -> None:
    spec = specs.load(find_spec(f"paper/efficiency_{name}"))
    runs = [member for member, _ in checked_members(spec)]
    assert [run.label for run in runs] == ["HO-FNO order 2", "FNO", "LaMO", "Transolver"]
    assert set(published.efficiency(spec.data.problem)) == {run.label for run in runs}
    assert (spec.published, spec.data.problem) == ("efficiency", name)
    main = specs.load(find_spec("paper/navier_stokes_1e-5" if name == "navier_stokes" else f"paper/{name}"))
    assert spec.model == main.model
    assert spec.data == main.data
    alike = {"precision": main.train.precision, "finish": main.train.finish}
    for run in runs:
        assert run.train.model_copy(update=alike) == main.train
    assert len(members_of(spec)) == 4
    made = problem(name, spec.data.parameters)
    with torch.device("meta"):
        found = [parameter_counts(make_model(run, *made.channels))["real"] for run in runs]
    assert found[:2] == list(SIZES[name][:2])
    assert found[2:] == [pytest.approx(count, rel=0.015) for count in SIZES[name][2:]]
