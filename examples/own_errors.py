"""What to expect of a prediction: a bound of its error, and inputs that the operator was not trained for.

Poisson's equation with a product of two random fields as its source. The operator keeps the errors of its validation
samples; from them it says which error 8 or 9 of 10 predictions stay below. Two networks as one also say so of every
single prediction, by how far theirs lie apart. All that holds for inputs of the same kind; so an operator also says
which ones are not. Takes seconds on a CPU.

    python examples/own_errors.py
"""

import numpy as np

import hofno
from hofno.evaluation import score


def trained(data: hofno.Dataset, epochs: int) -> hofno.Surrogate:
    model = hofno.HOFNO(2, 1, modes=(16, 16), width=16, depth=1, order=2, coordinates="none")  # weights are random
    return hofno.fit(model, data, epochs=epochs, batch_size=5, lr=8e-3, optimiser="muon", progress=False).surrogate


def main(samples: int = 300, epochs: int = 12) -> dict[str, float]:
    data = hofno.generate("poisson", degree=2, train=samples, valid=100, test=200, resolution=40)
    operator = trained(data, epochs)

    errors = score(operator, data.test).rel_l2.numpy()
    kept = {}
    for coverage in (0.5, 0.8, 0.9):
        bound = operator.error_bound(coverage)
        kept[f"{coverage:.0%}"] = float(np.mean(errors <= bound))
        print(f"{coverage:.0%} of predictions should have an error below {bound:.3f}; {kept[f'{coverage:.0%}']:.0%} do")

    both = hofno.combine([operator, trained(data, epochs)], data)
    bounds, common = both.error_bound(0.9, data.test.x.numpy()), both.error_bound(0.9)
    kept["each"] = float(np.mean(score(both, data.test).rel_l2.numpy() <= bounds))
    print(f"two networks as one: at most {common:.3f} for 90%; of each alone {bounds.min():.3f} to {bounds.max():.3f},")
    print(f"    {bounds.mean():.3f} on average; {kept['each']:.0%} keep their own")

    x = data.test.x.numpy()
    rough = x + 0.5 * np.random.default_rng(0).standard_normal(x.shape).astype(x.dtype)
    found = {"like training": x, "twice as large": 2 * x, "noisy": rough, "in other units": 1000 * x}
    for name, inputs in found.items():
        kept[name] = float(np.median(operator.strangeness(inputs)))
        print(f"{name}: {kept[name]:.2g} times as far from the training inputs as the farthest validation input")
    return kept


if __name__ == "__main__":
    main()
