r"""Balanced ball trees: points put in an order in which those that are near each other stand together.

A set of n points is split at the median of its widest axis, ceil(n / 2) below and the others above; both halves are
split again, and so on until no set has more than a given number of points. These are the balls; in their order, points
of one ball stand next to each other, and so do the balls of one larger ball. Which points share a ball depends on where
they are and not on the order they came in, but for points that are equally far along an axis: those stay in the order
they came in, on every device, as positions are compared as whole numbers (`marks`).

Places in that order are called slots. A tree has as many of them for every cloud of a batch: clouds fill the first
balls, and each ball's first slots. All sets of a level are sorted at once; shapes follow from the number of points that
a cloud may have, and no value is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.geometry import key_for, untransformed

MOST = 2**40  # of the numbers by which positions are compared: float64 has them and their sums


class Slots(NamedTuple):
    """Which token stands in which slot; clouds that are all alike may share one row.

    source: the token of each slot, (b, S); of an empty one, any.
    home: the slot of each token, (b, N); of one that is not there, any.
    filled: the slots that hold a token, (b, S); None if all do.
    """

    source: Tensor
    home: Tensor
    filled: Tensor | None


def take(v: Tensor, index: Tensor) -> Tensor:
    """Tokens by number. (b, N, c) at (b, S) -> (b, S, c), of an index or tokens that may be one row for all."""
    if len(index) == 1:
        return v.index_select(1, index[0])
    return v.expand(len(index), -1, -1).gather(1, index.unsqueeze(-1).expand(-1, -1, v.shape[-1]))


def marks(places: Tensor, mask: Tensor | None, most: int) -> Tensor:
    """Points (b, N, d) by whole numbers, in float64: 0 to `most` across the widest axis of those of a cloud.

    Of points that are equally far, as many in a grid are, devices that round differently choose alike.
    """
    at = places.double()
    if mask is None:
        low, high = at.amin(1, keepdim=True), at.amax(1, keepdim=True)
    else:
        absent = ~mask.unsqueeze(-1)
        low = at.masked_fill(absent, torch.inf).amin(1, keepdim=True)
        high = at.masked_fill(absent, -torch.inf).amax(1, keepdim=True)
        low, high = (v.nan_to_num(0.0, 0.0, 0.0) for v in (low, high))  # of a cloud without points
    extent = (high - low).amax(-1, keepdim=True)
    return ((at - low) / torch.where(extent > 0, extent, 1.0) * most).round()


def splits_of(number: int, ball: int) -> int:
    """How often a set of points is split until no part has more than `ball` of them."""
    return (-(-number // ball) - 1).bit_length()


@torch.no_grad()
def ball_tree(places: Tensor, ball: int, mask: Tensor | None = None, levels: int = 0) -> Slots:
    """Slots of the points (b, N, d) in balls of at most `ball` of them.

    Args:
        places: the points; finite where none is as well.
        ball: the most points of a ball. With a mask balls have as many slots, otherwise as many as are needed.
        mask: which points are there, (b, N).
        levels: how often sets are split at least.
    """
    batch, number, _ = places.shape
    places = marks(places, mask, MOST)
    levels = max(levels, splits_of(number, ball))
    size = ball if mask is not None else -(-number >> levels)
    slots = torch.arange(size << levels, device=places.device)
    source = slots.clamp_max(number - 1).expand(batch, -1).unsqueeze(1)  # (b, sets, slots of each)
    there = torch.ones_like(places[..., 0], dtype=torch.bool) if mask is None else mask
    filled = F.pad(there, (0, (size << levels) - number)).unsqueeze(1)
    total = filled.sum(-1, keepdim=True)
    for level in range(1, levels + 1):
        half = (size << levels) >> level
        order = _widest(take(places, source.flatten(1)).unflatten(1, source.shape[1:]), filled)
        order = order.masked_fill(~filled, torch.inf).argsort(dim=-1, stable=True)
        count = filled.sum(-1, keepdim=True)
        # a small cloud is not spread over the slots of a large one: it is split where a tree of its own would begin
        below = torch.where(total <= half, count, (count + 1) // 2)  # (b, sets, 1)
        within = slots[:half]
        place = torch.cat((within.expand(*count.shape[:2], -1), below + within), -1).clamp_max(2 * half - 1)
        source = source.gather(2, order).gather(2, place).unflatten(2, (2, half)).flatten(1, 2)
        filled = torch.stack((within < below, within < count - below), 2).flatten(1, 2)
    source, filled = source.flatten(1), filled.flatten(1)
    home = source.new_zeros(batch, number + 1).scatter(
        1, source.masked_fill(~filled, number), slots.expand(batch, -1).contiguous()
    )
    full = mask is None and size << levels == number
    return Slots(source, home[:, :number], None if full else filled)


def _widest(at: Tensor, filled: Tensor) -> Tensor:
    """Positions along the axis on which a set is widest. (b, sets, slots, d) -> (b, sets, slots)"""
    empty = ~filled.unsqueeze(-1)
    width = at.masked_fill(empty, -torch.inf).amax(2) - at.masked_fill(empty, torch.inf).amin(2)  # (b, sets, d)
    axis = width.argmax(-1)[..., None, None].expand(-1, -1, at.shape[2], 1)
    return at.gather(-1, axis).squeeze(-1)


@torch.no_grad()
def tree_order(places: Tensor, mask: Tensor | None = None) -> Tensor:
    """The numbers of the points (b, N, d) in the order of a tree of single points, those not there last. (b, N)"""
    home = ball_tree(places, 1, mask).home
    return (home if mask is None else home.masked_fill(~mask, torch.iinfo(home.dtype).max)).argsort(-1)


@torch.no_grad()
def even_chunks(order: Tensor, chunks: int, count: Tensor | None = None) -> Slots:
    """Slots of tokens in the given order (b, N), cut into chunks of floor(N / chunks) or one more.

    With a `count` (b, 1) of tokens that are there, of those alone, which are the first of the order.
    """
    batch, number = order.shape
    size = -(-number // chunks)
    total = torch.full((1, 1), number, device=order.device) if count is None else count
    begins = (torch.arange(chunks + 1, device=order.device) * total + chunks - 1) // chunks  # (b, chunks + 1)
    within = torch.arange(size, device=order.device)
    rank = begins[:, :-1, None] + within  # (b, chunks, size)
    filled = (rank < begins[:, 1:, None]).flatten(1).expand(batch, -1)
    source = order.gather(1, rank.flatten(1).clamp_max(number - 1).expand(batch, -1))
    slots = torch.arange(chunks * size, device=order.device).expand(batch, -1)
    home = source.new_zeros(batch, number + 1).scatter(1, source.masked_fill(~filled, number), slots.contiguous())
    return Slots(source, home[:, :number], None if count is None and number % chunks == 0 else filled)


@torch.no_grad()
def turn(places: Tensor, angle: float) -> Tensor:
    """Points (..., d) turned by `angle` degrees in the plane of each two axes, one after the other."""
    axes = list(places.unbind(-1))
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    for i in range(len(axes)):
        for j in range(i + 1, len(axes)):
            axes[i], axes[j] = cos * axes[i] - sin * axes[j], sin * axes[i] + cos * axes[j]
    return torch.stack(axes, -1)


_kept: dict[tuple[object, ...], Any] = {}


def kept(key: tuple[object, ...], make: Callable[[], Any], like: Tensor) -> Any:
    """What `make` gives, tensors in a tuple, made once for each key, device and precision: the trees of grids."""
    key = key_for(like, key, _kept)
    found = _kept.get(key)
    if found is None:
        with torch.inference_mode(False), torch.no_grad(), untransformed():
            found = make()
        if type(found[0]) is Tensor:  # while a graph is exported the values are not there yet
            _kept[key] = found
    return found
