"""Bounds of errors by validation samples, and which inputs are unlike those of training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hofno.data.experience import (
    LEAST_REST,
    SHRUNK,
    Experience,
    Family,
    cells_of,
    distance,
    numbers_of,
    over_cells,
    whitened,
)
from hofno.errors import SpecError
from hofno.geometry import Grid, Mesh

FACTS = (torch.tensor(1.0), torch.tensor(0.0), torch.tensor(0.0))
"""Of single samples, with weights that were not chosen, and one pass."""


def experience(errors: Tensor) -> Experience:
    one = torch.ones(1, dtype=torch.float64)
    return Experience(errors.double().sort().values, one, one, one, one, one[None], one, *FACTS)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 60), coverage=st.floats(0.05, 0.95))
def test_the_bound_is_the_least_validation_error_with_enough_at_or_below_it(count: int, coverage: float) -> None:
    """Of n + 1 exchangeable errors the new one is at most the k-th smallest of the n with probability k / (n + 1)."""
    errors = torch.from_numpy(np.random.default_rng(count).permutation(count)) + 1.0  # 1 .. n
    known = experience(errors)
    if coverage > count / (count + 1):
        with pytest.raises(SpecError, match=f"{count} validation samples bound the error of"):
            known.error_bound(coverage)
    else:
        rank = known.error_bound(coverage)
        assert rank / (count + 1) >= coverage - 1e-9
        assert (rank - 1) / (count + 1) < coverage


def test_bounds_are_kept_as_often_as_they_say() -> None:
    """Errors of any law: here a heavy tail. 400 times 19 known ones and 50 new ones."""
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(400):
        known = experience(torch.from_numpy(rng.lognormal(0, 2, 19)))
        kept.append(np.mean(rng.lognormal(0, 2, 50) <= known.error_bound(0.8)))
    assert abs(np.mean(kept) - 0.8) < 0.02


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, math.nan])
def test_a_coverage_that_is_none(coverage: float) -> None:
    with pytest.raises(SpecError, match="coverage is the part of all samples"):
        experience(torch.ones(50)).error_bound(coverage)


def test_a_coverage_of_another_kind_of_number() -> None:
    known = experience(torch.arange(9.0))
    assert known.error_bound(np.float32(0.5)) == known.error_bound(0.5)  # pyright: ignore[reportArgumentType]


def fields(count: int, shape: tuple[int, ...] = (32, 24), seed: int = 0) -> Tensor:
    """Random waves of all wavenumbers up to 2, (n, 1, *shape)."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij"))
    waves = np.array(list(itertools.product(range(-2, 3), repeat=len(shape))))
    phases = np.tensordot(waves, places, 1) + rng.uniform(size=(count, len(waves), *(1,) * len(shape)))
    sizes = rng.uniform(0.5, 1, (count, len(waves), *(1,) * len(shape)))
    return torch.from_numpy((sizes * np.cos(2 * np.pi * phases)).sum(1)[:, None] / len(waves) ** 0.5)


def strangeness(x: Tensor, train: Tensor, valid: Tensor) -> Tensor:
    mean, deviation = train.mean((0, *range(2, train.ndim))), train.std((0, *range(2, train.ndim)))
    cells = cells_of(Grid(shape=tuple(train.shape[2:]), periodic=True))
    numbers = (numbers_of(part, None, None, mean, deviation, cells) for part in (train, valid))
    centre, whitening = whitened(next(numbers), train.shape[1])
    scores = distance(next(numbers), centre, whitening).sort().values
    return Experience(scores, scores, mean, deviation, centre, whitening, cells, *FACTS).strangeness(x)


@pytest.mark.parametrize("shape", [(48,), (32, 24), (12, 8, 10)])
def test_fields_of_the_same_kind_are_not_strange_and_others_are(shape: tuple[int, ...]) -> None:
    train, valid, new = (fields(n, shape, seed) for n, seed in ((200, 0), (100, 1), (100, 2)))
    assert float(strangeness(valid, train, valid).max()) == pytest.approx(1)
    assert float((strangeness(new, train, valid) > 1.5).double().mean()) <= 0.01
    noise = torch.from_numpy(np.random.default_rng(3).normal(size=new.shape))
    for other in (20 * new, new / 20, new + 5, new + 3 * noise):
        assert float((strangeness(other, train, valid) > 1.5).double().mean()) > 0.9
    assert strangeness(torch.full_like(new[:1], 1e300), train, valid).isfinite().all()


def test_the_same_fields_on_other_grids_are_not_strange() -> None:
    train, valid = fields(200), fields(100, seed=1)
    for shape in ((64, 48), (16, 12)):
        other = strangeness(fields(100, shape, 2), train, valid)
        assert float((other > 1.5).double().mean()) <= 0.01


def test_whitened_numbers_are_uncorrelated() -> None:
    rng = np.random.default_rng(0)
    numbers = torch.from_numpy(rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4)) + 5)
    centre, whitening = whitened(numbers, 4)
    found = torch.cov(((numbers - centre) @ whitening).T)
    assert float((found - torch.diag(found.diagonal())).abs().max()) < 1e-9
    assert float(found.diagonal().max()) <= 500 / 499 / (1 - SHRUNK)
    two = torch.ones(50, 4, dtype=torch.float64)  # two numbers of two channels, of which the second varies in one
    two[0, 3] = 1.1
    sizes = whitened(two, 2)[1].square().sum(1).sqrt()
    torch.testing.assert_close(sizes[:3], torch.tensor([10.0, 100.0, 10.0], dtype=torch.float64))
    assert float(found.diagonal().min()) > 0.5


def test_points_that_are_not_there_do_not_count() -> None:
    x, coords = torch.rand(3, 1, 20), torch.rand(3, 2, 20)
    inside = torch.arange(20) < 12
    ones = torch.ones(3, dtype=torch.float64)
    whole = numbers_of(x[..., :12], coords[..., :12], None, 0 * ones, ones, ones[:0])
    x[..., 12:], coords[..., 12:] = 1e6, -1e6
    torch.testing.assert_close(numbers_of(x, coords, inside.expand(3, 20), 0 * ones, ones, ones[:0]), whole)


def members(count: int, seed: int = 0) -> torch.Tensor:
    """Fields that differ in three ways, of which the last is twentieth as large as the first, on a far larger one."""
    s = torch.linspace(0, math.pi, 40, dtype=torch.float64)
    shapes = torch.stack([torch.sin(k * s)[:, None] * torch.cos(k * s[:20]) for k in (1, 2, 3)])
    drawn = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1
    drawn *= torch.tensor([0.02, 0.005, 0.001])
    mesh = 20 * s[:, None] * (1 + s[:20])
    return (mesh + torch.einsum("nk,kij->nij", drawn, shapes))[:, None]


def family_of(x: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    mean, deviation = x.mean().view(1), x.std().view(1)
    cells = cells_of(Mesh(shape=tuple(x.shape[2:])))
    family = Family.of(over_cells(x, mean, deviation, cells), 1)
    assert family.ways.shape[1] == 3
    return lambda other: family.distances(over_cells(other, mean, deviation, cells))


def test_a_family_is_known_by_its_ways() -> None:
    """Small differences of large meshes: like ones are near, farther ones and others are not."""
    x = members(100)
    distances, usual = family_of(x), x.mean(0)
    along, rest = distances(members(200, seed=1)).T
    assert along.max() < 1.8
    assert rest.max() < 1e-6
    assert distances(usual + 4 * (x - usual))[:, 0].median() > 3
    bump = torch.zeros_like(usual)
    bump[0, 15:20, 5:8] = 0.02
    assert distances(x + bump)[:, 1].min() > 5 * LEAST_REST


def test_inputs_that_are_all_alike_have_no_ways() -> None:
    x = members(1).expand(30, -1, -1, -1)
    family = Family.of(over_cells(x, x.mean().view(1), x.std().view(1), cells_of(Mesh(shape=(40, 20)))), 1)
    assert family.ways.shape[1] == 0
    assert family.distances(family.usual[None] + 1).isfinite().all()
