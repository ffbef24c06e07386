"""The examples run, at smaller sizes than they have by themselves, and show what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> Any:
    """The module of an example, under a name of its own."""
    found = util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def test_burgers() -> None:
    errors = example("burgers").main(samples=200, epochs=30)
    assert set(errors) == {"order 1", "order 2"}
    assert max(errors.values()) < 0.1


def test_the_states_of_burgers_solve_its_equation() -> None:
    """Against small explicit steps of the equation itself."""
    module = example("burgers")
    x, y = module.burgers(4, points=128, viscosity=0.05, time=0.1)
    u, k = x[:, 0].astype(float), 2j * np.pi * np.fft.rfftfreq(128, 1 / 128)

    def rate(u: np.ndarray) -> np.ndarray:
        hat = np.fft.rfft(u)
        return np.fft.irfft(0.05 * k**2 * hat, 128) - u * np.fft.irfft(k * hat, 128)

    for _ in range(2000):
        h = 0.1 / 2000
        middle = u + h / 2 * rate(u)
        u = u + h * rate(middle)
    assert np.abs(u - y[:, 0]).max() < 1e-4 * np.abs(y).max()


def test_own_network() -> None:
    errors = example("own_network").main(samples=40, steps=150, epochs=5)
    assert errors["order 2"] < 0.6 < 0.9 < errors["order 1"]
    assert errors["fitted"] < 0.9


def test_own_errors() -> None:
    found = example("own_errors").main(samples=100, epochs=5)
    shares = {"50%": 0.5, "80%": 0.8, "90%": 0.9, "each": 0.9}
    assert all(abs(found[kept] - share) < 0.15 for kept, share in shares.items())
    assert found["like training"] < 1 < 1.5 < min(found["twice as large"], found["noisy"], found["in other units"])


def test_surface() -> None:
    errors = example("surface").main(samples=150, epochs=10, vertices=300)
    assert errors["order 2"] < 0.1 < errors["order 1"]


def test_flow() -> None:
    errors = example("flow").main(samples=30, epochs=6, frames=6)
    assert len(errors) == 4
    assert errors[0] < 0.2, "the last frame once more has 0.24"


def test_points() -> None:
    assert example("points").main(samples=40, epochs=8) < 0.4, "the mean stress has 0.55"


def test_other_grids() -> None:
    errors = example("other_grids").main(samples=60, epochs=8)
    assert set(errors) == {43, 85}
    assert max(errors.values()) < 0.2, "the mean of the training fields has 0.27"
    assert errors[85] < 1.3 * errors[43]


def test_few_samples() -> None:
    before, further, anew = example("few_samples").main(cheap=200, dear=10, epochs=12).values()
    assert further < 0.8 * before
    assert further < 0.95 * anew


def test_own_foils() -> None:
    """What the search finds is as good as the network said, which is what the example is for."""
    found = example("own_foils").main(samples=100, epochs=10, asked=300, most=0.9)
    lift, mach = (
        (found[f"{name}, predicted"], found[f"{name}, solved"]) for name in ("lift coefficient", "largest Mach number")
    )
    assert lift[0] == pytest.approx(lift[1], abs=0.1)
    assert lift[1] > 0.15
    assert mach[0] == pytest.approx(mach[1], abs=0.05)
    assert mach[1] < 0.93


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_every_example_is_tried_and_says_how_to_run_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert f"python examples/{file.name}" in text
    tried: Callable[..., Any] | None = globals().get(f"test_{file.stem}")
    assert tried is not None, "give it a test above"
