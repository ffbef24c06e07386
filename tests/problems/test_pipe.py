"""Pipe: the law of the centreline, the mesh, seeds and groups, memory, the reader, and the published normalisers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.interpolate import CubicHermiteSpline

from hofno.data.normalise import ChannelNormaliser
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import DataError, SolverError
from hofno.geometry import Mesh
from hofno.problems import groups
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.pipe import CARD, FILES, Pipe, centreline, read_published

SMALL: dict[str, Any] = {"train": 3, "valid": 2, "test": 1, "resolution": 9, "cells": 16, "modes": 6}


def problem(**changes: Any) -> Pipe:
    return Pipe(**{**SMALL, **changes})


def made(**changes: Any) -> dict[str, Arrays]:
    return problem(**changes).generate(ignore_progress)


class TestCentreline:
    def test_it_is_the_hermite_spline(self) -> None:
        """Heights and slopes at the knots; the slopes are those in the variable of the unit interval."""
        draws = np.stack([problem().draws(0, sample) for sample in range(3)])
        x = np.linspace(0, 10, 401)
        found = centreline(torch.from_numpy(draws))(torch.from_numpy(x))
        for sample, (*heights, a, b, c, d, e) in enumerate(draws):
            spline = CubicHermiteSpline(2.5 * np.arange(5), [0, *heights], np.array([a, b, c, d, e]) / 2.5)
            for order, part in enumerate(found):
                np.testing.assert_allclose(part[sample].numpy(), spline(x, order), rtol=0, atol=1e-12)

    def test_law(self) -> None:
        """Heights uniform on [-1, 1], slopes on [-2, 2], all independent: 2000 draws."""
        draws = np.stack([Pipe().draws(0, sample) for sample in range(2000)])
        limits = np.array([1.0] * 4 + [2.0] * 5)
        assert (np.abs(draws).max(0) <= limits).all()
        assert (np.abs(draws).max(0) > 0.99 * limits).all()
        unit = draws / limits
        assert np.abs(unit.mean(0)).max() < 5 / math.sqrt(3 * 2000)
        assert unit.var(0) == pytest.approx([1 / 3] * 9, rel=0.1)
        assert np.abs(np.corrcoef(unit.T) - np.eye(9)).max() < 5 / math.sqrt(2000)

    def test_streams(self) -> None:
        first = Pipe().draws(0, 0)
        assert np.array_equal(first, Pipe(train=7).draws(0, 0))
        for other in (Pipe().draws(0, 1), Pipe().draws(1, 0), Pipe(seed=1).draws(0, 0)):
            assert not np.isclose(first, other).any()


class TestSamples:
    def test_mesh_and_velocity(self) -> None:
        """x uniform on axis 1, y sheared by the centreline on axis 2; the flow at those very points."""
        splits, whole = made(), problem()
        for stream, (name, part) in enumerate(splits.items()):
            count = getattr(whole, name)
            assert part.x.shape == (count, 2, 9, 9)
            assert part.y.shape == (count, 1, 9, 9)
            assert part.x.dtype == part.y.dtype == np.float32
            x, eta = np.linspace(0, 10, 9), np.linspace(-0.5, 0.5, 9)
            for sample in range(count):
                draws = torch.from_numpy(whole.draws(stream, sample))[None]
                line = centreline(draws)(torch.from_numpy(x))[0][0].numpy()
                np.testing.assert_allclose(part.x[sample, 0], np.repeat(x[:, None], 9, 1), rtol=0, atol=1e-6)
                np.testing.assert_allclose(part.x[sample, 1], line[:, None] + eta, rtol=0, atol=1e-6)
                solver = whole.solver()
                u, _ = solver.velocity(solver.solve(centreline(draws)), torch.from_numpy(eta))
                at = [int(np.argmin(np.abs(solver.stations.numpy() - place))) for place in x]
                np.testing.assert_allclose(part.y[sample, 0], u[0, at].numpy(), rtol=0, atol=1e-6)

    def test_default_accuracy(self) -> None:
        """Two samples of the published size: inlet, walls, flux 1/6 at each section, and nearly the finer solution."""
        usual, better = Pipe(), Pipe(cells=256, modes=32)
        draws = torch.from_numpy(np.stack([usual.draws(0, sample) for sample in range(2)]))
        nodes, velocity, flow = usual.fields(draws, usual.solver())
        assert nodes.shape == velocity.shape == (2, 2, 129, 129)
        assert flow.converged.all()
        u, v = velocity.unbind(1)
        t = torch.linspace(0, 1, 129, dtype=torch.float64)
        torch.testing.assert_close(u[:, 0], (t * (1 - t)).expand(2, -1), rtol=0, atol=1e-12)
        assert float(u[..., [0, -1]].abs().max()) < 1e-12
        assert float(v[:, 0].abs().max()) < 2e-3
        flux = torch.trapezoid(u, dx=1 / 128)
        torch.testing.assert_close(flux, torch.full_like(flux, 1 / 6), rtol=1e-3, atol=0)
        other = better.fields(draws[:1], better.solver())[1][:, 0]
        assert float((u[:1] - other).norm() / other.norm()) < 2e-4

    def test_the_most_that_is_taken_is_resolved(self) -> None:
        height, slope = 5.0, 10.0
        with pytest.raises(ValidationError):
            Pipe(height=1.01 * height, slope=1.01 * slope)
        coarse, fine = (
            Pipe(cells=cells, modes=modes, height=height, slope=slope, resolution=33, train=3, valid=1, test=1)
            for cells, modes in ((128, 24), (192, 32))
        )
        found, expected = (part.generate(ignore_progress)["train"].y.reshape(3, -1) for part in (coarse, fine))
        apart = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
        assert 1e-4 < apart.max() < 0.01

    def test_all_stations_are_found(self) -> None:
        """Stored points are stations of the solver, whatever the stride and the halved elements at both ends."""
        for resolution in (3, 5, 9, 17):
            whole = problem(resolution=resolution)
            nodes, _, _ = whole.fields(torch.zeros(1, 9, dtype=torch.float64), whole.solver())
            np.testing.assert_allclose(nodes[0, 0, :, 0].numpy(), np.linspace(0, 10, resolution), rtol=0, atol=1e-12)

    def test_the_same_bytes_and_more_samples_extend(self) -> None:
        short, again, long = made(), made(), made(train=4, valid=3)
        for name, part in short.items():
            for other in (again[name], long[name]):
                assert np.array_equal(part.x, other.x[: len(part.x)])
                assert np.array_equal(part.y, other.y[: len(part.y)])

    def test_any_number_of_threads_gives_the_same_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = made(train=6)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        assert np.array_equal(one["train"].y, made(train=6)["train"].y)

    def test_every_parameter_changes_the_numbers(self) -> None:
        base = made()["train"]
        changes = ({"viscosity": 0.01}, {"height": 0.5}, {"slope": 1.0}, {"seed": 1}, {"cells": 24}, {"modes": 8})
        for change in changes:
            assert not np.array_equal(made(**change)["train"].y, base.y), change
        assert made(resolution=5)["train"].y == pytest.approx(base.y[..., ::2, ::2], abs=1e-6)

    def test_progress_and_interruption(self) -> None:
        seen: list[tuple[str, int, int]] = []
        problem().generate(lambda *news: seen.append(news))
        assert seen == [("generate", done, 6) for done in (2, 3, 5, 6)]

        def stop(stage: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            problem().generate(stop)

    def test_a_failure_says_which_and_what_to_do(self) -> None:
        with pytest.raises(
            SolverError, match=r"^train samples from \d+ on: the flow of sample \d+ was not found .* raise viscosity"
        ):
            made(viscosity=1e-6)

    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = problem()
        parts = whole.generate(ignore_progress).values()
        assert whole.memory_bytes() == sum(part.x.nbytes + part.y.nbytes for part in parts)
        monkeypatch.setattr(groups, "free_bytes", lambda device: 100)
        with pytest.raises(SolverError, match=r"one sample needs .* lower cells or modes"):
            made()

    def test_running_out_of_memory_halves_the_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes, plain = [], Pipe.fields

        def greedy(self: Pipe, draws: torch.Tensor, solver: Any) -> Any:
            sizes.append(len(draws))
            if len(draws) > 1:
                raise torch.OutOfMemoryError
            return plain(self, draws, solver)

        expected = made()
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(Pipe, "fields", greedy)
        found = made()
        assert set(sizes) == {1, 2}
        np.testing.assert_allclose(found["train"].y, expected["train"].y, rtol=0, atol=1e-6)
        monkeypatch.setattr(Pipe, "fields", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
        with pytest.raises(SolverError, match="one sample needs"):
            made()

    def test_bad_parameters(self) -> None:
        wrong = ({"resolution": 8}, {"cells": 18}, {"viscosity": 0}, {"height": -1}, {"modes": 2}, {"width": 1})
        for change in (*wrong, {"height": 5.1}, {"slope": 10.1}, {"seed": 2**32}):
            with pytest.raises(ValidationError):
                problem(**change)
        with pytest.raises(ValidationError, match="one of 129, 65, 33, 17, 9, 5, points at ends of the 128 elements"):
            Pipe(resolution=100)

    def test_description(self) -> None:
        assert Pipe().grid_geometry == Mesh(shape=(129, 129))
        assert Pipe().channels == (2, 1)
        assert Pipe.card == CARD
        for word in ("Equation", "Solver", "Cost", "Known flaws", "released files"):
            assert word in CARD


@pytest.fixture
def originals(tmp_path: Path) -> dict[str, np.ndarray]:
    """Files as published, cut after sample 1201; all samples but 0, 1, 1000, 1200 and 1201 are 0."""
    files = {}
    for name, shape in zip(FILES, ((1202, 129, 129), (1202, 129, 129), (1202, 3, 129, 129)), strict=True):
        files[name] = np.lib.format.open_memmap(tmp_path / name, "w+", np.float64, shape)
    x, y, q = files.values()
    rng = np.random.default_rng(0)
    for sample in (0, 1, 1000, 1200, 1201):
        x[sample] = np.linspace(0, 10, 129)[:, None]
        y[sample] = rng.normal(size=(129, 1)) + np.linspace(-0.5, 0.5, 129)
        q[sample] = rng.normal(size=(3, 129, 129))
    return files


SIZES: dict[str, int] = {"train": 2, "valid": 2, "test": 1}


class TestReader:
    def test_names_and_splits(self, originals: dict[str, np.ndarray], tmp_path: Path) -> None:
        x, y, q = originals.values()
        for folder in (tmp_path, str(tmp_path)):
            splits = read_published(folder, **SIZES)
            for name, rows in (("train", [0, 1]), ("test", [1000]), ("valid", [1200, 1201])):
                part = splits[name]
                assert part.x.dtype == part.y.dtype == np.float32
                assert np.array_equal(part.x[:, 0], x[rows].astype(np.float32))
                assert np.array_equal(part.x[:, 1], y[rows].astype(np.float32))
                assert np.array_equal(part.y, q[rows, :1].astype(np.float32))

    def test_counts(self, originals: dict[str, np.ndarray], tmp_path: Path) -> None:
        for sizes, message in (
            ({"train": 1001}, "1 to 1000 samples for train; got train=1001"),
            ({"test": 201}, "1 to 200 samples for test"),
            ({"valid": 1111}, "0 to 1110 samples for valid"),
            ({"valid": -1}, "got valid=-1"),
            ({"valid": 3}, "holds 1202 samples, 1203 are asked for"),
        ):
            with pytest.raises(DataError, match=message):
                read_published(tmp_path, **{**SIZES, **sizes})

    def test_other_contents(self, originals: dict[str, np.ndarray], tmp_path: Path) -> None:
        x, _, q = originals.values()
        q[1000, 0, 5, 5] = np.nan
        with pytest.raises(DataError, match="the test samples hold values that are not finite"):
            read_published(tmp_path, **SIZES)
        q[1000, 0, 5, 5] = 0.0
        x[1] = x[1].T.copy()
        with pytest.raises(DataError, match="x must increase on axis 1"):
            read_published(tmp_path, **SIZES)
        for name, values, message in (
            (FILES[0], np.zeros((3, 129)), r"expected X and Y of shape \(n, 129, 129\)"),
            (FILES[2], np.zeros((3, 3, 129, 65)), r"Q of shape \(n, 3, 129, 129\)"),
            (FILES[1], np.zeros((3, 129, 129), np.int32), "must hold real numbers"),
            (FILES[1], np.float64(1.0), "must hold real numbers"),
        ):
            for part in FILES:
                np.save(tmp_path / part, np.zeros((3, 3, 129, 129) if "Q" in part else (3, 129, 129)))
            np.save(tmp_path / name, values)
            with pytest.raises(DataError, match=message):
                read_published(tmp_path, **SIZES)

    def test_cut_and_foreign_files(self, tmp_path: Path) -> None:
        for part in FILES:
            np.save(tmp_path / part, np.zeros((3, 3, 129, 129) if "Q" in part else (3, 129, 129)))
        path = tmp_path / FILES[1]
        whole = path.read_bytes()
        for content in (b"", b"PK\x03\x04" * 30, whole[:50], whole[:1000], whole[:-8]):
            path.write_bytes(content)
            with pytest.raises(DataError, match="get the file again") as caught:
                read_published(tmp_path)
            assert "\n" not in str(caught.value)
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match="get the file again"):
            read_published(tmp_path)
        path.unlink()
        with pytest.raises(DataError, match="is missing"):
            read_published(tmp_path)
        path.mkdir()
        with pytest.raises(DataError, match="not a file"):
            read_published(tmp_path)


def test_published_normalisers() -> None:
    """Mean and deviation over axes 0 and 1: of (n, points, c) in LaMO, and of (n, along, across, c) in HO-FNO."""
    part = made(train=6)["train"]
    grids = torch.from_numpy(part.x).permute(0, 2, 3, 1)  # (n, along, across, c)
    flat = grids.flatten(1, 2)
    expected = (flat - flat.mean((0, 1))) / (flat.std((0, 1)) + 1e-8)
    found = ChannelNormaliser.fit(torch.from_numpy(part.x)).encode(torch.from_numpy(part.x))
    torch.testing.assert_close(found.permute(0, 2, 3, 1).flatten(1, 2), expected, rtol=1e-4, atol=1e-5)
    for fields in (torch.from_numpy(part.x), torch.from_numpy(part.y)):
        grids = fields.double().permute(0, 2, 3, 1)
        expected = (grids - grids.mean((0, 1), keepdim=True)) / (grids.std((0, 1), keepdim=True) + 1e-8)
        found = PointwiseNormaliser.fit(fields, "column").encode(fields)
        torch.testing.assert_close(found.permute(0, 2, 3, 1).double(), expected, rtol=1e-4, atol=1e-4)
