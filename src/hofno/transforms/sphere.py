r"""Real spherical harmonic transform of channel-last fields on latitude-longitude grids, as matrix products.

For a real field f on the unit sphere, colatitude theta (0 at the north pole), longitude phi, degrees l < L:

    Y_l^m(theta, phi) = P_l^m(cos theta) exp(i m phi),   m = 0..l,   integral of |Y_l^m|^2 over the sphere = 1
    f_lm = integral of f conj(Y_l^m) sin theta d theta d phi
    f    = Re sum_{m < L} sum_{l = m}^{L-1} c(m) f_lm Y_l^m,   c = 1 at m = 0, else 2

P_l^m are the orthonormal associated Legendre functions without the Condon-Shortley phase (-1)^m, so P_m^m >= 0. The
truncation is triangular, hence the same after any rotation. Coefficients mean the same function on every grid. Layouts:

    field     (b, rows, columns, c)     row 0 next to the north pole, column j at phi = 2 pi j / columns
    spectrum  (b, 2, M, L, c)           axis 1 holds real and imaginary part; M = L = degrees; zero where l < m

Matrix products. Longitudes are one product with a cosine/sine matrix, colatitudes one product for each order m:

    (b.., columns, c)    -> (b.., 2 M, c)            [2M x columns]
    (M, rows, b 2 c)     -> (M, L, b 2 c)            M times [L x rows]

Two kinds of rows, neither with a row on a pole:

    gauss          Legendre-Gauss nodes. A sum over the rows is exact for polynomials of degree 2 rows - 1.
    equiangular    theta_j = (j + 1/2) pi / rows, with the weights of Fejer's first rule.

Exactness. A field of degree below `degrees` is transformed exactly, up to rounding, if rows >= degrees and
columns >= 2 degrees - 1, on either kind; less is refused. On equiangular rows the weights of Fejer's rule alone would
need 2 degrees - 1 rows; here the trigonometric interpolant of each order through the rows (cosines for even m, sines
for odd m, the other way round for the components of tangent vectors) is integrated against P_l^m instead, which is
the same product with another matrix. A product of fields of degrees a and b has degree a + b: its coefficients
below `degrees` are exact if a + b + degrees <= 2 rows (gauss) or a + b < rows (equiangular), and
a + b + degrees <= columns.

Calculus. With k the outward normal, the field with divergence D and vorticity V is u = grad a + k x grad b, where the
potentials are a_lm = -D_lm / (l (l + 1)) and b_lm = -V_lm / (l (l + 1)):

    u_theta = d_theta a - (1 / sin theta) d_phi b,     u_phi = (1 / sin theta) d_phi a + d_theta b
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError
from hofno.geometry import NODES, cached, choose, constant, sphere_rows
from hofno.transforms.fourier import left_product

RESCALE = 400.0  # powers of two by which a recursion that started below the smallest float64 is scaled back


def nodes(rows: int, kind: str) -> tuple[Tensor, Tensor]:
    """Colatitudes of the rows, from north to south, and their weights in cos theta, of sum 2; both in float64."""
    theta, weights = sphere_rows(rows, kind)
    return torch.from_numpy(theta), torch.from_numpy(weights)


def legendre(degrees: int, theta: Tensor) -> Tensor:
    """Orthonormal associated Legendre functions P_l^m(cos theta), (orders m, degrees l, rows); zero where l < m."""
    return torch.from_numpy(_value(degrees, theta.numpy(force=True))).to(theta.device)


def legendre_derivative(degrees: int, theta: Tensor) -> Tensor:
    """d/d theta of `legendre`."""
    return torch.from_numpy(_slope(degrees, theta.numpy(force=True))).to(theta.device)


def _value(degrees: int, theta: np.ndarray) -> np.ndarray:
    """P_l^m, by the recursion in l at fixed m, which is stable.

    Its start, of the size of sin^m theta, is below the smallest number near the poles, so values are carried as p 2^e
    and the exponent is raised as they grow.
    """
    theta = theta.astype(np.float64)
    out = np.zeros((degrees, degrees, len(theta)))
    m = np.arange(degrees, dtype=np.float64)[:, None]
    steps = np.log2(1 + 0.5 / np.maximum(m, 0.5)) * (m > 0)
    start = 0.5 * (np.cumsum(steps, 0) - math.log2(4 * math.pi)) + m * np.log2(np.sin(theta))
    exponent = np.floor(start)  # (orders, rows)
    value, before, x = np.exp2(start - exponent), np.zeros_like(start), np.cos(theta)
    for degree in range(degrees):
        # orders below `degree` go one degree up, order `degree` starts, and those above wait
        if degree:
            v, w, squares = value[:degree], before[:degree], m[:degree] ** 2
            up = np.sqrt((4.0 * degree**2 - 1) / (degree**2 - squares))
            down = np.sqrt(((degree - 1.0) ** 2 - squares) / max(4.0 * (degree - 1) ** 2 - 1, 1.0))
            after = up * (x * v - down * w)
            rise = RESCALE * (np.abs(after) > 2.0**RESCALE)
            exponent[:degree] += rise
            before[:degree], value[:degree] = v * np.exp2(-rise), after * np.exp2(-rise)
        out[: degree + 1, degree] = value[: degree + 1] * np.exp2(exponent[: degree + 1])
    return out


def _slope(degrees: int, theta: np.ndarray) -> np.ndarray:
    """d/d theta of P_l^m, from its neighbours in order, without a division by sin theta."""
    table = _value(degrees, theta)
    m = np.arange(degrees, dtype=np.float64)[:, None, None]
    degree = np.arange(degrees, dtype=np.float64)[None, :, None]
    lower, upper = np.zeros_like(table), np.zeros_like(table)
    lower[1:], upper[:-1] = table[:-1], table[1:]
    lower[:1] = -upper[:1]  # P_l^-1 = -P_l^1
    to_lower = np.sqrt(np.maximum((degree + m) * (degree - m + 1), 0))
    to_upper = np.sqrt(np.maximum((degree - m) * (degree + m + 1), 0))
    return 0.5 * (to_lower * lower - to_upper * upper)


def _around(degrees: int, theta: np.ndarray) -> np.ndarray:
    """m P_l^m / sin theta, the table of (1 / sin theta) d/d phi."""
    return np.arange(degrees)[:, None, None] * _value(degrees, theta) / np.sin(theta)


TABLES = {"value": _value, "slope": _slope, "around": _around}


def check_degrees(degrees: int, rows: int, columns: int) -> None:
    """Refuse more degrees than the grid can tell apart."""
    if degrees < 1:
        raise ShapeError(f"degrees must be at least 1; got {degrees}")
    if rows < degrees or columns < 2 * degrees - 1:
        held = max(min(rows, (columns + 1) // 2), 0)
        raise ShapeError(
            f"degrees={degrees} needs at least {degrees} rows and {2 * degrees - 1} columns; the grid has {rows} x "
            f"{columns} and holds degrees={held}; lower degrees, or use a finer grid"
        )


def forward(x: Tensor, degrees: int, kind: str) -> Tensor:
    """Coefficients of degree below `degrees`. Field (b, rows, columns, c) -> spectrum (b, 2, M, L, c)."""
    check_degrees(degrees, x.shape[1], x.shape[2])
    return _analyse(_waves_of(x, degrees), degrees, kind, "value", tangent=False)


def inverse(spectrum: Tensor, rows: int, columns: int, kind: str, add: Tensor | None = None) -> Tensor:
    """The field of the given coefficients, plus `add`. Spectrum (b, 2, M, L, c) -> field (b, rows, columns, c)."""
    check_degrees(spectrum.shape[3], rows, columns)
    return _field_of(_synthesise(spectrum, rows, kind, "value"), columns, add)


def gradient(spectrum: Tensor, rows: int, columns: int, kind: str) -> tuple[Tensor, Tensor]:
    """The gradient of the field: (d/d theta, 1 / sin theta d/d phi), each (b, rows, columns, c)."""
    check_degrees(spectrum.shape[3], rows, columns)
    south = _synthesise(spectrum, rows, kind, "slope")
    east = _synthesise(_times_i(spectrum), rows, kind, "around")
    return _field_of(south, columns), _field_of(east, columns)


def divergence_curl(u_theta: Tensor, u_phi: Tensor, degrees: int, kind: str) -> tuple[Tensor, Tensor]:
    """Spectra of the divergence and of the vorticity (the radial curl) of a tangent field, each (b, 2, M, L, c).

        div u  = (1 / sin theta) (d_theta (sin theta u_theta) + d_phi u_phi)
        curl u = (1 / sin theta) (d_theta (sin theta u_phi) - d_phi u_theta)

    Both are integrated by parts against the gradient of conj(Y_l^m), so the components are never differentiated.
    """
    if u_theta.shape != u_phi.shape:
        raise ShapeError(
            f"the components of a tangent field have one shape; got {tuple(u_theta.shape)} and {tuple(u_phi.shape)}; "
            "give both on the same grid"
        )
    check_degrees(degrees, u_theta.shape[1], u_theta.shape[2])
    waves = _waves_of(torch.cat((u_theta, u_phi), -1), degrees)
    south, east = _analyse(waves, degrees, kind, "slope", tangent=True).chunk(2, -1)
    across, along = _analyse(waves, degrees, kind, "around", tangent=True).chunk(2, -1)
    return _times_i(along) - south, -_times_i(across) - east


def power(spectrum: Tensor) -> Tensor:
    """The integral of f^2 over the sphere by degree: sum over m of c(m) |f_lm|^2. (b, 2, M, L, c) -> (b, L, c)."""
    squared = spectrum.square().sum(1)
    return 2 * squared.sum(1) - squared[:, 0]


def eigenvalues(degrees: int, like: Tensor) -> Tensor:
    """-l (l + 1), what the Laplacian multiplies degree l by: (L, 1), to multiply a spectrum with."""

    def make() -> Tensor:
        degree = torch.arange(degrees, dtype=torch.float64)
        return (-degree * (degree + 1)).unsqueeze(1)

    return cached(("sphere_eigenvalues", degrees), make, like)


def _times_i(spectrum: Tensor) -> Tensor:
    return torch.stack((-spectrum[:, 1], spectrum[:, 0]), 1)


def _angles(columns: int, orders: int) -> Tensor:
    """m phi with the integer product reduced first, so that wide grids lose no digits. (columns, orders)"""
    whole = torch.outer(torch.arange(columns), torch.arange(orders)).remainder(columns)
    return whole.double() * (2 * math.pi / columns)


def _to_waves(columns: int, orders: int) -> Tensor:
    angle = _angles(columns, orders).T
    return torch.cat((torch.cos(angle), -torch.sin(angle))) / columns  # (2M, columns)


def _from_waves(columns: int, orders: int) -> Tensor:
    angle = _angles(columns, orders)
    twice = torch.full((orders,), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    return torch.cat((torch.cos(angle) * twice, -torch.sin(angle) * twice), 1)  # (columns, 2M)


def _waves_of(x: Tensor, orders: int) -> Tensor:
    """Fourier coefficients of every row, sorted by order: (b, rows, columns, c) -> (M, rows, b, 2, c)."""
    batch, rows, columns, channels = x.shape
    matrix = cached(("sphere_to_waves", columns, orders), lambda: _to_waves(columns, orders), x)
    waves = left_product(matrix, x.reshape(-1, columns, channels)).view(batch, rows, 2, orders, channels)
    return waves.permute(3, 1, 0, 2, 4).contiguous()


def _field_of(waves: Tensor, columns: int, add: Tensor | None = None) -> Tensor:
    """The field of the Fourier coefficients of every row, plus `add`: (M, rows, b, 2, c) -> (b, rows, columns, c)."""
    orders, rows, batch, _, channels = waves.shape
    matrix = cached(("sphere_from_waves", columns, orders), lambda: _from_waves(columns, orders), waves)
    by_row = waves.permute(2, 1, 3, 0, 4).reshape(batch * rows, 2 * orders, channels)
    residual = None if add is None else add.reshape(-1, columns, channels)
    return left_product(matrix, by_row, residual).view(batch, rows, columns, channels)


def _analyse(waves: Tensor, degrees: int, kind: str, table: str, tangent: bool) -> Tensor:
    """Integrals over colatitude against a table: (M, rows, b, 2, c) -> (b, 2, M, L, c)."""
    choose(kind, NODES, "nodes")
    rows = waves.shape[1]
    key = ("sphere_analysis", table, degrees, rows, kind, tangent)
    matrix = cached(key, lambda: _analysis(degrees, rows, kind, table, tangent), waves)
    spectrum = torch.bmm(matrix, waves.flatten(2)).view(degrees, degrees, *waves.shape[2:])
    return spectrum.permute(2, 3, 0, 1, 4).contiguous()


def _synthesise(spectrum: Tensor, rows: int, kind: str, table: str) -> Tensor:
    """Sums over degrees of a table: (b, 2, M, L, c) -> (M, rows, b, 2, c)."""
    choose(kind, NODES, "nodes")
    batch, _, orders, degrees, channels = spectrum.shape
    key = ("sphere_synthesis", table, degrees, rows, kind)
    matrix = cached(key, lambda: _synthesis(degrees, rows, kind, table), spectrum)
    by_order = spectrum.permute(2, 3, 0, 1, 4).reshape(orders, degrees, -1)
    return torch.bmm(matrix, by_order).view(orders, rows, batch, 2, channels)


@constant
def _synthesis(degrees: int, rows: int, kind: str, table: str) -> Tensor:
    """A table on the rows. (M, rows, L)"""
    return torch.from_numpy(TABLES[table](degrees, sphere_rows(rows, kind)[0]).swapaxes(1, 2))


@constant
def _analysis(degrees: int, rows: int, kind: str, table: str, tangent: bool) -> Tensor:
    """2 pi times the weights that integrate a field on the rows against a table. (M, L, rows)"""
    if kind == "gauss":
        theta, weights = sphere_rows(rows, kind)
        return torch.from_numpy(2 * math.pi * weights * TABLES[table](degrees, theta))
    theta, weights = sphere_rows((degrees + rows) // 2 + 1, "gauss")  # exact for the interpolant times the table
    fine = 2 * math.pi * weights * TABLES[table](degrees, theta)
    cosines, sines = _interpolations(rows, theta)
    out = np.empty((degrees, degrees, rows))
    out[0::2] = fine[0::2] @ (sines if tangent else cosines)
    out[1::2] = fine[1::2] @ (cosines if tangent else sines)
    return torch.from_numpy(out)


def _interpolations(rows: int, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From equiangular rows to `theta`, by cos k theta of k < rows and by sin k theta of 0 < k <= rows."""
    given, _ = sphere_rows(rows, "equiangular")
    k = np.arange(rows + 1, dtype=np.float64)
    share = np.full_like(k, 2 / rows)
    share[0] = share[rows] = 1 / rows
    low, high = k[:-1], k[1:]
    cosines = (np.cos(np.outer(theta, low)) * share[:-1]) @ np.cos(np.outer(low, given))
    sines = (np.sin(np.outer(theta, high)) * share[1:]) @ np.sin(np.outer(high, given))
    return cosines, sines
