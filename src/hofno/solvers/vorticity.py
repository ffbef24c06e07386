r"""Two-dimensional incompressible flow on the unit torus, in vorticity form.

    w_t + u w_x + v w_y = nu Laplace w + f,     (u, v) = (psi_y, -psi_x),     -Laplace psi = w

Take the velocity as one complex field, q = u + i v. Incompressibility and the definition of w are together

    (d_x - i d_y) q = i w,          and the advection is        u w_x + v w_y = Im[(d_x - i d_y)^2 q^2] / 2,

so that one evaluation costs one complex transform each way, with one product in between. With c = k_x - i k_y:

    q^(k) = w^(k) / (2 pi c),       N^(k) = g Q(k) + conj(g Q(-k)) + f^(k),       g = -i pi^2 c^2,    Q = (q^2)^

Dealiasing is the 2/3 rule: modes |k_x|, |k_y| <= K = (N - 1) // 3 are kept, everywhere. Since 3 K < N the products are
exact on them: this is the Galerkin truncation, whose energy and enstrophy are those of the equation.

The state is one half of these modes (the other half being conjugate), without the mean: 2 K (K + 1) complex numbers
for each field. Time steps are ETDRK4: viscosity exact, the rest of fourth order. On a GPU with Triton all that lies
between two transforms is one kernel (`vorticity_kernels`); the plain steps here define its values.

Shapes: b fields, N points along x (first axis) and y (last axis), M = 2 K (K + 1) modes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hofno.errors import ShapeError, SolverError
from hofno.solvers.etdrk import ETDRK4
from hofno.triton_use import kernels_run_on

if TYPE_CHECKING:
    from hofno.solvers.vorticity_kernels import FusedStep

CFL_LIMIT = 2.8
"""Fourth-order Runge-Kutta is stable on the imaginary axis up to 2 sqrt(2); modes advected at speed s have 2 pi K s."""

_CHECK_EVERY = 50  # steps between two looks at the CFL number and at finiteness


class VorticitySolver:
    """Advance vorticity fields (b, N, N) in time.

    Args:
        resolution: points N on each axis, at least 4; odd and even both work, products of small primes are fast.
        viscosity: nu >= 0.
        forcing: f on the grid, (N, N) and of zero mean, constant in time; None for no forcing.
        step: largest time step; `advance` divides it so that a whole number of steps fits.
        dtype: torch.float64, or torch.float32 (twice as fast; its rounding grows with the flow's own instability).
        device: where the work is done.

    Good values: step=5e-3 for 256 points and speeds below 1; `stable_step` says how far one may go.
    """

    def __init__(
        self,
        resolution: int,
        viscosity: float,
        forcing: Tensor | None = None,
        step: float = 5e-3,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> None:
        if resolution < 4:
            raise SolverError(f"resolution must be at least 4 to hold one mode after dealiasing; got {resolution}")
        if not (math.isfinite(viscosity) and viscosity >= 0):
            raise SolverError(f"viscosity must be zero or positive and finite; got {viscosity}")
        if not (math.isfinite(step) and step > 0):
            raise SolverError(f"step must be positive and finite; got {step}; 5e-3 is a good start")
        if dtype not in (torch.float32, torch.float64):
            raise SolverError(f"dtype must be torch.float64 or torch.float32; got {dtype}")
        self.resolution, self.viscosity, self.step = resolution, float(viscosity), float(step)
        self.dtype, self.device = dtype, torch.device(device)
        self.cutoff = (resolution - 1) // 3
        self.wavenumbers = half_plane(self.cutoff)  # (M, 2), on the CPU
        kx, ky = self.wavenumbers.double().unbind(-1)
        n = resolution
        here, mirror = (kx % n) * n + ky, (-kx % n) * n + -ky % n
        self._places = torch.cat((here, mirror)).long().to(self.device)  # (2M,) in the flattened N x N plane
        c = torch.complex(kx, -ky)
        to_velocity = 1 / (2 * math.pi * c)
        complex_dtype = torch.complex64 if dtype == torch.float32 else torch.complex128
        # q^(-k) = conj(w^(k) * (-conj(to_velocity(k)))), since w is real and c is odd
        self._to_velocity = torch.stack((to_velocity, -to_velocity.conj())).to(self.device, complex_dtype)  # (2, M)
        gain = -1j * math.pi**2 * c**2 / n**2  # 1/N^2: the forward transform is not normalised
        self._gain = gain.to(self.device, complex_dtype)  # (M,)
        self._mirror_gain = gain.conj().resolve_conj().to(self.device, complex_dtype)
        damping = -self.viscosity * 4 * math.pi**2 * (kx**2 + ky**2)
        self._damping = damping.repeat_interleave(2).to(self.device)  # (2M,), for real and imaginary parts
        self._plane = torch.zeros(0, n, n, dtype=complex_dtype, device=self.device)
        self._schemes: dict[float, ETDRK4] = {}
        self._fused: FusedStep | None = None  # made by the first step that uses it
        self._forcing = torch.zeros(len(c), dtype=complex_dtype, device=self.device)
        if forcing is not None:
            self._forcing = self._forcing_modes(forcing)

    @torch.no_grad()
    def advance(self, w: Tensor, time: float) -> Tensor:
        """The vorticity after `time`. (b, N, N) -> (b, N, N), in the solver's dtype and on its device.

        Modes of `w` beyond the cutoff are dropped. A mean of `w` moves nothing and is kept.
        """
        modes = self.modes_of(w)
        mean = w.to(self.device, self.dtype).mean((-2, -1), keepdim=True)
        return self.field_of(self.advance_modes_(modes, time)) + mean

    @torch.no_grad()
    def advance_modes_(self, modes: Tensor, time: float) -> Tensor:
        """The same on modes (b, M), in place."""
        if not (math.isfinite(time) and time > 0):
            raise SolverError(f"the time to advance must be positive and finite; got {time}")
        count = max(1, math.ceil(time / self.step * (1 - 1e-12)))
        step = time / count
        cfl = 0.0
        for done in range(count):
            if done % _CHECK_EVERY == 0:
                cfl = self._checked_cfl(modes, step, done * step, cfl)
            self.step_modes_(modes, step)
        self._checked_cfl(modes, step, time, cfl)
        return modes

    @torch.no_grad()
    def step_modes_(self, modes: Tensor, step: float) -> Tensor:
        """One unchecked step of modes (b, M) in place, without waiting for the device: a CUDA graph can hold it."""
        if step not in self._schemes:
            scheme = ETDRK4.of(self._damping, step)
            parts = {name: part.to(self.dtype) for name, part in vars(scheme).items()}
            self._schemes = {step: ETDRK4(**parts)}
        if fused_runs_on(modes):
            return self._fused_step()(modes, self._plane_of(len(modes)), self._schemes[step])
        parts = torch.view_as_real(modes).flatten(1)  # (b, 2M), the memory of `modes`
        self._schemes[step].advance_(parts, self._tendency_parts)
        return modes

    def stable_step(self, w: Tensor) -> float:
        """The largest stable step for the velocities of `w`, (b, N, N): 2.8 / (2 pi K max(|u| + |v|))."""
        speed = float(self._speeds(self.modes_of(w)).max())
        return CFL_LIMIT / (2 * math.pi * self.cutoff * speed) if speed > 0 else math.inf

    def velocity(self, w: Tensor) -> Tensor:
        """u and v. (b, N, N) -> (b, 2, N, N)"""
        q = self._velocity_plane(self.modes_of(w)).unflatten(1, (self.resolution, self.resolution))
        return torch.stack((q.real, q.imag), 1)

    def modes_of(self, w: Tensor) -> Tensor:
        """Fourier coefficients of the kept half. (b, N, N) -> (b, M)"""
        n = self.resolution
        if w.dim() != 3 or w.shape[-2:] != (n, n) or len(w) == 0 or w.is_complex():
            raise ShapeError(f"expected real vorticity of shape (b, {n}, {n}); got {w.dtype} {tuple(w.shape)}")
        spectrum = torch.fft.rfft2(w.to(self.device, self.dtype), norm="forward")
        half = self._places[: len(self._gain)]
        return spectrum.flatten(1)[:, half // n * (n // 2 + 1) + half % n]

    def field_of(self, modes: Tensor) -> Tensor:
        """Values on the grid. (b, M) -> (b, N, N)"""
        both = torch.stack((modes, modes.conj()), 1)
        return self._synthesise(both).real.unflatten(1, (self.resolution, self.resolution)).contiguous()

    def tendency(self, modes: Tensor) -> Tensor:
        """N^ = -(u.grad w)^ + f^, everything but viscosity. (b, M) -> (b, M)"""
        q = self._velocity_plane(modes)
        n = self.resolution
        squared = torch.fft.fft2(q.mul_(q).unflatten(1, (n, n))).flatten(1)
        found = squared[:, self._places].unflatten(1, (2, -1))
        here, mirror = found[:, 0], found[:, 1].conj_physical_()
        return torch.addcmul(self._forcing, self._gain, here).addcmul_(self._mirror_gain, mirror)

    def bytes_per_field(self) -> int:
        """Memory that advancing one more field takes, about: five planes and eight states."""
        size = 2 * torch.finfo(self.dtype).bits // 8
        return size * (5 * self.resolution**2 + 8 * len(self._gain))

    def _tendency_parts(self, parts: Tensor) -> Tensor:
        modes = torch.view_as_complex(parts.unflatten(1, (-1, 2)))
        return torch.view_as_real(self.tendency(modes)).flatten(1)

    def _velocity_plane(self, modes: Tensor) -> Tensor:
        """q = u + i v on the grid. (b, M) -> (b, N * N)"""
        both = modes[:, None] * self._to_velocity  # (b, 2, M)
        both[:, 1].conj_physical_()
        return self._synthesise(both)

    def _synthesise(self, both: Tensor) -> Tensor:
        """Coefficients at k and at -k to values on the grid. (b, 2, M) -> (b, N * N)"""
        plane = self._plane_of(len(both))
        plane.flatten(1).index_copy_(1, self._places, both.flatten(1))
        return torch.fft.ifft2(plane, norm="forward").flatten(1)

    def _plane_of(self, count: int) -> Tensor:
        """(count, N, N), zero for ever outside the kept modes; they hold what was last put there."""
        if len(self._plane) != count:
            self._plane = self._plane.new_zeros(count, self.resolution, self.resolution)
        return self._plane

    def _fused_step(self) -> FusedStep:
        from hofno.solvers.vorticity_kernels import FusedStep

        if self._fused is None:
            self._fused = FusedStep(self._places.int(), self._to_velocity[0], self._gain, self._forcing)
        return self._fused

    def _speeds(self, modes: Tensor) -> Tensor:
        """max(|u| + |v|) of each field. (b, M) -> (b,)"""
        return torch.view_as_real(self._velocity_plane(modes)).abs().sum(-1).amax(-1)

    def _checked_cfl(self, modes: Tensor, step: float, time: float, before: float) -> float:
        """The CFL number; fields that are not finite and steps that are not stable are refused."""
        speeds = self._speeds(modes)
        worst = int(torch.where(speeds.isfinite(), speeds, math.inf).argmax())
        speed = float(speeds[worst])
        if not math.isfinite(speed):
            if time == 0:
                raise SolverError(f"the field given is not finite in sample {worst} of the batch; give finite numbers")
            raise SolverError(
                f"the solution is not finite at time {time:g} in sample {worst} of the batch (CFL number {before:.3g} "
                f"at the last check, step {step:g}); use a step below {step / 2:g} or a weaker forcing"
            )
        cfl = 2 * math.pi * self.cutoff * speed * step
        if cfl > CFL_LIMIT:
            raise SolverError(
                f"step {step:g} is above the stability limit at time {time:g}: CFL number {cfl:.3g} > {CFL_LIMIT} "
                f"(speed |u| + |v| = {speed:.3g} in sample {worst} of the batch); "
                f"use step <= {0.9 * CFL_LIMIT / cfl * step:.2g} or a coarser grid"
            )
        return cfl

    def _forcing_modes(self, forcing: Tensor) -> Tensor:
        n = self.resolution
        if forcing.shape != (n, n) or forcing.is_complex():
            raise ShapeError(f"expected real forcing of shape ({n}, {n}); got {forcing.dtype} {tuple(forcing.shape)}")
        mean, largest = float(forcing.double().mean()), float(forcing.abs().max())
        if not math.isfinite(largest):
            raise SolverError("the forcing is not finite; give finite numbers")
        if abs(mean) > 1e-5 * largest:
            raise SolverError(
                f"the forcing of vorticity must have zero mean on a torus; its mean is {mean:.3g}; subtract it"
            )
        return self.modes_of(forcing[None])[0]


def fused_runs_on(modes: Tensor) -> bool:
    """Whether the fused step takes these modes."""
    return modes.is_contiguous() and kernels_run_on(modes)


def half_plane(cutoff: int) -> Tensor:
    """Integer wavenumbers with |k_x|, |k_y| <= cutoff, one of each pair k, -k, without 0. (M, 2)

    Kept are k_y > 0, and k_y = 0 with k_x > 0, in the order of rfft2: k_x = 0..cutoff, -cutoff..-1, then k_y.
    """
    k = torch.arange(2 * cutoff + 1)
    kx = torch.where(k > cutoff, k - 2 * cutoff - 1, k)
    pairs = torch.cartesian_prod(kx, torch.arange(cutoff + 1))
    return pairs[(pairs[:, 1] > 0) | (pairs[:, 0] > 0)]
