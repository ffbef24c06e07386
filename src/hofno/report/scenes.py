"""How samples of a problem are to be seen: what their channels are called, and where in the plane their values lie.

On a grid a field is an image, on a surface it is painted on that. On a mesh it is drawn where the nodes are, which two
input channels say; a body that moves is drawn where its targets say it is, frame by frame. A problem without an entry
here is drawn by its geometry alone: the last channels of a mesh are its coordinates, as `Surrogate.predict` appends
them. Fields on a mesh that does not lie in the plane are images, as on a grid, and its coordinates are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from hofno.problems.base import Problem
    from hofno.problems.quantities import Quantities
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


@dataclass(frozen=True)
class Coefficient:
    """A target as engineers draw it along a wall, (value - zero) / unit; `downwards`: the larger the lower.

    Where `speed` is an input channel, the same at all nodes, the unit is `unit` times its square.
    """

    name: str
    zero: float
    unit: float
    downwards: bool = False
    speed: int | None = None

    def of(self, values: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Of values (n,) along the wall of a sample with inputs (c, I, J)."""
        squared = 1.0 if self.speed is None else float(inputs[self.speed].flat[0]) ** 2
        return (values - self.zero) / (self.unit * squared)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a sample shows.

    Attributes:
        inputs: names of the input channels with their units, in their order.
        targets: those of the target channels; in time, of the fields of a frame.
        nodes: input channels that are x and y of the nodes of a mesh.
        window: the part of the plane worth seeing, x from and to, y from and to; None shows everything.
        level: a value of the first target that is drawn as a line, and its name.
        wall: what the border j = 0 of the mesh is, if values along it are worth a curve of their own.
        coefficients: target channels that are drawn there as coefficients.
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
    coefficients: Mapping[int, Coefficient] = field(default_factory=dict)
    lengths: str = ""
    surface: Surface | None = None
    motion: Motion | None = None


def scene_of(made: Problem, known: Quantities | None = None) -> Scene:
    """How samples of this problem are drawn, its channels called as they are `known`, or as the problem says."""
    from hofno.geometry import Surface

    names = known or made.quantities
    given, wanted = tuple(map(str, names.inputs)), tuple(map(str, names.targets))
    if made.name in SCENES:
        return replace(SCENES[made.name](made), inputs=given, targets=wanted)
    if isinstance(made.grid_geometry, Surface):
        return Scene(inputs=given, targets=wanted, surface=made.grid_geometry)
    last, flat = made.channels[0], len(made.grid_geometry.shape) == made.mesh_coordinates == 2
    return Scene(inputs=given, targets=wanted, nodes=(last - 2, last - 1) if flat else None)


def _airfoil(made: Problem) -> Scene:
    """The far boundary is 40 chords away: what matters is around the foil, and the line where the flow is sonic.

    Far away the pressure is 1, and the dynamic pressure half of gamma M^2.
    """
    from hofno.solvers.euler import GAMMA

    given, parameters = made.channels[0], made.parameters()
    speed = 0 if given > 2 and parameters["mach_range"] > 0 else None
    dynamic = 0.5 * GAMMA * (parameters["mach"] ** 2 if speed is None else 1.0)
    coefficient = Coefficient("pressure coefficient", 1.0, dynamic, downwards=True, speed=speed)
    return Scene(
        nodes=(given - 2, given - 1),
        window=(-0.95, 2.05, -1.15, 1.15),
        level=(1.0, "Mach 1"),
        wall="foil",
        coefficients={1: coefficient},
        lengths="chords",
    )


def _pipe(_: Problem) -> Scene:
    return Scene(nodes=(0, 1), lengths="widths")


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


SCENES: dict[str, Callable[[Problem], Scene]] = {
    "airfoil": _airfoil,
    "pipe": _pipe,
    "plasticity": _plasticity,
}
