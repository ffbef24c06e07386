"""The benchmark: the plain form is the same network, disagreement is refused, and what is written is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hofno.bench import bench_command, models, transforms
from hofno.bench.measure import ParityError, compare, take_turns
from hofno.bench.models import SHAPES, bench_forward, bench_step, parity, run_models
from hofno.bench.plain import ModelShape, PlainNetwork, plain_layout
from hofno.bench.transforms import TransformCase, bench_transform, best_weight, run_transforms, transform_cases
from hofno.errors import HofnoError
from hofno.storage import read_json
from hofno.transforms import fourier


def tiny(**changes: object) -> ModelShape:
    settings: dict[str, object] = {
        "points": 9,
        "modes": (3, 4),
        "width": 6,
        "depth": 2,
        "order": 2,
        "expansion": 2,
        "in_channels": 2,
    }
    return ModelShape(**(settings | changes))  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("padding", [0.0, 2 / 3])
@pytest.mark.parametrize(("order", "weights"), [(1, "dense"), (1, "depthwise"), (2, "depthwise"), (3, "dense")])
@pytest.mark.parametrize("points", [8, 9])
def test_the_plain_form_is_the_same_network(points: int, order: int, weights: str, padding: float) -> None:
    shape = tiny(points=points, order=order, weights=weights, domain_padding=padding)
    ours, plain = shape.build().double(), PlainNetwork(shape).double()
    plain.load_state_dict(plain_layout(dict(ours.state_dict())))
    x = torch.randn(3, 2, points, points, dtype=torch.float64)
    y = torch.randn(3, 1, points, points, dtype=torch.float64)
    torch.set_default_dtype(torch.float64)  # the coordinates of the plain form are made in the default type
    try:
        output_error, gradient_error = parity(ours, plain, x, y)
    finally:
        torch.set_default_dtype(torch.float32)
    assert output_error < 1e-12
    assert gradient_error < 1e-10


@pytest.mark.parametrize("factor", [1.001, 1.5])
def test_a_network_that_differs_is_not_timed(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small difference shows in the gradients, a larger one in the output already."""
    layout = models.plain_layout
    monkeypatch.setattr(
        models, "plain_layout", lambda tensors: {n: factor * t if "low" in n else t for n, t in layout(tensors).items()}
    )
    monkeypatch.setattr(models, "take_turns", lambda *_: pytest.fail("timed networks that differ"))
    with pytest.raises(ParityError, match="nothing was timed"):
        bench_step(tiny(), 1, (2, 2))
    if factor > 1.1:
        with pytest.raises(ParityError, match="nothing was timed"):
            bench_forward(tiny(), 1, 2)


def test_transforms_that_differ_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = fourier.inverse

    def wrong(*arguments: object) -> torch.Tensor:
        return exact(*arguments) * (1.01 if arguments[-1] == "fft" else 1.0)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(fourier, "inverse", wrong)
    monkeypatch.setattr(transforms, "take_turns", lambda *_: pytest.fail("timed transforms that differ"))
    with pytest.raises(ParityError, match="must agree"):
        bench_transform(TransformCase(points=(8, 8), modes=(2, 2)), 1, 2)


def test_networks_are_written_with_their_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "deep" / "bench.json"
    run_models({"tiny": tiny(domain_padding=2 / 3, samples=3)}, 2, (3, 2), file)
    written = read_json(file)
    assert written["what"] == "model"
    assert written["device"] == "cpu"
    assert written["threads"] == torch.get_num_threads()
    assert written["versions"]["torch"] == str(torch.__version__)
    result = written["results"]["tiny"]
    assert result["batch"] == 6
    assert result["shape"]["modes"] == [3, 4]
    assert 0.0 <= result["output_error"] < 1e-4
    assert 0.0 <= result["gradient_error"] < 1e-3
    for part, rounds in (("forward", 3), ("step", 2), ("forward_after_training", 3)):
        r = result[part]
        assert r["rounds"] == rounds
        assert r["ours_spread"][0] <= r["ours_seconds"] <= r["ours_spread"][1]
        assert r["speed_up"] > 0.0
    shown = capsys.readouterr().out
    assert "tiny" in shown
    assert "training step" in shown
    assert "…" not in shown
    spread = "({:.2f}..{:.2f})".format(*result["step"]["speed_up_spread"])
    assert spread in shown, "no number is cut at 80 columns"
    assert "tiny: batch 6; parity " in shown


def test_transforms_are_written_with_their_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        TransformCase(points=(16,), modes=(4,), channels=2),
        TransformCase(points=(8, 8), modes=(2, 3), domain_padding=0.5, channels=2),
        TransformCase(points=(6, 6, 6), modes=(2, 2, 2), channels=2),
    ]
    run_transforms(cases, 2, 2, tmp_path / "bench.json")
    written = read_json(tmp_path / "bench.json")
    assert [r["padded"] for r in written["results"]] == [[16], [12, 12], [6, 6, 6]]
    assert all(r["batch"] == 2 and r["chosen"] in ("matmul", "fft") for r in written["results"])
    assert written["right"] == sum(r["slowdown"] == 1.0 for r in written["results"])
    assert "the faster method was chosen" in capsys.readouterr().out


def test_the_command_measures_what_it_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = tiny()
    monkeypatch.setitem(SHAPES, "small", small)
    bench_command("model", "small", 2, tmp_path / "model.json")
    assert list(read_json(tmp_path / "model.json")["results"]) == ["small"]
    bench_command("transform", "small", 2, tmp_path / "transform.json")
    (result,) = read_json(tmp_path / "transform.json")["results"]
    assert result["case"]["points"] == [9, 9]
    assert result["batch"] == 2


@pytest.mark.parametrize(
    ("what", "shape", "batch", "message"),
    [("speed", "all", 1, "what must be one of"), ("model", "euler", 1, "shape must be"), ("model", "ns", 0, "batch")],
)
def test_bad_arguments_are_refused(what: str, shape: str, batch: int, message: str) -> None:
    with pytest.raises(HofnoError, match=message):
        bench_command(what, shape, batch, None)


def test_published_shapes() -> None:
    assert SHAPES["darcy"].build().blocks[0].conv.domain_padding == 2 / 3
    assert sum(p.numel() for p in SHAPES["ns"].build().parameters()) == 7_362_049
    assert TransformCase(points=(85, 85), modes=(32, 16), domain_padding=2 / 3).padded == (141, 141)


def test_turns_are_taken_and_the_first_does_not_count() -> None:
    order: list[str] = []
    times = take_turns([lambda: order.append("a"), lambda: order.append("b")], 2, torch.device("cpu"))
    assert order == ["a", "b"] * 3
    assert [len(t) for t in times] == [2, 2]


def test_the_speed_up_is_that_of_the_rounds() -> None:
    found = compare([1.0, 2.0, 10.0], [3.0, 4.0, 20.0])
    assert found["speed_up"] == 2.0
    assert found["ours_seconds"] == 2.0
    assert found["plain_seconds"] == 4.0


def test_the_best_weight_separates_the_methods() -> None:
    results = [
        {"flip_weight": flip, "matmul_seconds": flip, "fft_seconds": 40.0} for flip in (5.0, 20.0, 30.0, 50.0, 80.0)
    ]
    assert 30.0 < best_weight(results) < 50.0


def test_a_case_flips_at_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in transform_cases()[::9]:
        arguments = (case.points, case.padded, case.modes, "reference", "cpu")
        monkeypatch.setitem(fourier.FFT_WEIGHT, "cpu", case.flip_weight() * 1.01)
        assert fourier.choose_method(*arguments) == "matmul"
        monkeypatch.setitem(fourier.FFT_WEIGHT, "cpu", case.flip_weight() * 0.99)
        assert fourier.choose_method(*arguments) == "fft"
