"""A curved surface of your own: triangles in, an operator on it out.

Heat sources on an ellipsoid with a ridge: f to the u with -Laplace u + u = f^2 there. `HONORM` takes the place of
HO-FNO; eigenfunctions of the surface's Laplace-Beltrami operator, computed from its triangles, that of Fourier modes.
Takes seconds on a CPU; needs SciPy (`pip install 'hofno[files]'`).

    python examples/surface.py
"""

import numpy as np
import torch
from scipy.spatial import ConvexHull

import hofno
from hofno.solvers.surface_elliptic import SurfaceElliptic


def ridged_ellipsoid(vertices: int) -> hofno.Surface:
    """Points spread evenly over a sphere (golden angle), triangulated there and then moved."""
    height = 1 - (2 * np.arange(vertices) + 1) / vertices
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(vertices)
    flat = np.sqrt(1 - height**2)
    sphere = np.stack((flat * np.cos(turn), flat * np.sin(turn), height), -1)
    triangles = ConvexHull(sphere).simplices
    ridge = 1 + 0.3 * np.exp(-20 * sphere[:, :1] ** 2)
    return hofno.Surface(vertices=ridge * sphere * [1.0, 1.3, 0.8], triangles=triangles)


def main(samples: int = 300, epochs: int = 20, vertices: int = 800) -> dict[str, float]:
    surface = ridged_ellipsoid(vertices)
    rng = np.random.default_rng(0)
    waves, phases = rng.normal(size=(samples, 6, 3)), rng.uniform(0, 2 * np.pi, (samples, 6, 1))
    x = np.cos(1.5 * waves @ surface.vertices.T + phases).sum(1)[:, None] / np.sqrt(3)  # (n, 1, vertices)
    y = SurfaceElliptic(surface).solve(torch.from_numpy(x**2)).numpy()

    data = hofno.from_arrays(x, y, surface=surface)
    errors = {}
    for order in (1, 2):
        model = hofno.HONORM(1, 1, functions=64, width=16, depth=1, order=order, backbone="classic")
        run = hofno.fit(model, data, epochs=epochs, batch_size=8, lr=8e-3, optimiser="muon", progress=False)
        errors[f"order {order}"] = hofno.evaluate(run, data.test)["rel_l2"]
        print(f"one layer of order {order}: relative L2 error {errors[f'order {order}']:.3f}")
    return errors


if __name__ == "__main__":
    main()
