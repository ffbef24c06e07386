"""How samples of a problem are to be seen: what their channels are called, and where in the plane their values lie.

On a grid a field is an image, on a surface it is painted on that. On a mesh it is drawn where the nodes are, which two
input channels say; a body that moves is drawn where its targets say it is, frame by frame. A problem without an entry
here is drawn by its geometry alone: the last channels of a mesh are its coordinates, as `Surrogate.predict` appends
them. Fields on a mesh that does not lie in the plane are images, as on a grid, and its coordinates are inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hofno.problems.base import Problem
    from hofno.surface import Surface


@dataclass(frozen=True, kw_only=True)
class Motion:
    """A body that moves in the plane, its frames along the last axis of a sample, pressed by a tool that comes down.

    Attributes:
        positions: target channels that are x and y of the nodes.
        displacements: target channels that are how far they have moved.
        tool: input channel that is the height of the tool in the first frame, the same along all axes but the first.
        tool_from_left: whether these heights run with x; otherwise they run with the nodes.
        speed: of the tool, downwards, lengths for a unit of time.
        interval: time between two frames.
        units: of length and time.
    """

    positions: tuple[int, int]
    displacements: tuple[int, int]
    tool: int
    tool_from_left: bool
    speed: float
    interval: float
    units: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a sample shows.

    Attributes:
        inputs: names of the input channels, in their order; those of nodes may be anything.
        targets: names of the target channels.
        nodes: input channels that are x and y of the nodes of a mesh.
        window: the part of the plane worth seeing, x from and to, y from and to; None shows everything.
        level: a value of the first target that is drawn as a line, and its name.
        wall: what the border j = 0 of the mesh is, if values along it are worth a curve of their own.
        lengths: what x and y are measured in.
        surface: what fields at vertices are on.
        motion: where the body is, if the targets say it.
    """

    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    nodes: tuple[int, int] | None = None
    window: tuple[float, float, float, float] | None = None
    level: tuple[float, str] | None = None
    wall: str = ""
    lengths: str = ""
    surface: Surface | None = None
    motion: Motion | None = None


def scene_of(made: Problem) -> Scene:
    """How samples of this problem are drawn."""
    from hofno.geometry import Surface

    if made.name in SCENES:
        return SCENES[made.name](made)
    if isinstance(made.grid_geometry, Surface):
        return Scene(surface=made.grid_geometry)
    last, flat = made.channels[0], len(made.grid_geometry.shape) == made.mesh_coordinates == 2
    return Scene(nodes=(last - 2, last - 1) if flat else None)


def _airfoil(made: Problem) -> Scene:
    """The far boundary is 40 chords away: what matters is around the foil, and the line where the flow is sonic."""
    return Scene(
        targets=("Mach number", "pressure")[: made.channels[1]],
        nodes=(0, 1),
        window=(-0.75, 1.95, -1.0, 1.0),
        level=(1.0, "Mach 1"),
        wall="foil",
        lengths="chords",
    )


def _darcy(_: Problem) -> Scene:
    return Scene(inputs=("coefficient a",), targets=("solution u",))


def _elasticity(_: Problem) -> Scene:
    return Scene(targets=("von Mises stress",))


def _navier_stokes(_: Problem) -> Scene:
    return Scene(targets=("vorticity",))


def _shallow_water(_: Problem) -> Scene:
    return Scene(targets=("height", "southward wind", "eastward wind"))


def _pipe(_: Problem) -> Scene:
    return Scene(targets=("horizontal velocity",), nodes=(0, 1), lengths="widths")


def _plasticity(made: Problem) -> Scene:
    from hofno.problems.dies import SPEED
    from hofno.problems.plasticity import INTERVAL

    motion = Motion(
        positions=(0, 1),
        displacements=(2, 3),
        tool=0,
        tool_from_left=not made.parameters()["aligned"],
        speed=SPEED,
        interval=INTERVAL,
        units=("mm", "ms"),
    )
    return Scene(motion=motion)


def _poisson(made: Problem) -> Scene:
    count = made.channels[0]
    return Scene(inputs=tuple(f"u{index + 1}" for index in range(count)), targets=("solution v",))


def _surface_poisson(made: Problem) -> Scene:
    from hofno.surface import Surface

    surface = made.grid_geometry
    assert isinstance(surface, Surface)
    inputs = tuple(f"f{index + 1}" for index in range(made.channels[0]))
    return Scene(inputs=inputs, targets=("solution u",), surface=surface)


SCENES: dict[str, Callable[[Problem], Scene]] = {
    "airfoil": _airfoil,
    "darcy": _darcy,
    "elasticity": _elasticity,
    "navier_stokes": _navier_stokes,
    "pipe": _pipe,
    "plasticity": _plasticity,
    "poisson": _poisson,
    "shallow_water": _shallow_water,
    "surface_poisson": _surface_poisson,
}
