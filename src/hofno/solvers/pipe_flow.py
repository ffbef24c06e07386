r"""Steady flow of a viscous fluid through sheared channels of width 1, many at a time.

    (w . grad) w = nu Laplace w - grad p + force,    div w = 0,        |y - f(x)| <= 1/2,   0 <= x <= length
    w = (t (1 - t), 0) with t = y - f + 1/2 at the inlet,    w = 0 at the walls,    nu dw/dx = (p, 0) at the outlet

In the coordinates (x, e = y - f(x)), of Jacobian 1, with s = f', D = d/dx - s d/de and a stream function g,

    w = (g_e, -D g),        w . grad = g_e d/dx - g_x d/de.

Tested with h in the same way, the pressure and the condition at the outlet drop out of the weak form:

    nu (DDg, DDh) + 2 nu (D g_e, D h_e) + nu (g_ee, h_ee)
        + (w . grad g_e, h_e) + (w . grad Dg, Dh) = (force, (h_e, -Dh)).

So w has no divergence anywhere and every section carries the same flux, 1/6. Functions are products of polynomials
across and C1 cubics along (`pipe_basis`); Newton's systems couple neighbouring stations only and are solved directly.
At the inlet g_x = f' t (1 - t) holds in least squares, because g_xe is to be 0 where the wall begins.

Shapes: b pipes, n stations, E = n - 1 elements with q points along and Q across, K polynomials; g is held as
(b, n, 2, K), values and slopes at the stations, less the stream function of the straight pipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hofno.errors import SolverError
from hofno.solvers.block_elimination import solve_block_tridiagonal
from hofno.solvers.pipe_basis import hermite, wall_polynomials

Centreline = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""Height f, slope f' and curvature f'' of all centrelines at positions along the pipe. (p,) -> (b, p) each"""

Force = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Both components of a force at x and y, all (b, p, Q)."""

_ALONG = 5  # Gauss points along an element: exact for the product of three cubics, one of them differentiated
_TRIAL = ((1, 2), (0, 1), (0,))  # derivatives along that the convective term has beside 0, 1 and 2 across


@dataclass(frozen=True)
class Flow:
    """Stream functions less that of the straight pipe, with the account of Newton's method."""

    stream: Tensor  # (b, n, 2, K)
    slope: Tensor  # f' at the stations, (b, n)
    steps: Tensor  # Newton steps, (b,)
    update: Tensor  # largest change in the last step, (b,)
    converged: Tensor  # (b,)


class PipeFlow:
    """Channels with common stations along them.

    Args:
        stations: increasing positions, the first at the inlet and the last at the outlet; f'' may jump at them.
        modes: polynomials across.
        viscosity: nu; the Reynolds number of the flux is 1 / (6 nu).
        device: where the work is done.
    """

    def __init__(self, stations: np.ndarray, modes: int, viscosity: float, device: str | torch.device = "cpu") -> None:
        lengths = np.diff(stations)
        if stations.ndim != 1 or len(stations) < 3 or not (lengths > 0).all():
            raise SolverError(
                f"a pipe needs at least 3 stations in increasing order; got {str(stations.tolist())[:60]}"
            )
        if modes < 1 or not viscosity > 0:
            raise SolverError(f"modes and viscosity must be positive; got modes={modes}, viscosity={viscosity}")
        self.modes, self.viscosity, self.device = modes, viscosity, torch.device(device)
        self._unit = float(lengths.mean())  # of slopes along the pipe
        z, across = np.polynomial.legendre.leggauss(3 * (modes + 3) // 2 + 1)  # exact for the convective term
        t, along = np.polynomial.legendre.leggauss(_ALONG)
        t, straight = (1 + t) / 2, (1 - z**2) / 4
        functions = 2.0 ** np.arange(3)[:, None, None] * wall_polynomials(z, modes)  # (3, K, Q), d/de = 2 d/dz
        tests = functions * across / 2
        shapes = hermite(t, lengths, self._unit)  # (3, E, q, 4)
        weighted = lengths[:, None, None] * along[:, None] / 2 * shapes
        masses = np.einsum("amQ,bnQ->abmn", tests, functions)
        convective = np.einsum("amQ,bnQ->abQmn", tests[:2], functions)
        self.stations = self._moved(stations)
        self._points = self._moved(stations[:-1, None] + lengths[:, None] * t)  # (E, q)
        self._eta = self._moved(z / 2)
        self._straight = self._moved(np.stack((straight, -z)))  # g_e and g_ee of the straight pipe, (2, Q)
        self._inlet = self._moved(np.linalg.solve(masses[0, 0], tests[0] @ straight))  # nearest to t (1 - t), (K,)
        self._across, self._across_tests = self._moved(functions), self._moved(tests)
        self._along, self._along_tests = self._moved(shapes), self._moved(weighted)
        products = (convective.reshape(-1, modes**2), masses.reshape(-1, modes**2))
        self._products = self._moved(np.concatenate(products))  # (6 Q + 9, K K)
        self._weights = self._moved(lengths[:, None] * along / 2)  # (E, q)
        self._pairs = [
            [
                torch.cat([torch.einsum("Eqk,Eql->Eklq", test, self._along[d]).flatten(1, 2) for d in orders], -1)
                for orders in _TRIAL
            ]
            for test in (self._along_tests[1], self._along_tests[0])
        ]  # beside h and h_e, and 0, 1, 2 derivatives of g across: (E, 16, orders q)

    def solve(
        self, centreline: Centreline, force: Force | None = None, tolerance: float = 1e-8, max_steps: int = 15
    ) -> Flow:
        """The flows by Newton's method from the straight pipe; a step below `tolerance` is the last one of a flow."""
        height, slope, curvature = (
            part.unflatten(1, self._points.shape)[..., None] for part in centreline(self._points.flatten())
        )  # (b, E, q, 1)
        at_stations = centreline(self.stations)[1]
        push = None if force is None else self._push(height, force)
        stream = height.new_zeros(len(height), len(self.stations), 2, self.modes)
        stream[:, 0, 1] = self._unit * at_stations[:, :1] * self._inlet
        viscous = self._viscous(slope, curvature)
        steps = torch.zeros(len(height), dtype=torch.long, device=self.device)
        update = height.new_full((len(height),), torch.inf)
        for _ in range(max_steps):
            going = ~(update < tolerance)
            fields = self._fields(stream, slope, curvature)
            residual = self._residual(fields, slope, curvature, push)
            change = self._newton(self._jacobian(fields, slope, curvature, viscous), residual)
            stream[:, 1:] += torch.where(going[:, None, None, None], change, 0.0)
            update = torch.where(going, change.flatten(1).abs().amax(1), update)
            steps += going
            if not bool((update.isfinite() & (update >= tolerance)).any()):
                break
        return Flow(stream, at_stations, steps, update, update < tolerance)

    def velocity(self, flow: Flow, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Both components at all stations and at the places `eta` in [-1/2, 1/2]. (p,) -> (b, n, p) each"""
        value, first, _ = self._moved(wall_polynomials(2 * eta.cpu().numpy(), self.modes))
        horizontal = flow.stream[:, :, 0] @ (2 * first) + (0.25 - eta**2)
        return horizontal, flow.slope[..., None] * horizontal - flow.stream[:, :, 1] @ value / self._unit

    def bytes_per_pipe(self) -> int:
        """Memory of one flow while it is solved, about."""
        blocks, columns, fields = 36 * self.modes**2, 32 * len(self._products), 40 * _ALONG * len(self._eta)
        return 8 * len(self._points) * (blocks + columns + fields)

    def _moved(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _push(self, height: Tensor, force: Force) -> tuple[Tensor, ...]:
        """The force at the quadrature points. (b, E, q, Q) each"""
        y = height + self._eta
        x = self._points[..., None].expand_as(y)
        return tuple(part.unflatten(1, self._points.shape) for part in force(x.flatten(1, 2), y.flatten(1, 2)))

    def _fields(self, stream: Tensor, slope: Tensor, curvature: Tensor) -> tuple[Tensor, ...]:
        """g_x, g_e, g_xx, g_xe, g_ee, (Dg)_x and (Dg)_e at the quadrature points. (b, E, q, Q) each"""
        element = torch.cat((stream[:, :-1], stream[:, 1:]), 2)  # (b, E, 4, K)
        value, first, second = (shape @ element for shape in self._along)  # (b, E, q, K)
        b0, b1, b2 = self._across
        gx, gxx, gxe = first @ b0, second @ b0, first @ b1
        ge, gee = value @ b1 + self._straight[0], value @ b2 + self._straight[1]
        return gx, ge, gxx, gxe, gee, gxx - slope * gxe - curvature * ge, gxe - slope * gee

    def _residual(
        self, fields: tuple[Tensor, ...], slope: Tensor, curvature: Tensor, push: tuple[Tensor, ...] | None
    ) -> Tensor:
        """The weak form tested with every function. (b, n, 2, K)"""
        gx, ge, gxx, gxe, gee, dx, de = fields
        bend, mixed = gxx - 2 * slope * gxe + slope**2 * gee - curvature * ge, gxe - slope * gee
        horizontal, vertical = ge * gxe - gx * gee, ge * dx - gx * de  # w . grad of g_e and of Dg
        if push is not None:
            horizontal, vertical = horizontal - push[0], vertical + push[1]
        nu = self.viscosity
        b0, b1, b2 = self._across_tests.mT  # (Q, K)
        parts = (
            (horizontal - slope * vertical - nu * curvature * bend) @ b1
            + (nu * (slope**2 * bend - 2 * slope * mixed + gee)) @ b2,
            vertical @ b0 + (2 * nu * (mixed - slope * bend)) @ b1,
            (nu * bend) @ b0,
        )  # beside 0, 1, 2 derivatives along, (b, E, q, K)
        local = torch.stack([test.mT @ part for test, part in zip(self._along_tests, parts, strict=True)]).sum(0)
        left, right = local.unflatten(2, (2, 2)).unbind(2)  # (b, E, 2, K)
        total = left.new_zeros(len(left), len(self.stations), 2, self.modes)
        total[:, :-1] += left
        total[:, 1:] += right
        return total

    def _viscous(self, slope: Tensor, curvature: Tensor) -> Tensor:
        """Integrals along of the viscous term, by derivatives across of test and trial function. (b, E, 16, 9)"""
        h0, h1, h2 = self._along  # (E, q, 4)
        weights = self._weights[..., None, None]  # (E, q, 1, 1)
        none = torch.zeros_like(slope * h0)
        rows = (
            (h2 + none, -2 * slope * h1 - curvature * h0, slope**2 * h0),  # DDg
            (none, h1 + none, -slope * h0),  # D g_e
            (none, none, h0 + none),  # g_ee
        )
        total = none.new_zeros(*none.shape[:2], 4, 4, 3, 3)
        for factor, row in zip((1, 2, 1), rows, strict=True):
            functions = torch.stack(row, -1)  # (b, E, q, 4, 3)
            total += torch.einsum("bEqka,bEqlc->bEklac", factor * self.viscosity * weights * functions, functions)
        return total.flatten(4).flatten(2, 3)

    def _jacobian(self, fields: tuple[Tensor, ...], slope: Tensor, curvature: Tensor, viscous: Tensor) -> Tensor:
        """The derivative of the weak form in each element, (b, E, 2, 2, 2, 2, K, K): ends and kinds, test and trial."""
        gx, ge, _, gxe, gee, dx, de = fields
        vertical = (-de, ge, dx - curvature * ge, -slope * ge - gx, slope * gx)  # beside x, xx, e, xe, ee
        horizontal = (-gee, torch.zeros_like(ge), gxe, ge, -gx)
        beside_he = tuple(h - slope * v for h, v in zip(horizontal, vertical, strict=True))
        columns = [
            pair @ torch.cat(some, 2)
            for pairs, terms in zip(self._pairs, (vertical, beside_he), strict=True)
            for pair, some in zip(pairs, (terms[:2], terms[2:4], terms[4:]), strict=True)
        ]  # (b, E, 16, Q) each
        both = torch.cat((*columns, viscous), -1) @ self._products  # (b, E, 16, K K)
        return both.unflatten(-1, (self.modes, self.modes)).unflatten(2, (2, 2, 2, 2))

    def _newton(self, local: Tensor, residual: Tensor) -> Tensor:
        """The change of g at all stations after the first. (b, n - 1, 2, K)"""

        def blocks(test: int, trial: int) -> Tensor:
            part = local[:, :, test, :, trial]  # (b, E, 2, 2, K, K)
            return part.permute(1, 0, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)  # (E, b, 2 K, 2 K)

        diagonal = blocks(1, 1)
        diagonal[:-1] += blocks(0, 0)[1:]
        right = -residual[:, 1:].flatten(2).transpose(0, 1)
        change = solve_block_tridiagonal(blocks(1, 0)[1:], diagonal, blocks(0, 1)[1:], right)
        return change.transpose(0, 1).unflatten(2, (2, self.modes))
