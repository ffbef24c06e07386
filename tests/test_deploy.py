"""Exported operators: files that give the same numbers without hofno, for every kind of operator, or a refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hofno
from hofno import deploy
from hofno.data.normalise import ChannelNormaliser
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.geometry import Grid, Mesh, Points, Sphere
from hofno.problems.symmetry import Channels, mirror, square
from hofno.surrogate import Surrogate
from hofno.transforms import fourier
from triangulated import torus

onnxruntime = pytest.importorskip("onnxruntime")
GENERATOR = torch.Generator().manual_seed(0)


def statistics(channels: int) -> ChannelNormaliser:
    """Of fields that are far from standard."""
    return ChannelNormaliser.fit(5.0 + 3.0 * torch.randn(6, channels, 8, generator=GENERATOR))


def at_every_node(channels: int) -> PointwiseNormaliser:
    mean, std = (torch.rand(channels, 12, 10, generator=GENERATOR) + 0.5 for _ in range(2))
    return PointwiseNormaliser(mean, std)


def on_plane(**more: Any) -> Surrogate:
    torch.manual_seed(0)
    model = hofno.HOFNO(2, 1, modes=(4, 4), width=8, depth=2, order=2, domain_padding=2 / 3)
    return Surrogate(model, statistics(2), statistics(1), Grid(shape=(12, 10), periodic=False), **more)


def in_time() -> Surrogate:
    torch.manual_seed(0)
    model = hofno.HOFNO(2, 1, modes=(4, 4), width=8, depth=1, order=2, residual=True)
    rollout = hofno.Rollout(history=2, horizon=4)
    return Surrogate(model, statistics(2), statistics(1), Grid(shape=(12, 12)), rollout=rollout)


def at_points(channels: int, **more: Any) -> Surrogate:
    torch.manual_seed(0)
    model = hofno.PointHO(channels, 1, width=8, depth=1, order=2, tokens=4, heads=2)
    inputs = statistics(channels) if channels else ChannelNormaliser.identity(0)
    return Surrogate(model, inputs, statistics(1), Points(count=30, low=(-1.0, 0.0), high=(1.0, 3.0)), **more)


def run_onnx(file: Path, **inputs: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(str(file))
    found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    return torch.from_numpy(found[0])


def run_pt2(file: Path, **inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.export.load(file).module()(**inputs)


RUN = {".onnx": run_onnx, ".pt2": run_pt2}


@pytest.mark.parametrize("form", deploy.FORMS)
def test_raw_fields_to_raw_fields_for_any_number_of_samples(tmp_path: Path, form: str) -> None:
    operator = on_plane()
    assert hofno.export(operator, tmp_path / f"a{form}") < 1e-5
    for samples in (1, 5):
        x = 5.0 + 3.0 * torch.randn(samples, 2, 12, 10)
        found, expected = RUN[form](tmp_path / f"a{form}", x=x), operator.predict(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert found.mean() > 2, "in physical units"


@pytest.mark.parametrize("form", deploy.FORMS)
def test_fixed_fields_of_a_rollout(tmp_path: Path, form: str) -> None:
    torch.manual_seed(0)
    model = hofno.HOFNO(3, 1, (3, 3), width=4, depth=1, residual=True)
    rollout = hofno.Rollout(history=2, horizon=4, fixed=1)
    operator = Surrogate(model, statistics(3), statistics(1), Grid(shape=(12, 12)), rollout=rollout, symmetry=mirror(0))
    frames, fixed = (5.0 + 3.0 * torch.randn(2, c, 12, 12) for c in (2, 1))
    expected = operator.predict(frames, fixed=fixed, steps=3)
    hofno.export(operator, tmp_path / f"three{form}", steps=3)
    found = RUN[form](tmp_path / f"three{form}", x=torch.cat((fixed, frames), 1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", deploy.FORMS)
def test_frames_of_a_rollout(tmp_path: Path, form: str) -> None:
    operator, x = in_time(), 5.0 + 3.0 * torch.randn(2, 2, 12, 12)
    hofno.export(operator, tmp_path / f"one{form}")
    hofno.export(operator, tmp_path / f"three{form}", steps=3)
    expected = operator.predict(x, steps=3)
    one, three = RUN[form](tmp_path / f"one{form}", x=x), RUN[form](tmp_path / f"three{form}", x=x)
    assert (one.shape[1], three.shape[1]) == (1, 3)
    torch.testing.assert_close(one, expected[:, :1], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(three, expected, rtol=1e-4, atol=1e-3)


def test_another_grid(tmp_path: Path) -> None:
    operator, x = on_plane(), torch.randn(1, 2, 16, 20)
    hofno.export(operator, tmp_path / "a.pt2", shape=(16, 20))
    torch.testing.assert_close(run_pt2(tmp_path / "a.pt2", x=x), operator.predict(x), rtol=1e-4, atol=1e-4)


def test_means_over_symmetries_are_exported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = hofno.HOFNO(1, 1, modes=(4, 4), width=8, depth=1, order=2)
    grid = Grid(shape=(9, 9), periodic=False)
    operator = Surrogate(model, statistics(1), statistics(1), grid, symmetry=square())
    x = torch.randn(2, 1, 9, 9)
    hofno.export(operator, tmp_path / "a.pt2")
    found = run_pt2(tmp_path / "a.pt2", x=x)
    torch.testing.assert_close(found, operator.predict(x), rtol=1e-4, atol=1e-4)
    turned = run_pt2(tmp_path / "a.pt2", x=x.mT.contiguous())
    torch.testing.assert_close(turned, found.mT, rtol=1e-4, atol=1e-4)


def test_a_mesh_with_statistics_of_every_node(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = hofno.FNO(2, 1, modes=(4, 4), width=8, depth=1)
    operator = Surrogate(model, at_every_node(2), at_every_node(1), Mesh(shape=(12, 10)))
    hofno.export(operator, tmp_path / "a.onnx")
    coords = torch.randn(2, 2, 12, 10)
    found = run_onnx(tmp_path / "a.onnx", x=coords)
    torch.testing.assert_close(found, operator.predict(None, coords), rtol=1e-4, atol=1e-4)
    with pytest.raises(HofnoError):
        hofno.export(operator, tmp_path / "b.onnx", shape=(14, 10))
    assert not (tmp_path / "b.onnx").exists()


@pytest.mark.parametrize("channels", [0, 2])
def test_points(tmp_path: Path, channels: int) -> None:
    operator = at_points(channels)
    hofno.export(operator, tmp_path / "a.onnx")
    coords = torch.rand(4, 2, 30) * torch.tensor([2.0, 3.0])[:, None] - torch.tensor([1.0, 0.0])[:, None]
    x = torch.randn(4, channels, 30)
    given = {"coords": coords} | ({"x": x} if channels else {})
    expected = operator.predict(x if channels else None, coords)
    torch.testing.assert_close(run_onnx(tmp_path / "a.onnx", **given), expected, rtol=1e-4, atol=1e-4)


def test_the_sphere_a_surface_and_geofno(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sphere = Surrogate(hofno.HOSFNO(1, 1, degrees=5, width=8), statistics(1), statistics(1), Sphere(shape=(8, 16)))
    cloud = hofno.GeoFNO(1, 1, modes=(3, 3), width=8, depth=1, latent_points=(8, 8))
    points = Points(count=20, low=(0.0, 0.0), high=(1.0, 1.0))
    curved = Surrogate(hofno.HONORM(1, 1, 7, width=8).place(torus(6, 5)), statistics(1), statistics(1), torus(6, 5))
    for operator in (sphere, curved, Surrogate(cloud, statistics(1), statistics(1), points)):
        assert hofno.export(operator, tmp_path / "a.pt2") < 1e-5


def test_the_file_runs_without_hofno(tmp_path: Path) -> None:
    operator, x = on_plane(), torch.randn(3, 2, 12, 10)
    hofno.export(operator, tmp_path / "a.onnx")
    np.save(tmp_path / "x.npy", x.numpy())
    script = (
        "import sys, numpy, onnxruntime\n"
        "y = onnxruntime.InferenceSession('a.onnx').run(None, {'x': numpy.load('x.npy')})[0]\n"
        "numpy.save('y.npy', y)\n"
        "assert 'hofno' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), operator.predict(x).numpy(), rtol=1e-4, atol=1e-4)


def test_an_onnx_file_says_what_it_is(tmp_path: Path) -> None:
    hofno.export(on_plane(), tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    ((x,), (y,)) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape, y.name, y.shape) == ("x", ["samples", 2, 12, 10], "y", ["samples", 1, 12, 10])
    told = json.loads(session.get_modelmeta().custom_metadata_map["hofno"])
    assert told["model"] == "hofno"
    assert told["grid"]["shape"] == [12, 10]
    assert told["inputs"] == {"x": [2, 12, 10]}


def test_the_operator_stays_as_it_was(tmp_path: Path) -> None:
    operator = on_plane()
    operator.model.double().train()
    before = {key: value.clone() for key, value in operator.model.state_dict().items()}
    hofno.export(operator, tmp_path / "a.pt2")
    assert operator.model.training
    for key, value in operator.model.state_dict().items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


class OwnNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    operator = Surrogate(OwnNetwork(), statistics(2), statistics(1), Grid(shape=(12, 10)))
    assert hofno.export(operator, tmp_path / "a.onnx") < 1e-5
    assert hofno.export(operator, tmp_path / "a.pt2") < 1e-5


def test_networks_that_know_their_number_of_samples(tmp_path: Path) -> None:
    torch.manual_seed(0)
    swin = Surrogate(
        hofno.models.Swin(2, 1, width=8, depth=1, heads=4, window=3), statistics(2), statistics(1), Grid(shape=(9, 9))
    )
    with pytest.raises(SpecError, match="give one: batch=1"):
        hofno.export(swin, tmp_path / "a.pt2")
    assert hofno.export(swin, tmp_path / "a.pt2", batch=3) < 1e-5
    assert run_pt2(tmp_path / "a.pt2", x=torch.randn(3, 2, 9, 9)).shape == (3, 1, 9, 9)


def test_what_onnx_cannot_do(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ono = Surrogate(hofno.models.ONO(2, 1, width=8, depth=1, heads=4), statistics(2), statistics(1), Grid(shape=(9, 9)))
    with pytest.raises(HofnoError, match="ono has no ONNX form"):
        hofno.export(ono, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a.txt", {}, "ends in .onnx or .pt2"),
        ("a.pt2", {"batch": 0}, "batch is a whole number"),
        ("a.pt2", {"steps": 2}, "not trained on trajectories"),
        ("a.pt2", {"mask": True}, "a mask is for points, and the model was trained on a grid; leave it out"),
        ("a.pt2", {"shape": (9,)}, "2 numbers of points, as 12 x 10 is"),
        ("a.pt2", {"shape": 9}, "2 numbers of points, as 12 x 10 is; got 9"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        hofno.export(on_plane(), tmp_path / name, **given)
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="pip install 'hofno\\[export\\]'"):
        hofno.export(on_plane(), tmp_path / "a.onnx")
    with pytest.raises(ShapeError, match="got dict"):
        hofno.export({}, tmp_path / "a.onnx")


def test_inputs_that_are_compared_are_not_those_that_were_recorded() -> None:
    first, second = (deploy._inputs(on_plane(), (12, 10), 2, seed=seed)["x"] for seed in (0, 1))
    assert not torch.equal(first, second)


def test_every_field_counts_by_its_own_size() -> None:
    expected = torch.randn(3, 2, 8) * torch.tensor([1e5, 1e-2])[:, None]
    wrong = expected.clone()
    wrong[:, 1] = 77 * wrong[:, 1]
    assert deploy.difference(expected, expected) == 0
    assert deploy.difference(wrong, expected) > 10
    large = 1e5 + torch.randn(3, 1, 8)
    assert deploy.difference(large + 0.01, large) < deploy.AGREES, "rounding of a field that hardly varies"
    assert deploy.difference(77 * (large - 1e5) + 1e5, large) > deploy.AGREES


def test_transforms_that_would_be_fast_ones_are_matrix_products(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = hofno.HOFNO(1, 1, modes=(200,), width=4, depth=1, order=2)
    operator = Surrogate(model, statistics(1), statistics(1), Grid(shape=(512,)))
    assert fourier.choose_method((512,), (512,), (200,), "symmetric", "cpu") == "fft", "else this shows nothing"
    assert hofno.export(operator, tmp_path / "a.onnx") < 1e-5


def test_a_file_that_is_off_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = deploy._run_pt2
    monkeypatch.setattr(deploy, "_run_pt2", lambda made, inputs: 1.01 * right(made, inputs))
    with pytest.raises(HofnoError, match="nothing was written"):
        hofno.export(on_plane(), tmp_path / "a.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", deploy.FORMS)
@pytest.mark.parametrize("channels", [0, 2])
def test_clouds_of_fewer_points(tmp_path: Path, form: str, channels: int) -> None:
    operator = at_points(channels, symmetry=None if channels else mirror(coords=Channels(signs=(-1, 1))))
    assert hofno.export(operator, tmp_path / f"a{form}", mask=True) < 1e-5
    x, coords = torch.randn(4, channels, 30), torch.rand(4, 2, 30)
    mask = torch.arange(30) < torch.tensor([30, 1, 7, 29])[:, None]
    x, coords = (part.masked_fill(~mask[:, None], torch.nan) for part in (x, coords))
    given = {"coords": coords, "mask": mask} | ({"x": x} if channels else {})
    found = RUN[form](tmp_path / f"a{form}", **given)
    expected = operator.predict(x if channels else None, coords, mask=mask)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not found[1, :, 1:].any()
    few = operator.predict(x[2:3, :, :7] if channels else None, coords[2:3, :, :7])
    torch.testing.assert_close(found[2:3, :, :7], few, rtol=1e-4, atol=1e-4)
