"""`hofno.fit` with modules of the user's own, and with what is no model, dataset, seed or device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hofno
from hofno import HOFNO, Dataset, PointHO, fit, from_arrays, from_trajectories
from hofno.errors import CheckpointError, HofnoError, SpecError
from hofno.train.loop import Interrupted

SETTINGS: dict[str, Any] = {"epochs": 3, "batch_size": 4, "device": "cpu", "progress": False}


class Settings:
    """What some modules call their config; its repr is another one in each process."""


class Own(nn.Module):
    """A module that hofno cannot rebuild."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.config = Settings()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.mix = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x)


class Pair(Own):
    """One that gives more than its prediction."""

    def forward(self, x: Tensor) -> Any:
        return self.mix(x), x


def test_an_own_module_trains_in_a_folder(data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = fit(Own(), data, ema=0.5, **SETTINGS)
    run = fit(Own(), data, out=tmp_path / "own", ema=0.5, **{**SETTINGS, "progress": True})
    told = capsys.readouterr().out
    assert told.index("Own is not a model of hofno: its weights are kept in") < told.index("train: step")
    assert "resume=True gives the trained run back" in told
    assert torch.equal(run.predict(data.test.x), alone.predict(data.test.x))
    assert not (tmp_path / "own" / "model.safetensors").exists()
    back = fit(Own(seed=1), data, out=tmp_path / "own", ema=0.5, resume=True, **SETTINGS)
    assert torch.equal(back.predict(data.test.x), run.predict(data.test.x))
    with pytest.raises(CheckpointError, match=r"a model class of your own, .* resume=True goes on with it, or gives"):
        hofno.load(tmp_path / "own")
    with pytest.raises(SpecError, match="Own is not a registered model"):
        run.save(tmp_path / "saved")


def test_an_own_module_goes_on(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hofno.train import loop

    class Stopped:
        calls = 0

        def is_set(self) -> bool:
            Stopped.calls += 1
            return Stopped.calls == 7

    with monkeypatch.context() as patch:
        patch.setattr(loop.threading, "Event", Stopped)
        with pytest.raises(Interrupted):
            fit(Own(), data, out=tmp_path, **SETTINGS)
    resumed = fit(Own(seed=1), data, out=tmp_path, resume=True, **SETTINGS)
    assert torch.equal(resumed.predict(data.test.x), fit(Own(), data, **SETTINGS).predict(data.test.x))


def arrays() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((20, 2, 16, 16))
    return x, x[:, :1]


def model() -> HOFNO:
    return HOFNO(2, 1, (4, 4), width=4, depth=1, order=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: fit(model(), data, seed=-1), "seed is a whole number from 0 to 9223372036854775807; got -1"),
        (lambda data: fit(model(), data, seed=2**63), "seed is a whole number"),
        (lambda data: fit(model(), data, seed=1.5), "seed is a whole number"),
        (lambda data: from_arrays(*arrays(), seed=-1), "seed is a whole number"),
        (lambda data: from_trajectories(arrays()[0], seed=-1), "seed is a whole number"),
        (lambda data: fit(model(), data, device="mps"), "a CPU or a CUDA GPU; got device 'mps'; use auto, cpu or cuda"),
        (lambda data: fit(model(), data, device=None), "unknown device None"),
        (lambda data: fit(model(), arrays()), r"a dataset with its three splits; got tuple; .*from_arrays\(x, y\)"),
        (lambda data: fit(model(), data.train), "got Split"),
        (lambda data: fit(lambda x: x, data), "fit trains a torch module, .* got function"),
        (lambda data: fit(model().requires_grad_(False), data), "HOFNO has no weights to train"),
        (lambda data: fit(model().double(), data), r"are float32, and .* torch\.float64; give model\.float"),
        (lambda data: fit(Pair(), data), "a model gives one tensor; Pair gives a tuple"),
        (lambda data: fit(model(), replace(data, train=data.train[:0])), "there are no training samples"),
        (lambda data: from_arrays(*arrays(), split=0.8), r"split needs three parts .* got 0\.8"),
        (lambda data: from_arrays(*arrays(), split="811"), "split needs three parts"),
        (lambda data: hofno.evaluate(hofno.Surrogate.around(model(), data), data), "got Dataset; give data.test"),
        (lambda data: hofno.evaluate(hofno.Surrogate.around(model(), data), data.test, 0), "1 or more; got 0"),
        (lambda data: hofno.Surrogate.around(model(), data).predict(data.test.x, batch_size=-2), "1 or more; got -2"),
    ],
)
def test_one_line_says_what_is_wrong(data: Dataset, make: Callable[[Any], object], message: str) -> None:
    with pytest.raises(HofnoError, match=message) as caught:
        make(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("out", ["file", "file/run"])
def test_a_folder_that_cannot_be_made(data: Dataset, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(CheckpointError, match=r"could not be written: .* choose another path"):
        fit(model(), data, out=tmp_path / out, **SETTINGS)
    assert (tmp_path / "file").read_text() == "kept"


def test_seeds_of_numpy_are_numbers_too(data: Dataset, tmp_path: Path) -> None:
    fit(model(), data, seed=np.int64(3), out=tmp_path, epochs=1, device="cpu", progress=False)  # pyright: ignore[reportArgumentType]
    assert '"seed": 3' in (tmp_path / "settings.json").read_text()


def test_a_run_knows_what_its_operator_knows_of_errors(data: Dataset) -> None:
    run = fit(Own(), data, **SETTINGS)
    assert run.error_bound(0.5) == run.surrogate.error_bound(0.5)
    np.testing.assert_array_equal(run.strangeness(data.test.x), run.surrogate.strangeness(data.test.x))


class Complex(nn.Module):
    """Complex weights, and a norm that counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
        self.weight = nn.Parameter(torch.full((2, 4), 0.1, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.norm(x))[..., :4] * self.weight[None, :, None]
        return torch.fft.irfft(spectrum, n=x.shape[-1]).sum(1, keepdim=True)


def test_complex_weights_and_buffers_of_whole_numbers(data: Dataset, tmp_path: Path) -> None:
    run = fit(Complex(), data, ema=0.5, out=tmp_path / "own", **SETTINGS)
    model = run.surrogate.model
    assert isinstance(model, Complex)
    assert not model.weight.imag.eq(0).all(), "both parts learn"
    batches = -(-len(data.train) // SETTINGS["batch_size"])
    assert model.norm.num_batches_tracked == SETTINGS["epochs"] * batches, "a count is no mean"
    again = fit(Complex(), data, ema=0.5, out=tmp_path / "own", resume=True, **SETTINGS)
    assert torch.equal(model.weight, again.surrogate.model.get_parameter("weight"))


@pytest.mark.parametrize("kind", ["frames", "points"])
def test_a_program_that_computes_in_float64(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The precision that it has chosen for its own tensors changes no bit here, nor stops anything."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "frames.npy", rng.standard_normal((10, 5, 12)))
    places = [rng.random((2, count)) for count in range(20, 30)]
    monkeypatch.setattr("hofno.data.ondisk.SHARE", 0.0)  # all that is mapped stays on disk
    model = HOFNO(1, 1, modes=(3,), width=4, depth=1) if kind == "frames" else PointHO(0, 1, width=4, depth=1, tokens=2)

    def trained() -> tuple[Any, Any]:
        if kind == "frames":
            data = from_trajectories(np.load(tmp_path / "frames.npy", mmap_mode="r"))
        else:
            data = from_arrays(None, [place[:1] for place in places], coords=places)
        run = fit(copy.deepcopy(model), data, **SETTINGS)
        exported = tmp_path / f"{torch.get_default_dtype()}.pt2"
        assert hofno.export(run, exported, batch=1) < 1e-5
        operator = hofno.load(run.save(tmp_path / "model"))
        found = operator.predict(data.test.x) if kind == "frames" else operator.predict(None, places[:1])[0]
        return hofno.evaluate(operator, data.test), torch.as_tensor(found)

    expected = trained()
    torch.set_default_dtype(torch.float64)
    try:
        found = trained()
    finally:
        torch.set_default_dtype(torch.float32)
    assert found[0] == expected[0]
    assert found[1].dtype == torch.float32
    assert torch.equal(found[1], expected[1])
