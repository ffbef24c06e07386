"""The dies of Plasticity: a law that was read off 16 published ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hofno.problems.pressed import WIDTH
from hofno.solvers.die import Die

SPEED = 3.0
"""Downwards, mm/ms."""

KNOTS = np.array([0.0, 7.0, 13.0, 19.0, 25.0, 31.0, 37.0, 43.0, 50.0])
"""Distances from the left end at which the heights of a die are drawn."""

END_HEIGHT = 7.6
DIP = 0.05
"""How far below its lowest control point a die may be, mm; those that are lower are drawn again."""

_CHANCES, _QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0), (1.4, 2.3, 3.75, 5.2, 6.3, 7.2, 7.7)


def draw_die(rng: np.random.Generator) -> np.ndarray:
    """Heights of one die at KNOTS, above its own lowest point. (9,), float64"""
    while True:
        heights = np.full(len(KNOTS), END_HEIGHT)
        heights[1:-1] = np.interp(rng.uniform(size=len(KNOTS) - 2), _CHANCES, _QUANTILES)
        heights[1 + rng.integers(len(KNOTS) - 2)] = 0
        lowest = float(_profile(heights)[1].min())
        if lowest > -DIP:
            return heights - lowest


def tip_curvature(heights: np.ndarray, points: np.ndarray = KNOTS) -> float:
    """Of a die with these heights (p,) at the inner place where it is lowest, 1/mm."""
    places, height, slope = _profile(heights, points)
    lowest = 1 + int(height[1:-1].argmin())
    return float((slope[lowest + 1] - slope[lowest - 1]) / (places[lowest + 1] - places[lowest - 1]))


def _profile(heights: np.ndarray, points: np.ndarray = KNOTS) -> tuple[Tensor, Tensor, Tensor]:
    """Places along a die, its heights and slopes there."""
    places = torch.linspace(0, WIDTH, 2001, dtype=torch.float64)
    height, slope = Die(points, heights[:, None], SPEED).height(places[:, None])
    return places, height[:, 0], slope[:, 0]
