"""Augmented batches: every motion is drawn, all that belongs to a sample moves together, bad settings are refused."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hofno
from hofno.data.normalise import ChannelNormaliser
from hofno.errors import DataError, SpecError
from hofno.geometry import Points
from hofno.problems.symmetry import SAME, Channels, Motion, Symmetry, driven_flow, mirror, square
from hofno.spec import TrainSpec
from hofno.train.augment import Augment, Change, augmentation
from hofno.train.loop import Interrupted
from hofno.train.step import Step
from hofno.train.tasks import make_task, normalisers

CPU = torch.device("cpu")


def settled(normaliser: str = "channel", **changes: bool) -> TrainSpec:
    return TrainSpec(augment=True, normaliser=normaliser, **changes)  # pyright: ignore


def change(symmetry: Symmetry, one: ChannelNormaliser, augment: Augment) -> Change:
    return Change([(m.sign, m.targets) for m in symmetry.motions], one, (1, 1), augment)


def test_draws_are_all_motions_of_the_square() -> None:
    torch.manual_seed(0)
    x = torch.arange(12.0 * 12).view(1, 1, 12, 12).expand(256, 2, 12, 12)
    augment = Augment(square(), (12, 12), CPU)
    out = change(square(), ChannelNormaliser.identity(2), augment)(x, augment.draw(256))
    images = {tuple(image.flatten().tolist()) for image in out[:, 0]}
    turned = [torch.rot90(image, k, (0, 1)) for image in (x[0, 0], x[0, 0].T) for k in range(4)]
    assert images == {tuple(image.flatten().tolist()) for image in turned}
    assert torch.equal(out[:, 0], out[:, 1])


def test_draws_of_a_flow_slide_and_change_sign_about_physical_zero() -> None:
    torch.manual_seed(0)
    flow = torch.randn(1, 1, 8, 8).expand(4096, 1, 8, 8)
    one = ChannelNormaliser(torch.tensor([0.3]), torch.tensor([2.0]))
    augment = Augment(driven_flow(), (8, 8), CPU)
    drawn = augment.draw(4096)
    moved = change(driven_flow(), one, augment)(one.encode(flow), drawn)
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0])[drawn.which]
    zero, places = (-one.mean / one.std)[:, None], drawn.places
    assert places is not None
    still = one.encode(flow).flatten(2).gather(2, places)
    assert torch.equal(moved.flatten(2), torch.addcmul(zero, signs[:, None, None], still - zero))
    out = one.decode(moved)
    assert len({tuple(image.flatten().mul(1e4).round().tolist()) for image in out}) == 4 * 8
    torch.testing.assert_close(out.flatten(1).abs().sort().values, flow.flatten(1).abs().sort().values)
    torch.testing.assert_close(out.flatten(1).sum(1), signs * flow.flatten(1).sum(1), rtol=1e-3, atol=1e-3)


def test_inputs_and_targets_move_together() -> None:
    data = hofno.generate("darcy", resolution=21, solver_resolution=21, train=3, valid=1, test=1)
    spec = settled()
    task = make_task(data, spec, *normalisers(data, spec), CPU)
    seen: list[torch.Tensor] = []

    def spy(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    torch.manual_seed(1)
    indices = torch.zeros(64, dtype=torch.long)
    _, target, _ = task.predict(spy, indices)
    plain = make_task(data, TrainSpec(), *normalisers(data, TrainSpec()), CPU)  # pyright: ignore[reportCallIssue]
    (_, still, _) = plain.predict(spy, indices[:1])
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
    for way in ({}, {"batch_of": "windows"}):
        spec = TrainSpec(augment=True, **way)  # pyright: ignore[reportCallIssue, reportArgumentType]
        still = TrainSpec(**way)  # pyright: ignore[reportCallIssue, reportArgumentType]
        indices = torch.zeros(16, dtype=torch.long)
        errors = []
        for each in (spec, still):
            task = make_task(flow, each, *normalisers(flow, each), CPU)
            last, target, _ = task.predict(lambda x: x[:, -1:], indices)
            errors.append((last - target).flatten(1).norm(dim=1))
        torch.testing.assert_close(*errors)


def darcy() -> hofno.Dataset:
    return hofno.generate("darcy", resolution=21, solver_resolution=21, train=4, valid=1, test=1)


def mesh(samples: int = 6) -> hofno.Dataset:
    """Fields on meshes about y = 0 whose far ends are the same in all samples; y -> -y runs axis 1 backwards."""
    generator = torch.Generator().manual_seed(0)
    places = torch.stack(torch.meshgrid(torch.linspace(0, 3, 6), torch.linspace(-40, 40, 5), indexing="ij"))
    nodes = places + 0.3 * torch.randn(samples, 2, 6, 5, generator=generator)
    nodes[:, :, -1] = places[:, -1]
    y = 7 + torch.randn(samples, 2, 6, 5, generator=generator)
    image = mirror(1, inputs=Channels(signs=(1, -1)), targets=Channels(signs=(1, -1), offsets=(0.0, 10.0)))
    return hofno.from_arrays(None, y, nodes, split=(samples - 2, 1, 1), seed=None, symmetry=image)


def cloud() -> hofno.Dataset:
    """Ragged clouds with one field, mirrored about x = 10; the box of the training points is not symmetric about it."""
    generator = torch.Generator().manual_seed(0)
    counts = (9, 7, 8, 9, 5, 6)
    coords = [torch.rand(2, n, generator=generator) * torch.tensor([[4.0], [1.0]]) + 7 for n in counts]
    x = [3 + torch.randn(1, n, generator=generator) for n in counts]
    y = [5 + u + places[:1] for u, places in zip(x, coords, strict=True)]
    image = mirror(inputs=Channels(signs=(-1,)), coords=Channels(signs=(-1, 1), offsets=(20.0, 0.0)))
    return hofno.from_arrays(x, y, coords, split=(4, 1, 1), seed=None, symmetry=image)


@pytest.mark.parametrize(("make", "train"), [(darcy, {}), (mesh, {"normaliser": "pixel"}), (cloud, {})])
def test_augmented_training_resumes_to_the_same_bits(
    make: Any, train: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make()

    def weights(out: Path | None = None, resume: bool = False, augment: bool = True) -> bytes:
        torch.manual_seed(0)
        kind = hofno.GeoFNO if isinstance(data.grid, Points) else hofno.HOFNO
        model = kind(data.in_channels, data.out_channels, modes=(3, 3), width=8, depth=1)
        chosen = {"epochs": 3, "batch_size": 2, "progress": False, "device": "cpu", "augment": augment, **train}
        run = hofno.fit(model, data, out=out, resume=resume, **chosen)
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
    spec = settled()
    task = make_task(own, spec, *normalisers(own, spec), CPU)
    torch.manual_seed(0)
    _, target, _ = task.predict(lambda x: x, torch.zeros(64, dtype=torch.long))
    assert len({tuple(image.flatten().mul(1e4).round().tolist()) for image in target}) == 8
    flip = Channels(signs=(1, -1))
    for arguments, message in (
        ({"y": x[..., 0], "x": x[..., 0], "symmetry": square()}, "of grids of 2 axes; got 1"),
        ({"y": x, "x": x, "coords": torch.rand(2, 6, 6), "symmetry": square()}, "say what becomes of them"),
        ({"y": x, "x": x, "coords": torch.rand(2, 6, 6), "symmetry": mirror(1, inputs=flip)}, "data have 3 of these"),
        ({"y": x[..., 0], "x": None, "coords": torch.rand(2, 6), "symmetry": square()}, "keep their order"),
        ({"y": x[..., 0], "x": None, "coords": torch.rand(3, 6), "symmetry": mirror(coords=flip)}, "signs of coords"),
        ({"y": x, "x": x, "symmetry": mirror(1, coords=flip)}, "signs of coords"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            hofno.from_arrays(**arguments, split=(3, 1, 1))
        assert "\n" not in str(caught.value)


def physical_image(v: Tensor, axis: int | None, channels: Channels) -> Tensor:
    """sign v + offset, (n, c, *grid) with grid axis `axis` backwards, in float64."""
    signs, offsets = channels.of(v.shape[1])
    shape = (-1, *(1,) * (v.ndim - 2))
    moved = v.double() if axis is None else v.double().flip(axis + 2)
    return torch.tensor(signs).view(shape) * moved + torch.tensor(offsets).double().view(shape)


@settings(deadline=None, max_examples=40)
@given(
    normaliser=st.sampled_from(["channel", "column", "pixel"]),
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    whole=st.sampled_from([1, -1]),
    inputs=st.lists(st.tuples(st.sampled_from([1, -1]), st.floats(-5, 5, width=32)), min_size=2, max_size=2),
    targets=st.one_of(st.none(), st.tuples(st.sampled_from([1, -1]), st.floats(-5, 5, width=32))),
    standardise=st.booleans(),
    data=st.data(),
)
def test_standardised_samples_are_decoded_moved_and_encoded_ones(
    normaliser: str,
    shape: tuple[int, ...],
    whole: int,
    inputs: list[tuple[int, float]],
    targets: tuple[int, float] | None,
    standardise: bool,
    data: st.DataObject,
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    signs, offsets = zip(*inputs, strict=True)
    goal = SAME if targets is None else Channels(signs=targets[:1], offsets=targets[1:])
    (_, flip) = mirror(axis, axes=len(shape)).motions
    still = Motion(sign=whole, inputs=Channels(signs=signs, offsets=offsets), targets=goal)
    moved = Motion(
        matrix=flip.matrix, shift=flip.shift, steps=flip.steps, sign=whole, inputs=still.inputs, targets=goal
    )
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 100)))
    x = torch.randn(5, 2, *shape, generator=generator) * (0.1 + torch.rand(*shape, generator=generator)) + 2
    y = torch.randn(5, 1, *shape, generator=generator) - 3
    symmetry = Symmetry(motions=(Motion(), still, moved))
    own = hofno.from_arrays(x, y, split=(3, 1, 1), seed=None, symmetry=symmetry)
    spec = settled(normaliser, normalise_inputs=standardise)
    norms = normalisers(own, spec)
    task = make_task(own, spec, *norms, CPU)
    seen: list[Tensor] = []
    torch.manual_seed(0)
    _, target, _ = task.predict(lambda part: (seen.append(part), part)[1], torch.arange(3).repeat(12))
    found = set()
    for row in range(36):
        gaps = []
        for motion, along in ((symmetry.motions[0], None), (still, None), (moved, axis)):
            gap = 0.0
            for part, kind, one, moved_part in zip(
                (x, y), ("inputs", "targets"), norms, (seen[0], target), strict=True
            ):
                channels: Channels = getattr(motion, kind)
                signed, shifted = channels.of(part.shape[1])
                channels = Channels(signs=tuple(motion.sign * s for s in signed), offsets=shifted)
                expected = one.encode(physical_image(part[row % 3][None], along, channels))
                gap = max(gap, float((moved_part[row][None] - expected).abs().max() / (1 + expected.abs().max())))
            gaps.append(gap)
        assert min(gaps) < 1e-4
        found |= {k for k in range(3) if gaps[k] < 1e-4}
    assert found == {0, 1, 2}


def test_nodes_that_never_move_are_not_drowned_in_noise() -> None:
    """Statistics of nodes: where the far field is the same in all samples, means are 40 / 1e-5 times the deviation."""
    data, spec = mesh(), settled("pixel")
    moved = augmentation(data, *normalisers(data, spec), CPU)
    torch.manual_seed(0)
    z = torch.randn(64, 2, 6, 5)
    x, _ = moved(z, z)
    image = z.flip(3) * torch.tensor([1.0, -1.0])[:, None, None]
    far = [(x - each)[:, :, -1].abs().amax((1, 2)) for each in (z, image)]  # (64,)
    assert float(torch.minimum(*far).max()) < 1e-6
    near = (x - image)[:, :, 0].abs().amax((1, 2))
    assert float(near.min()) > 0.01  # elsewhere the means of few samples are not symmetric


def test_a_ragged_cloud_is_mirrored_where_it_has_points() -> None:
    data, spec = cloud(), settled()
    norms = normalisers(data, spec)
    task = make_task(data, spec, *norms, CPU)
    assert isinstance(data.grid, Points)
    assert data.grid.low[0] + data.grid.high[0] == 20
    mask, coords = data.train.mask, data.train.coords
    assert mask is not None
    assert coords is not None
    seen: list[tuple[Tensor, ...]] = []

    def model(*given: Tensor) -> Tensor:
        seen.append(given)
        return torch.full_like(given[0], 100.0)

    torch.manual_seed(0)
    predicted, target, _ = task.predict(model, torch.zeros(32, dtype=torch.long) + 1)
    x, places, there = seen[0]
    assert torch.equal(there[0], mask[1])
    assert int(there[0].sum()) == 7
    assert (predicted == 100).all(1).equal(there)
    (x, places, target), there = (part[..., mask[1]] for part in (x, places, target)), there[0]
    low, high = (torch.tensor(end)[:, None] for end in (data.grid.low, data.grid.high))
    torch.testing.assert_close(target, norms[1].encode(data.train.y[1:2, :, there]).expand_as(target))
    x, places = norms[0].decode(x), low + places * (high - low)
    straight, own = data.train.x[1, :, there], coords[1, :, there]
    flipped = (x[:, 0] - straight).abs().amax(1) > 0.5
    assert 4 < int(flipped.sum()) < 28
    for row in range(32):
        image = flipped[row]
        torch.testing.assert_close(x[row], -straight if image else straight)
        torch.testing.assert_close(places[row, 0], 20 - own[0] if image else own[0])
        torch.testing.assert_close(places[row, 1], own[1])
    assert float((places - low).min()) >= 0


def test_settings_that_cannot_be_augmented_are_refused() -> None:
    steady = hofno.generate("poisson", resolution=40, train=2, valid=1, test=1)
    with pytest.raises(SpecError, match="symmetries are known"):
        hofno.fit(hofno.HOFNO(1, 1, modes=(2, 2)), steady, augment=True, progress=False)
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    sliding = hofno.from_arrays(x, x, periodic=True, split=(3, 1, 1), symmetry=driven_flow())
    with pytest.raises(SpecError, match="alike at all points"):
        hofno.fit(hofno.HOFNO(1, 1, modes=(2, 2)), sliding, augment=True, normaliser="pixel", progress=False)


def test_a_point_that_never_moves_where_its_image_does_is_refused() -> None:
    nodes = torch.stack(torch.meshgrid(torch.linspace(0, 1, 8), torch.linspace(-1, 1, 6), indexing="ij"))
    nodes = nodes.repeat(9, 1, 1, 1)
    nodes[:, 1, :, -1] += 0.1 * torch.randn(9, 1, generator=torch.Generator().manual_seed(0))
    nodes[:, 1, :, 0] += 1e-6 * torch.randn(9, 1, generator=torch.Generator().manual_seed(1))
    image = mirror(1, inputs=Channels(signs=(1, -1)))
    own = hofno.from_arrays(None, torch.randn(9, 1, 8, 6), nodes, split=(7, 1, 1), symmetry=image)
    for normaliser in ("pixel", "channel"):
        spec = settled(normaliser)
        norms = normalisers(own, spec)
        if normaliser == "channel":
            make_task(own, spec, *norms, CPU)
            continue
        with pytest.raises(SpecError, match=r"statistics are far from theirs.*normaliser='channel'"):
            make_task(own, spec, *norms, CPU)
