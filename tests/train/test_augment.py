"""Augmented batches: every motion is drawn, inputs and targets move together, and bad settings are refused."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

import hofno
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError, SpecError
from hofno.problems.symmetry import driven_flow, square
from hofno.spec import TrainSpec
from hofno.train.augment import Augment, augmentation
from hofno.train.loop import Interrupted
from hofno.train.step import Step
from hofno.train.tasks import make_task, normalisers

CPU = torch.device("cpu")


def test_draws_are_all_motions_of_the_square() -> None:
    torch.manual_seed(0)
    x = torch.arange(12.0 * 12).view(1, 1, 12, 12).expand(256, 2, 12, 12)
    augment = Augment(square(), (12, 12), CPU)
    places, signs = augment.draw(256)
    out = augment.move(x, places, signs, torch.zeros(2, 1))
    images = {tuple(image.flatten().tolist()) for image in out[:, 0]}
    turned = [torch.rot90(image, k, (0, 1)) for image in (x[0, 0], x[0, 0].T) for k in range(4)]
    assert images == {tuple(image.flatten().tolist()) for image in turned}
    assert torch.equal(out[:, 0], out[:, 1])


def test_draws_of_a_flow_slide_and_change_sign_about_physical_zero() -> None:
    torch.manual_seed(0)
    flow = torch.randn(1, 1, 8, 8).expand(4096, 1, 8, 8)
    one = ChannelNormaliser(torch.tensor([0.3]), torch.tensor([2.0]))
    augment = Augment(driven_flow(), (8, 8), CPU)
    places, signs = augment.draw(4096)
    zero = (-one.mean / one.std)[:, None]
    out = one.decode(augment.move(one.encode(flow), places, signs, zero))
    assert len({tuple(image.flatten().mul(1e4).round().tolist()) for image in out}) == 4 * 8
    torch.testing.assert_close(out.flatten(1).abs().sort().values, flow.flatten(1).abs().sort().values)
    torch.testing.assert_close(out.flatten(1).sum(1), signs.flatten() * flow.flatten(1).sum(1), rtol=1e-3, atol=1e-3)


def test_inputs_and_targets_move_together() -> None:
    data = hofno.generate("darcy", resolution=21, solver_resolution=21, train=3, valid=1, test=1)
    settings = TrainSpec(augment=True)  # pyright: ignore[reportCallIssue]
    task = make_task(data, settings, *normalisers(data, settings), CPU)
    seen: list[torch.Tensor] = []

    def spy(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    torch.manual_seed(1)
    indices = torch.zeros(64, dtype=torch.long)
    _, target = task.predict(spy, indices)
    plain = make_task(data, TrainSpec(), *normalisers(data, TrainSpec()), CPU)  # pyright: ignore[reportCallIssue]
    (_, still) = plain.predict(spy, indices[:1])
    both = torch.cat((seen[1], still), 1)[0]  # (2, h, w)
    turned = [torch.rot90(each, k, (1, 2)) for each in (both, both.mT) for k in range(4)]
    found = set()
    for image in torch.cat((seen[0], target), 1):
        gaps = [float((image - other).abs().max()) for other in turned]
        assert min(gaps) < 1e-4
        found.add(gaps.index(min(gaps)))
    assert found == set(range(8))


def test_windows_of_a_flow_move_as_one() -> None:
    """A model that copies the last frame has an error that no motion changes."""
    flow = hofno.generate(
        "navier_stokes", samples=3, test=1, valid=1, frames=5, history=2, resolution=8, solver_resolution=16, step=0.02
    )
    for settings in ({}, {"batch_of": "windows"}):
        spec = TrainSpec(augment=True, **settings)  # pyright: ignore[reportCallIssue, reportArgumentType]
        still = TrainSpec(**settings)  # pyright: ignore[reportCallIssue, reportArgumentType]
        indices = torch.zeros(16, dtype=torch.long)
        errors = []
        for each in (spec, still):
            task = make_task(flow, each, *normalisers(flow, each), CPU)
            last, target = task.predict(lambda x: x[:, -1:], indices)
            errors.append((last - target).flatten(1).norm(dim=1))
        torch.testing.assert_close(*errors)


def test_augmented_training_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = hofno.generate("darcy", resolution=21, solver_resolution=21, train=4, valid=1, test=1)

    def weights(out: Path | None = None, resume: bool = False, augment: bool = True) -> bytes:
        torch.manual_seed(0)
        model = hofno.HOFNO(1, 1, modes=(3, 3), width=8, depth=1)
        settings = {"epochs": 3, "batch_size": 2, "progress": False, "device": "cpu", "augment": augment}
        run = hofno.fit(model, data, out=out, resume=resume, **settings)
        return run.surrogate.files()["model.safetensors"]

    unbroken = weights()
    assert weights(augment=False) != unbroken
    run, count = Step._run, [0]

    def stopped(self: Step, indices: torch.Tensor) -> None:
        run(self, indices)
        count[0] += 1
        if count[0] == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Step, "_run", stopped)
    with pytest.raises(Interrupted):
        weights(tmp_path)
    monkeypatch.undo()
    assert weights(tmp_path, resume=True) == unbroken


def test_own_arrays_with_a_symmetry_are_augmented() -> None:
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    own = hofno.from_arrays(x, x.square(), split=(3, 1, 1), symmetry=square())
    settings = TrainSpec(augment=True)  # pyright: ignore[reportCallIssue]
    task = make_task(own, settings, *normalisers(own, settings), CPU)
    torch.manual_seed(0)
    _, target = task.predict(lambda x: x, torch.zeros(64, dtype=torch.long))
    assert len({tuple(image.flatten().mul(1e4).round().tolist()) for image in target}) == 8
    with pytest.raises(DataError, match="regular grids of two axes"):
        hofno.from_arrays(x[..., 0], x[..., 0], symmetry=square())


def test_settings_that_cannot_be_augmented_are_refused() -> None:
    steady = hofno.generate("poisson", resolution=40, train=2, valid=1, test=1)
    with pytest.raises(SpecError, match="symmetries are known"):
        augmentation(steady, [], CPU)
    darcy = hofno.generate("darcy", resolution=21, solver_resolution=21, train=2, valid=1, test=1)
    with pytest.raises(SpecError, match="alike at all points"):
        hofno.fit(hofno.HOFNO(1, 1, modes=(2, 2)), darcy, augment=True, normaliser="pixel", progress=False)
