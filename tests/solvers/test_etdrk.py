"""ETDRK4: coefficients to the last digit, exact linear part, fourth order measured, stiff or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hofno.errors import SolverError
from hofno.solvers import ETDRK4, phi


def precise_phi(z: complex, order: int) -> Any:
    """phi by its series in 60 digits, enough for |z| <= 60."""
    with mpmath.workdps(60):
        z = mpmath.mpmathify(z)
        return (
            mpmath.nsum(lambda j: z**j / mpmath.factorial(j + order), [0, mpmath.inf]) if z else 1 / mpmath.fac(order)
        )


@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "z", [0.0, -1e-12, -1e-3, -0.5, -0.999, -1.0, -1.001, -3.0, -30.0, 0.7, 2.0, 1e-2j, -0.4 + 0.9j]
)
def test_phi_to_rounding(z: complex, order: int) -> None:
    expected = complex(precise_phi(z, order))
    found = complex(phi(torch.tensor(z, dtype=torch.complex128 if isinstance(z, complex) else torch.float64), order))
    assert abs(found - expected) <= 4e-15 * abs(expected)


@given(z=st.floats(-800, 0))
def test_phi_of_decay_is_bounded_and_falls_with_the_order(z: float) -> None:
    values = [float(phi(torch.tensor(z, dtype=torch.float64), order)) for order in range(4)]
    assert all(0 <= value <= 1 / math.factorial(order) * (1 + 1e-14) for order, value in enumerate(values))


def test_constant_right_hand_side_is_exact() -> None:
    """w' = L w + c has w = e^{Lt} w0 + t phi_1(Lt) c: the weights sum to h phi_1."""
    linear = torch.tensor([0.0, -1e-9, -0.3, -7.0, -500.0], dtype=torch.float64)
    scheme = ETDRK4.of(linear, 0.1)
    w, c = torch.ones(5, dtype=torch.float64), torch.full((5,), 2.0, dtype=torch.float64)
    expected = torch.exp(0.1 * linear) * w + 0.1 * phi(0.1 * linear, 1) * c
    torch.testing.assert_close(scheme.advance_(w.clone(), lambda _: c.clone()), expected, rtol=1e-13, atol=0)


def integrate(linear: Tensor, nonlinear: Callable[[Tensor], Tensor], w: Tensor, time: float, steps: int) -> Tensor:
    scheme, w = ETDRK4.of(linear, time / steps), w.clone()
    for _ in range(steps):
        scheme.advance_(w, nonlinear)
    return w


@pytest.mark.parametrize("rate", [0.0, -1.0, -4.0])
def test_order_four_on_the_logistic_equation(rate: float) -> None:
    """w' = L w - w^2 has w = L w0 / ((L - w0) e^{-Lt} + w0); errors at four steps fall as h^4."""
    w0, time = 1.5, 1.0
    exact = w0 / (1 + w0 * time) if rate == 0 else rate * w0 / ((rate - w0) * math.exp(-rate * time) + w0)
    linear, start = torch.tensor([rate], dtype=torch.float64), torch.tensor([w0], dtype=torch.float64)
    counts = [32, 64, 128, 256]
    errors = [abs(float(integrate(linear, lambda w: -w * w, start, time, n)) - exact) for n in counts]
    slope = (math.log(errors[-1]) - math.log(errors[0])) / math.log(counts[0] / counts[-1])
    assert slope == pytest.approx(4, abs=0.15)


def test_float32_scheme_is_rounded_from_double() -> None:
    linear = torch.tensor([-0.02, -3.0], dtype=torch.float64)
    double, single = ETDRK4.of(linear, 0.05), ETDRK4.of(linear.float(), 0.05)
    for name, part in vars(single).items():
        assert part.dtype == torch.float32
        torch.testing.assert_close(part.double(), getattr(double, name), rtol=2e-7, atol=0)


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_impossible_steps(step: float) -> None:
    with pytest.raises(SolverError, match="positive"):
        ETDRK4.of(torch.zeros(1), step)
