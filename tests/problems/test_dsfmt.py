"""The random stream of Julia: documented numbers, and the normal law."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest

from hofno.problems.dsfmt import fractions, julia_normals


def test_documented_uniforms() -> None:
    """rand(MersenneTwister(123), 5), as Julia's manual prints it."""
    found = [number / 2**52 for number in islice(fractions(123), 5)]
    expected = [0.7684476751965699, 0.940515000715187, 0.6739586945680673, 0.3954531123351086, 0.3132439558075186]
    assert found == expected


def test_the_stream_goes_on_beyond_one_state() -> None:
    """Uniform over several passes through the 191 words, and without a period of that length."""
    numbers = np.array(list(islice(fractions(7), 20 * 382))) / 2**52
    assert numbers.mean() == pytest.approx(0.5, abs=0.015)
    assert np.histogram(numbers, 16, (0, 1))[0] == pytest.approx(len(numbers) / 16, abs=110)
    assert abs(np.corrcoef(numbers[:-382], numbers[382:])[0, 1]) < 0.05


def test_normals_of_the_published_voids() -> None:
    """16 randn(MersenneTwister(123), 2000, 10): rows 0, 1 and 1999 as recovered from the published files."""
    theta = 16 * julia_normals(123, 20000).reshape(10, 2000).T
    first = [19.044286, 5.456258, -46.052227, 1.871662, -20.630697, 14.361630, -43.065369, 17.453717, 2.618176]
    assert theta[0] == pytest.approx([*first, 19.124999], abs=1e-6)
    assert theta[1, :2] == pytest.approx([32.770875, -7.388384], abs=1e-6)
    assert theta[1999, :2] == pytest.approx([-2.747380, 1.070629], abs=1e-6)


def test_normals_are_normal() -> None:
    found = np.sort(julia_normals(1, 60000))
    law = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in found])
    assert np.abs(law - (np.arange(60000) + 0.5) / 60000).max() < 1.63 / math.sqrt(60000)  # Kolmogorov, 1 %
    assert (np.abs(found) > 3.6541528853610088).sum() == pytest.approx(15.5, abs=12)  # the tail has a way of its own
    assert found[0] < -3.66
    assert found[-1] > 3.66


def test_seeds_differ() -> None:
    assert not np.isclose(julia_normals(1, 50), julia_normals(2, 50)).any()
    assert np.array_equal(julia_normals(1, 50), julia_normals(1, 80)[:50])
