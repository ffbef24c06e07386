"""Train on a coarse grid, use on a fine one: Darcy flow, with a padded domain that is equally long on every grid.

python examples/other_grids.py
"""

import tempfile
from pathlib import Path

import hofno

SOLVED = 169  # cells of the solver; samples take every second or fourth of them


def main(samples: int = 150, epochs: int = 20) -> dict[int, float]:
    def darcy(resolution: int, train: int) -> hofno.Dataset:
        return hofno.generate("darcy", resolution=resolution, solver_resolution=SOLVED, train=train, valid=10, test=20)

    coarse = darcy(43, samples)
    model = hofno.HOFNO(1, 1, modes=(10, 10), width=24, depth=3, order=2, domain_padding=5 / 7, padded_by="length")
    run = hofno.fit(
        model, coarse, epochs=epochs, batch_size=8, lr=2e-3, optimiser="muon", loss="rel_l2_gradient", progress=False
    )
    errors = {43: hofno.evaluate(run, coarse.test)["rel_l2"]}
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "darcy")
        loaded = hofno.load(Path(folder) / "darcy")  # weights, statistics and grid: all that a prediction needs
        fine = darcy(85, 1)
        errors[85] = hofno.evaluate(loaded, fine.test)["rel_l2"]
    for points, error in errors.items():
        print(f"{points} x {points} points: relative L2 error {error:.4f}")
    return errors


if __name__ == "__main__":
    main()
