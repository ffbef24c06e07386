"""Several operators as one: the mean of their predictions, how far these lie apart, and bounds that follow from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hofno
from hofno import storage
from hofno.cli.expect import what_to_expect
from hofno.data.dataset import Dataset, Split
from hofno.data.spread import relative_spread
from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.evaluation.metrics import UNBOUNDED
from hofno.evaluation.score import Scores, kept_bound, score
from hofno.evaluation.spread import Spreads, spreads_of
from hofno.models.ensemble import Ensemble
from hofno.models.registry import networks_of
from hofno.problems.symmetry import Channels, mirror
from hofno.surrogate import Surrogate
from hofno.train.experience import gain_experience
from triangulated import torus

POINTS, SAMPLES = 16, 240


def waves(seed: int = 0) -> np.ndarray:
    """Smooth periodic fields (n, 1, 16), some of them much larger than others."""
    rng = np.random.default_rng(seed)
    places = 2 * np.pi * np.arange(POINTS) / POINTS
    phases = np.arange(1, 4)[:, None] * (places + rng.uniform(0, 6, (SAMPLES, 3, 1)))
    return (rng.lognormal(-0.5, 0.7, (SAMPLES, 1, 1)) * np.cos(phases)).sum(1)[:, None]


@pytest.fixture(scope="module")
def data() -> Dataset:
    x = waves()
    return hofno.from_arrays(x, x**2, periodic=True, split=(80, 80, 80), symmetry=mirror(0, axes=1))


def trained(data: Dataset, seed: int, **settings: object) -> Surrogate:
    torch.manual_seed(seed)
    model = hofno.HOFNO(data.in_channels, data.out_channels, modes=(5,), width=8, depth=1, order=1)
    given = {"epochs": 8, "lr": 1e-2, "batch_size": 8, **settings}
    return hofno.fit(model, data, seed=seed, progress=False, **given).surrogate  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def members(data: Dataset) -> list[Surrogate]:
    return [trained(data, seed) for seed in range(3)]


def close(found: object, expected: object) -> None:
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-5, atol=1e-6)


def test_its_predictions_are_means_and_its_spread_their_deviation(data: Dataset, members: list[Surrogate]) -> None:
    joined, x = hofno.combine(members, data), data.test.x
    each = torch.stack([one.predict(x) for one in members])
    close(joined.predict(x), each.mean(0))
    close(joined.spread(x), each.std(0))
    assert isinstance(joined.spread(x.numpy()), np.ndarray)
    close(joined.spread(x[0]), each.std(0)[0])
    assert len(joined.variants()) == 3
    assert float(score(joined, data.test).rel_l2.mean()) < max(
        float(score(m, data.test).rel_l2.mean()) for m in members
    )


def scored(operator: Surrogate, split: Split) -> tuple[Scores, Spreads]:
    spreads = spreads_of(operator)
    assert spreads is not None
    return score(operator, split, spreads=spreads), spreads


def clouds(points: int) -> tuple[Surrogate, Split]:
    """Two networks at points of which some are missing, seen from two sides."""
    rng = np.random.default_rng(0)
    places, there = rng.random((9, 2, points)), rng.random((9, points)) < 0.7
    symmetry = mirror(coords=Channels(signs=(-1, 1), offsets=(1, 0)))
    data = hofno.from_arrays(places[:, :1], places[:, 1:], places, mask=there, symmetry=symmetry, split=(3, 3, 3))
    networks = [hofno.PointHO(1, 1, 2, width=8, depth=1, tokens=4, heads=2) for _ in range(2)]
    return replace(Surrogate.around(Ensemble(networks), data), symmetry=symmetry), data.test


@pytest.mark.parametrize("kind", ["networks", "views", "both", "clouds"])
def test_one_pass_gives_predictions_and_their_spread(data: Dataset, members: list[Surrogate], kind: str) -> None:
    symmetry, split = mirror(0, axes=1), data.test
    operator = hofno.combine(members)
    if kind == "clouds":
        operator, split = clouds(20)
    elif kind != "networks":
        operator = replace(operator if kind == "both" else members[0], symmetry=symmetry)
    places = {"coords": split.coords, "mask": split.mask}
    expected = operator.predict_tensor(split.x, 7, **places), *operator.spread_tensor(split.x, 7, **places)
    calls: list[int] = []
    networks = networks_of(operator.model)
    held = [one.register_forward_hook(lambda *_, number=n: calls.append(number)) for n, one in enumerate(networks)]
    operator.model.train()
    predicted, moments = operator.predict_apart(split.x, 7, **places)
    assert operator.model.training
    assert all(map(torch.equal, (predicted, *moments), expected))
    assert len(calls) == len(operator.variants()) * -(-len(split) // 7)
    calls.clear()
    spreads = Spreads()
    assert torch.equal(score(operator, split, 7, spreads=spreads).rel_l2, score(operator, split, 7).rel_l2)
    assert len(calls) == 2 * len(operator.variants()) * -(-len(split) // 7)
    assert torch.equal(spreads.all(), relative_spread(*moments, 1))
    for one in held:
        one.remove()


def test_every_input_has_a_bound_of_its_own(data: Dataset, members: list[Surrogate]) -> None:
    joined, x = hofno.combine(members, data), data.test.x
    apart = torch.stack([one.predict(data.valid.x).double() for one in members])
    relative = (apart.var(0).flatten(1).sum(1).sqrt() / apart.mean(0).flatten(1).norm(dim=1)).double()
    ratios = (score(joined, data.valid).rel_l2 / relative).sort().values
    assert joined.experience is not None
    torch.testing.assert_close(joined.experience.ratios, ratios, rtol=1e-4, atol=1e-6)
    bounds = joined.error_bound(0.9, x)
    close(bounds, float(ratios[72]) * scored(joined, data.test)[1].all())  # the 73rd of 80
    assert joined.error_bound(0.9, x[3]) == pytest.approx(float(bounds[3]), rel=1e-4)
    errors = score(joined, data.test).rel_l2
    assert 0.8 < float((errors <= bounds).double().mean()) <= 1
    found = kept_bound(joined, *scored(joined, data.test))
    assert found["each"]["kept"] == float((errors <= bounds).double().mean())
    assert found["each"]["lowest"] == pytest.approx(float(bounds.min()))
    logs = np.log(np.stack((bounds.numpy(), errors.numpy())))
    assert found["each"]["correlation"] == pytest.approx(np.corrcoef(logs)[0, 1], abs=1e-4)
    assert found["rel_l2"] == joined.error_bound(0.9)
    said = what_to_expect(joined, x, None, steps=None)
    assert f"{int(bounds.argmax())} ({float(bounds.max()):.3g})" in said[1]


def test_larger_bounds_are_of_larger_errors() -> None:
    """Targets that a network cannot know, more in some samples than in others: it is less sure of these."""
    x = waves(1)
    rough = np.where(np.arange(SAMPLES)[:, None, None] % 2, 4.0, 1.0)
    x = np.concatenate((x / np.abs(x).max((1, 2), keepdims=True), np.broadcast_to(rough, x.shape)), 1)
    noise = np.random.default_rng(2).standard_normal((SAMPLES, 1, POINTS))
    y = x[:, :1] + 0.3 * (rough - 1) * noise
    data = hofno.from_arrays(x, y, periodic=True, split=(80, 80, 80))
    joined = hofno.combine([trained(data, seed, epochs=20) for seed in range(3)], data)
    bounds, hard = joined.error_bound(0.8, data.test.x), data.test.x[:, 1, 0] > 2
    assert float(bounds[~hard].max()) < float(bounds[hard].min())
    errors = score(joined, data.test).rel_l2
    assert float((errors <= bounds).double().mean()) > 0.65


def test_views_of_one_network_lie_apart_too(data: Dataset, tmp_path: Path) -> None:
    operator = trained(data, 0, augment=True, symmetric=True)
    x = data.test.x
    one_view = replace(operator, symmetry=None)
    views = torch.stack((one_view.predict(x), one_view.predict(x.flip(-1)).flip(-1)))
    close(operator.predict(x), views.mean(0))
    close(operator.spread(x), views.std(0))
    operator.save(tmp_path / "saved")
    close(hofno.load(tmp_path / "saved").error_bound(0.9, x), operator.error_bound(0.9, x))
    both = hofno.combine([operator, trained(data, 1, augment=True, symmetric=True)], data)
    assert len(both.variants()) == 4


def test_it_is_saved_and_loaded_and_joined_again(data: Dataset, members: list[Surrogate], tmp_path: Path) -> None:
    x = data.test.x
    joined = hofno.combine(members[:2], data)
    joined.save(tmp_path / "both")
    loaded = hofno.load(tmp_path / "both")
    assert torch.equal(loaded.predict(x), joined.predict(x))
    assert torch.equal(loaded.error_bound(0.9, x), joined.error_bound(0.9, x))
    more = hofno.combine([loaded, members[2]])
    close(more.predict(x), torch.stack([one.predict(x) for one in members]).mean(0))
    with pytest.raises(SpecError, match="knows nothing of its errors"):
        more.error_bound(0.9, x)


def test_one_choice_by_validation_samples_is_enough_to_say_so(data: Dataset, members: list[Surrogate]) -> None:
    chosen = trained(data, 7, epochs=2, select="best")
    for operators, selected in ((members[:2], False), ([members[0], chosen], True), ([chosen, members[0]], True)):
        found = hofno.combine(operators, data).experience
        assert found is not None
        assert bool(found.selected) == selected


def test_networks_are_copied(data: Dataset, members: list[Surrogate]) -> None:
    joined = hofno.combine(members[:2])
    before = joined.predict(data.test.x)
    kept = {key: value.clone() for key, value in members[0].model.state_dict().items()}
    with torch.no_grad():
        next(members[0].model.parameters()).add_(1.0)
    assert torch.equal(joined.predict(data.test.x), before)
    members[0].model.load_state_dict(kept)


def test_other_networks_and_rollouts() -> None:
    rng = np.random.default_rng(0)
    start = np.cos(2 * np.pi * (np.arange(POINTS) / POINTS + rng.uniform(size=(40, 1, 1))))
    frames = start * 0.9 ** np.arange(6)[:, None]
    data = hofno.from_trajectories(frames, history=1, periodic=True, split=(20, 12, 8))
    models = [
        hofno.HOFNO(1, 1, modes=(3,), width=4, depth=1, order=2),
        hofno.FNO(1, 1, modes=(3,), width=6, depth=2),
    ]
    runs = [hofno.fit(model, data, epochs=2, progress=False) for model in models]
    joined = hofno.combine(runs, data)

    def step(frame: Tensor) -> Tensor:
        return torch.stack([run.predict(frame, steps=1) for run in runs]).mean(0)

    x, expected = data.test.x, []
    for _ in range(3):
        x = step(x)
        expected.append(x)
    close(joined.predict(data.test.x, steps=3), torch.cat(expected, 1))
    apart = torch.stack([run.predict(data.test.x, steps=3) for run in runs]).std(0)
    close(joined.spread(data.test.x, steps=3), apart)
    assert joined.error_bound(0.9, data.test.x).shape == (8,)


class Cubic(nn.Module):
    """Has no bound in time where a frame is larger than 1."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x + x**3


def test_rollouts_that_have_no_bound(tmp_path: Path) -> None:
    start = torch.randn(40, 1, POINTS, generator=torch.Generator().manual_seed(0)) / 20
    frames = start * 0.9 ** torch.arange(12)[:, None]
    data = hofno.from_trajectories(frames, history=1, split=(10, 20, 10), seed=None)
    raw = {"normalise_inputs": False, "normalise_targets": False, "lr": 1e-6, "epochs": 1, "progress": False}
    joined = hofno.combine([hofno.fit(Cubic(gain), data, **raw) for gain in (0.88, 0.91)], data)
    x = data.test.x.clone()
    x[3] *= 1e5
    bounds = joined.error_bound(0.9, x)
    assert bounds.isfinite().nonzero().flatten().tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert bounds[3] == torch.inf
    wild = Split(x, data.test.y)
    found = kept_bound(joined, *scored(joined, wild))
    assert found["each"]["median"] < 1 < found["each"]["highest"] == UNBOUNDED
    storage.write_json(tmp_path / "bound.json", found)
    mad = replace(data, valid=Split(1e5 * data.valid.x, data.valid.y))
    assert joined.experience is not None
    joined.experience = gain_experience(joined, mad, selected=False)
    assert joined.error_bound(0.9, x).isinf().all()


def test_an_operator_of_ones_own_loop_says_nothing_of_its_data(data: Dataset) -> None:
    own = [Surrogate.around(trained(data, seed, epochs=1).model, data) for seed in (0, 1)]
    assert len(hofno.combine(own, data).error_bound(0.9, data.test.x)) == len(data.test)


def test_fixed_fields_of_trajectories() -> None:
    rng = np.random.default_rng(0)
    fixed = rng.uniform(0.5, 1, (40, 1, POINTS))
    frames = rng.standard_normal((40, 1, POINTS)) * fixed ** np.arange(4)[:, None]
    data = hofno.from_trajectories(frames, fixed=fixed, history=1, split=(20, 12, 8))
    models = [hofno.HOFNO(2, 1, modes=(3,), width=width, depth=1) for width in (4, 6)]
    joined = hofno.combine([hofno.fit(model, data, epochs=1, progress=False) for model in models], data)
    x = data.test.x
    close(joined.spread(x[:, 1:], fixed=x[:, :1]), joined.spread(x))
    close(joined.error_bound(0.9, x[:, 1:], fixed=x[:, :1]), joined.error_bound(0.9, x))
    with pytest.raises(HofnoError, match="x is an array or a tensor; got None"):
        joined.error_bound(0.9, fixed=x[:, :1])  # no bound of inputs that are not given
    without = hofno.from_trajectories(frames, history=2, split=(20, 12, 8))
    other = hofno.fit(hofno.HOFNO(2, 1, modes=(3,), width=4, depth=1), without, epochs=1, progress=False)
    one = hofno.fit(hofno.HOFNO(2, 1, modes=(3,), width=4, depth=1), data, epochs=1, progress=False)
    with pytest.raises(
        SpecError, match=r"'history': 1, .*'fixed': 1}, the other in steps of {'history': 2, .*'fixed': 0}"
    ):
        hofno.combine([one, other])


def test_scattered_points() -> None:
    rng = np.random.default_rng(0)
    coords = [rng.uniform(size=(2, int(rng.integers(12, 18)))) for _ in range(40)]
    data = hofno.from_arrays(None, [np.sin(3 * c[:1]) for c in coords], coords=coords, split=(20, 12, 8))
    runs = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = hofno.PointHO(0, 1, width=8, depth=1, order=2, tokens=4, heads=2)
        runs.append(hofno.fit(model, data, epochs=1, progress=False))
    joined = hofno.combine(runs, data)
    apart = joined.spread(None, coords[:3])
    for k in range(3):
        each = np.stack([run.predict(None, coords[:3])[k] for run in runs])
        np.testing.assert_allclose(apart[k], each.std(0, ddof=1), rtol=1e-4, atol=1e-6)
    assert joined.error_bound(0.9, None, coords[:3]).shape == (3,)


def test_networks_on_a_surface(tmp_path: Path) -> None:
    surface, rng = torus(12, 8), np.random.default_rng(0)
    x = rng.standard_normal((30, 1, len(surface.vertices)))
    data = hofno.from_arrays(x, x**2, surface=surface, split=(16, 10, 4))
    models = [hofno.NORM(1, 1, functions=6, width=width, depth=1) for width in (4, 6)]
    runs = [hofno.fit(model, data, epochs=1, progress=False) for model in models]
    joined = hofno.combine(runs, data)
    close(joined.predict(x), np.mean([run.predict(x) for run in runs], 0))
    joined.save(tmp_path / "both")
    assert np.array_equal(hofno.load(tmp_path / "both").predict(x), joined.predict(x))


def test_samples_that_belong_together_have_one_bound(data: Dataset, members: list[Surrogate]) -> None:
    joined = hofno.combine(members, data)
    assert joined.experience is not None
    joined.experience = replace(joined.experience, together=torch.tensor(4.0, dtype=torch.float64))
    bounds = joined.error_bound(0.5, data.test.x[:8])
    apart = torch.stack([one.predict(data.test.x[:8]).double() for one in members])
    size = [part.flatten(1).square().sum(1).view(2, 4).sum(1) for part in (apart.std(0), apart.mean(0))]
    close(bounds, joined.experience.spread_bound(0.5) * (size[0] / size[1]).sqrt())
    with pytest.raises(ShapeError, match=r"blocks of 4 samples.*got 6"):
        joined.error_bound(0.5, data.test.x[:6])


def test_what_cannot_be_joined(data: Dataset, members: list[Surrogate]) -> None:
    x = waves()
    other = hofno.from_arrays(x, x**2, periodic=True, split=(80, 80, 80), seed=1)
    coarse = hofno.from_arrays(x[..., ::2], x[..., ::2] ** 2, periodic=True, split=(80, 80, 80))
    raw = {"normalise_inputs": False, "normalise_targets": False}
    unlike = {
        "other statistics": trained(other, 5, epochs=1),
        "the same data": trained(coarse, 5, epochs=1),
        r"train\.symmetric": trained(data, 5, epochs=1, augment=True, symmetric=True),
        r"train\.normaliser": trained(data, 5, epochs=1, **raw),
        "the same network": members[0],
        "the same network is in both": hofno.combine([members[0], members[2]]),
    }
    for why, one in unlike.items():
        with pytest.raises(SpecError, match=f"operators 1 and 3 cannot be joined: .*{why}"):
            hofno.combine([members[0], members[1], one])
    with pytest.raises(SpecError, match="known to the other"):
        hofno.combine([trained(data, 5, epochs=1, **raw), trained(other, 6, epochs=1, **raw)])
    numbers = hofno.from_arrays(2 * x, x**2, periodic=True, split=(80, 80, 80), symmetry=mirror(0, axes=1))
    for strange in (other, numbers):
        with pytest.raises(SpecError, match="not those that the operators were trained on"):
            hofno.combine(members, strange)
    with pytest.raises(SpecError, match="known to the other"):
        hofno.combine([trained(data, 5, epochs=1, **raw), trained(numbers, 6, epochs=1, **raw)])
    with pytest.raises(SpecError, match="two operators or more; got 1"):
        hofno.combine(members[:1])
    with pytest.raises(HofnoError, match="combine takes"):
        hofno.combine(["runs/a", "runs/b"])
    with pytest.raises(SpecError, match="a list of operators"):
        hofno.combine("runs/a")  # pyright: ignore[reportArgumentType]


def test_one_network_in_one_pass_has_no_spread(data: Dataset, members: list[Surrogate]) -> None:
    for ask in (members[0].spread, lambda x: members[0].error_bound(0.9, x)):
        with pytest.raises(SpecError, match=r"hofno\.combine"):
            ask(data.test.x)
    assert spreads_of(members[0]) is None
    assert "each" not in kept_bound(members[0], score(members[0], data.test))


def test_calls_are_checked_as_those_of_predict(data: Dataset, members: list[Surrogate]) -> None:
    joined, x = hofno.combine(members, data), data.test.x
    for size in (0, -1):
        with pytest.raises(SpecError, match="batch_size counts samples"):
            joined.spread(x, batch_size=size)
        with pytest.raises(SpecError, match="batch_size counts samples"):
            joined.error_bound(0.9, x, batch_size=size)
    with pytest.raises(SpecError, match="steps counts predicted frames"):
        joined.spread(x, steps=5)


def test_stamps_of_earlier_versions_say_less(data: Dataset, members: list[Surrogate]) -> None:
    file = {"name": "x.npy", "bytes": 5, "sha256_of_ends": "a"}
    stamps = [{"data": {**members[0].stamp["data"], "files": {"x": one}}} for one in (file, {**file, "more": "b"})]
    older = [replace(one, stamp=stamp) for one, stamp in zip(members, stamps, strict=False)]
    assert hofno.combine(older, data).experience is not None
    stamps[1]["data"]["files"]["x"]["bytes"] = 6
    with pytest.raises(SpecError, match="trained on other data"):
        hofno.combine(older)


def test_operators_of_versions_that_kept_no_spreads(data: Dataset) -> None:
    operator = trained(data, 0, epochs=1, augment=True, symmetric=True)
    assert operator.experience is not None
    operator.experience = replace(operator.experience, ratios=torch.zeros(0, dtype=torch.float64))
    with pytest.raises(SpecError, match="kept no spreads"):
        operator.error_bound(0.9, data.test.x)
    assert spreads_of(operator) is None
