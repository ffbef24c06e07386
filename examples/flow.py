"""A flow in time: learn one step of two-dimensional turbulence, roll it out, see how its error grows.

Frames of vorticity come from our solver; your own series go through `hofno.from_trajectories` in the same way. Takes
about two minutes on two CPU cores.

    python examples/flow.py
"""

import hofno


def main(samples: int = 60, epochs: int = 15, frames: int = 12) -> list[float]:
    data = hofno.generate(
        "navier_stokes",
        viscosity=1e-3,
        samples=samples,
        resolution=32,
        solver_resolution=64,
        frames=frames,
        history=2,
        step=0.05,
    )
    model = hofno.HOFNO(2, 1, modes=(10, 10), width=24, depth=2, order=2, coordinates="periodic", residual=True)
    run = hofno.fit(model, data, epochs=epochs, batch_size=4, lr=4e-3, optimiser="muon", progress=False)

    start, truth = data.test.x, data.test.y  # two frames, and those that follow
    rolled = run.predict(start)
    wrong = (rolled - truth).flatten(2).norm(dim=2) / truth.flatten(2).norm(dim=2)  # (samples, frames)
    errors = wrong.mean(0).tolist()
    for step, error in enumerate(errors, 1):
        print(f"step {step:2}: relative L2 error {error:.4f}")

    beyond = run.predict(start, steps=3 * truth.shape[1])  # a surrogate may be asked for more than it was scored on
    print(f"after {beyond.shape[1]} steps the largest vorticity is {float(beyond[:, -1].abs().max()):.2f}")
    return errors


if __name__ == "__main__":
    main()
