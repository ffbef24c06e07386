"""Training, scoring, saving and predicting at points, ragged ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hofno import HOFNO, Dataset, GeoFNO, Run, evaluate, fit, from_arrays, generate, load
from hofno.data.dataset import Split
from hofno.errors import ShapeError, SpecError
from hofno.evaluation import score
from hofno.problems.symmetry import Channels, mirror
from hofno.train.losses import LOSSES, loss_of
from hofno.train.tasks import Clouds

COUNTS = [20, 13, 17, 20, 9, 15, 20, 11, 16, 18]


def ragged() -> Dataset:
    """u, v -> u + a function of the place, in a box that is not the unit square."""
    rng = np.random.default_rng(0)
    coords = [rng.random((2, n)) * [[4.0], [1.0]] + [[10.0], [-3.0]] for n in COUNTS]
    x = [5 + rng.standard_normal((2, n)) for n in COUNTS]
    y = [100 + u[:1] + np.sin(c[:1]) for u, c in zip(x, coords, strict=True)]
    return from_arrays(x, y, coords, split=(6, 2, 2), seed=None)


def model(in_channels: int = 2, **arguments: Any) -> GeoFNO:
    torch.manual_seed(0)
    return GeoFNO(in_channels, 1, (3, 3), **{"width": 8, "depth": 1, "deformation": 8, **arguments})


def trained(data: Dataset, **settings: Any) -> Run:
    chosen = {"epochs": 3, "batch_size": 4, "device": "cpu", "progress": False, "lr": 5e-3, **settings}
    return fit(model(data.in_channels), data, **chosen)


def alone(split: Split, row: int) -> tuple[torch.Tensor, ...]:
    """One sample without what it was filled up with."""
    assert split.coords is not None
    n = split.x.shape[2] if split.mask is None else int(split.mask[row].sum())
    return tuple(part[row : row + 1, :, :n] for part in (split.x, split.y, split.coords))


def test_normalisers_see_only_points_that_are_there() -> None:
    data = ragged()
    surrogate = trained(data, epochs=1).surrogate
    values = torch.cat([alone(data.train, row)[0][0] for row in range(len(data.train))], 1).double()
    assert torch.allclose(surrogate.inputs.mean.double(), values.mean(1), rtol=1e-6)
    assert torch.allclose(surrogate.inputs.std.double(), values.std(1), rtol=1e-5)


def test_the_loss_of_a_ragged_batch_is_that_of_its_samples() -> None:
    data = ragged()
    surrogate = trained(data, epochs=1).surrogate
    assert data.train.coords is not None
    places = data.grid.to_unit(data.train.coords)  # pyright: ignore[reportAttributeAccessIssue]
    inputs, targets = surrogate.inputs, surrogate.targets
    task = Clouds(inputs.encode(data.train.x), targets.encode(data.train.y), places, data.train.mask)
    found, target, _ = task.predict(surrogate.model, torch.arange(6))
    loss = LOSSES["rel_l2"](found, target, *targets.shaped(1))
    each = []
    for row in range(6):
        x, y, coords = alone(data.train, row)
        p = surrogate.predict(x, coords)
        each.append(float((p - y).norm() / y.norm()))
    assert float(loss.detach()) == pytest.approx(np.mean(each), rel=1e-4)
    assert LOSSES["mse"](target, target, *targets.shaped(1)) == 0


@pytest.mark.parametrize(("loss", "augment"), [("rel_l2", True), ("mse", True), ("mae", False), ("rmse", True)])
def test_training_does_not_depend_on_how_far_clouds_are_padded(loss: str, augment: bool) -> None:
    """The image has an offset in its targets, which must not come to places where no point is."""
    image = mirror(coords=Channels(signs=(-1, 1), offsets=(1.0, 0.0)), targets=Channels(signs=(-1,), offsets=(6.0,)))
    rng = np.random.default_rng(1)
    places = [rng.random((2, n)) for n in COUNTS]

    def padded(width: int) -> Dataset:
        coords, y = np.zeros((len(COUNTS), 2, width)), np.zeros((len(COUNTS), 1, width))
        for row, (n, place) in enumerate(zip(COUNTS, places, strict=True)):
            coords[row, :, :n], y[row, :, :n] = place, 3 + np.sin(5 * place[:1])
        mask = np.arange(width) < np.array(COUNTS)[:, None]
        return from_arrays(None, y, coords, mask=mask, split=(6, 2, 2), seed=None, symmetry=image)

    near, far = (trained(padded(width), loss=loss, augment=augment, seed=3) for width in (20, 90))
    losses = [[row["train_loss"] for row in run.history] for run in (near, far)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    found = [evaluate(run, padded(20).train) for run in (near, far)]
    assert found[0]["rel_l2"] == pytest.approx(found[1]["rel_l2"], rel=1e-2)


def test_the_mean_square_of_a_ragged_batch_is_the_one_that_is_reported() -> None:
    data = ragged()
    surrogate = trained(data, epochs=1).surrogate
    assert data.train.coords is not None
    places = data.grid.to_unit(data.train.coords)  # pyright: ignore[reportAttributeAccessIssue]
    task = Clouds(
        surrogate.inputs.encode(data.train.x), surrogate.targets.encode(data.train.y), places, data.train.mask
    )
    prediction, target, share = task.predict(surrogate.model, torch.arange(6))
    assert share is not None
    loss = loss_of("mse", prediction, target, *surrogate.targets.shaped(1), share)
    assert float(loss.detach()) == pytest.approx(evaluate(surrogate, data.train)["mse_standardised"], rel=1e-4)


def test_the_root_of_the_mean_square_of_a_ragged_batch_is_over_points_that_are_there() -> None:
    prediction = torch.tensor([[[1.0, 2.0, 2.0, 0.0]], [[3.0, 0.0, 0.0, 0.0]]], requires_grad=True)
    target, share = torch.zeros(2, 1, 4), torch.tensor([0.75, 0.25])
    loss = loss_of("rmse", prediction, target, torch.zeros(1), torch.ones(1), share)
    assert float(loss.detach()) == pytest.approx((3**0.5 + 3) / 2)
    (loss_of("rmse", prediction * 0, target, torch.zeros(1), torch.ones(1), share)).backward()
    assert prediction.grad is not None
    assert bool(prediction.grad.isfinite().all())


def test_scores_are_means_over_points_that_are_there() -> None:
    data = ragged()
    surrogate = trained(data).surrogate
    scores = score(surrogate, data.train, batch_size=4)
    for row in range(len(data.train)):
        x, y, coords = alone(data.train, row)
        found = score(surrogate, Split(x, y, coords))
        for name in ("rel_l2", "mse", "mse_standardised"):
            assert float(getattr(scores, name)[row]) == pytest.approx(float(getattr(found, name)[0]), rel=1e-3), name


def test_it_learns() -> None:
    data = ragged()
    run = trained(data, epochs=150, batch_size=6, normalise_targets=True)
    losses = [row["train_loss"] for row in run.history]
    assert losses[-1] < losses[0] / 4
    assert evaluate(run, data.test)["rel_l2"] < 0.1


@pytest.mark.parametrize("loss", ["mse", "mae", "rmse"])
def test_other_losses_and_reduced_precision(loss: str) -> None:
    run = trained(ragged(), loss=loss, precision="bf16", ema=0.9, compile=False)
    assert np.isfinite(run.history[-1]["train_loss"])


def test_resume_gives_the_same_bits(tmp_path: Path) -> None:
    data = ragged()
    unbroken = trained(data, epochs=4)
    trained(data, epochs=4, out=tmp_path / "run")
    for name in ("model.safetensors", "normalisers.safetensors", "model.json", "manifest.json"):
        (tmp_path / "run" / name).unlink()
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    again = trained(data, epochs=4, out=tmp_path / "run", resume=True)
    for a, b in zip(unbroken.surrogate.model.parameters(), again.surrogate.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_saved_and_loaded(tmp_path: Path) -> None:
    data = ragged()
    run = trained(data)
    run.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again.model, GeoFNO)
    assert again.grid == data.grid
    split = data.test
    found = run.predict(split.x, split.coords, mask=split.mask)
    assert torch.equal(again.predict(split.x, split.coords, mask=split.mask), found)
    assert again.files() == run.surrogate.files()


class TestPredict:
    def test_kinds(self) -> None:
        data = ragged()
        surrogate, split = trained(data).surrogate, data.train
        assert split.coords is not None
        assert split.mask is not None
        batch = surrogate.predict(split.x, split.coords, mask=split.mask)
        assert isinstance(batch, torch.Tensor)
        assert not bool(batch[~split.mask[:, None]].any())
        x, _, coords = alone(split, 1)
        one = surrogate.predict(x[0].numpy(), coords[0].numpy())
        assert isinstance(one, np.ndarray)
        assert one.shape == (1, COUNTS[1])
        np.testing.assert_allclose(one, batch[1, :, : COUNTS[1]], rtol=1e-4)
        samples = [alone(split, row) for row in range(6)]
        several = surrogate.predict([s[0][0].numpy() for s in samples], [s[2][0].numpy() for s in samples])  # pyright: ignore[reportArgumentType, reportCallIssue]
        for row, found in enumerate(several):
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, batch[row, :, : COUNTS[row]], rtol=1e-4)
        np.testing.assert_allclose(surrogate.predict(split.x, split.coords, mask=split.mask, batch_size=2), batch, 1e-4)

    def test_shared_places(self) -> None:
        """Coordinates (d, N) are those of all samples, as `from_arrays` takes them."""
        x, places = torch.randn(6, 2, 12), torch.rand(2, 12)
        surrogate = trained(from_arrays(x, x[:, :1], places, split=(4, 1, 1)), epochs=1).surrogate
        expected = surrogate.predict(x, places.expand(6, 2, 12))
        assert torch.equal(surrogate.predict(x, places), expected)
        assert torch.equal(surrogate.predict(x, places, mask=torch.ones(6, 12)), expected)
        torch.testing.assert_close(surrogate.predict(x[0], places), expected[0])
        with pytest.raises(ShapeError, match=r"coords \(n, 2, N\) or \(2, N\) for all"):
            surrogate.predict(x, places[:, 1:])

    def test_what_does_not_fit(self) -> None:
        data = ragged()
        surrogate, (x, _, coords) = trained(data, epochs=1).surrogate, alone(data.train, 1)
        with pytest.raises(SpecError, match=r"trained at points; give their coords: predict\(x, coords\)"):
            surrogate.predict(x)
        for wrong in (
            (x[:, :1], coords),
            (x, coords[:, :1]),
            (x, coords[..., 1:]),
            (None, coords),
            (x[:0], coords[:0]),
        ):
            with pytest.raises(ShapeError, match=r"expected x \(n, 2, N\), coords \(n, 2, N\)"):
                surrogate.predict(*wrong)
        with pytest.raises(ShapeError, match="these data are on a grid"):
            score(surrogate, Split(x, x[:, :1]))
        with pytest.raises(SpecError, match="steps counts predicted frames"):
            surrogate.predict(x, coords, steps=2)

    def test_positions_alone(self) -> None:
        data = generate("elasticity", train=2, valid=1, test=1, device="cpu")
        run = trained(data, epochs=1)
        assert run.surrogate.inputs.mean.shape == (0,)
        assert data.test.coords is not None
        found = run.predict(None, data.test.coords)
        assert isinstance(found, torch.Tensor)
        assert found.shape == (1, 1, 972)
        one = run.predict(None, data.test.coords[0].numpy())
        np.testing.assert_allclose(one, found[0], rtol=1e-5)

    def test_a_mesh_takes_its_coordinates_again(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        x, y, coords = rng.random((10, 1, 8, 9)), rng.random((10, 1, 8, 9)), rng.random((10, 2, 8, 9))
        data = from_arrays(x, y, coords, seed=None)
        run = fit(HOFNO(3, 1, (3, 3), width=4, depth=1), data, epochs=1, device="cpu", progress=False)
        again = load(run.save(tmp_path / "mesh"))
        found = again.predict(x, coords)
        np.testing.assert_array_equal(found, again.predict(np.concatenate((x, coords), 1)))
        np.testing.assert_allclose(again.predict(x[3], coords[3]), found[3], rtol=1e-5)
        np.testing.assert_array_equal(again.predict(x, coords[0])[0], found[0])
        with pytest.raises(ShapeError, match="on the grid of x"):
            again.predict(x, coords[..., 1:])
        with pytest.raises(SpecError, match="trained on a mesh; leave the mask out"):
            again.predict(x, coords, mask=np.ones((10, 8)))
        with pytest.raises(ShapeError, match=r"\(10, 5, 8, 9\); the last channels are coords: leave these out where x"):
            again.predict(np.concatenate((x, coords), 1), coords)


def test_models_and_settings_of_grids_are_refused() -> None:
    data = ragged()
    with pytest.raises(SpecError, match="'hofno' takes fields on a grid or on a mesh, and these are at points"):
        fit(HOFNO(2, 1, (3,), width=4, depth=1), data, epochs=1, device="cpu", progress=False)
    grid = from_arrays(np.ones((10, 2, 8)), np.ones((10, 1, 8)))
    with pytest.raises(SpecError, match="'geofno' takes fields at points, and these are on a grid"):
        fit(model(), grid, epochs=1, device="cpu", progress=False)
    for setting in ({"loss": "rel_l2_gradient"}, {"normaliser": "pixel"}):
        with pytest.raises(SpecError, match="is for grids, and these data are at points"):
            trained(data, **setting)
