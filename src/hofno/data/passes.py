"""Samples through a network, some at a time on the device that it is on, and predictions fed back to it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hofno.layers.precision import convolutions_like_products

Predict = Callable[[Tensor, Tensor | None, Tensor | None], tuple[Tensor, ...]]
"""Inputs, and of points their coordinates and which are there, to one or more results for each sample."""


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a model are."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


@torch.no_grad()
@convolutions_like_products()
def by_batch(
    predict: Predict, model: nn.Module, x: Tensor, batch_size: int, coords: Tensor | None, mask: Tensor | None
) -> list[Tensor]:
    """What `predict` gives by a model, on the CPU, of all samples; the model is as in use, and then as it was."""
    device, training, parts = device_of(model), model.training, []
    model.eval()
    try:
        for start in range(0, len(x), batch_size):
            rows = slice(start, start + batch_size)
            places, inside = (None if part is None else part[rows].to(device) for part in (coords, mask))
            parts.append(predict(x[rows].to(device), places, inside))
        return [torch.cat(column) for column in zip(*parts, strict=True)]
    finally:
        model.train(training)


def there(predicted: Tensor, inside: Tensor | None) -> Tensor:
    """Predictions on the CPU, 0 where no point is."""
    return (predicted if inside is None else predicted.masked_fill(~inside[:, None], 0.0)).cpu()


def roll_out(model: Callable[[Tensor], Tensor], state: Tensor, steps: int, fixed: int = 0) -> Tensor:
    """Apply a model to its own predictions: frames (b, history, *grid) to the `steps` that follow, float32.

    The first `fixed` channels of what it is given are no frames, and stay as they are.
    """
    predicted: list[Tensor] = []
    for _ in range(steps):
        predicted.append(model(state).float())  # (b, fields, *grid)
        state = torch.cat((state[:, :fixed], state[:, fixed + predicted[-1].shape[1] :], predicted[-1]), 1)
    return torch.cat(predicted, 1)
