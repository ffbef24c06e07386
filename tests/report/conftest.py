"""A small results file that every report test can read, change and break."""

from __future__ import annotations

from typing import Any

import pytest


def run_of(order: int, depth: int, seed: int, rel_l2: float, mse: float) -> dict[str, Any]:
    """One run of a results file."""
    name = "FNO" if order == 1 else f"HO-FNO order {order}"
    return {
        "label": f"{name}, depth {depth}",
        "cell": {"model.order": order, "model.depth": depth},
        "seed": seed,
        "metrics": {"rel_l2": rel_l2, "mse": mse * 1e-6, "mse_standardised": mse},
        "parameters": {"real": 2_000 * order, "complex_once": 1_100 * order},
        "seconds": 10.0 + seed,
        "epochs": 100,
        "spec_hash": "ab",
    }


@pytest.fixture
def results() -> dict[str, Any]:
    """Three cells of the p = 2 study; the deviations of each are exactly one step of the last digit."""
    runs = [
        run_of(order, depth, seed, rel_l2 + (seed - 1) * 0.001, mse + (seed - 1) * 0.0001)
        for order, depth, rel_l2, mse in ((1, 1, 0.3, 0.09), (2, 1, 0.031, 0.0007), (5, 16, 0.03, 0.003))
        for seed in range(3)
    ]
    return {
        "schema": 1,
        "name": "paper/poisson_p2",
        "title": "Poisson, degree 2",
        "problem": "poisson",
        "origin": "generated",
        "device": "NVIDIA H200",
        "versions": {"torch": "2.13.0"},
        "created": "2026-11-15",
        "seconds": 99.0,
        "spec": {"model": {"order": 2, "depth": 4}},
        "spec_hash": "cd",
        "runs": runs,
    }
