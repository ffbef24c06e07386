"""Shallow water: the planet and its weather, trajectories, splits, and refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hofno.data.dataset import trajectory_dataset
from hofno.errors import SolverError
from hofno.geometry import Sphere
from hofno.problems import groups, planet, shallow_water
from hofno.problems.base import ignore_progress
from hofno.problems.shallow_water import CARD, ShallowWater, ShallowWaterFlow
from hofno.solvers.shallow_water import HOUR, ShallowWaterSolver

SMALL: dict[str, Any] = {
    "samples": 5,
    "frames": 3,
    "rows": 10,
    "columns": 20,
    "degrees": 8,
    "spin_up": 2,
    "hyperviscosity": 1e17,
    "step": 3600.0,
}


def flow(**changes: Any) -> ShallowWaterFlow:
    return ShallowWaterFlow(**{**SMALL, **changes})


def problem(**changes: Any) -> ShallowWater:
    return ShallowWater(**{**SMALL, **changes})


class TestPlanet:
    def test_ground(self) -> None:
        solver = ShallowWaterSolver(43, 5500.0)
        found = planet.ground(solver, 2000.0, 0)
        share = float(((found > 1).double().mean(1) * solver.weights).sum() / 2)
        assert found.min() == 0
        assert found.max() == pytest.approx(2000)
        assert 0.25 < share < 0.55
        assert not torch.equal(found, planet.ground(solver, 2000.0, 1))

    def test_source_follows_the_sun(self) -> None:
        """Its middle goes round eastwards once a day, as published, and north and south once in 1008 hours."""
        solver = ShallowWaterSolver(22, 5500.0)
        source = planet.source_of_height(solver.colatitude, solver.longitude, 2 / HOUR, torch.device("cpu"))
        now = source(0.0)
        assert now.max() == pytest.approx(2 / HOUR, rel=1e-2)
        assert float(now.mean(1).abs().max()) < 1e-12, "every row has the mean 0"
        quarter = solver.columns // 4
        torch.testing.assert_close(source(6 * HOUR)[:, quarter], source(6 * HOUR).amax(1), rtol=1e-3, atol=0)
        torch.testing.assert_close(source(1008 * HOUR), now)
        middle = [float(solver.colatitude[source(hours * HOUR).amax(1).argmax()]) for hours in (252, 756)]
        assert middle == pytest.approx([math.pi / 2 - 0.4, math.pi / 2 + 0.4], abs=0.06)

    def test_deviations_of_the_eddies(self) -> None:
        """Velocities of two components have the deviation EDDY_SPEED each, mean over 200 fields."""
        solver = ShallowWaterSolver(24, 5500.0)
        deviations = planet.eddy_deviations(24, solver.planet.radius)
        rng = np.random.default_rng(0)
        drawn = [planet.gaussian_coefficients(rng, deviations) for _ in range(200)]
        fields = solver.fields_of(solver.balanced(solver.values(torch.from_numpy(np.stack(drawn)))))
        square = (fields[:, 1:].square().mean((0, -1)) * solver.weights).sum(-1) / 2
        every = np.arange(1, 2000.0)
        energy = every**2 / (every**2 + planet.EDDY_DEGREE**2) ** 2.5
        held = energy[:23].sum() / energy.sum()
        assert square.numpy() == pytest.approx(planet.EDDY_SPEED**2 * held, rel=0.05)

    def test_more_degrees_continue_the_same_fields(self) -> None:
        few, many = (
            planet.gaussian_coefficients(np.random.default_rng(3), planet.eddy_deviations(n, 1.0)) for n in (6, 9)
        )
        np.testing.assert_array_equal(many[:, :6, :6], few)
        assert not few[:, np.tril(np.ones((6, 6), bool), -1)].any(), "orders above the degree are empty"

    def test_seeds_and_samples_differ(self) -> None:
        solver = ShallowWaterSolver(8, 5500.0)
        first = planet.streamfunctions(solver, 0, range(3))
        torch.testing.assert_close(planet.streamfunctions(solver, 0, [1, 2]), first[1:])
        assert not torch.isclose(first[0], first[1]).all()
        assert not torch.isclose(first, planet.streamfunctions(solver, 1, range(3))).any(-1).all()

    def test_weather_is_plausible(self) -> None:
        """A day after the start: as far from the published deviations as few degrees leave it."""
        made = flow(samples=4, degrees=22, rows=24, columns=48, spin_up=24, frames=2, step=1800.0, hyperviscosity=5e16)
        frames = made.trajectories().astype(np.float64)
        weights = np.sin((np.arange(24) + 0.5) * math.pi / 24)[:, None] * np.ones(48)
        weights /= weights.sum()
        mean = (frames * weights).sum((-2, -1), keepdims=True)
        deviation = np.sqrt((((frames - mean) ** 2) * weights).sum((-2, -1)).mean((0, 1)))
        change = np.sqrt(((frames[:, 1] - frames[:, 0]) ** 2 * weights).sum((-2, -1)).mean(0))
        assert deviation[0] == pytest.approx(297, rel=0.25)
        assert deviation[1] == pytest.approx(7.2, rel=0.35)
        assert deviation[2] == pytest.approx(13.9, rel=0.25)
        assert 3 < change[0] < 10
        assert (change[1:] < 1).all()


class TestTrajectories:
    @pytest.fixture(autouse=True)
    def _two_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(shallow_water._GROUP, "cpu", 2)

    def test_shapes_and_seeds(self) -> None:
        found = flow().trajectories()
        assert found.shape == (5, 3, 3, 10, 20)
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(flow().trajectories(), found)
        assert not np.isclose(flow(seed=1).trajectories(), found).all((1, 2, 3, 4)).any()

    def test_frames_are_hours_after_the_spin_up(self) -> None:
        long = flow(spin_up=0, frames=5).trajectories()
        np.testing.assert_array_equal(flow(spin_up=2, frames=3).trajectories(), long[:, 2:])

    @pytest.mark.parametrize(
        "change",
        [
            {"mean_height": 6000.0},
            {"hyperviscosity": 1e18},
            {"orography": 0.0},
            {"forcing": 0.0},
            {"ground": 1},
            {"degrees": 9},
            {"precision": "float32"},
            {"step": 1200.0},
        ],
    )
    def test_every_parameter_matters(self, change: dict[str, Any]) -> None:
        assert not np.array_equal(flow(samples=1, **change).trajectories(), flow(samples=1).trajectories())

    def test_groups_and_memory_that_holds_no_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        needed = flow().simulator().bytes_each()
        assert [flow().most_together(torch.device(kind)) for kind in ("cpu", "cuda")] == [2, 64]
        monkeypatch.setattr(groups, "free_bytes", lambda device: needed - 1)
        with pytest.raises(SolverError, match=r"one sample at degrees=8 needs .* lower degrees"):
            flow().trajectories()

    def test_errors_of_the_solver_say_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(self: ShallowWaterSolver, state: torch.Tensor, time: float, start: float = 0.0) -> torch.Tensor:
            raise SolverError("it is too stormy")

        monkeypatch.setattr(ShallowWaterSolver, "advance_", fails)
        with pytest.raises(SolverError, match="hour 0 of the batch from sample 0 on: it is too stormy"):
            flow().trajectories()


def test_more_samples_leave_those_there_as_they_are(tmp_path: Path) -> None:
    """In float32 too, and on a grid on which products of other batches round otherwise."""
    settings = {"precision": "float32", "degrees": 22, "rows": 24, "columns": 48, "spin_up": 2, "frames": 2}
    first = flow(samples=5, **settings).trajectories(folder=tmp_path)
    more = flow(samples=8, **settings).trajectories(folder=tmp_path)
    np.testing.assert_array_equal(more[:5], first)
    np.testing.assert_array_equal(more, flow(samples=8, **settings).trajectories())


def test_tables_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hofno.problems.shallow_water.free_bytes", lambda _: 2**20)
    with pytest.raises(SolverError, match=r"the tables of 100 degrees need .* lower degrees"):
        flow(degrees=100).simulator()


class TestProblem:
    def test_defaults_are_those_of_the_paper(self) -> None:
        made = ShallowWater.model_validate({})
        assert (made.samples, made.train, made.valid, made.test) == (50, 40, 5, 5)
        assert (made.frames, made.rollout.history, made.rollout.horizon, made.start) == (100, 1, 99, 1)
        assert made.grid_geometry == Sphere(shape=(128, 256), nodes="equiangular")
        assert made.channels == (3, 3)
        assert made.memory_bytes() == 4 * 50 * 100 * 3 * 128 * 256
        assert "Known flaws" in CARD
        assert all(len(line) <= 120 for line in CARD.splitlines())

    @pytest.mark.parametrize(
        ("given", "counts"),
        [
            ({"samples": 30}, (30, 24, 3, 3)),
            ({"samples": 3}, (3, 1, 1, 1)),
            ({"train": 7}, (17, 7, 5, 5)),
            ({"samples": 10, "train": 6, "test": 3}, (10, 6, 1, 3)),
        ],
    )
    def test_counts(self, given: dict[str, Any], counts: tuple[int, ...]) -> None:
        made = ShallowWater(**given)
        assert (made.samples, made.train, made.valid, made.test) == counts

    def test_splits_are_views_by_trajectory(self) -> None:
        made = problem(samples=4, frames=4)
        assert made.identity() == made.flow.model_dump(exclude={"samples"})
        found = made.simulate(ignore_progress, None, "cpu")
        whole = made.flow.trajectories().reshape(4, 12, 10, 20)  # three fields of four frames
        np.testing.assert_array_equal(found.frames, whole)
        for name, rows in (("train", slice(2)), ("valid", slice(2, 3)), ("test", slice(3, 4))):
            split = found.splits[name]
            np.testing.assert_array_equal(split.x, whole[rows, :3])
            np.testing.assert_array_equal(split.y, whole[rows, 3:])
            assert np.shares_memory(split.y, found.frames)

    def test_a_dataset_holds_them(self) -> None:
        made = problem(samples=3)
        found = made.simulate(ignore_progress, None, "cpu")
        data = trajectory_dataset(found, made.grid_geometry, made.rollout, "generated", {}, made.card, None)
        assert data.train.x.shape == (1, 3, 10, 20)
        assert data.test.y.shape == (1, 6, 10, 20)
        assert (data.in_channels, data.out_channels) == (3, 3)

    def test_kept(self, tmp_path: Path) -> None:
        made = problem(samples=3)
        assert not made.is_kept(tmp_path)
        made.simulate(ignore_progress, tmp_path, "cpu")
        assert made.is_kept(tmp_path)
        assert not problem(samples=30).is_kept(tmp_path)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"samples": 2}, "greater than or equal to 3"),
            ({"samples": 10, "train": 3, "valid": 1, "test": 1}, r"samples must be train \+ valid \+ test"),
            ({"history": 100}, "history <= start and start"),
            ({"horizon": 200}, "history <= start and start"),
            ({"orography": 5000.0}, "ground must stay well below the water"),
            ({"degrees": 4}, "greater than or equal to 8"),
            ({"step": 7200.0}, "less than or equal to 3600"),
            ({"seed": 2**32}, "less than 4294967296"),
            ({"rows": 2}, "greater than or equal to 8"),
            ({"precision": "float16"}, "float64"),
            ({"depth": 3.0}, "Extra inputs"),
            ({"frames": "many"}, "valid integer"),
        ],
    )
    def test_bad_parameters(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(ValidationError, match=words):
            ShallowWater(**given)
