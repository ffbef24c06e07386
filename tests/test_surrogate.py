"""A trained operator: predicts from raw fields, is saved as a folder, and comes back the same or not at all."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from hofno import FNO, HOFNO, Split, Surrogate, fit, generate, load, storage
from hofno.data.normalise import ChannelNormaliser
from hofno.device import find_device
from hofno.errors import CheckpointError, DataError, ShapeError, SpecError
from hofno.evaluation.metrics import UNBOUNDED
from hofno.evaluation.score import score
from hofno.geometry import Grid, Mesh
from hofno.problems.registry import problem
from hofno.saved import load_weights


@pytest.fixture
def surrogate() -> Surrogate:
    torch.manual_seed(0)
    model = HOFNO(2, 1, (3, 3), width=6, depth=1, drop_path=0.5)
    inputs = ChannelNormaliser(torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.5]))
    targets = ChannelNormaliser(torch.tensor([10.0]), torch.tensor([4.0]))
    return Surrogate(model, inputs, targets, Grid(shape=(8, 8), periodic=True), {"note": "test"})


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 2, 8, 8)).astype(np.float32)


class TestPredict:
    def test_physical_units(self, surrogate: Surrogate, x: np.ndarray) -> None:
        surrogate.model.eval()
        encoded = (torch.from_numpy(x) - torch.tensor([1.0, -2.0]).view(2, 1, 1)) / torch.tensor([3, 0.5]).view(2, 1, 1)
        with torch.no_grad():
            expected = surrogate.model(encoded) * 4 + 10
        np.testing.assert_allclose(surrogate.predict(x), expected, rtol=1e-5)

    def test_kinds(self, surrogate: Surrogate, x: np.ndarray) -> None:
        batch = surrogate.predict(x)
        assert isinstance(batch, np.ndarray)
        tensor = surrogate.predict(torch.from_numpy(x))
        assert isinstance(tensor, torch.Tensor)
        assert not tensor.requires_grad
        np.testing.assert_array_equal(batch, tensor)
        np.testing.assert_allclose(surrogate.predict(x[2]), batch[2], rtol=1e-5)
        np.testing.assert_allclose(surrogate.predict(x, batch_size=2), batch, rtol=1e-5)
        np.testing.assert_array_equal(surrogate.predict(x.astype(np.float64)), batch)

    def test_predictions_that_are_no_numbers_are_named_once(self, surrogate: Surrogate, x: np.ndarray) -> None:
        x[[1, 4]] = 3e38  # infinite once it is standardised
        with pytest.warns(UserWarning, match="^NaN or infinite: 2 of 5 predictions, by number 1, 4; do not") as warned:
            found = surrogate.predict(x, batch_size=2)
        assert len(warned) == 1
        assert np.isfinite(found).reshape(5, -1).all(1).tolist() == [True, False, True, True, False]
        with pytest.warns(UserWarning, match="1 of 1 predictions, by number 0;"):
            surrogate.predict(x[1])
        split = Split(torch.from_numpy(x), torch.ones(5, 1, 8, 8))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # evaluation counts them
            assert int((score(surrogate, split).rel_l2 == UNBOUNDED).sum()) == 2

    def test_another_resolution(self, surrogate: Surrogate) -> None:
        assert surrogate.predict(np.ones((1, 2, 12, 10))).shape == (1, 1, 12, 10)

    def test_the_mode_of_the_model_is_put_back(self, surrogate: Surrogate, x: np.ndarray) -> None:
        surrogate.model.train()
        np.testing.assert_array_equal(surrogate.predict(x), surrogate.predict(x))
        assert surrogate.model.training

    def test_what_does_not_fit(self, surrogate: Surrogate, x: np.ndarray) -> None:
        for wrong in (x[:, :1], x[0, 0], x[..., None], x[:0]):
            with pytest.raises(ShapeError, match="expected"):
                surrogate.predict(wrong)
        with pytest.raises(DataError, match="first in sample 3"):
            surrogate.predict(np.where(np.arange(5)[:, None, None, None] == 3, np.nan, x))

    def test_a_mesh_needs_its_coords(self) -> None:
        same, nodes = ChannelNormaliser.identity, np.random.default_rng(0).random((2, 8, 8))
        made = Surrogate(HOFNO(3, 1, (3, 3), width=4, depth=1), same(3), same(1), Mesh(shape=(8, 8)))
        u = np.ones((5, 1, 8, 8))
        assert made.predict(u, nodes).shape == u.shape
        with pytest.raises(ShapeError, match=r"expected \(n, 3, \*grid\).*got shape \(5, 1, 8, 8\); .*give coords="):
            made.predict(u)

    def test_numbers_too_large_are_told_apart_from_infinite_ones(self, surrogate: Surrogate, x: np.ndarray) -> None:
        with pytest.raises(DataError, match="x holds 1 numbers too large for float32"):
            surrogate.predict(np.where(x == x[3, 0, 0, 0], 1e300, x.astype(np.float64)))


class TestFolder:
    def test_round_trip(self, surrogate: Surrogate, x: np.ndarray, tmp_path: Path) -> None:
        surrogate.save(tmp_path / "model")
        again = load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict(x), surrogate.predict(x))
        assert (again.grid, again.stamp) == (surrogate.grid, {"note": "test"})
        assert not again.model.training
        assert again.files() == surrogate.files()

    def test_fno(self, tmp_path: Path) -> None:
        same = ChannelNormaliser.identity
        made = Surrogate(FNO(1, 1, (3,), width=4, depth=1), same(1), same(1), Grid(shape=(8,), periodic=False))
        assert isinstance(load(made.save(tmp_path / "model")).model, FNO)

    def test_a_saved_model_is_kept_unless_asked_otherwise(self, surrogate: Surrogate, tmp_path: Path) -> None:
        surrogate.save(tmp_path / "model")
        surrogate.stamp = {"note": "another"}
        surrogate.save(tmp_path / "model")
        assert load(tmp_path / "model").stamp == {"note": "another"}
        assert load(tmp_path / "model.1").stamp == {"note": "test"}
        surrogate.stamp = {"note": "a third"}
        surrogate.save(tmp_path / "model", overwrite=True)
        assert load(tmp_path / "model").stamp == {"note": "a third"}
        assert not (tmp_path / "model.2").exists()
        surrogate.save(tmp_path / "new", overwrite=True)
        (tmp_path / "empty").mkdir()
        surrogate.save(tmp_path / "empty")

    def test_what_no_save_replaces(self, surrogate: Surrogate, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("years of work")
        for overwrite in (False, True):
            with pytest.raises(CheckpointError, match="is not a hofno folder; choose another path"):
                surrogate.save(tmp_path / "mine", overwrite=overwrite)

    def test_a_save_that_dies_before_its_last_rename_is_found(self, surrogate: Surrogate, tmp_path: Path) -> None:
        surrogate.save(tmp_path / "model")
        dead = tmp_path / ".model.tmp-4194304999-0123456789abcdef"
        (tmp_path / "model").rename(dead)
        with pytest.raises(CheckpointError, match=r"beside it are .*\.model\.tmp-4194304999.*: rename the one"):
            load(tmp_path / "model")
        with pytest.raises(CheckpointError, match="there is nothing there; "):
            load(tmp_path / "mode")
        (dead / "manifest.json").unlink()
        with pytest.raises(CheckpointError, match="there is nothing there; "):
            load(tmp_path / "model")

    def test_a_module_that_is_not_registered(self, surrogate: Surrogate, tmp_path: Path) -> None:
        surrogate.model = torch.nn.Conv2d(2, 1, 1)
        with pytest.raises(SpecError, match="not a registered model"):
            surrogate.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    @pytest.mark.parametrize("name", ["model.safetensors", "normalisers.safetensors", "model.json", "manifest.json"])
    def test_damage_is_found(self, surrogate: Surrogate, tmp_path: Path, name: str) -> None:
        surrogate.save(tmp_path / "model")
        file = tmp_path / "model" / name
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(CheckpointError):
            load(tmp_path / "model")

    def test_what_is_not_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="there is nothing there"):
            load(tmp_path / "nothing")
        (tmp_path / "weights.pt").write_bytes(b"\x80\x04")
        with pytest.raises(CheckpointError, match="models are folders"):
            load(tmp_path / "weights.pt")
        (tmp_path / "foreign").mkdir()
        with pytest.raises(CheckpointError, match="foreign"):
            load(tmp_path / "foreign")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "spec.toml").write_text("")
        with pytest.raises(CheckpointError, match="hofno train --resume"):
            load(tmp_path / "run")

    def test_a_description_of_another_version(self, surrogate: Surrogate, tmp_path: Path) -> None:
        files = surrogate.files()
        for change, error in (
            (lambda d: d.pop("grid"), CheckpointError),
            (lambda d: d.update(grid=3), CheckpointError),
            (lambda d: d.update(model="vnet"), SpecError),
            (lambda d: d["arguments"].update(colour=3), SpecError),
            (lambda d: d["arguments"].update(width=7), CheckpointError),
            (lambda d: d["arguments"].update(depth=2), CheckpointError),
        ):
            description = json.loads(files["model.json"])
            change(description)
            changed = {**files, "model.json": json.dumps(description).encode()}
            storage.save_folder(tmp_path / "model", changed, {})
            with pytest.raises(error):
                load(tmp_path / "model")


def test_weights_that_do_not_fit(surrogate: Surrogate, tmp_path: Path) -> None:
    weights = dict(surrogate.model.state_dict())
    key = next(iter(weights))
    with pytest.raises(CheckpointError, match=f"lack '{key}'"):
        load_weights(surrogate.model, {k: v for k, v in weights.items() if k != key}, tmp_path)
    with pytest.raises(CheckpointError, match=r"has shape \(2,\), the model needs"):
        load_weights(surrogate.model, {**weights, key: torch.ones(2)}, tmp_path)
    with pytest.raises(CheckpointError, match="hold 'extra', which the model has not"):
        load_weights(surrogate.model, {**weights, "extra": torch.ones(2)}, tmp_path)


def test_find_device() -> None:
    assert find_device("cpu").type == "cpu"
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(SpecError, match="unknown device 'gpu7x'; use auto, cpu or cuda"):
        find_device("gpu7x")
    if not torch.cuda.is_available():
        with pytest.raises(SpecError, match="no CUDA GPU is usable here"):
            find_device("cuda")


def test_the_problem_of_generated_data(tmp_path: Path) -> None:
    """With its parameters, also when it is saved and loaded; arrays are of none."""
    data = generate("poisson", degree=2, train=4, valid=2, test=2, resolution=40)
    model = HOFNO(2, 1, modes=(4, 4), width=4, depth=1, order=2)
    run = fit(model, data, epochs=1, progress=False)
    run.save(tmp_path / "model")
    for known in (run.surrogate, load(tmp_path / "model")):
        assert known.problem == problem("poisson", {"degree": 2, "train": 4, "valid": 2, "test": 2, "resolution": 40})
    with pytest.raises(SpecError, match="not generated but read from files or arrays"):
        _ = Surrogate.around(model, data).problem
