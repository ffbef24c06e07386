"""What a run knows of its own errors: gained at its end, saved with it, and true of its test samples."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import hofno
import hofno.problems.symmetry
from hofno.cli.expect import what_to_expect
from hofno.data.dataset import Dataset
from hofno.errors import CheckpointError, SpecError
from hofno.evaluation.score import kept_bound, score
from hofno.problems.airfoil import Airfoil
from hofno.problems.airfoil_mesh import airfoil
from hofno.problems.shapes import foil_inputs
from hofno.surrogate import Surrogate
from hofno.train.experience import gain_experience


@pytest.fixture(scope="module")
def waves() -> Dataset:
    """Squares of smooth fields on 16 points."""
    rng = np.random.default_rng(0)
    places = 2 * np.pi * np.arange(16) / 16
    phases = places + rng.uniform(0, 6, (300, 3, 1))
    x = (rng.uniform(0.5, 1, (300, 3, 1)) * np.cos(np.arange(1, 4)[:, None] * phases)).sum(1)[:, None]
    return hofno.from_arrays(x, x**2, split=(1 / 3, 1 / 3, 1 / 3))


def fit(data: Dataset, out: Path | None = None, **settings: object) -> hofno.train.loop.Run:
    model = hofno.HOFNO(in_channels=1, out_channels=1, modes=(4,), width=8, depth=1, order=2)
    return hofno.fit(model, data, epochs=3, lr=1e-2, progress=False, out=out, **settings)  # pyright: ignore


def test_the_bound_is_of_validation_samples_and_kept_by_test_samples(waves: Dataset) -> None:
    operator = fit(waves).surrogate
    assert operator.experience is not None
    errors = score(operator, waves.valid).rel_l2.sort().values
    torch.testing.assert_close(operator.experience.errors, errors)
    assert operator.error_bound(0.9) == pytest.approx(float(errors[90]))  # the 91st of 100
    found = kept_bound(operator, score(operator, waves.test))
    assert found["rel_l2"] == operator.error_bound()
    assert 0.8 < found["kept"] <= 1
    assert (found["validation_samples"], found["test_samples"]) == (100, 100)


def test_it_is_saved_and_loaded(waves: Dataset, tmp_path: Path) -> None:
    operator = fit(waves, tmp_path / "run").surrogate
    loaded = hofno.load(tmp_path / "run")
    assert loaded.error_bound(0.5) == operator.error_bound(0.5)
    x = waves.test.x[:4]
    np.testing.assert_allclose(loaded.strangeness(x.numpy()), operator.strangeness(x).numpy(), rtol=1e-12)
    assert loaded.strangeness(x[0]) == pytest.approx(float(operator.strangeness(x)[0]))
    assert float(np.max(loaded.strangeness(100 * x.numpy()))) > 10

    file = tmp_path / "run" / "experience.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"experience\.safetensors"):
        hofno.load(tmp_path / "run")


def test_a_run_that_chose_its_weights_says_so(waves: Dataset) -> None:
    for select, expected in (("last", 0), ("best", 1)):
        known = fit(waves, select=select).surrogate.experience
        assert known is not None
        assert float(known.selected) == expected
        assert float(known.together) == 1


def test_operators_that_know_nothing_of_their_errors(waves: Dataset) -> None:
    wrapped = Surrogate.around(fit(waves).surrogate.model, waves)
    for ask in (wrapped.error_bound, lambda: wrapped.strangeness(waves.test.x)):
        with pytest.raises(SpecError, match="knows nothing of its errors"):
            ask()
    assert kept_bound(wrapped, score(wrapped, waves.test)) == {}


def test_at_points_places_count_too() -> None:
    rng = np.random.default_rng(0)
    coords = [rng.uniform(size=(2, int(rng.integers(20, 30)))) for _ in range(60)]
    y = [np.sin(3 * c[:1]) for c in coords]
    data = hofno.from_arrays(None, y, coords=coords, split=(0.5, 0.3, 0.2))
    model = hofno.GeoFNO(in_channels=0, out_channels=1, modes=(3, 3), width=8, depth=1)
    operator = hofno.fit(model, data, epochs=1, progress=False).surrogate
    same, other = operator.strangeness(None, coords[:5]), operator.strangeness(None, [4 * c for c in coords[:5]])
    assert same.max() < 2 < other.min()


def test_bounds_of_other_predictions_are_refused(waves: Dataset) -> None:
    """The errors are of one pass, or of means over symmetries."""
    operator = fit(waves).surrogate
    operator.symmetry = hofno.problems.symmetry.mirror(0, axes=1)
    with pytest.raises(SpecError, match="measured without a mean over symmetries"):
        operator.error_bound()
    assert kept_bound(operator, score(operator, waves.test)) == {}


def test_predictions_without_a_size_have_no_bound(waves: Dataset) -> None:
    operator = fit(waves).surrogate
    with torch.no_grad():
        next(operator.model.parameters()).fill_(1e30)
    operator.experience = gain_experience(operator, waves, selected=False)
    assert operator.error_bound(0.5) == math.inf
    assert kept_bound(operator, score(operator, waves.test)) == {}
    assert what_to_expect(operator, waves.test.x, None, steps=None) == [
        "no error can be expected: many predictions of the validation samples have no size"
    ]


def test_windows_of_all_times_are_known_inputs() -> None:
    """Waves that grow in time: the last frames are like those of training, if not like the first ones."""
    rng = np.random.default_rng(0)
    waves = np.cos(2 * np.pi * (np.arange(16) / 16 + rng.uniform(size=(60, 1, 1))))
    frames = waves * 1.5 ** np.arange(8)[:, None]  # (n, times, points)
    data = hofno.from_trajectories(frames, history=2, split=(0.5, 0.25, 0.25))
    model = hofno.HOFNO(in_channels=2, out_channels=1, modes=(3,), width=4, depth=1, order=1)
    operator = hofno.fit(model, data, epochs=1, progress=False).surrogate
    assert max(operator.strangeness(frames[-9:, start : start + 2]).max() for start in range(6)) < 1.5
    assert operator.strangeness(100 * frames[-9:, :2]).min() > 1.5
    said = what_to_expect(operator, frames[-9:, :2], None, steps=3)
    assert "all 6 frames together" in said[0]
    assert "nothing is known of 3 frames" in said[0]
    assert "nothing is known" not in what_to_expect(operator, frames[-9:, :2], None, steps=None)[0]


def test_coordinates_on_a_finer_mesh_are_not_strange() -> None:
    rng = np.random.default_rng(0)

    def fields(points: int) -> tuple[np.ndarray, np.ndarray]:
        places = np.stack(np.meshgrid(*[np.linspace(0, 1, points)] * 2, indexing="ij"))
        phases, sizes = rng.uniform(size=(60, 9, 1, 1)), rng.normal(size=(60, 9, 1, 1))
        waves = np.tensordot([(i, j) for i in range(3) for j in range(3)], places, 1)
        return (sizes * np.cos(2 * np.pi * (waves + phases))).sum(1)[:, None], places

    x, places = fields(16)
    data = hofno.from_arrays(x, x**2, coords=places, split=(0.5, 0.3, 0.2))
    model = hofno.HOFNO(in_channels=3, out_channels=1, modes=(3, 3), width=4, depth=1)
    operator = hofno.fit(model, data, epochs=1, progress=False).surrogate
    for points in (12, 32):
        assert operator.strangeness(*fields(points)).max() < 1.5
    finer, places = fields(32)
    assert operator.strangeness(finer, 3 * places).min() > 1.5


@pytest.mark.parametrize("name", ["predict", "spread", "error_bound", "strangeness"])
def test_a_run_is_asked_as_its_operator_is(name: str) -> None:
    asked = (inspect.signature(getattr(kind, name)).parameters for kind in (hofno.Run, Surrogate))
    run, operator = ({key: (one.kind, one.default) for key, one in each.items()} for each in asked)
    assert run == operator


def test_foils_unlike_those_of_training_are_strange(tmp_path: Path) -> None:
    """Though most of their meshes is far from them: by how thick and cambered they are, and by what no design gives."""
    made = Airfoil(coarsen=5)
    designs = torch.cat([made.designs(split, 0, count) for split, count in (("train", 80), ("valid", 20))])
    nodes = torch.from_numpy(foil_inputs(made, designs.numpy()))
    data = hofno.from_arrays(None, nodes[:, :1], coords=nodes, split=(80, 19, 1), seed=None)
    model = hofno.HOFNO(in_channels=2, out_channels=1, modes=(4, 4), width=4, depth=1)
    hofno.fit(model, data, epochs=1, progress=False, out=tmp_path / "run")
    operator = hofno.load(tmp_path / "run")
    known = operator.experience
    assert known is not None
    assert known.ways.shape[1] == 7, "as many as a design has numbers"

    def strange(foils: np.ndarray) -> np.ndarray:
        return operator.strangeness(None, foil_inputs(made, foils))

    assert strange(made.designs("test", 0, 20).numpy()).max() < 1.5
    bumpy = airfoil(torch.zeros(1, 8), 120)[0].numpy().T
    assert strange(bumpy) < 1
    bumpy[20:40, 1] += 0.03 * np.sin(np.linspace(0, np.pi, 20))
    assert strange(bumpy) > 2
    assert np.median(strange(2 * made.designs("test", 0, 8).numpy())) > 1.3
