"""Memory of a step: what the forward pass of one sample keeps for its backward pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hofno.models.norm import HONORM

ENOUGH = 2**14  # points of a grid on which memory is measured


def saved_bytes(model: nn.Module, *shapes: tuple[int, ...]) -> int:
    """Bytes of activations that one sample's forward pass keeps for its backward pass; weights are not counted.

    `shapes` are those of what the model is given of a sample. A large grid is told from its every so many-th point.
    """
    few = _coarser(shapes[0][1:], _held(model)) if len(shapes) == 1 else shapes[0][1:]
    weights = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            found[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = model(*(torch.rand(1, shape[0], *few) for shape in shapes))
    del result
    return round(sum(found.values()) * math.prod(shapes[0][1:]) / math.prod(few))


def _held(model: nn.Module) -> tuple[float, ...]:
    """Half of the points along each axis that a model needs more than; () where it takes any."""
    if isinstance(model, HONORM):
        return (math.inf,)  # of a surface, all that it has
    degrees = getattr(model, "degrees", None)  # of spherical harmonics
    return getattr(model, "modes", ()) if degrees is None else ((degrees - 1) / 2, degrees - 1)


def _coarser(points: tuple[int, ...], modes: tuple[float, ...]) -> tuple[int, ...]:
    """A grid of at most `ENOUGH` points, or the smallest that the modes allow, where there are any."""
    few, stride = points, 1
    while math.prod(few) > ENOUGH:
        stride += 1
        coarser = tuple(math.ceil(n / stride) for n in points)
        if any(n <= 2 * m for n, m in zip(coarser, modes or (0,) * len(points), strict=True)):
            break
        few = coarser
    return few
