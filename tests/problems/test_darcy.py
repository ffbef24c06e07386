"""Darcy: the law of the coefficient, seeds and groups, strides, memory, and the reader of the original files."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.fft
import scipy.io
import torch
from pydantic import ValidationError

from hofno.errors import DataError, SolverError
from hofno.problems import darcy, groups
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.darcy import CARD, FILES, Darcy, read_published
from hofno.solvers.darcy import bytes_per_field, solve_darcy

SMALL: dict[str, Any] = {"train": 3, "valid": 2, "test": 1, "resolution": 8, "solver_resolution": 22}


def problem(**changes: Any) -> Darcy:
    return Darcy(**{**SMALL, **changes})


def made(**changes: Any) -> dict[str, Arrays]:
    return problem(**changes).generate(ignore_progress)


def same(one: Arrays, other: Arrays) -> bool:
    return np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


class TestCoefficient:
    def test_it_is_the_cosine_transform_as_published(self) -> None:
        """K idct2(3 (pi^2 |k|^2 + 9)^-1 xi) with the mean removed, by an orthonormal transform."""
        n = 22
        draws = np.random.default_rng(0).normal(size=(2, n, n))
        k = np.arange(n)
        spectrum = 3 / (math.pi**2 * (k[:, None] ** 2 + k**2) + 9)
        spectrum[0, 0] = 0
        expected = n * scipy.fft.idctn(spectrum * draws, axes=(1, 2), norm="ortho")
        found = problem().field(torch.from_numpy(draws)).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_tau_and_alpha(self) -> None:
        draws = torch.ones(1, 22, 22, dtype=torch.float64)
        k = np.arange(22)
        spectrum = 2**0.5 * (math.pi**2 * (k[:, None] ** 2 + k**2) + 4) ** -0.75
        spectrum[0, 0] = 0
        found = problem(tau=2.0, alpha=1.5).field(draws)[0].numpy()
        np.testing.assert_allclose(found, 22 * scipy.fft.idctn(spectrum, norm="ortho"), rtol=0, atol=1e-12)

    def test_a_finer_grid_continues_the_same_field(self) -> None:
        coarse, fine = problem(solver_resolution=22).draws(0, 5), problem(solver_resolution=43).draws(0, 5)
        assert np.array_equal(fine[:22, :22], coarse)

    def test_draws_are_standard_normal_and_independent(self) -> None:
        draws = np.stack([problem().draws(stream, sample) for stream in range(3) for sample in range(200)])
        assert np.abs(draws.mean(0)).max() < 5 / math.sqrt(600)
        assert np.abs((draws**2).mean(0) - 1).max() < 5 * math.sqrt(2 / 600)
        rows = draws.reshape(600, -1)
        assert np.abs(rows @ rows.T / rows.shape[1] - np.eye(600)).max() < 0.35

    def test_two_values_with_equal_chance(self) -> None:
        x = np.concatenate([a.x for a in made(train=300, scheme="finite_volume").values()])
        assert set(np.unique(x)) == {3.0, 12.0}
        assert x.mean() == pytest.approx(7.5, abs=0.2)
        other = np.concatenate([a.x for a in made(upper=2.0, lower=1.0).values()])
        assert set(np.unique(other)) == {1.0, 2.0}

    def test_values_are_not_rounded_before_they_are_solved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        solved: list[torch.Tensor] = []
        monkeypatch.setattr(darcy, "solve_darcy", lambda a, scheme: solved.append(a) or a)
        made(upper=0.7, lower=0.1)
        assert set(torch.cat(solved).unique().tolist()) == {0.1, 0.7}


class TestGenerate:
    @pytest.mark.parametrize("scheme", ["published", "finite_volume"])
    def test_samples_are_strided_solutions(self, scheme: Any) -> None:
        given = problem(scheme=scheme)
        splits = given.generate(ignore_progress)
        assert [(len(a.x), a.x.shape[1:], a.y.shape[1:]) for a in splits.values()] == [
            (count, (1, 8, 8), (1, 8, 8)) for count in (3, 2, 1)
        ]
        assert {a.x.dtype for a in splits.values()} | {a.y.dtype for a in splits.values()} == {np.dtype(np.float32)}
        for stream, name in enumerate(("train", "valid", "test")):
            draws = np.stack([given.draws(stream, sample) for sample in range(len(splits[name].x))])
            a = torch.where(given.field(torch.from_numpy(draws)) >= 0, 12.0, 3.0)
            assert np.array_equal(splits[name].x[:, 0], a[:, ::3, ::3].numpy())
            expected = solve_darcy(a, scheme)[:, ::3, ::3].numpy()
            np.testing.assert_allclose(splits[name].y[:, 0], expected, rtol=1e-6, atol=1e-12)

    def test_the_same_bytes_and_more_samples_extend(self) -> None:
        base, again, longer = made(), made(), made(train=11, valid=4, test=2)
        for name, arrays in base.items():
            assert same(arrays, again[name])
            count = len(arrays.x)
            assert same(arrays, Arrays(longer[name].x[:count], longer[name].y[:count]))
        assert not np.array_equal(base["train"].x[:2], base["valid"].x)

    def test_every_parameter_changes_the_numbers(self) -> None:
        base = made()["train"]
        changes: tuple[dict[str, Any], ...] = (
            {"seed": 1},
            {"scheme": "finite_volume"},
            {"upper": 11.0},
            {"lower": 4.0},
            {"tau": 9.0},
            {"alpha": 3.0},
            {"solver_resolution": 29},
        )
        for change in changes:
            assert not np.array_equal(made(**change)["train"].y, base.y), change

    @pytest.mark.parametrize("group", [1, 2, 4])
    def test_any_group_gives_the_same_numbers(self, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = made(train=5)
        monkeypatch.setitem(darcy._GROUP, "cpu", (2**18, group))
        for name, arrays in made(train=5).items():
            np.testing.assert_array_equal(arrays.x, whole[name].x)
            np.testing.assert_allclose(arrays.y, whole[name].y, rtol=1e-6, atol=0)

    def test_a_sample_has_one_place_in_one_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(darcy._GROUP, "cpu", (2**18, 2))
        batches: list[torch.Tensor] = []

        def watch(a: torch.Tensor, scheme: Any) -> torch.Tensor:
            batches.append(a)
            return a

        monkeypatch.setattr(darcy, "solve_darcy", watch)
        made(train=3, valid=1, test=1)
        assert [len(a) for a in batches] == [2, 2, 2, 2]
        assert [bool((a[1] == 12).all()) for a in batches] == [False, True, True, True]

    def test_progress(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(darcy._GROUP, "cpu", (2**18, 2))
        seen: list[tuple[str, int, int]] = []
        problem().generate(lambda *args: seen.append(args))
        assert seen == [("generate", done, 6) for done in (2, 3, 5, 6)]

    def test_too_little_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(groups, "free_bytes", lambda device: bytes_per_field(22) - 1)
        with pytest.raises(SolverError, match=r"one sample at solver_resolution=22 needs .* GiB"):
            made()

    def test_any_number_of_threads_gives_the_same_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(darcy._GROUP, "cpu", (2**18, 2))
        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found.append(made(train=7, solver_resolution=64, resolution=64))
                assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        assert all(same(found[0][name], other[name]) for other in found[1:] for name in other)

    def test_running_out_of_memory_halves_the_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole, solve = made(), solve_darcy

        def small(a: torch.Tensor, scheme: Any, most: int = 1) -> torch.Tensor:
            if len(a) > most:
                raise torch.OutOfMemoryError
            return solve(a, scheme)

        monkeypatch.setattr(darcy, "solve_darcy", small)
        for name, arrays in made().items():
            np.testing.assert_allclose(arrays.y, whole[name].y, rtol=1e-6, atol=0)
        monkeypatch.setattr(darcy, "solve_darcy", lambda a, scheme: small(a, scheme, 0))
        with pytest.raises(SolverError, match="one sample at solver_resolution=22 needs"):
            made()

    def test_an_interruption_leaves_no_thread_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(stage: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        before = threading.active_count(), torch.get_num_threads()
        with pytest.raises(KeyboardInterrupt):
            problem(train=100).generate(stop)
        assert (threading.active_count(), torch.get_num_threads()) == before

    def test_a_failure_says_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(a: torch.Tensor, scheme: Any) -> torch.Tensor:
            raise SolverError("no")

        monkeypatch.setattr(darcy, "solve_darcy", fail)
        with pytest.raises(SolverError, match="train samples from 0 on: no"):
            made()

    def test_a_meaningless_solution_says_where_and_what_to_do(self) -> None:
        with pytest.raises(SolverError, match=r"^train samples from \d+ on: sample \d of the batch has no meaningful"):
            made(upper=30.0, train=40)
        assert made(upper=30.0, train=40, scheme="finite_volume")["train"].y.min() > 0

    @pytest.mark.parametrize(("tau", "alpha"), [(0.01, 20.0), (1000.0, 20.0), (0.01, 1.01), (1000.0, 1.01)])
    def test_fields_at_the_limits_of_the_law(self, tau: float, alpha: float) -> None:
        x = made(tau=tau, alpha=alpha, scheme="finite_volume", train=20)["train"].x
        assert (x == 12).mean() == pytest.approx(0.5, abs=0.1)


class TestDescription:
    def test_published_strides(self) -> None:
        assert all(Darcy(resolution=n).resolution == n for n in (85, 141, 211, 421))
        with pytest.raises(ValidationError, match=r"strided grid of the 421 points, one of 421, 211, 141, 106, 85, 71"):
            Darcy(resolution=64)

    def test_description(self) -> None:
        given = Darcy()
        assert (given.train, given.test, given.resolution, given.solver_resolution) == (1000, 200, 85, 421)
        assert given.channels == (1, 1)
        assert (given.grid_geometry.shape, given.grid_geometry.periodic) == ((85, 85), False)
        splits = made()
        assert problem().memory_bytes() == sum(a.x.nbytes + a.y.nbytes for a in splits.values())
        assert all(word in CARD for word in ("Equation", "Cost", "Known flaws", "6.95e-3", "5.17e-5"))

    def test_bad_parameters(self) -> None:
        wrong = ({"upper": 0.0}, {"lower": -1.0}, {"scheme": "spectral"}, {"train": 0}, {"alpha": 1.0}, {"contrast": 4})
        beyond = ({"upper": 1e7}, {"lower": 1e-7}, {"tau": 1e-3}, {"tau": 1e4}, {"alpha": 400.0})
        for change in wrong + beyond:
            with pytest.raises(ValidationError):
                problem(**change)


def write(folder: Path, index: int, coeff: np.ndarray, sol: np.ndarray, version: str = "v5") -> Path:
    path = folder / FILES[index]
    if version == "v5":
        content = {"coeff": coeff, "sol": sol, "Kcoeff": coeff.astype(float)}
        scipy.io.savemat(path, content, do_compression=True)
    else:
        with h5py.File(path, "w", userblock_size=512) as file:
            file.create_dataset("coeff", data=coeff.T)
            file.create_dataset("sol", data=sol.T)
    return path


@pytest.fixture
def originals() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    shape = (206, 7, 7)
    return [
        (rng.choice([3.0, 12.0], shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)) for _ in FILES
    ]


class TestReader:
    @pytest.mark.parametrize("version", ["v5", "v73"])
    @pytest.mark.parametrize(("resolution", "stride"), [(7, 1), (4, 2), (3, 3)])
    def test_names_keys_strides_and_splits(
        self, version: str, resolution: int, stride: int, originals: list[Any], tmp_path: Path
    ) -> None:
        for index, pair in enumerate(originals):
            write(tmp_path, index, *pair, version)
        splits = read_published(tmp_path, resolution, train=20, valid=3, test=5)
        where = {"train": (0, slice(0, 20)), "test": (1, slice(0, 5)), "valid": (1, slice(200, 203))}
        assert set(splits) == set(where)
        for name, (file, part) in where.items():
            for found, original in zip((splits[name].x, splits[name].y), originals[file], strict=True):
                assert found.dtype == np.float32
                assert found.flags.c_contiguous
                assert np.array_equal(found, original[part, None, ::stride, ::stride])

    def test_validation_never_overlaps_a_longer_test(self, originals: list[Any], tmp_path: Path) -> None:
        for index, pair in enumerate(originals):
            write(tmp_path, index, *pair)
        splits = read_published(str(tmp_path), 7, train=1, valid=2, test=203)
        assert np.array_equal(splits["valid"].x[:, 0], originals[1][0][203:205])
        assert len(splits["test"].x) == 203

    def test_bad_files(self, originals: list[Any], tmp_path: Path) -> None:
        def refused(message: str, **sizes: int) -> None:
            with pytest.raises(DataError, match=message) as caught:
                read_published(tmp_path, **{"resolution": 7, "train": 9, "valid": 2, "test": 3, **sizes})
            assert "\n" not in str(caught.value)

        refused("check the path")
        (coeff, sol), second = originals
        path = write(tmp_path, 0, coeff, sol)
        write(tmp_path, 1, *second)
        refused("strided grid of the 7 points, one of 7, 4, 3, 2; got 5", resolution=5)
        refused("strided grid of the 7 points, .*; got 13", resolution=13)
        refused("holds 206 samples, 207 are asked for", train=207)
        refused("holds 206 samples, 210 are asked for", valid=10)
        refused("at least one sample", test=0)
        path.write_bytes(path.read_bytes()[:3000])
        refused("get it again")
        write(tmp_path, 0, sol, sol)
        refused("'coeff' must be positive")
        write(tmp_path, 0, coeff, sol[:, :, :6])
        refused("'sol' is of shape")
        write(tmp_path, 0, np.repeat(np.repeat(coeff, 2, 1), 2, 2)[:, :13, :13], sol)  # both are strided to 7 x 7
        refused(r"'coeff' is of shape \(206, 13, 13\) and 'sol' is of shape \(206, 7, 7\)")
        write(tmp_path, 0, coeff, sol[:100])
        refused(r"'sol' is of shape \(100, 7, 7\)")
        scipy.io.savemat(path, {"coeff": coeff})
        refused("expected a variable 'sol'")
