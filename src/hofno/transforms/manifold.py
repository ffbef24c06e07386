r"""The Laplace-Beltrami basis of a triangulated surface, and the transform of channel-last fields to it.

    -Laplace phi_j = lambda_j phi_j on the surface, no slope across its borders, 0 <= lambda_0 <= lambda_1 <= ...

in linear finite elements: functions that are linear on every triangle, given by their values at the vertices.

    S phi = lambda M phi,    phi^T M phi = 1
    S_ij = integral of grad h_i . grad h_j, h the hat functions; on a triangle of area A with the edge e_i opposite to
           corner i it is e_i.e_j / 4A, minus half the cotangent of the angle between them where i and j differ
    M    = diagonal: every triangle gives a third of its area to each of its corners

    forward   x^_j = phi_j^T M x, the integral of phi_j x      [K x N], (b, N, c) -> (b, K, c)
    inverse   x = sum_j x^_j phi_j                             [N x K], (b, K, c) -> (b, N, c)

Both are matrix products. With all N functions they are inverse to each other; with fewer, inverse(forward(x)) is the
nearest function to x in the mean square over the surface. Eigenvalues and coefficients converge with the square of the
triangles' size.

What a basis is not. A function that belongs to a single eigenvalue is known up to its sign, here chosen: positive at
the first vertex where it is larger than half of its largest value. Functions of a multiple eigenvalue, of which spheres
and other symmetric surfaces have many, are known up to a rotation among them, and rounding decides; where two
eigenvalues are close, so does the triangulation, and which comes first. The coefficients of one function on two
triangulations of a surface therefore agree in their sum of squares over such a group, and one by one only where
eigenvalues are well apart. A network with a weight for each of them belongs to the one basis it was trained with.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from hofno.errors import ShapeError, SpecError
from hofno.surface import Surface
from hofno.transforms.fourier import left_product

SMALL = 600
"""Vertices up to which all eigenvectors are found at once, faster than some of them."""

LARGEST_DENSE = 6000
"""Vertices up to which that is bearable without SciPy: a matrix of 288 MB, minutes."""

MISSED_AT_ONCE, COINCIDE = 3, 1e-8
"""Functions that are looked for beside those found, and the relative distance at which eigenvalues coincide."""


def local_stiffness(surface: Surface) -> np.ndarray:
    """Integrals of grad h_i . grad h_j over every triangle, (F, 3, 3)."""
    corners = surface.corners
    opposite = np.roll(corners, 1, axis=1) - np.roll(corners, -1, axis=1)  # edge i goes from corner i + 1 to i - 1
    return opposite @ opposite.swapaxes(1, 2) / (4 * surface.areas[:, None, None])


def local_mass(surface: Surface) -> np.ndarray:
    """Integrals of h_i h_j over every triangle, (F, 3, 3): a sixth of its area, where i and j differ a twelfth."""
    return surface.areas[:, None, None] * (1 + np.eye(3)) / 12


def masses(surface: Surface) -> np.ndarray:
    """The area of every vertex, a third of its triangles', (N,); their sum is that of the surface."""
    thirds = np.repeat(surface.areas / 3, 3)
    return np.bincount(surface.triangles.ravel(), weights=thirds, minlength=len(surface.vertices))


def assembled(local: np.ndarray, surface: Surface) -> np.ndarray:
    """The matrix (N, N) of what is given by triangle, (F, 3, 3)."""
    count = len(surface.vertices)
    rows, columns = _places(surface)
    flat = np.bincount(rows * count + columns, weights=local.ravel(), minlength=count * count)
    return flat.reshape(count, count)


def _places(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of a local matrix, in their order."""
    rows = np.repeat(surface.triangles, 3, axis=1).ravel()
    return rows, np.tile(surface.triangles, (1, 3)).ravel()


def check_count(count: int, vertices: int) -> None:
    """Refuse more functions than there are."""
    if not 1 <= count <= vertices:
        raise ShapeError(
            f"a surface of {vertices} vertices has 1 to {vertices} basis functions; got functions={count}; lower it, "
            "or use a finer triangulation"
        )


@lru_cache(maxsize=8)
def basis(surface: Surface, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first eigenvalues (count,) and functions (N, count), in float64; made once.

    By SciPy's sparse eigensolver, if it is installed and few of the functions are wanted, else all at once.
    """
    vertices = len(surface.vertices)
    check_count(count, vertices)
    few = 4 * count <= vertices
    if vertices > SMALL and few and find_spec("scipy") is not None:
        found = sparse_basis(surface, count)
    elif vertices <= LARGEST_DENSE:
        found = dense_basis(surface, count)
    else:
        remedy = "install scipy (pip install 'hofno[files]')" if few else f"use functions={vertices // 4} at most"
        raise SpecError(
            f"{count} functions of a surface of {vertices} vertices would need all of them at once; {remedy}, or a "
            f"triangulation of at most {LARGEST_DENSE} vertices"
        )
    for array in found:
        array.setflags(write=False)
    return found


def dense_basis(surface: Surface, count: int) -> tuple[np.ndarray, np.ndarray]:
    """As `basis`, from all eigenvectors of M^-1/2 S M^-1/2."""
    root = np.sqrt(masses(surface))
    scaled = assembled(local_stiffness(surface), surface) / (root[:, None] * root)
    values, vectors = torch.linalg.eigh(torch.from_numpy(scaled))
    return _settled(values[:count].numpy(), vectors[:, :count].numpy() / root[:, None])


def sparse_basis(surface: Surface, count: int) -> tuple[np.ndarray, np.ndarray]:
    """As `basis`, by Lanczos iterations with (S - sigma M)^-1, sigma just below all eigenvalues.

    Where eigenvalues coincide, as on a sphere, an iteration may miss some of their functions. So the lowest of what is
    left beside the functions that were found is looked for, until it is no lower than these.
    """
    from scipy.sparse import coo_matrix, diags
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    area, number = masses(surface), len(surface.vertices)
    entries, sigma = local_stiffness(surface).ravel(), -1 / float(area.sum())
    stiffness = coo_matrix((entries, _places(surface)), shape=(number, number)).tocsc()
    mass = diags(area, format="csc")
    factors = splu((stiffness - sigma * mass).tocsc())
    start = np.random.Generator(np.random.Philox(0)).standard_normal(number)

    def lowest(some: int, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def solve(b: np.ndarray) -> np.ndarray:
            found = factors.solve(b - area * (known @ (known.T @ b)))
            return found - known @ (known.T @ (area * found))

        # the stubs do not know that this makes an operator of a function
        inverted = LinearOperator((number, number), matvec=solve, dtype=np.float64)  # pyright: ignore[reportCallIssue]
        values, vectors = eigsh(stiffness, some, mass, sigma=sigma, OPinv=inverted, v0=start)
        return values, vectors

    values, vectors = lowest(count, np.empty((number, 0)))
    while True:
        order = np.argsort(values)[:count]
        values, vectors = values[order], vectors[:, order]
        more, missed = lowest(min(MISSED_AT_ONCE, number - count - 1), vectors)
        if more.min() >= values[-1] * (1 - COINCIDE):
            return _settled(values, vectors)
        values, vectors = np.concatenate((values, more)), np.concatenate((vectors, missed), 1)


def _settled(values: np.ndarray, functions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """No eigenvalue below 0, where rounding puts the first, and a sign for each function."""
    size = np.abs(functions)
    first = (size > 0.5 * size.max(0)).argmax(0)
    signs = np.sign(np.take_along_axis(functions, first[None], 0))
    return np.maximum(values, 0.0), np.ascontiguousarray(functions * signs)


def forward(x: Tensor, functions: Tensor, area: Tensor) -> Tensor:
    """Coefficients of channel-last fields, (b, N, c) -> (b, K, c), by functions (N, K) and areas (N,)."""
    return left_product(functions.T, x * area[:, None])


def inverse(spectrum: Tensor, functions: Tensor, add: Tensor | None = None) -> Tensor:
    """Fields of coefficients, plus `add`, (b, K, c) -> (b, N, c)."""
    return left_product(functions, spectrum, add)
