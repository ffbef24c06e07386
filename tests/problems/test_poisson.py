"""Polynomial-Source Poisson: the generator solves its equation, and its data follow the published distribution."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import axis_coordinates
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.poisson import Poisson, cosines, solve_poisson, truncate
from hofno.problems.registry import problem

SMALL: dict[str, Any] = {"resolution": 16, "k_min": 2, "k_max": 4, "waves": 8, "train": 6, "valid": 2, "test": 3}


def make(**changes: Any) -> dict[str, Arrays]:
    return Poisson(**{**SMALL, **changes}).generate(ignore_progress)


def mode(n: int, kx: int, ky: int, phase: float = 0.0) -> Tensor:
    x = torch.arange(n, dtype=torch.float64) / n
    return torch.cos(2 * math.pi * (kx * x[:, None] + ky * x[None, :]) + phase)


def laplacian(v: Tensor) -> Tensor:
    """Spectral Laplacian with the full transform, written apart from the solver's half one."""
    n = v.shape[-1]
    k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    symbol = -4 * math.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2)
    return torch.fft.ifft2(torch.fft.fft2(v) * symbol).real


class TestSolver:
    @given(n=st.integers(9, 24), kx=st.integers(-4, 4), ky=st.integers(-4, 4), phase=st.floats(0, 6))
    def test_one_mode(self, n: int, kx: int, ky: int, phase: float) -> None:
        square = kx * kx + ky * ky
        source = mode(n, kx, ky, phase)
        expected = source / (4 * math.pi**2 * square) if square else torch.zeros(n, n, dtype=torch.float64)
        torch.testing.assert_close(solve_poisson(source), expected, rtol=0, atol=1e-14)

    def test_product_of_two_modes(self) -> None:
        """cos a cos b = (cos(a+b) + cos(a-b)) / 2, each with its own |k|^2."""
        n, a, b = 32, (3, 1), (2, -4)
        v = solve_poisson(mode(n, *a) * mode(n, *b))
        plus, minus = (5, -3), (1, 5)
        expected = sum(mode(n, *k) / (8 * math.pi**2 * (k[0] ** 2 + k[1] ** 2)) for k in (plus, minus))
        torch.testing.assert_close(v, expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("n", [15, 16])
    def test_residual_and_mean(self, n: int) -> None:
        source = torch.randn(3, n, n, dtype=torch.float64)
        v = solve_poisson(source)
        torch.testing.assert_close(-laplacian(v), source - source.mean((-2, -1), keepdim=True), rtol=0, atol=1e-12)
        assert float(v.mean((-2, -1)).abs().max()) < 1e-16

    @pytest.mark.parametrize(("fine", "n"), [(40, 16), (41, 16), (40, 15), (33, 15)])
    def test_truncate_keeps_what_the_grid_resolves(self, fine: int, n: int) -> None:
        low = [(0, 0), (3, -2), (-7, 7), (0, 5)]
        field = sum(mode(fine, *k, 0.3) for k in low) + mode(fine, 8, 1) + mode(fine, 2, -12)
        expected = sum(mode(n, *k, 0.3) for k in low)
        torch.testing.assert_close(truncate(torch.as_tensor(field), n), expected, rtol=0, atol=1e-12)


class TestSampler:
    def test_cosines_against_the_plain_sum(self) -> None:
        amplitude, phase = torch.randn(2, 3, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64)
        k = torch.tensor([[[1, 2], [-3, 0], [4, -4]], [[0, 1], [2, 2], [5, -1]]], dtype=torch.float64)
        x = torch.rand(7, dtype=torch.float64)
        found = cosines(amplitude, phase, k, x)
        for b in range(2):
            plain = torch.zeros(7, 7, dtype=torch.float64)
            for j in range(3):
                angle = 2 * math.pi * (k[b, j, 0] * x[:, None] + k[b, j, 1] * x[None, :]) + phase[b, j]
                plain += amplitude[b, j] * torch.cos(angle)
            torch.testing.assert_close(found[b], plain, rtol=0, atol=1e-13)

    def test_the_annulus(self) -> None:
        lattice = Poisson().lattice()
        assert len(lattice) == 816
        assert len({tuple(k) for k in lattice.tolist()}) == 816
        radius = np.hypot(*lattice.T)
        assert radius.min() >= 8
        assert radius.max() <= 18

    def test_fields_are_standard_and_band_limited(self) -> None:
        x = make(train=5)["train"].x.astype(np.float64)
        np.testing.assert_allclose(x.mean((-2, -1)), 0, atol=1e-7)
        np.testing.assert_allclose(x.std((-2, -1), ddof=1), 1, atol=1e-5)
        spectrum = np.abs(np.fft.fft2(x)) / 256
        k = np.fft.fftfreq(16, 1 / 16)
        radius = np.hypot(k[:, None], k[None, :])
        assert spectrum[..., (radius < 2) | (radius > 4)].max() < 1e-7
        assert spectrum[..., (radius >= 2) & (radius <= 4)].max() > 0.1

    def test_amplitudes_decay(self) -> None:
        """With a steep decay the inner ring has nearly all the energy."""
        k = np.fft.fftfreq(16, 1 / 16)
        ring = np.hypot(k[:, None], k[None, :]) < 3

        def inner(decay: float) -> float:
            energy = np.abs(np.fft.fft2(make(train=20, waves=64, decay=decay)["train"].x)) ** 2
            return float(energy[..., ring].sum() / energy.sum())

        assert inner(10.0) > 0.8 > inner(0.0) + 0.2

    @pytest.mark.parametrize("degree", [1, 2, 3])
    def test_targets_solve_the_equation(self, degree: int) -> None:
        split = make(degree=degree)["test"]
        x, y = torch.from_numpy(split.x).double(), torch.from_numpy(split.y[:, 0]).double()
        source = x.prod(1)
        source = source - source.mean((-2, -1), keepdim=True)
        error = (-laplacian(y) - source).norm() / source.norm()
        assert float(error) < 1e-5
        assert float(y.mean((-2, -1)).abs().max()) < 1e-8

    def test_degree_one_is_linear(self) -> None:
        split = make(degree=1)["train"]
        x, y = torch.from_numpy(split.x[:, 0]).double(), torch.from_numpy(split.y[:, 0]).double()
        torch.testing.assert_close(solve_poisson(2 * x[0] - 3 * x[1]), 2 * y[0] - 3 * y[1], rtol=0, atol=1e-7)

    def test_dealiased_target_equals_a_fine_grid(self) -> None:
        """The fields are band-limited, so they are known everywhere: product and solution on a much finer grid."""
        split = make(degree=3, dealias=True)["train"]
        x, y = torch.from_numpy(split.x).double(), torch.from_numpy(split.y[:, 0]).double()
        fine = 96
        spectrum = torch.fft.fftshift(torch.fft.fft2(x, norm="forward"), dim=(-2, -1))
        padded = torch.nn.functional.pad(spectrum, (40, 40, 40, 40))
        exact = torch.fft.ifft2(torch.fft.ifftshift(padded, dim=(-2, -1)), norm="forward").real
        solution = solve_poisson(exact.prod(1))
        kept = torch.fft.fft2(solution, norm="forward")
        k = torch.fft.fftfreq(fine, 1 / fine)
        kept[..., (k.abs()[:, None] > 7) | (k.abs()[None, :] > 7)] = 0
        expected = torch.fft.ifft2(kept, norm="forward").real[..., ::6, ::6]
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-7 * 10)
        aliased = torch.from_numpy(make(degree=3)["train"].y[:, 0]).double()
        assert float((aliased - y).norm() / y.norm()) > 0.01

    def test_dealiasing_changes_nothing_where_nothing_aliases(self) -> None:
        plain, exact = (make(degree=1, dealias=dealias)["train"] for dealias in (False, True))
        np.testing.assert_allclose(plain.y, exact.y, atol=1e-7)
        np.testing.assert_array_equal(plain.x, exact.x)

    @pytest.mark.parametrize("resolution", [18, 33, 34, 64])
    @pytest.mark.parametrize("degree", [1, 2])
    def test_dealiasing_on_fine_grids(self, resolution: int, degree: int) -> None:
        """Nothing aliases there: the same targets with and without."""
        plain, exact = (make(degree=degree, resolution=resolution, dealias=d)["train"].y for d in (False, True))
        assert plain.shape[-1] == resolution
        np.testing.assert_allclose(plain, exact, rtol=0, atol=1e-7)

    def test_steep_decay_keeps_the_deviation_or_is_refused(self) -> None:
        x = Poisson(degree=1, train=60, valid=1, test=1, decay=4.2).generate(ignore_progress)["train"].x
        np.testing.assert_allclose(x.std((-2, -1), ddof=1), 1, atol=0.01)
        with pytest.raises(SpecError, match=r"fields of decay=5 have a deviation of some .*: lower decay") as caught:
            problem("poisson", {"decay": 5.0})
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("changes", "at", "words"),
        [
            ({"degree": 1}, 32, ""),
            ({"degree": 2, "resolution": 17}, 34, ""),
            ({"degree": 5, "resolution": 16}, 32, "alias on 40 points or fewer: here and on the 16 of training"),
            ({"degree": 5, "resolution": 16}, 48, "alias on 40 points or fewer: on the 16 of training, not here"),
            ({"degree": 5, "resolution": 48}, 16, "alias on 40 points or fewer: here, not on the 48 of training"),
            ({"degree": 5, "resolution": 41}, 82, ""),
            ({"degree": 5, "resolution": 16}, 16, ""),
            ({"degree": 2, "resolution": 16, "dealias": True}, 32, ""),
            ({"degree": 1, "grid": "published"}, 31, "every grid has targets of its own"),
            ({"degree": 1, "grid": "published"}, 16, ""),
        ],
    )
    def test_what_other_resolutions_hold(self, changes: dict[str, Any], at: int, words: str) -> None:
        """What a problem says of its targets at another resolution, and what they are there."""
        given = Poisson(**{**SMALL, **changes})
        told = given.differs_at(at)
        assert words in told if words else told == ""
        assert "%" not in told, "measured for the published fields alone"
        coarse, fine = sorted((given.resolution, at))
        shift = int(given.grid == "published")
        step = (fine - shift) // (coarse - shift)
        one, other = (make(**{**changes, "resolution": n})["test"].y for n in (coarse, fine))
        apart = np.linalg.norm(one - other[..., ::step, ::step]) / np.linalg.norm(one)
        assert (apart > 0.02) if words else (apart < 0.02)

    def test_the_published_grid(self) -> None:
        """linspace(0, 1, n): the first and the last point are the same place of the torus."""
        published, periodic = (make(grid=grid, degree=1)["train"].x for grid in ("published", "periodic"))
        np.testing.assert_allclose(published[..., 0, :], published[..., -1, :], atol=1e-5)
        np.testing.assert_allclose(published[..., :, 0], published[..., :, -1], atol=1e-5)
        assert np.abs(periodic[..., 0, :] - periodic[..., -1, :]).max() > 0.1
        np.testing.assert_allclose(axis_coordinates(64, "endpoint"), np.linspace(0, 1, 64), atol=1e-7)
        assert not Poisson(grid="published").grid_geometry.periodic
        assert Poisson().grid_geometry.periodic

    def test_published_scale(self) -> None:
        """At p = 2 on the published grid the targets have a standard deviation of about 2.17e-3."""
        splits = Poisson(grid="published", train=300, valid=1, test=1).generate(ignore_progress)
        assert float(splits["train"].y.std()) == pytest.approx(2.17e-3, rel=0.05)
        assert splits["train"].x.shape == (300, 2, 64, 64)
        assert splits["train"].y.shape == (300, 1, 64, 64)


class TestStreams:
    def test_the_same_parameters_give_the_same_bytes(self) -> None:
        one, two = make(), make()
        assert all(one[name].x.tobytes() == two[name].x.tobytes() for name in one)
        assert all(one[name].y.tobytes() == two[name].y.tobytes() for name in one)

    def test_more_samples_extend_a_split(self) -> None:
        short, long = make(train=5), make(train=40)
        np.testing.assert_array_equal(long["train"].x[:5], short["train"].x)
        np.testing.assert_array_equal(long["train"].y[:5], short["train"].y)
        np.testing.assert_array_equal(long["test"].x, short["test"].x)

    def test_the_size_of_the_batches_does_not_show(self) -> None:
        """64 x 64 fields are made in several batches, and the first samples do not depend on how many follow."""
        long = Poisson(degree=5, train=300, valid=1, test=1).generate(ignore_progress)["train"]
        short = Poisson(degree=5, train=3, valid=1, test=1).generate(ignore_progress)["train"]
        np.testing.assert_array_equal(long.x[:3], short.x)
        np.testing.assert_array_equal(long.y[:3], short.y)

    def test_splits_and_seeds_differ(self) -> None:
        one = make(train=3, valid=3, test=3)
        other = make(train=3, valid=3, test=3, seed=1)
        fields = [one["train"].x, one["valid"].x, one["test"].x, other["train"].x]
        for index, a in enumerate(fields):
            for b in fields[index + 1 :]:
                assert np.abs(a - b).max() > 0.1

    def test_cost(self) -> None:
        begun = time.perf_counter()
        Poisson(degree=5, train=1000, valid=1, test=200).generate(ignore_progress)
        assert time.perf_counter() - begun < 10  # two seconds on an idle machine


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "text"),
        [
            ({"resolution": 36}, "need more than 36 points; got resolution=36"),
            ({"k_min": 3.1, "k_max": 3.15}, "no integer wavenumber"),
            ({"k_min": 9, "k_max": 8}, "no integer wavenumber"),
            ({"dealias": True, "grid": "published"}, "needs grid='periodic'"),
            ({"degree": 0}, r"poisson\.degree: .* got 0"),
            ({"grid": "square"}, "'periodic' or 'published'"),
            ({"k_max": math.inf}, "finite"),
            ({"wave": 3}, "did you mean 'waves'"),
            ({"zzz": 3}, "it takes: "),
        ],
    )
    def test_impossible_ones(self, parameters: dict[str, Any], text: str) -> None:
        with pytest.raises(SpecError, match=text) as caught:
            problem("poisson", parameters)
        assert "\n" not in str(caught.value)

    def test_sizes(self) -> None:
        made = Poisson(**SMALL, degree=3)
        splits = made.generate(ignore_progress)
        assert made.memory_bytes() == sum(split.x.nbytes + split.y.nbytes for split in splits.values())
        assert made.channels == (splits["train"].x.shape[1], splits["train"].y.shape[1])
        assert made.grid_geometry.shape == splits["train"].x.shape[2:]
