"""The comparison with peers: only equal work is timed, what cannot run is left out, and what is written is sound.

neuraloperator is not installed where these tests usually run, so a small network with its interface stands in for it,
in this process and in the processes that memory is measured in. The last test takes the real one where it is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typer.testing import CliRunner

from hofno.bench import bench_command, curves, memory, neuralop, peers
from hofno.bench.measure import ParityError, digits, milliseconds
from hofno.bench.memory import OUT_OF_MEMORY, Probe, grown, high_water_mark, measure_here, probe
from hofno.bench.models import SHAPES, training_step
from hofno.bench.peers import Case, Sweep, cases, compare_shape, run_peers
from hofno.bench.plain import ModelShape
from hofno.bench.subjects import build, check_parameters, fields, float32_products, real_parameters, subjects
from hofno.cli.app import app
from hofno.errors import HofnoError
from hofno.storage import read_json

CPU = torch.device("cpu")
QUICK = Sweep(resolutions=(8, 12), batches=(1, 2), rounds=(2, 3), case_seconds=0.01)


class Weight(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.tensor = nn.Parameter(torch.randn(shape, dtype=torch.cfloat))

    def to_tensor(self) -> Tensor:
        return self.tensor


class StandInConv(nn.Module):
    """Modes k1 = -m .. m-1 in ascending order, k2 = 0 .., weights ([i,] o, k1, k2)."""

    scale = 1.0

    def __init__(self, width: int, n_modes: tuple[int, int], separable: bool) -> None:
        super().__init__()
        self.rows, self.columns = n_modes[0], n_modes[1] // 2 + 1
        self.weight = Weight((*((width,) if separable else (width, width)), self.rows, self.columns))
        self.bias = nn.Parameter(torch.randn(width, 1, 1))
        self.mix = "bohw,ohw->bohw" if separable else "bihw,iohw->bohw"

    def forward(self, v: Tensor) -> Tensor:
        ks = torch.arange(-self.rows // 2, self.rows // 2)
        spectrum = torch.fft.rfft2(v)
        filtered = torch.zeros_like(spectrum)
        kept = spectrum[:, :, ks, : self.columns]
        filtered[:, :, ks, : self.columns] = self.scale * torch.einsum(self.mix, kept, self.weight.tensor)
        return torch.fft.irfft2(filtered, s=v.shape[-2:]) + self.bias


class FNO(nn.Module):
    """The interface of neuraloperator's FNO as far as it is used."""

    def __init__(
        self,
        *,
        n_modes: tuple[int, int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        n_layers: int,
        lifting_channel_ratio: int,
        projection_channel_ratio: int,
        channel_mlp_expansion: int,
        separable: bool,
    ) -> None:
        super().__init__()
        assert lifting_channel_ratio == 0
        c, wide = hidden_channels, channel_mlp_expansion * hidden_channels
        self.lifting = nn.Conv2d(in_channels + 2, c, 1)
        self.fno_blocks = nn.Module()
        self.fno_blocks.convs = nn.ModuleList(StandInConv(c, n_modes, separable) for _ in range(n_layers))
        self.skips = nn.ModuleList(nn.Conv2d(c, c, 1, bias=False) for _ in range(n_layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, wide, 1), nn.GELU(), nn.Conv2d(wide, c, 1)) for _ in range(n_layers)
        )
        hidden = projection_channel_ratio * c
        self.projection = nn.Sequential(nn.Conv2d(c, hidden, 1), nn.GELU(), nn.Conv2d(hidden, out_channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        v = self.lifting(torch.cat((x, torch.zeros_like(x[:, :1]), torch.ones_like(x[:, :1])), dim=1))
        convs: Any = self.fno_blocks.convs
        for conv, skip, mlp in zip(convs, self.skips, self.mlps, strict=True):
            v = mlp(F.gelu(conv(v) + skip(v))) + v
        return self.projection(v)


def tiny(**changes: object) -> ModelShape:
    settings: dict[str, object] = {"points": 9, "modes": (3, 4), "width": 8, "depth": 3}
    settings |= {"order": 2, "expansion": 2, "in_channels": 2}
    return ModelShape(**(settings | changes))  # pyright: ignore[reportArgumentType]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "neuralop"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package `neuralop` with the network above, here and in child processes."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "neuralop").mkdir()
    (folder / "neuralop" / "__init__.py").write_text('__version__ = "2.0.0"\n')
    (folder / "neuralop" / "models.py").write_text("from test_bench_peers import FNO\n")
    forget(monkeypatch)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), *filter(None, sys.path))))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield folder
    for name in ("neuralop", "neuralop.models"):
        sys.modules.pop(name, None)


@pytest.fixture
def quick(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """No child processes: memory is made up, and the calls are kept."""
    calls: list[tuple[str, int, int]] = []

    def made_up(key: str, shape: ModelShape, points: int, batch: int, device: torch.device) -> Probe:
        calls.append((key, points, batch))
        return Probe(2**20 * (3 if key == "plain" else 2), 1e-6)

    monkeypatch.setattr(peers, "probe", made_up)
    return calls


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("weights", ["depthwise", "dense"])
@pytest.mark.parametrize("modes", [(3, 4), (4, 2)])
@pytest.mark.parametrize("points", [8, 10])
def test_their_convolution_is_ours(weights: str, modes: tuple[int, int], points: int) -> None:
    shape = tiny(weights=weights, modes=modes)
    assert neuralop.convolution_parity(build("neuraloperator", shape, CPU), shape, points) < 1e-6


@pytest.mark.usefixtures("quick")
def test_a_convolution_that_differs_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInConv, "scale", 1.001)
    monkeypatch.setattr(peers, "take_turns", lambda *_: pytest.fail("timed networks that differ"))
    with pytest.raises(ParityError, match=r"convolution of neuraloperator.*on 8 x 8 points.*nothing was timed"):
        compare_shape(tiny(), 1, QUICK, lambda _: None)


@pytest.mark.usefixtures("quick")
def test_a_plain_form_that_differs_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "parity", lambda *_: (0.0, 0.0))
    exact = peers.build

    def shifted(key: str, shape: ModelShape, device: torch.device) -> nn.Module:
        network = exact(key, shape, device)
        if key == "plain":
            nn.init.zeros_(network.get_parameter("project.bias"))
        return network

    monkeypatch.setattr(peers, "build", shifted)
    monkeypatch.setattr(peers, "take_turns", lambda *_: pytest.fail("timed networks that differ"))
    with pytest.raises(ParityError, match="two forms must agree"):
        compare_shape(tiny(), 1, QUICK, lambda _: None)


@pytest.mark.usefixtures("stand_in")
def test_rivals_have_as_many_real_parameters() -> None:
    shape = tiny(width=32)
    counts = {subject.key: real_parameters(build(subject.key, shape, CPU)) for subject in subjects(shape)}
    assert counts["plain"] == counts["hofno"] > counts["fno"]
    assert abs(counts["neuraloperator"] / counts["fno"] - 1.0) < 0.05
    check_parameters(counts, subjects(shape))
    with pytest.raises(ParityError, match="same number of real parameters to 5%"):
        check_parameters(counts | {"neuraloperator": counts["hofno"] * 2}, subjects(shape))


def test_subjects_of_order_one_need_no_second_network() -> None:
    assert [(s.key, s.rival) for s in subjects(tiny(order=1))] == [
        *(("hofno", None), ("plain", "hofno"), ("neuraloperator", "hofno")),
    ]
    assert [(s.key, s.rival) for s in subjects(tiny())][2:] == [("fno", None), ("neuraloperator", "fno")]


def test_a_complex_number_counts_twice_and_is_trained() -> None:
    weight = Weight((3, 2))
    assert real_parameters(weight) == 12
    model = nn.Sequential(StandInConv(2, (4, 4), True))
    before = [p.detach().clone() for p in model.parameters()]
    training_step(model, torch.randn(1, 2, 8, 8), torch.randn(1, 2, 8, 8))()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_missing_package_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "neuralop", None)
    with pytest.raises(HofnoError, match=r"not installed; install it with: pip install 'hofno\[bench\]'$") as raised:
        run_peers({"tiny": tiny()}, 1, QUICK, None)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [("import tensorly_of_old", "needs tensorly_of_old"), ("from os import never", "cannot be imported")],
)
def test_a_broken_package_is_told_apart(stand_in: Path, line: str, told: str) -> None:
    (stand_in / "neuralop" / "__init__.py").write_text(line)
    with pytest.raises(HofnoError, match=f"neuraloperator {told}"):
        neuralop.neuraloperator()


def test_another_version_is_refused(stand_in: Path) -> None:
    (stand_in / "neuralop" / "__init__.py").write_text('__version__ = "3.1.0"\n')
    with pytest.raises(HofnoError, match=r"expected neuraloperator 2; got version 3\.1\.0"):
        neuralop.neuraloperator()


@pytest.mark.usefixtures("stand_in")
def test_one_mode_is_too_few_for_them() -> None:
    with pytest.raises(HofnoError, match="at least k = 0, 1"):
        neuralop.build_neuraloperator(tiny(modes=(3, 1)))


def test_cases_hold_the_modes_and_grow() -> None:
    found = cases(SHAPES["darcy"], 2, Sweep())
    assert [(case.points, case.batch) for case in found] == [
        *((84, 1), (64, 2), (84, 2), (84, 4), (128, 2), (84, 8), (256, 2)),
    ]
    assert [case.size for case in found] == sorted(case.size for case in found)
    (shared,) = [case for case in cases(SHAPES["ns"], 1, Sweep()) if len(case.sweeps) == 2]
    assert shared == Case(64, 1, ("resolution", "batch"))


@pytest.mark.usefixtures("quick")
def test_results_are_written_with_their_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "peers.json"
    record = run_peers({"tiny": tiny(domain_padding=2 / 3), "linear": tiny(order=1, weights="dense")}, 1, QUICK, file)
    written = read_json(file)
    assert written["what"] == "peers"
    assert written["versions"]["neuraloperator"] == "2.0.0"
    assert written["products"] == "float32"
    result = written["results"]["tiny"]
    assert result["shape"]["domain_padding"] == 0.0
    assert any("no domain padding" in note for note in result["notes"])
    assert not any("no domain padding" in note for note in written["results"]["linear"]["notes"])
    assert [(c["points"], c["batch"], c["sweeps"]) for c in result["cases"]] == [
        *((8, 1, ["resolution", "batch"]), (8, 2, ["batch"]), (12, 1, ["resolution"])),
    ]
    for case in result["cases"]:
        assert case["rounds"] == 3
        assert set(case["subjects"]) == {"hofno", "plain", "fno", "neuraloperator"}
        assert max(case["parity"].values()) < 1e-4
        found = case["subjects"]["plain"]
        assert found["step_spread"][0] <= found["step_seconds"] <= found["step_spread"][1]
        assert case["ratios"]["plain"]["peak"] == [1.5]
        assert case["ratios"]["neuraloperator"]["peak"] == [1.0]
        low, high = case["ratios"]["neuraloperator"]["forward"][1:]
        assert 0.0 < low <= case["ratios"]["neuraloperator"]["forward"][0] <= high
    shown = capsys.readouterr().out
    for text in ("tiny, over resolution", "linear, over batch", "neuraloperator FNO / hofno, order 1", "peak memory"):
        assert text in shown
    assert "real parameters: " in shown
    assert list(record["results"]) == ["tiny", "linear"]


def test_subjects_that_are_too_slow_or_too_large_are_left_out(
    quick: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up = peers.probe

    def large(key: str, shape: ModelShape, points: int, batch: int, device: torch.device) -> Probe:
        found = made_up(key, shape, points, batch, device)
        return OUT_OF_MEMORY if key == "neuraloperator" and batch == 2 else found

    monkeypatch.setattr(peers, "probe", large)
    exact = peers.take_turns

    def slow(functions: list[Any], rounds: int, device: torch.device) -> list[list[float]]:
        times = exact(functions, rounds, device)
        if len(functions) == 4:  # the first case; the plain form is the second subject
            times[1] = [1000.0] * rounds
        return times

    monkeypatch.setattr(peers, "take_turns", slow)
    monkeypatch.setenv("COLUMNS", "200")
    record = run_peers({"tiny": tiny()}, 1, QUICK, None)
    first, second, third = record["results"]["tiny"]["cases"]
    assert first["left_out"] == {}
    assert second["left_out"] == {"plain": "> 5 s", "neuraloperator": "no memory"}
    assert third["left_out"] == second["left_out"]
    assert list(third["subjects"]) == ["hofno", "fno"]
    assert third["ratios"] == {}
    assert third["parity"] == {}
    assert ("plain", 8, 2) not in quick
    assert ("neuraloperator", 12, 1) not in quick
    shown = capsys.readouterr().out
    assert "> 5 s" in shown
    assert "no memory" in shown


@pytest.mark.usefixtures("quick")
def test_growth_is_drawn(tmp_path: Path) -> None:
    record = run_peers({"tiny": tiny(), "linear": tiny(order=1)}, 1, QUICK, None)
    written = curves.draw_peers(record, tmp_path / "growth.svg")
    assert [path.name for path in written] == ["growth-tiny.svg", "growth-linear.svg"]
    assert all(path.read_text().startswith("<?xml") for path in written)
    record["results"].pop("linear")
    (png,) = curves.draw_peers(record, tmp_path / "growth.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    figure = curves.growth("tiny", record["results"]["tiny"], record)
    assert len(figure.axes) == 6
    for axis in figure.axes:
        assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
        assert len(axis.lines) == 4
    assert np.asarray(figure.axes[0].lines[0].get_xdata()).tolist() == [64, 144]
    assert np.asarray(figure.axes[1].lines[0].get_xdata()).tolist() == [1, 2]
    for case in record["results"]["tiny"]["cases"]:
        for found in case["subjects"].values():
            found["peak_bytes"] = None
    assert len(curves.growth("tiny", record["results"]["tiny"], record).axes) == 4


@pytest.mark.usefixtures("quick")
def test_the_command_measures_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "small", tiny(points=8))
    monkeypatch.setattr(peers, "Sweep", lambda: QUICK)
    assert list(bench_command("peers", "small", 1, None)["results"]) == ["small"]
    files = tmp_path / "numbers.json", tmp_path / "growth.svg"
    done = CliRunner().invoke(
        app, ["bench", "peers", "--shape", "small", "--json", str(files[0]), "--plot", str(files[1])]
    )
    assert done.exit_code == 0, done.output
    assert all(file.exists() for file in files)


@pytest.mark.parametrize(
    ("what", "plot", "message"), [("model", "growth.svg", "leave --plot out"), ("peers", "growth.txt", "change its")]
)
def test_a_plot_that_cannot_be_drawn_is_refused_first(what: str, plot: str, message: str) -> None:
    done = CliRunner().invoke(app, ["bench", what, "--plot", plot])
    assert done.exit_code != 0
    assert message in done.output


@pytest.mark.usefixtures("stand_in")
def test_memory_is_that_of_the_network_in_its_own_process() -> None:
    """The weights of the wide network alone: 2 numbers of 4 bytes, four times (gradient and two moments)."""
    shape = tiny(width=64, modes=(16, 16), weights="dense", order=1, depth=1)
    found = probe("neuraloperator", shape, 32, 1, CPU)
    weights = 4 * 8 * 64 * 64 * 32 * 16
    assert found.peak_bytes is not None
    assert weights * 0.8 < found.peak_bytes < weights * 3
    assert 0.0 < found.seconds < 60.0


def test_a_process_does_not_inherit_the_mark_of_its_parent() -> None:
    ballast = bytearray(b"x") * 2**30
    code = "from hofno.bench.memory import high_water_mark; print(high_water_mark())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 10**7 < int(done.stdout) < len(ballast)


def test_systems_without_a_mark_give_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = high_water_mark()
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    by_usage = high_water_mark()
    assert known is not None
    assert by_usage is not None
    assert by_usage >= 0.9 * known
    monkeypatch.setitem(sys.modules, "resource", None)
    assert high_water_mark() is None
    threads = torch.get_num_threads()
    task = '{"key": "hofno", "shape": %s, "points": 8, "batch": 1, "threads": %d}'
    shape = (
        '{"points": 8, "modes": [2, 2], "width": 4, "depth": 1, "order": 2, "expansion": 1, "in_channels": 1,'
        ' "weights": "depthwise", "domain_padding": 0.0, "samples": 1}'
    )
    assert measure_here(task % (shape, threads))["peak_bytes"] is None


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [(1, "Traceback\nValueError: no such mode", "its process failed: ValueError: no such mode"), (3, "", "status 3")],
)
def test_a_process_that_fails_says_why(status: int, error: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], status, "", error)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(HofnoError, match=message):
        probe("hofno", tiny(), 8, 1, CPU)


@pytest.mark.parametrize(("status", "error"), [(-9, ""), (1, "RuntimeError: not enough memory: you tried")])
def test_a_process_out_of_memory_is_left_out(status: int, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], status, "", error)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    assert not probe("hofno", tiny(), 8, 1, CPU).fits


def test_memory_on_a_gpu_is_what_was_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter((100, 100))
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: next(held))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 350)
    monkeypatch.setattr(memory, "two_steps", lambda *_: 0.5)
    gpu = torch.device("cuda")
    assert probe("hofno", tiny(), 8, 1, gpu) == Probe(250, 0.5)

    def full(*_: object) -> float:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(memory, "two_steps", full)
    assert not probe("hofno", tiny(), 8, 1, gpu).fits


def test_every_subject_gets_the_same_data_and_products() -> None:
    a, b = (fields(tiny(), 8, 2, CPU) for _ in range(2))
    assert torch.equal(a[0], b[0])
    assert a[1].shape == (2, 1, 8, 8)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for tf32 in (True, False):
        with float32_products(tf32):
            assert torch.backends.cudnn.allow_tf32 == tf32
            assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_numbers_have_three_digits_and_no_exponent() -> None:
    assert [milliseconds(s) for s in (0.000123, 0.0123, 0.1234, 12.34)] == ["0.123", "12.3", "123", "12340"]
    assert digits(99.96) == "100"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "points"), [("small", 32), ("small", 64), ("darcy", 64), ("ns", 64)])
def test_the_real_package_does_equal_work(name: str, points: int) -> None:
    pytest.importorskip("neuralop", exc_type=ImportError)
    shape = SHAPES[name]
    network = build("neuraloperator", shape, CPU)
    assert neuralop.convolution_parity(network, shape, points) < 1e-5
    counts = {subject.key: real_parameters(build(subject.key, shape, CPU)) for subject in subjects(shape)}
    check_parameters(counts, subjects(shape))
    assert network(torch.randn(1, shape.in_channels, points, points)).shape == (1, 1, points, points)


def test_a_mark_that_seems_to_fall_has_not_grown() -> None:
    assert grown(4096, 8192) == 4096
    assert grown(8192, 4096) == 0
    assert grown(None, 1) is grown(1, None) is None
