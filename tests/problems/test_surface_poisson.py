"""Polynomial-Source Poisson on a curved surface: the data solve their equation and are one function everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hofno.errors import SpecError
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.lumpy_torus import lumpy_torus
from hofno.problems.registry import problem
from hofno.problems.surface_poisson import SurfacePoisson
from hofno.transforms.manifold import assembled, local_mass, local_stiffness

SMALL: dict[str, Any] = {"resolution": 12, "k_max": 1.5, "waves": 4, "train": 6, "valid": 2, "test": 3}


def make(**changes: Any) -> dict[str, Arrays]:
    return SurfacePoisson(**{**SMALL, **changes}).generate(ignore_progress)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_targets_solve_the_equation(degree: int) -> None:
    made = SurfacePoisson(**{**SMALL, "degree": degree, "k_max": 1.2})
    surface, arrays = made.grid_geometry, made.generate(ignore_progress)["train"]
    assert arrays.x.shape == (6, degree, 288)
    assert arrays.y.shape == (6, 1, 288)
    assert made.channels == (degree, 1)
    mass = assembled(local_mass(surface), surface)
    left = (assembled(local_stiffness(surface), surface) + mass) @ arrays.y[:, 0].T
    right = mass @ arrays.x.astype(np.float64).prod(1).T
    np.testing.assert_allclose(left, right, atol=1e-5)


def test_fields_are_the_same_functions_at_every_resolution() -> None:
    coarse, fine = (make(resolution=n)["test"] for n in (12, 24))
    strided = fine.x.reshape(3, 2, 48, 24)[:, :, ::2, ::2].reshape(3, 2, -1)
    np.testing.assert_allclose(coarse.x, strided, atol=1e-5)
    u = fine.y.reshape(3, 48, 24)[:, ::2, ::2].reshape(3, -1)
    assert 0 < np.linalg.norm(coarse.y[:, 0] - u) / np.linalg.norm(u) < 0.05


def test_fields_are_what_the_text_says() -> None:
    """Sums of waves: variance 1 in the mean over samples, and -Laplace in space between k_min^2 and k_max^2 of each."""
    made = SurfacePoisson(**{**SMALL, "degree": 1, "k_min": 1.5, "waves": 3})  # all wavenumbers are 1.5
    rng = np.random.Generator(np.random.Philox(1))
    places, step = torch.randn(50, 3, dtype=torch.float64), 1e-3
    around = [places + step * sign * torch.eye(3)[axis] for axis in range(3) for sign in (1, -1)]
    f = made.fields(rng, 4, torch.cat((places, *around))).squeeze(1).unflatten(-1, (7, 50))
    laplace = (f[:, 1:].sum(1) - 6 * f[:, 0]) / step**2
    torch.testing.assert_close(-laplace, 2.25 * f[:, 0], rtol=1e-4, atol=1e-4)
    many = made.fields(rng, 4000, places[:1])
    assert float(many.var()) == pytest.approx(1.0, abs=0.1)
    assert abs(float(many.mean())) < 0.05


def test_more_samples_extend_a_split() -> None:
    few, many = make(), make(train=9, test=70)  # more than are solved together
    for name, count in (("train", 6), ("valid", 2), ("test", 3)):
        np.testing.assert_array_equal(many[name].x[:count], few[name].x)
        np.testing.assert_allclose(many[name].y[:count], few[name].y, atol=1e-6)
    assert not np.array_equal(few["train"].x[:2], few["valid"].x)
    assert np.array_equal(make()["test"].y, few["test"].y)
    assert not np.array_equal(make(seed=1)["test"].x, few["test"].x)


def test_sizes() -> None:
    made = problem("surface_poisson", SMALL)
    found = sum(part.nbytes for split in make().values() for part in (split.x, split.y))
    assert made.memory_bytes() == found
    assert made.grid_geometry is made.grid_geometry
    assert "-Δu + u" in made.card


def test_the_torus() -> None:
    """Closed, of genus 1, the same surface at any resolution, and as large as it is asked to be."""
    surface = lumpy_torus(12)
    edges = np.sort(np.concatenate([np.roll(surface.triangles, turn, 1)[:, :2] for turn in range(3)]), axis=1)
    _, count = np.unique(edges, axis=0, return_counts=True)
    assert (count == 2).all()
    assert len(surface.vertices) - len(count) + len(surface.triangles) == 0
    assert lumpy_torus(48).areas.sum() == pytest.approx(lumpy_torus(24).areas.sum(), rel=0.01)
    assert lumpy_torus(12, 3.0).areas.sum() == pytest.approx(9 * surface.areas.sum())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"k_min": 2.0}, "k_min=2 is above k_max=1.5"),
        ({"k_max": 3.0}, "at least two in a wave are needed: raise resolution"),
        ({"degree": 4}, "products of degree 4 have waves of length"),
        ({"resolution": 100}, "less than or equal to 64"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        problem("surface_poisson", {**SMALL, **wrong})
