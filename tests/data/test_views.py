"""Predictions as means over views: they move with their samples, and are saved, scored and refused as asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import hofno
from hofno.data.dataset import Rollout
from hofno.data.normalise import ChannelNormaliser
from hofno.data.passes import roll_out
from hofno.errors import CheckpointError, SpecError
from hofno.geometry import Geometry, Grid, Mesh, Points
from hofno.problems.symmetry import (
    Channels,
    Motion,
    Symmetry,
    describe_symmetry,
    driven_flow,
    mirror,
    read_symmetry,
    square,
)
from hofno.surrogate import Surrogate
from reference import image_of

MESH = mirror(
    0,
    inputs=Channels(signs=(-1, -1, 1), offsets=(0.0, 50.0, 0.0)),
    targets=Channels(signs=(-1, 1), offsets=(3.0, 0.0)),
)
"""Of a mesh with one field that changes its sign; x goes to 50 - x."""
CLOUD = mirror(
    inputs=Channels(signs=(-1,)),
    targets=Channels(signs=(1, -1), offsets=(0.0, 2.0)),
    coords=Channels(signs=(-1, 1), offsets=(1.0, 0.0)),
)


class Local(nn.Module):
    """A map of each point that knows where on the grid it is, so that it has no symmetry of its own."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(out, channels, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Tensor) -> Tensor:
        place = torch.linspace(0.5, 2.0, x[0, 0].numel()).view(x.shape[2:])
        return torch.einsum("oc,bc...->bo...", self.mix, torch.tanh(x) * place)


class AtPoints(nn.Module):
    """The like at scattered points."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.tensor([[1.0, 0.3, -2.0], [0.5, 1.0, 1.0]]))

    def forward(self, x: Tensor, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.einsum("oc,bcn->bon", self.mix, torch.cat((x, coords), 1).sin())


def surrogate(
    model: nn.Module, grid: Geometry, symmetry: Symmetry, channels: tuple[int, int], rollout: Rollout | None = None
) -> Surrogate:
    inputs, targets = (ChannelNormaliser(torch.full((c,), 0.3), torch.full((c,), 2.0)) for c in channels)
    return Surrogate(model, inputs, targets, grid, rollout=rollout, symmetry=symmetry)


def image(v: Tensor, motion: Motion, channels: Channels) -> Tensor:
    return torch.from_numpy(image_of(v.numpy(), motion, channels))


@settings(deadline=None, max_examples=20)
@given(size=st.integers(2, 7), seed=st.integers(0, 99), batch=st.integers(1, 3))
def test_predictions_on_a_square_turn_with_their_inputs(size: int, seed: int, batch: int) -> None:
    x = torch.randn(3, 1, size, size, generator=torch.Generator().manual_seed(seed))
    one = surrogate(Local(1, 2), Grid(shape=(5, 5), periodic=False), square(), (1, 2))
    found = one.predict(x, batch_size=batch)
    for motion in square().motions:
        moved = one.predict(image(x, motion, motion.inputs))
        torch.testing.assert_close(moved, image(found, motion, motion.targets), rtol=1e-5, atol=1e-5)
    one.symmetry = None
    assert not torch.allclose(one.predict(x.flip(2)), one.predict(x).flip(2))


def test_the_mean_is_that_of_all_views_taken_back() -> None:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    one = surrogate(Local(3, 2), Mesh(shape=(4, 5)), MESH, (3, 2))
    found = one.predict(x)
    one.symmetry = None
    there = MESH.motions[1]
    seen = one.predict(image(x, there, there.inputs))
    back = torch.stack((-(seen[:, 0] - 3.0), seen[:, 1]), 1).flip(2)
    torch.testing.assert_close(found, (one.predict(x) + back) / 2)


def test_clouds_are_seen_in_the_mirror() -> None:
    generator = torch.Generator().manual_seed(0)
    x, coords = torch.randn(2, 1, 6, generator=generator), torch.rand(2, 2, 6, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]) != 0
    one = surrogate(AtPoints(), Points(count=6, low=(0.0, 0.0), high=(1.0, 1.0)), CLOUD, (1, 2))
    found = one.predict(x, coords, mask=mask)
    signs, offsets = torch.tensor([-1.0, 1.0])[:, None], torch.tensor([1.0, 0.0])[:, None]
    moved = one.predict(-x, signs * coords + offsets, mask=mask)
    signs, offsets = torch.tensor([1.0, -1.0])[:, None], torch.tensor([0.0, 2.0])[:, None]
    torch.testing.assert_close(moved, (signs * found + offsets) * mask[:, None])
    assert (found * ~mask[:, None] == 0).all()
    assert (found[:, :, 0] != 0).all()


def test_each_frame_of_a_rollout_is_a_mean() -> None:
    flow = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    grid, symmetry = Grid(shape=(8, 8), periodic=True), driven_flow()
    one = surrogate(Local(2, 1), grid, symmetry, (2, 1), Rollout(history=2, horizon=3))
    found = one.predict(flow)
    assert found.shape == (2, 3, 8, 8)
    for motion in (symmetry.motions[0], symmetry.motions[1]):  # a group; with the others only up to a slide
        pair = surrogate(one.model, grid, Symmetry(motions=symmetry.motions[:2]), (2, 1), one.rollout)
        moved = pair.predict(image(flow, motion, motion.targets))
        torch.testing.assert_close(moved, image(pair.predict(flow), motion, motion.targets))
    once = surrogate(one.model, grid, symmetry, (2, 1), Rollout(history=2, horizon=1))
    torch.testing.assert_close(found, roll_out(once.predict, flow, 3))
    assert float((one.predict(flow, steps=1) - found[:, :1]).abs().max()) < 1e-6


@pytest.mark.parametrize("symmetry", [square(), driven_flow(), MESH, CLOUD])
def test_a_symmetry_is_read_as_it_was_described(symmetry: Symmetry) -> None:
    text = json.dumps(describe_symmetry(symmetry))
    assert read_symmetry(json.loads(text)) == symmetry


def test_a_saved_operator_goes_on_predicting_means(tmp_path: Path) -> None:
    data = hofno.generate("darcy", resolution=21, solver_resolution=21, train=4, valid=2, test=1)
    model = hofno.HOFNO(1, 1, modes=(3, 3), width=4, depth=1)
    run = hofno.fit(model, data, augment=True, symmetric=True, epochs=1, progress=False, device="cpu")
    found = run.predict(data.valid.x)
    run.save(tmp_path / "saved")
    loaded = hofno.load(tmp_path / "saved")
    assert loaded.symmetry == square()
    assert torch.equal(loaded.predict(data.valid.x), found)
    torch.testing.assert_close(loaded.predict(data.valid.x.mT), found.mT)
    error = float(((found - data.valid.y).flatten(1).norm(dim=1) / data.valid.y.flatten(1).norm(dim=1)).mean())
    assert run.history[-1]["valid_rel_l2"] == pytest.approx(error, rel=1e-5)
    loaded.symmetry = None
    assert not torch.equal(loaded.predict(data.valid.x), found)
    description = json.loads((tmp_path / "saved" / "model.json").read_text())
    del description["symmetry"]["motions"][0]["sign"]
    with pytest.raises(TypeError, match="sign"):
        read_symmetry(description["symmetry"])


def test_a_damaged_symmetry_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Surrogate.around(hofno.HOFNO(1, 1, modes=(2, 2), width=4, depth=1), hofno.generate("poisson", train=1))
    made.symmetry = square()
    monkeypatch.setattr("hofno.surrogate.describe_symmetry", lambda _: {"slide": None})
    made.save(tmp_path / "saved")
    with pytest.raises(CheckpointError, match=r"model.json lacks or misstates 'motions'"):
        hofno.load(tmp_path / "saved")


def test_grids_and_settings_without_the_symmetry_are_refused() -> None:
    one = surrogate(Local(1, 1), Grid(shape=(5, 5), periodic=False), square(), (1, 1))
    with pytest.raises(SpecError, match=r"square grid; got 4 x 5 points"):
        one.predict(torch.zeros(1, 1, 4, 5))
    fixed = Symmetry(motions=(Motion(), Motion(matrix=((-1, 0), (0, 1)), steps=(4, 0))))
    one.symmetry = fixed
    one.predict(torch.zeros(1, 1, 5, 5))
    with pytest.raises(SpecError, match="beyond the ends of a grid that is not periodic, one of 9 x 9 points"):
        one.predict(torch.zeros(1, 1, 9, 9))
    one.symmetry = mirror(0, axes=1)
    with pytest.raises(SpecError, match="is of grids of 1 axes; got 2"):
        one.predict(torch.zeros(1, 1, 5, 5))
    one.symmetry = mirror(0, targets=Channels(signs=(1, -1)))
    with pytest.raises(SpecError, match="2 signs of targets and the data have 1"):
        one.predict(torch.zeros(1, 1, 5, 5))
    data = hofno.generate("darcy", resolution=21, solver_resolution=21, train=1, valid=1, test=1)
    with pytest.raises(SpecError, match=r"train.augment=true has seen; set that too"):
        hofno.fit(hofno.HOFNO(1, 1, modes=(3, 3)), data, symmetric=True, progress=False)
