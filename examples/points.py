"""Scattered points: stress around a void, at 972 points that lie elsewhere in every sample.

`PointHO` multiplies its factors at the points and mixes them through learned bases; no grid is involved. Samples with
different numbers of points go in as lists. Takes about a minute on two CPU cores.

    python examples/points.py
"""

import hofno


def main(samples: int = 100, epochs: int = 25) -> float:
    data = hofno.generate("elasticity", train=samples, valid=10, test=10)
    model = hofno.PointHO(0, 1, width=32, depth=3, order=2, tokens=16, heads=4)  # places are the only input
    run = hofno.fit(model, data, epochs=epochs, batch_size=5, lr=4e-3, optimiser="muon", progress=False)
    error = hofno.evaluate(run, data.test)["rel_l2"]
    print(f"relative L2 error {error:.3f} on {len(data.test)} voids that were not trained on")

    places = data.test.coords[:2]
    some = [places[0, :, ::2], places[1, :, ::3]]  # 486 and 324 of the points
    stresses = run.predict(None, some)
    print("predicted at", " and ".join(str(found.shape[-1]) for found in stresses), "points")
    return error


if __name__ == "__main__":
    main()
