"""Lift of NACA-0012 by mesh, and strangeness of sections that training has not seen: results/checks/foils.json.

    python tools/foil_checks.py

Takes a minute on a core of a CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from records import write_check

import hofno
from hofno.problems.airfoil_flows import WindTunnel
from hofno.problems.airfoil_mesh import c_grid
from hofno.problems.registry import problem
from hofno.problems.shapes import foil_inputs, foil_targets
from hofno.train.state import device_name

CELLS = ((5, 12, 5), (10, 24, 10), (25, 60, 25), (50, 120, 50), (100, 240, 100))
SECTIONS = {  # largest camber, where it is, thickness
    "NACA 0012": (0.0, 0.4, 0.12),
    "NACA 2412": (0.02, 0.4, 0.12),
    "3 % camber at 0.6, 8 % thick": (0.03, 0.6, 0.08),
    "NACA 4406": (0.04, 0.4, 0.06),
}
DATA: dict[str, Any] = {"coarsen": 2, "train": 200, "valid": 20, "test": 30}
MODEL: dict[str, Any] = {"modes": (12, 5), "width": 24, "depth": 2, "order": 2, "expansion": 2, "domain_padding": 0.5}
FIT: dict[str, Any] = {"epochs": 15, "batch_size": 8, "optimiser": "muon", "lr": 2e-3, "loss": "rel_l2"}
FIT |= {"normaliser": "pixel", "seed": 0}


def lift(cells: tuple[int, int, int], mach: float = 0.5, degrees: float = 2.0) -> dict[str, Any]:
    """Beside 2 pi angle / (1 - Mach^2)^(1/2), the theory of thin foils."""
    tunnel = WindTunnel(cells, 1e-6, 150)
    nodes, stream = c_grid(torch.zeros(1, 8, dtype=torch.float64), *cells), torch.tensor([[mach, degrees]]).double()
    found = tunnel.around(nodes, stream, "cpu")
    thin = 2 * math.pi * math.radians(degrees) / math.sqrt(1 - mach**2)
    measured = float(found["coefficients"][0, 1])
    return {"nodes": tunnel.shape, "lift": measured, "of_thin_foil": measured / thin}


def section(camber: float, place: float, thickness: float) -> np.ndarray:
    x = 0.5 + 0.5 * np.cos(np.linspace(0, 2 * np.pi, 121))
    half = 5 * thickness * (0.2969 * x**0.5 - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
    ahead = x < place
    line = camber * np.where(ahead, 2 * place * x - x**2, 1 - 2 * place + 2 * place * x - x**2)
    line /= np.where(ahead, place, 1 - place) ** 2
    return np.stack((x, line + np.where(np.arange(121) <= 60, half, -half)), 1)


def strangeness() -> dict[str, Any]:
    data, made = hofno.generate("airfoil", device="cpu", **DATA), problem("airfoil", DATA)
    torch.manual_seed(0)
    operator = hofno.fit(hofno.HOFNO(2, 1, **MODEL), data, progress=False, **FIT).surrogate
    rows = []
    for name, shape in SECTIONS.items():
        x, truth = foil_inputs(made, section(*shape)), foil_targets(made, section(*shape), device="cpu")
        error = float(np.linalg.norm(operator.predict(x) - truth) / np.linalg.norm(truth))
        rows.append({"section": name, "strangeness": float(operator.strangeness(x)[0]), "error": error})
    usual = np.asarray(operator.strangeness(data.test.x.numpy()))
    test = {"median": float(np.median(usual)), "largest": float(usual.max())}
    return {"bound": operator.error_bound(0.9), "test": test, "rows": rows}


def main() -> None:
    torch.set_num_threads(1)
    write_check(
        "foils",
        "Foils by mesh, and foils unlike those of training",
        device_name(torch.device("cpu")),
        "Lift of NACA 0012 at Mach 0.5 and 2 degrees, and as a part of 2 pi angle / (1 - Mach^2)^(1/2). "
        "Strangeness, and relative L2 errors at Mach 0.8, of a small network trained on 200 foils of the published "
        "law, every second node, one seed.",
        spec={"data": DATA, "model": MODEL, "fit": FIT},
        lift=[lift(cells) for cells in CELLS],
        strangeness=strangeness(),
    )


if __name__ == "__main__":
    main()
