"""Elasticity: the law of the voids, the published set, what a split promises, and the reader of the original files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hofno.errors import DataError, SolverError
from hofno.geometry import Points
from hofno.problems import elasticity
from hofno.problems.elasticity import (
    CARD,
    TRACTION,
    Clouds,
    Elasticity,
    published_normaliser,
    published_theta,
    read_published,
    void_radius,
)
from hofno.problems.unit_cell import unit_cell, with_void
from hofno.solvers.elasticity import PlaneStress, von_mises

SPLITS = ("train", "valid", "test")
PARTS = ("coords", "y", "radii", "theta")


def small(**changes: Any) -> Elasticity:
    return Elasticity(**{"train": 3, "valid": 1, "test": 2, **changes})


def same(a: Clouds, b: Clouds, count: int) -> bool:
    return all(np.array_equal(getattr(a, part)[:count], getattr(b, part)[:count]) for part in PARTS)


class TestVoids:
    def test_radius_as_written(self) -> None:
        theta = published_theta()[:4]
        for phi in (0.0, 0.7, 3.0, -2.0):
            exponent = sum(
                (theta[:, 2 * k - 2] * math.cos(k * phi) + theta[:, 2 * k - 1] * math.sin(k * phi))
                / (math.sqrt(math.pi) * (k * k + 9))
                for k in range(1, 6)
            )
            expected = 0.2 + 0.2 / (1 + np.exp(exponent))
            found = void_radius(torch.from_numpy(theta), torch.tensor([phi], dtype=torch.float64))[:, 0]
            assert found.numpy() == pytest.approx(expected, rel=1e-13)

    def test_law_of_our_own_draws(self) -> None:
        theta = small(train=2000).theta("train") / 16
        assert np.abs(theta.mean(0)).max() < 5 / math.sqrt(2000)
        assert np.abs((theta**2).mean(0) - 1).max() < 5 * math.sqrt(2 / 2000)
        assert np.abs(np.corrcoef(theta.T) - np.eye(10)).max() < 5 / math.sqrt(2000)

    def test_streams(self) -> None:
        made = small(train=4, valid=4, test=4)
        drawn = [made.theta(split) for split in SPLITS] + [small(train=4, seed=1).theta("train")]
        assert len(np.unique(np.concatenate(drawn))) == 160
        assert np.array_equal(small(train=9).theta("train")[:4], drawn[0])

    def test_published_samples(self) -> None:
        theta = published_theta()
        assert theta.shape == (2000, 10)
        made = Elasticity(draws="published", valid=800)
        for split, (a, b) in {"train": (0, 1000), "valid": (1000, 1800), "test": (1800, 2000)}.items():
            assert np.array_equal(made.theta(split), theta[a:b])


class TestGenerate:
    def test_the_published_sample(self) -> None:
        """Sample 0 of the released file: min and max about 13.4 and 1160.9, read off a figure.

        An independent solution has 13.09 and 1162.9 with Hooke's law; Poisson's ratio 0.3 would give 7.5.
        """
        y = small(draws="published", train=1).generate()["train"].y[0, 0]
        assert y.min() == pytest.approx(13.09, abs=0.005)
        assert y.max() == pytest.approx(1162.9, abs=0.1)
        y = small(draws="published", train=1, strain="finite").generate()["train"].y[0, 0]
        assert y.min() == pytest.approx(13.08, abs=0.01)
        assert y.max() == pytest.approx(1162.4, abs=0.1)

    def test_parts_belong_together(self) -> None:
        """The points are the Gauss points of the sheet whose void `radii` describes, the target is its stress there."""
        made = small()
        found = made.generate()["train"]
        assert [getattr(found, part).shape for part in PARTS] == [(3, 2, 972), (3, 1, 972), (3, 42), (3, 10)]
        assert all(getattr(found, part).dtype == np.float32 for part in PARTS)
        mesh = unit_cell()
        solver, theta = made.solver(mesh), torch.from_numpy(made.theta("train"))
        assert isinstance(solver, PlaneStress)
        nodes = with_void(mesh.nodes, void_radius(theta, torch.atan2(*(mesh.nodes - 0.5).flip(-1).T)))
        u = solver.solve(nodes, TRACTION)
        np.testing.assert_allclose(found.y[:, 0], von_mises(solver.stress(nodes, u)), rtol=1e-6)
        np.testing.assert_allclose(found.coords, solver.points(nodes).mT, rtol=1e-6)
        np.testing.assert_allclose(solver.reaction(nodes, u, TRACTION).sum(1), [[0, -100.0]] * 3, atol=1e-8)
        assert found.radii is not None
        np.testing.assert_allclose(found.radii[:, 0], found.radii[:, -1], rtol=1e-6)
        offset = found.coords - 0.5
        rho, angle = np.hypot(*offset.transpose(1, 0, 2)), np.arctan2(offset[:, 1], offset[:, 0]) % (2 * np.pi)
        for sample in range(3):
            inside = np.interp(angle[sample], np.linspace(0, 2 * np.pi, 42), found.radii[sample])
            assert (rho[sample] > inside - 1e-3).all()
            assert (rho[sample] / inside).min() < 1.03

    def test_more_samples_extend_a_split(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(elasticity._GROUP, "cpu", 2)
        few, many = small().generate(), small(train=4, valid=3, test=5).generate()
        assert all(same(few[split], many[split], count) for split, count in zip(SPLITS, (3, 1, 2), strict=True))

    def test_the_same_bytes_again_and_others_for_other_parameters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(elasticity._GROUP, "cpu", 2)
        first, again = small().generate(), small().generate()
        assert all(same(first[split], again[split], 3) for split in SPLITS)
        for change in ({"seed": 1}, {"draws": "published"}):
            other = small(**change).generate()
            assert not np.isclose(first["train"].y, other["train"].y).all(-1).any()
        finite = small(strain="finite").generate()["train"]
        assert np.array_equal(finite.coords, first["train"].coords)
        difference = np.linalg.norm(finite.y - first["train"].y) / np.linalg.norm(first["train"].y)
        assert 1e-4 < difference < 3e-3

    def test_threads_change_nothing(self) -> None:
        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                found.append(small(train=17).generate()["train"])
                assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert same(found[0], found[1], 17)

    def test_progress(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(elasticity._GROUP, "cpu", 2)
        seen: list[tuple[str, int, int]] = []
        small().generate(lambda *call: seen.append(call))
        assert seen == [("generate", done, 6) for done in (2, 3, 4, 6)]

    def test_little_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        solver = small().solver(unit_cell())
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        assert elasticity._group(solver) == (8, 3)
        for samples, expected in ((31, (8, 3)), (21, (8, 2)), (11, (8, 1)), (9, (4, 1)), (3, (2, 1)), (0, (1, 1))):
            monkeypatch.setattr(elasticity, "free_bytes", lambda device, n=samples: n * solver.bytes_per_sample())
            assert elasticity._group(solver) == expected
        monkeypatch.setattr(elasticity, "free_bytes", lambda device: None)
        assert elasticity._group(solver) == (8, 3)
        monkeypatch.setattr(elasticity, "free_bytes", lambda device: 1000)
        with pytest.raises(DataError, match=r"these clouds need about .* ask for fewer samples"):
            small().generate()

    def test_a_failure_says_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(elasticity, "TRACTION", (0.0, 1e5))
        with pytest.raises(SolverError, match=r"train samples from 0 on: the residual of sample \d of the batch"):
            small(strain="finite").generate()

    def test_parameters(self) -> None:
        assert small().channels == (0, 1)
        assert small().grid_geometry == Points(count=972, low=(0.0, 0.0), high=(1.0, 1.0))
        assert small().memory_bytes() == 4 * 6 * (3 * 972 + 42 + 10)
        assert small().parameters() == {
            **{"train": 3, "valid": 1, "test": 2, "seed": 0},
            **{"draws": "own", "strain": "linear"},
        }
        wrong = ({"train": 0}, {"seed": -1}, {"seed": 2**32}, {"draws": "julia"}, {"strain": "plastic"}, {"nu": 0.3})
        for change in wrong:
            with pytest.raises(ValidationError):
                small(**change)
        for change, message in (
            ({"train": 1001}, "has 1000 samples for train; got train=1001"),
            ({"valid": 801}, "has 800 samples for valid"),
            ({"test": 201}, "has 200 samples for test"),
            ({"seed": 1}, "without a seed; got seed=1"),
        ):
            with pytest.raises(ValidationError, match=message):
                small(draws="published", **change)

    def test_card(self) -> None:
        words = ("Equation", "Cost", "Known flaws", "13.09", "1162.9", "187.7", "127.1", "972", "published")
        assert all(word in CARD for word in words)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the published names and shapes: a sample and point can be told from every number."""
    folder = tmp_path_factory.mktemp("elasticity") / "Meshes"
    folder.mkdir()
    point, sample = np.arange(972.0)[:, None], np.arange(2000.0)
    np.save(folder / "Random_UnitCell_XY_10.npy", np.stack((point + sample / 4096, -point - sample / 4096), 1))
    np.save(folder / "Random_UnitCell_sigma_10.npy", np.asfortranarray((2 * point + sample / 4096).astype(np.float32)))
    np.save(folder / "Random_UnitCell_rr_10.npy", np.arange(42.0)[:, None] + sample / 4096)
    np.save(folder / "Random_UnitCell_theta_10.npy", np.arange(10.0) + sample[:, None] / 4096)
    return folder


class TestReader:
    def test_splits(self, original: Path) -> None:
        for folder in (original, str(original.parent)):
            found = read_published(folder)
            for split, (a, b) in {"train": (0, 1000), "valid": (1000, 1800), "test": (1800, 2000)}.items():
                sample = np.arange(a, b)[:, None] / 4096
                clouds = found[split]
                assert np.array_equal(clouds.coords[:, 0], np.arange(972) + sample)
                assert np.array_equal(clouds.coords[:, 1], -np.arange(972) - sample)
                assert np.array_equal(clouds.y[:, 0], 2 * np.arange(972) + sample)
                assert clouds.radii is not None
                assert clouds.theta is not None
                assert np.array_equal(clouds.radii, np.arange(42) + sample)
                assert np.array_equal(clouds.theta, np.arange(10) + sample)
                assert all(getattr(clouds, part).dtype == np.float32 for part in PARTS)
                assert all(getattr(clouds, part).flags.c_contiguous for part in PARTS)

    def test_files_that_may_be_missing(self, original: Path, tmp_path: Path) -> None:
        for part in ("XY", "sigma"):
            (tmp_path / f"Random_UnitCell_{part}_10.npy").symlink_to(original / f"Random_UnitCell_{part}_10.npy")
        found = read_published(tmp_path)["test"]
        assert found.radii is None
        assert found.theta is None
        (tmp_path / "Random_UnitCell_sigma_10.npy").unlink()
        with pytest.raises(DataError, match=r"sigma_10\.npy is missing; check the path"):
            read_published(tmp_path)

    def test_cut_and_foreign_files(self, original: Path, tmp_path: Path) -> None:
        sigma = tmp_path / "Random_UnitCell_sigma_10.npy"
        (tmp_path / "Random_UnitCell_XY_10.npy").symlink_to(original / "Random_UnitCell_XY_10.npy")
        whole = (original / "Random_UnitCell_sigma_10.npy").read_bytes()
        for content in (b"", whole[:5], whole[:60], whole[:128], whole[:-1], whole + b"1", b"x" * 4000):
            sigma.write_bytes(content)
            with pytest.raises(DataError, match=r"sigma_10\.npy") as caught:
                read_published(tmp_path)
            assert "\n" not in str(caught.value)

    def test_other_contents(self, original: Path, tmp_path: Path) -> None:
        sigma = tmp_path / "Random_UnitCell_sigma_10.npy"
        (tmp_path / "Random_UnitCell_XY_10.npy").symlink_to(original / "Random_UnitCell_XY_10.npy")
        values = np.ones((972, 2000), np.float32)
        not_finite = values.copy()
        not_finite[3, 4] = np.nan
        for content, message in (
            (values.T, r"holds float32 of shape \(2000, 972\), expected \(972, 2000\)"),
            (values[:, :1999], r"of shape \(972, 1999\)"),
            (values.astype(np.int32), "must hold real numbers; got int32"),
            (values.astype(complex), "must hold real numbers; got complex128"),
            (not_finite, "finite numbers"),
        ):
            np.save(sigma, content)
            with pytest.raises(DataError, match=message):
                read_published(tmp_path)
        with sigma.open("wb") as file:
            np.savez(file, sigma=values)
        with pytest.raises(DataError, match=r"sigma_10\.npy is an archive"):
            read_published(tmp_path)
        np.save(sigma, np.array([{"a": 1}], object), allow_pickle=True)
        with pytest.raises(DataError, match="Python objects"):
            read_published(tmp_path)
        sigma.unlink()
        sigma.mkdir()
        with pytest.raises(DataError, match="not a file"):
            read_published(tmp_path)


def test_published_normalisers() -> None:
    y = np.random.default_rng(0).normal(187, 127, (50, 1, 972)).astype(np.float32)
    tensor = torch.from_numpy(y[:, 0]).double()
    shift, scale = published_normaliser(y, "lamo")
    assert shift == pytest.approx(float(tensor.mean((0, 1))), rel=1e-12)
    assert scale == pytest.approx(float(tensor.std((0, 1))) + 1e-8, rel=1e-12)
    assert published_normaliser(y, "ho_fno") == (0.0, 1.0)
