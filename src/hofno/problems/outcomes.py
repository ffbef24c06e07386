"""What comes of a field: one number for each sample that an engineer asks for, such as a drag or a largest stress.

An outcome is a function of inputs and fields in physical units, so that the same is asked of the truth and of what a
network predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """`of(x, y)` gives one number for each sample, (n,), from inputs (n, c, *grid) and fields (n, c', *grid).

    Points that a mask leaves out are 0 in both. `unit` is for tables and figures.
    """

    of: Callable[[Tensor, Tensor], Tensor]
    unit: str = ""


def largest(channel: int = 0, unit: str = "") -> Outcome:
    """The largest value of one target channel. Not for points with a mask, where those left out count as 0."""
    return Outcome(lambda x, y: y[:, channel].flatten(1).amax(1), unit)


def mean(channel: int = 0, unit: str = "") -> Outcome:
    """The mean over the points of one target channel, none of which a mask leaves out."""
    return Outcome(lambda x, y: y[:, channel].flatten(1).double().mean(1), unit)


def force_on_wall(nodes: Tensor, pressure: Tensor) -> Tensor:
    """What a pressure does to a closed wall that lies to the left of its nodes, in their order; thickness 1.

    Nodes (n, 2, k), the first and the last one at the same place, and the pressure there (n, k), linear in between.
    Returns the force, (n, 2).
    """
    along = nodes.double().diff(dim=-1)  # (n, 2, k - 1)
    middle = (pressure[:, 1:] + pressure[:, :-1]).double() / 2
    normal = along.flip(1)  # turned into the wall: (-dy, dx)
    normal[:, 0].neg_()
    return (normal * middle[:, None]).sum(-1)
