r"""Exponential time differencing of order four for w' = L w + N(w) with a diagonal L.

    phi_0(z) = e^z,    phi_k(z) = sum_j z^j / (j + k)!,    phi_{k+1}(z) = (phi_k(z) - 1/k!) / z

With z = L h, Cox and Matthews' scheme, L integrated exactly and N to fourth order, is

    a = e^{z/2} w + (h/2) phi_1(z/2) N(w)
    b = e^{z/2} w + (h/2) phi_1(z/2) N(a)
    c = e^{z/2} a + (h/2) phi_1(z/2) (2 N(b) - N(w))
    w <- e^z w + h (phi_1 - 3 phi_2 + 4 phi_3) N(w) + h (2 phi_2 - 4 phi_3) (N(a) + N(b)) + h (4 phi_3 - phi_2) N(c)

The recurrence loses all digits as z -> 0, so the series is summed for |z| < 1 and the recurrence used beyond. For the
same reason e^z w is taken as w + (e^z - 1) w: rounded to float32, e^z would be off by the same 6e-8 in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hofno.errors import SolverError

_SERIES_TERMS = 19  # 1/19! is below the rounding of float64


def phi(z: Tensor, order: int) -> Tensor:
    """phi_order(z), elementwise, real or complex, to the rounding of float64."""
    near = torch.where(z.abs() < 1, z, torch.zeros_like(z))
    series = torch.zeros_like(z)
    for j in reversed(range(_SERIES_TERMS)):
        series = series * near + 1 / math.factorial(j + order)
    far = torch.where(z.abs() < 1, torch.ones_like(z), z)
    closed = torch.exp(far)
    for k in range(order):
        closed = (closed - 1 / math.factorial(k)) / far
    return torch.where(z.abs() < 1, series, closed)


@dataclass(frozen=True)
class ETDRK4:
    """One step of size h for the diagonal operator L; the coefficients are made once, in float64."""

    whole: Tensor  # e^z - 1
    half: Tensor  # e^{z/2} - 1
    stage: Tensor  # (h/2) phi_1(z/2)
    first: Tensor  # weight of N(w)
    middle: Tensor  # weight of N(a) and of N(b)
    last: Tensor  # weight of N(c)

    @classmethod
    def of(cls, linear: Tensor, step: float) -> ETDRK4:
        """The scheme for `linear`, the diagonal of L, and a positive `step`; computed in double precision."""
        if not (math.isfinite(step) and step > 0):
            raise SolverError(f"expected a positive finite step, got {step}; give for example step=0.005")
        z = linear.to(torch.complex128 if linear.is_complex() else torch.float64) * step
        phi_1, phi_2, phi_3 = (phi(z, order) for order in (1, 2, 3))
        return cls(
            whole=torch.expm1(z).to(linear.dtype),
            half=torch.expm1(z / 2).to(linear.dtype),
            stage=(step / 2 * phi(z / 2, 1)).to(linear.dtype),
            first=(step * (phi_1 - 3 * phi_2 + 4 * phi_3)).to(linear.dtype),
            middle=(step * (2 * phi_2 - 4 * phi_3)).to(linear.dtype),
            last=(step * (4 * phi_3 - phi_2)).to(linear.dtype),
        )

    def advance_(self, w: Tensor, nonlinear: Callable[[Tensor], Tensor]) -> Tensor:
        """One step of `w` in place; nothing is read back from the device, so a CUDA graph can hold it.

        `nonlinear` must return a tensor of its own, of the shape of `w`.
        """
        n_w = nonlinear(w)
        a = torch.addcmul(w, w, self.half).addcmul_(self.stage, n_w)
        n_a = nonlinear(a)
        b = torch.addcmul(w, w, self.half).addcmul_(self.stage, n_a)
        n_b = nonlinear(b)
        c = a.addcmul_(a, self.half).addcmul_(self.stage, n_b, value=2).addcmul_(self.stage, n_w, value=-1)
        w.addcmul_(w, self.whole).addcmul_(self.first, n_w).addcmul_(self.middle, n_a.add_(n_b))
        return w.addcmul_(self.last, nonlinear(c))
