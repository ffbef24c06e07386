"""The layer in a network of your own, trained by a loop of your own or by hofno's.

One layer of order 2 learns u_1, u_2 -> v with -Laplace v = u_1 u_2 - mean, which no layer of order 1 can.

    python examples/own_network.py
"""

import torch
from torch import Tensor, nn

import hofno


class OneLayer(nn.Module):
    """Lift, one spectral convolution of order m, project; fields are (b, c, n1, n2)."""

    def __init__(self, order: int, width: int = 24) -> None:
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.conv = hofno.HigherOrderSpectralConv(width, modes=(18, 18), order=order)
        self.project = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        v = self.lift(x.movedim(1, -1))  # channel-last inside
        return self.project(self.conv(v)).movedim(-1, 1)


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> float:
    """A plain loop; the error of the last hundred steps."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, steps)
    losses = []
    for _ in range(steps):
        batch = torch.randint(len(x), (10,))
        wrong, right = model(x[batch]) - y[batch], y[batch]
        loss = (wrong.flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return sum(losses[-100:]) / len(losses[-100:])


def main(samples: int = 200, steps: int = 600, epochs: int = 30) -> dict[str, float]:
    torch.manual_seed(0)
    data = hofno.generate("poisson", degree=2, train=samples, valid=10, test=20, resolution=40)
    x, y = data.train.x / data.train.x.std(), data.train.y / data.train.y.std()
    errors = {}
    for order in (1, 2):
        errors[f"order {order}"] = train(OneLayer(order), x, y, steps)
        print(f"own network of order {order}: training error {errors[f'order {order}']:.3f}")

    # hofno's own loop takes any module: normalisation, schedules, checkpoints, errors in physical units.
    run = hofno.fit(OneLayer(2), data, epochs=epochs, batch_size=10, lr=1e-2, progress=False)
    errors["fitted"] = hofno.evaluate(run, data.test)["rel_l2"]
    print(f"the same by hofno.fit: test error {errors['fitted']:.3f}")
    return errors


if __name__ == "__main__":
    main()
