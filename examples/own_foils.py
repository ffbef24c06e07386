"""A family of foils of one's own: a network learns their flows, a search asks it, and the solver has the last word.

NACA sections of random camber and thickness in streams of many Mach numbers and angles, on a mesh of every fifth node
of the published one. The network then looks for the section with the most lift at Mach 0.65 whose flow stays below a
given Mach number everywhere, among thousands; what it finds is solved. Takes half a minute on a CPU.

    python examples/own_foils.py
"""

import numpy as np
import torch

import hofno
from hofno.evaluation import outcomes_of, predicted_outcomes
from hofno.evaluation.outcomes import numbers_of
from hofno.problems.registry import problem
from hofno.problems.shapes import foil_inputs, foil_targets


def section(camber: float, place: float, thickness: float) -> np.ndarray:
    """A NACA section by its largest camber, where that is, and its thickness, in chords: points (121, 2)."""
    x = 0.5 + 0.5 * np.cos(np.linspace(0, 2 * np.pi, 121))
    half = 5 * thickness * (0.2969 * x**0.5 - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
    ahead = x < place
    line = np.where(ahead, 2 * place * x - x**2, 1 - 2 * place + 2 * place * x - x**2)
    line *= camber / np.where(ahead, place, 1 - place) ** 2
    return np.stack((x, line + np.where(np.arange(121) <= 60, half, -half)), 1)


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sections (camber, place, thickness) and streams (Mach number, degrees)."""
    low, high = [0.0, 0.3, 0.08, 0.6, -1.0], [0.03, 0.6, 0.14, 0.7, 3.0]
    drawn = np.random.default_rng(seed).uniform(low, high, (count, 5))
    return drawn[:, :3], drawn[:, 3:]


def main(samples: int = 300, epochs: int = 40, asked: int = 2000, most: float = 0.8) -> dict[str, float]:
    law = {"coarsen": 5, "mach": 0.65, "mach_range": 0.05, "incidence_range": 3.0, "pressure": True}
    made = problem("airfoil", law)
    sections, streams = draw(samples, seed=0)
    foils = [section(*one) for one in sections]
    x = foil_inputs(made, foils, *streams.T)
    y = foil_targets(made, foils, *streams.T, progress=True)
    data = hofno.from_arrays(x[:, :2], y, coords=x[:, 2:])

    net = hofno.HOFNO(4, 2, modes=(12, 5), width=24, depth=4, order=2, expansion=2, domain_padding=0.5)
    settings = {"batch_size": 8, "optimiser": "muon", "lr": 2e-3, "loss": "rel_l2", "normaliser": "pixel"}
    run = hofno.fit(net, data, epochs=epochs, **settings)
    known = outcomes_of(run, data, made.outcomes)
    for name, found in known.items():
        print(f"{name}: mean test error {found.errors.mean():.4f}, deviation of the truth {found.truth.std():.3f}")

    sections, streams = draw(asked, seed=1)
    streams[:, 0] = 0.65
    foils = [section(*one) for one in sections]
    x = foil_inputs(made, foils, *streams.T)
    guessed = predicted_outcomes(run, x[:, :2], made.outcomes, x[:, 2:])
    allowed = guessed["largest Mach number"] + known["largest Mach number"].bound < most  # with room for its error
    best = int(np.where(allowed, guessed["lift coefficient"], -np.inf).argmax())

    truth = foil_targets(made, foils[best], *streams[best])
    solved = numbers_of(made.outcomes, torch.from_numpy(x[best : best + 1]), torch.from_numpy(truth))
    camber, place, thickness = sections[best]
    print(
        f"most lift of {asked} below Mach {most:g}: camber {camber:.3f} at {place:.2f}, thickness {thickness:.3f}, "
        f"{streams[best, 1]:.1f} degrees"
    )
    found = {}
    for name in ("lift coefficient", "largest Mach number"):
        found |= {f"{name}, predicted": float(guessed[name][best]), f"{name}, solved": float(solved[name])}
        print(f"{name}: predicted {guessed[name][best]:.3f}, solved {float(solved[name]):.3f}")
    return found


if __name__ == "__main__":
    main()
