"""Your own solver, your own arrays: Burgers' equation in one dimension, from the state now to the one later.

    u_t + u u_x = nu u_xx,    periodic,    u(0) -> u(1/2)

Orders 1 and 2 are nearly alike here, since the pointwise networks of a block mix modes too, and more blocks do better;
`own_network.py` has a map that needs its order. Takes seconds on a CPU.

    python examples/burgers.py
"""

import numpy as np

import hofno


def burgers(
    samples: int, points: int = 128, viscosity: float = 0.01, time: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Random smooth initial states and what becomes of them, (samples, 1, points) each: exact, by Cole and Hopf."""
    rng = np.random.default_rng(0)
    fine = 8 * points
    k = np.fft.rfftfreq(fine, 1 / fine)
    spectrum = (rng.standard_normal((samples, len(k))) + 1j * rng.standard_normal((samples, len(k)))) * (k < 8)
    spectrum[:, 1:] /= 1 + k[1:] ** 2
    spectrum[:, 0] = 0  # no mean: the potential below is then periodic
    u = np.fft.irfft(spectrum, fine) * fine / 8
    wave = 2j * np.pi * k
    potential = np.fft.irfft(np.fft.rfft(u) / np.where(k > 0, wave, np.inf), fine)  # its derivative is u
    heat = np.exp(-(potential - potential.min(1, keepdims=True)) / (2 * viscosity))
    later = np.fft.rfft(heat) * np.exp(wave**2 * viscosity * time)
    end = -2 * viscosity * np.fft.irfft(wave * later, fine) / np.fft.irfft(later, fine)
    return u[:, None, ::8].astype("float32"), end[:, None, ::8].astype("float32")


def main(samples: int = 400, epochs: int = 40) -> dict[str, float]:
    x, y = burgers(samples)
    data = hofno.from_arrays(x, y, periodic=True, split=(0.8, 0.1, 0.1))
    errors = {}
    for order in (1, 2):
        model = hofno.HOFNO(1, 1, modes=(24,), width=16, depth=1, order=order, coordinates="none")
        run = hofno.fit(model, data, epochs=epochs, batch_size=20, lr=4e-3, optimiser="muon", progress=False)
        errors[f"order {order}"] = hofno.evaluate(run, data.test)["rel_l2"]
        print(f"order {order}: relative L2 error {errors[f'order {order}']:.4f} on {len(data.test)} test states")
    return errors


if __name__ == "__main__":
    main()
