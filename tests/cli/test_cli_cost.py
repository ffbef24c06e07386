"""What `hofno show` says of the cost of a run: arithmetic without running it, and with --time a few steps of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import Result

from hofno import spec as specs
from hofno.bench import rehearse
from hofno.cli.cost import _Counting, cost_of, step_flops
from hofno.fits import sample_shapes
from hofno.models import MODELS, build
from hofno.models.registry import GEOMETRIES, arguments_of, place
from hofno.problems.registry import problem
from hofno.train.phases import Phase

Hofno = Callable[..., Result]
Refused = Callable[..., str]

STUDY = '[[compare]]\nlabel = "deep"\nset = {"model.depth" = 4, "train.epochs" = 4}\n[sweep]\nseed = [0, 1, 2]\n'
SMALL: dict[str, dict[str, Any]] = {
    "poisson": {"degree": 2, "resolution": 16, "k_min": 2, "k_max": 4, "train": 20},
    "elasticity": {"train": 4, "valid": 1, "test": 1},
    "surface_poisson": {"resolution": 8, "k_max": 1.0, "train": 4},
    "navier_stokes": {"samples": 12, "test": 2, "resolution": 8, "solver_resolution": 16, "frames": 6, "history": 2},
}


def shown(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in result.stdout.splitlines())


def spec_of(problem_name: str, **train: Any) -> specs.Spec:
    name, arguments = "hofno", {"modes": [3, 3]}
    if problem_name == "elasticity":
        name, arguments = "pointho", {"tokens": 4}
    model = {"name": name, "width": 8, "depth": 1, **arguments}
    data = {"problem": problem_name, **SMALL[problem_name]}
    return specs.parse({"device": "cpu", "data": data, "model": model, "train": train})


def test_products_and_transforms_are_counted() -> None:
    x = torch.zeros(3, 5, device="meta")
    linear = torch.nn.Linear(5, 7, device="meta")
    with _Counting() as counting:
        linear(x).sum().backward()
    assert counting.flops == 2 * (2 * 3 * 5 * 7)  # x needs no gradient
    with _Counting() as counting:
        torch.fft.irfft2(torch.fft.rfft2(torch.zeros(4, 16, 8, device="meta")))
    assert counting.flops == 2 * 4 * 2.5 * 128 * math.log2(128)
    with _Counting() as counting:
        torch.mm(torch.zeros(3, 5), torch.zeros(5, 3))
    assert counting.flops == 0  # not a part of the step, which has no numbers


@pytest.mark.parametrize("name", sorted(MODELS))
def test_arithmetic_of_every_model(name: str) -> None:
    """As PyTorch's own counter has it for the whole network; ours sees one and two blocks."""
    where = "poisson" if "grid" in GEOMETRIES[name] else "elasticity"
    where = "surface_poisson" if "surface" in GEOMETRIES[name] else where
    made = problem(where, SMALL[where])
    taken = arguments_of(name)
    few = {
        "width": 8,
        "modes": (3, 3),
        "degrees": 3,
        "functions": 6,
        "heads": 2,
        "points": math.prod(made.grid_geometry.shape),
    }
    arguments = {key: value for key, value in few.items() if key in taken}
    channels = dict(zip(("in_channels", "out_channels"), made.channels, strict=True))
    for depth in ({"depth": 1}, {"depth": 2}, {"depth": 5}) if "depth" in taken else ({},):
        with torch.device("meta"):
            model = build(name, {**channels, **arguments, **depth})
        place(model, made.grid_geometry, filled=False)
        given = [torch.zeros(6, *shape, device="meta") for shape in sample_shapes(made)]
        with torch.no_grad():
            model(*given)  # matrices that are made once
        with FlopCounterMode(display=False) as counter:
            model(*given).sum().backward()
        assert step_flops(name, {**arguments, **depth}, made, 6, {}) == counter.get_total_flops() > 0


def test_steps_of_a_batch_of_windows_and_of_trajectories() -> None:
    """Ten trajectories of four windows each."""
    windows = cost_of(spec_of("navier_stokes", epochs=3, batch_size=16, batch_of="windows"), {})
    whole = cost_of(spec_of("navier_stokes", epochs=3, batch_size=4, batch_of="trajectories"), {})
    assert (windows.batches, windows.steps, windows.passes) == (3, 9, 16)
    assert (whole.batches, whole.steps, whole.passes) == (3, 9, 16)
    assert windows.step_flops == whole.step_flops
    assert windows.flops == pytest.approx(3 * 40 / 16 * windows.step_flops)
    assert whole.flops == windows.flops


def test_show_says_how_much_arithmetic(hofno: Hofno) -> None:
    first = shown(hofno("show", "tiny"))["arithmetic"]
    assert re.fullmatch(r"about [\d.]+ MFLOP in a step, [\d.]+ MFLOP in all", first)
    step, total = map(float, re.findall(r"[\d.]+(?= M)", first))
    assert total == pytest.approx(2 * 20 / 8 * step, rel=0.01)
    doubled = shown(hofno("show", "tiny", "--set", "train.epochs=4"))["arithmetic"]
    assert float(re.findall(r"[\d.]+(?= M)", doubled)[1]) == pytest.approx(2 * total, rel=0.01)


def test_show_sums_over_a_study(hofno: Hofno, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write(STUDY)
    found = shown(hofno("show", "tiny"))
    assert found["all runs"].startswith("54 steps, about ")
    assert found["all runs"].endswith("; one data set of 90.0 KiB")
    base = specs.load(folder / "tiny.toml")
    own, deep = (cost_of(base.members()[index][0], {}).flops for index in (0, 3))
    assert f"about {3 * (own + deep) / 1e6:.3g} MFLOP" in found["all runs"]
    both = shown(hofno("show", "tiny", "--set", "sweep={'data.train'=[20, 40]}"))
    assert both["all runs"].startswith(f"{6 + 10 + 12 + 20} steps, ")
    assert "2 data sets of" in both["all runs"]


def test_show_runs_nothing_unless_asked_to(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(rehearse, "step_seconds")
    assert "time" not in shown(hofno("show", "tiny"))


def test_show_projects_timed_steps(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def half_a_second(spec: specs.Spec) -> dict[Phase, float]:
        timed.append(spec.model.arguments["depth"])
        return {Phase("fp32"): 0.5}

    monkeypatch.setattr(rehearse, "step_seconds", half_a_second)
    found = shown(hofno("show", "tiny", "--time"))
    assert re.fullmatch(r"a step takes 0\.5 s in fp32 on CPU \(.*\); all of them about 3 s", found["time"])
    assert "time of all" not in found
    with (folder / "tiny.toml").open("a") as file:
        file.write(STUDY)
    timed.clear()
    found = shown(hofno("show", "tiny", "--time"))
    assert found["time of all"] == "about 27 s, one run after the other"
    assert timed == [1, 4]  # not once for every seed


def test_show_times_steps(hofno: Hofno) -> None:
    found = shown(hofno("show", "tiny", "--time", "--threads", "1"))["time"]
    assert re.fullmatch(r"a step takes [\d.e-]+ s in fp32 on CPU \(.*, 1 thread\); all of them about [\d.e-]+ s", found)


@pytest.mark.parametrize(
    ("name", "train"),
    [
        ("poisson", {"normaliser": "pixel", "loss": "rel_l2_gradient", "ema": 0.9}),
        ("poisson", {"batch_size": 1, "optimiser": "muon"}),
        ("elasticity", {"batch_size": 2}),
        ("navier_stokes", {"batch_size": 3, "batch_of": "windows", "augment": True}),
        ("navier_stokes", {"batch_size": 100, "forcing": "free"}),
    ],
)
def test_every_kind_of_step_can_be_timed(name: str, train: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearse, "TIMED_SECONDS", 0.0)
    spec = spec_of(name, epochs=10, **train)
    found = rehearse.step_seconds(spec)
    assert list(found) == [Phase("fp32")]
    assert rehearse.projected(spec, found) == pytest.approx(cost_of(spec, {}).steps * found[Phase("fp32")])


def test_both_precisions_of_a_run_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.train.precision.REDUCED_ON", ("cpu",))
    monkeypatch.setattr(rehearse, "TIMED_SECONDS", 0.0)
    spec = spec_of("poisson", epochs=10, batch_size=5, precision="mixed", finish=0.2)
    assert list(rehearse.step_seconds(spec)) == [Phase("mixed"), Phase("fp32")]
    projected = rehearse.projected(spec, {Phase("mixed"): 1.0, Phase("fp32"): 10.0})
    assert projected == 4 * (8 * 1.0 + 2 * 10.0)


def test_steps_on_a_coarser_grid_are_told_apart(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearse, "TIMED_SECONDS", 0.0)
    spec = spec_of("poisson", epochs=10, batch_size=5, coarse_first=0.8)
    coarse, whole = Phase("fp32", (2,)), Phase("fp32")
    assert list(rehearse.step_seconds(spec)) == [coarse, whole]
    assert rehearse.projected(spec, {coarse: 1.0, whole: 5.0}) == 4 * (8 * 1.0 + 2 * 5.0)
    every_epoch = specs.override(spec, {"train.coarse_first": 0.0})
    some, most = cost_of(spec, {}), cost_of(every_epoch, {})
    assert some.step_flops == most.step_flops
    assert 0.2 * most.flops + 0.8 * most.flops / 8 < some.flops < 0.2 * most.flops + 0.8 * most.flops / 3
    found = shown(hofno("show", "tiny", "--time", "--set", "train.coarse_first=0.5", "--set", "train.epochs=4"))
    assert found["training"].endswith(", the first 2 epochs on one point in 2 along each axis")
    assert " s in fp32 on one point in 2 along each axis, " in found["time"]


def test_flags_that_do_not_belong(refused: Refused) -> None:
    for arguments in (["--model", "hofno", "--time"], ["tiny", "--threads", "1"]):
        assert "--time is for the steps of a SPEC" in refused("show", *arguments)
