r"""Erwin: attention inside the balls of a ball tree, down to coarser clouds and up again, on points, grids and meshes.

    v_i = W [u_i, x_i]                                                 lift
    v <- v + norm(D [v, mean of messages])                             three rounds among nearest neighbours
    v <- v + A(norm v),   v <- v + MLP(norm v)                         blocks in balls, see `hofno.layers.balls`
    G u = MLP(v)                                                       at every point

Balls are the sets of a balanced tree (`hofno.layers.balltree`). They do not overlap, and every second block has those
of a tree whose points were turned by some degrees, so that what is said in a ball gets out of it. With a `stride` above
1 every few points of a tree become one of a coarser cloud, where balls of as many points reach further, and blocks on
the way up hear of both. A grid or a mesh is the cloud of its points, in units of its axes.

Published networks pad the tree with copies of points, which are attended; here slots that are left over hold nothing,
balls are as even as they can be, and where no cloud is coarsened there are few of such slots. Where points become
coarser and finer the published norms are over the batch, those here over the channels of each point.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import Coordinates, cached_coordinates
from hofno.layers.balls import BallBlock, Balls, Coarsen, Refine, balls_of, centres, offsets_from_centres
from hofno.layers.balltree import ball_tree, kept, splits_of, take, turn
from hofno.layers.fields import at_least
from hofno.layers.neighbours import Messages, nearest
from hofno.layers.parts import MLP
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of

ROUNDS = 3


class Level(NamedTuple):
    """A cloud of the ladder: places (b, S, d), the slots that hold a point, and in the other tree's order the same.

    `size` slots make a ball; `over` and `back` (b, S) go to the order of the turned tree and back.
    """

    places: Tensor
    filled: Tensor | None
    size: int
    over: Tensor | None
    back: Tensor | None
    filled_over: Tensor | None


class Layout(NamedTuple):
    """Slots of the points, their neighbours, and the clouds of the ladder."""

    source: Tensor
    home: Tensor
    neighbours: Tensor
    known: Tensor | None
    levels: tuple[Level, ...]

    def to(self, dtype: torch.dtype) -> Layout:
        """The same with places of another precision."""
        return self._replace(levels=tuple(level._replace(places=level.places.to(dtype)) for level in self.levels))


class Cloud(NamedTuple):
    """Balls of a level and of its turned tree, if there is one, and the ways between their orders."""

    balls: Balls
    turned: Balls | None
    over: Tensor | None
    back: Tensor | None


def cloud_of(level: Level) -> Cloud:
    """Balls of a level as its blocks are given them."""
    balls, turned = balls_of(level.places, level.size, level.filled), None
    if level.over is not None:
        turned = balls_of(take(level.places, level.over), level.size, level.filled_over)
    return Cloud(balls, turned, level.over, level.back)


class Stage(nn.Module):
    """Blocks on one cloud, every second one in the balls of the turned tree."""

    def __init__(self, blocks: list[BallBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, v: Tensor, cloud: Cloud) -> Tensor:
        for index, block in enumerate(self.blocks):
            if index % 2 == 0 or cloud.over is None or cloud.back is None:
                v = block(v, cloud.balls)
            else:
                v = take(block(take(v, cloud.over), cloud.turned), cloud.back)
        return v


class Erwin(TokenModel):
    """Erwin on points, grids and meshes, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point; 1 needs angle=0.
        width: hidden channels. Published: 64.
        depth: blocks of each cloud on the way down and on the way up. Published: 6.
        levels: how often clouds are coarsened. Published: 1.
        stride: points that become one, a power of 2. Published: 1, which leaves clouds as they are.
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 8.
        ball: the most points of a ball; with a stride above 1 a power of 2. Published: 256.
        angle: degrees by which the tree of every second block is turned; 0 has one tree. Published: 45.
        neighbours: nearest points that send messages at the start; 0 has no messages. Published: 8.
        expansion: hidden width of the MLPs over `width`. Published: 4.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 64,
        depth: int = 6,
        levels: int = 1,
        stride: int = 1,
        heads: int = 8,
        ball: int = 256,
        angle: float = 45.0,
        neighbours: int = 8,
        expansion: int = 4,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(Erwin, locals()), in_channels, out_channels, dims, coordinates)
        self.need_places()
        at_least(1, width=width, depth=depth, stride=stride, ball=ball, expansion=expansion)
        at_least(0, levels=levels, neighbours=neighbours)
        if stride & (stride - 1) or (stride > 1 and ball & (ball - 1)):
            raise SpecError(f"stride, and ball if stride is above 1, must be powers of 2; got {stride} and {ball}")
        if angle and dims == 1:
            raise SpecError(f"angle={angle} turns points about each other, which takes 2 axes; got dims=1; set angle=0")
        self.ball, self.stride, self.angle, self.neighbours = ball, stride, angle, neighbours
        self.lift = nn.Linear(self.known, width)
        self.messages = nn.ModuleList(Messages(width, dims) for _ in range(ROUNDS if neighbours else 0))

        def stage() -> Stage:
            return Stage([BallBlock(width, heads, dims, expansion) for _ in range(depth)])

        self.downs = nn.ModuleList(stage() for _ in range(levels + 1))
        self.coarsen = nn.ModuleList(Coarsen(width, stride, dims) for _ in range(levels))
        self.refine = nn.ModuleList(Refine(width, stride, dims) for _ in range(levels))
        self.ups = nn.ModuleList(stage() for _ in range(levels))
        self.project = MLP(width, width, out_channels)

    def through(self, state: Tensor, coords: Tensor | None, mask: Tensor | None) -> Tensor:
        points, v = tuple(state.shape[1:-1]), state.flatten(1, -2)
        if coords is not None:
            places = coords.mT
            layout = self.layout(places, mask)
        else:
            # a grid's layout is that of its exact places, on every device and in every precision
            exact = cached_coordinates(points, self.coordinates, v.new_empty(0, dtype=torch.float64))
            exact = exact.flatten(0, -2).unsqueeze(0)
            places = exact.to(v.dtype)
            key = ("erwin", points, self.coordinates, self.ball, self.stride, self.angle, self.neighbours)
            layout = kept((*key, len(self.ups)), lambda: self.layout(exact, None).to(v.dtype), v)
        return take(self.ladder(take(self.embed(v, places, layout), layout.source), layout.levels), layout.home)

    def embed(self, v: Tensor, places: Tensor, layout: Layout) -> Tensor:
        """Tokens (b, N, width) that have heard of their neighbours."""
        around = take(places, layout.neighbours.flatten(1)).unflatten(1, layout.neighbours.shape[1:])
        steps = around - places.unsqueeze(2)  # (b, N, k, d)
        for messages in self.messages:
            v = messages(v, layout.neighbours, steps, layout.known)
        return v

    def ladder(self, v: Tensor, levels: tuple[Level, ...]) -> Tensor:
        """Down to the coarsest cloud and up again. (b, S, width) -> (b, S, width)"""
        clouds = [cloud_of(level) for level in levels[: 1 if self.stride == 1 else None]]
        clouds += clouds * (len(levels) - len(clouds))  # with a stride of 1 they are all alike
        kept_there: list[tuple[Tensor, Tensor]] = []
        for stage, coarsen, level, cloud in zip(self.downs[:-1], self.coarsen, levels[:-1], clouds[:-1], strict=True):
            v = stage(v, cloud)
            offsets = offsets_from_centres(level.places, self.stride, level.filled)
            kept_there.append((v, offsets))
            v = coarsen(v, offsets, level.filled)
        v = self.downs[-1](v, clouds[-1])
        for refine, stage, cloud in zip(self.refine, self.ups, reversed(clouds[:-1]), strict=True):
            v = stage(refine(v, *kept_there.pop()), cloud)
        return v

    def layout(self, places: Tensor, mask: Tensor | None) -> Layout:
        """Trees and neighbours of points (b, N, d)."""
        if self.stride == 1:
            slots = ball_tree(places, self.ball, mask)
        else:  # down to single points, and at least one on the coarsest cloud
            slots = ball_tree(places, 1, mask, len(self.ups) * (self.stride.bit_length() - 1))
        at, filled = take(places, slots.source), slots.filled
        splits = 0 if self.stride > 1 else splits_of(places.shape[1], self.ball)
        levels = [self.level(at, filled, at.shape[1] >> splits)]
        for _ in self.ups:
            if self.stride > 1:
                at = centres(at, self.stride, filled).flatten(1, 2)
                filled = None if filled is None else filled.unflatten(1, (-1, self.stride)).any(2)
                levels.append(self.level(at, filled, at.shape[1]))
            else:
                levels.append(levels[-1])
        return Layout(slots.source, slots.home, *nearest(places, self.neighbours, mask), tuple(levels))

    def level(self, places: Tensor, filled: Tensor | None, size: int) -> Level:
        """A cloud in the order of its tree, with balls of `size` slots if there may be as many, and its turned tree."""
        size = min(size, self.ball)
        if not self.angle:
            return Level(places, filled, size, None, None, None)
        other = ball_tree(turn(places, self.angle), size, filled)
        return Level(places, filled, size, other.source, other.home, other.filled)
