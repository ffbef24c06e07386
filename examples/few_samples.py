"""Few dear samples: begin with an operator that has learnt from many cheap ones.

Darcy flow on 29 x 29 points, solved on these alone (cheap, and wrong by several percent) and on 36 times as many. A
network is trained on many cheap samples and goes on with a few dear ones, in small steps; beside it one that has seen
only these, as often. Takes half a minute on a CPU.

    python examples/few_samples.py
"""

import hofno

SETTINGS = {"batch_size": 8, "optimiser": "muon", "loss": "rel_l2_gradient", "augment": True, "progress": False}


def main(cheap: int = 300, dear: int = 10, epochs: int = 15) -> dict[str, float]:
    def darcy(samples: int, cells: int, seed: int) -> hofno.Dataset:
        sizes = {"resolution": 29, "solver_resolution": cells, "train": samples, "valid": 10, "test": 40}
        return hofno.generate("darcy", scheme="finite_volume", seed=seed, **sizes)

    def network() -> hofno.HOFNO:
        return hofno.HOFNO(1, 1, modes=(8, 8), width=24, depth=2, order=2, domain_padding=2 / 3)

    many, few = darcy(cheap, cells=29, seed=1), darcy(dear, cells=169, seed=0)
    known = hofno.fit(network(), many, epochs=epochs, lr=2e-3, **SETTINGS)
    further = hofno.fit(known, few, epochs=2 * epochs, lr=5e-4, muon_lr=5e-3, **SETTINGS)
    anew = hofno.fit(network(), few, epochs=epochs * cheap // dear, lr=2e-3, **SETTINGS)
    errors = {}
    for name, run in {f"{cheap} cheap": known, f"then {dear} dear": further, f"{dear} dear alone": anew}.items():
        errors[name] = hofno.evaluate(run, few.test)["rel_l2"]
        print(f"{name:>16}: relative L2 error {errors[name]:.4f} on dear test samples")
    return errors


if __name__ == "__main__":
    main()
