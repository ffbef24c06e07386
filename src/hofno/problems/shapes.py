"""Foils and dies of one's own: inputs of a trained operator, and what the problem's solver finds in its place.

A problem draws its shapes at random; here they are given. The problem is that of the operator's data,
`problem("airfoil", {...})` with the same parameters: its mesh, its form and what its streams are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hofno.device import find_device
from hofno.errors import DataError, SpecError
from hofno.problems.airfoil import Airfoil
from hofno.problems.airfoil_mesh import airfoil, grid_around, through
from hofno.problems.base import Problem, Progress, of_revision
from hofno.problems.dies import SPEED
from hofno.problems.kept_parts import in_turn
from hofno.problems.kept_samples import KeptSamples
from hofno.problems.plasticity import Plasticity
from hofno.problems.pressed import HEIGHT, ORIGIN, WIDTH, inputs_of
from hofno.show import telling
from hofno.solvers.die import Die
from hofno.solvers.euler import orientation
from hofno.storage import fingerprint

LEAST_POINTS, LEAST_HEIGHTS = 12, 4  # of a foil, of a die
_DESIGN, _LARGEST_GAP, _OFF = 8, 0.02, 0.01
_UNSEEN = 1.0  # mm of the lowest part of a die that may lie between two nodes
_INSIDE = 0.5  # mm that a die may go in between two nodes of a block; under dies of the law 0.2 at most


def foil_inputs(
    made: Problem,
    foils: Any,
    mach: ArrayLike | None = None,
    degrees: ArrayLike | None = None,
    names: Sequence[str] = (),
) -> np.ndarray:
    """What `predict` takes for foils in streams: their meshes, after the conditions that are inputs. (n, c, I, J)

    Args:
        made: the problem of the operator's data, an Airfoil.
        foils: designs (n, 8) of the design element, or (8,); or points (k, 2) of a foil in chords, or a list of these
            for several: from the trailing edge, x = 1, over the upper side to the nose, x = 0, and back below, as
            files of coordinates have them, or the other way round. A trailing edge that is open is closed by moving
            both sides.
        mach: Mach number far away, of all foils or one for each; that of the problem if left out.
        degrees: angle of attack, likewise; 0 if left out.
        names: what foils are called in messages; their numbers if left out.
    """
    problem, nodes, streams = _flown(made, foils, mach, degrees, names)
    wide = np.broadcast_to(streams[..., None, None], (*streams.shape, *nodes.shape[2:]))[:, list(problem.conditions)]
    return np.concatenate((wide, nodes.float().numpy()), 1, dtype=np.float32)


def foil_targets(
    made: Problem,
    foils: Any,
    mach: ArrayLike | None = None,
    degrees: ArrayLike | None = None,
    device: str | None = None,
    progress: bool | Progress = False,
    store: str | Path | None = None,
    names: Sequence[str] = (),
) -> np.ndarray:
    """The flows that the problem's solver finds around foils, as `predict` of `foil_inputs` gives them. (n, c, I, J)

    A flow that does not converge is NaN, and a warning names it.

    Args:
        made, foils, mach, degrees, names: as of `foil_inputs`.
        device: where to solve; left out, on the GPU if there is one.
        progress: show a bar; or called as progress(stage, done, total), in flows.
        store: folder to keep solved flows in as they are made, and to take those from that are there.
    """
    problem, nodes, streams = _flown(made, foils, mach, degrees, names)
    chosen = find_device(device or "auto")
    with telling(progress) as tell, _kept(problem, store, chosen, "coarsen", "tolerance", "max_steps") as kept:
        found = problem.tunnel.around(nodes, torch.from_numpy(streams), chosen, tell, kept)
    if len(failed := np.flatnonzero(~found["converged"])):
        reached = ", ".join(f"{_called(names, number)} ({found['residual'][number]:.0e})" for number in failed[:10])
        warnings.warn(
            f"{len(failed)} of {len(nodes)} flows did not converge to {problem.tolerance:g} in {problem.max_steps} "
            f"steps and are NaN; with the residual reached: {reached}",
            RuntimeWarning,
            stacklevel=2,
        )
    targets = problem.targets_of(found["fields"])
    targets[failed] = np.nan
    return targets


def _flown(
    made: Problem, foils: Any, mach: ArrayLike | None, degrees: ArrayLike | None, names: Sequence[str]
) -> tuple[Airfoil, Tensor, np.ndarray]:
    """The problem, the meshes (n, 2, I, J) and the streams (n, 2) of foils, in float64."""
    if not isinstance(made, Airfoil):
        raise SpecError(f"foils are inputs of the problem airfoil; got {type(made).__name__}; give that problem")
    wake, cells, normal = made.cells
    surfaces = _surfaces(foils, cells, names)
    named = {"mach": (mach, made.mach, "mach_range"), "degrees": (degrees, 0.0, "incidence_range")}
    streams = np.tile([made.mach, 0.0], (len(surfaces), 1))
    for which, (name, (value, usual, wider)) in enumerate(named.items()):
        streams[:, which] = values = _one_for_each(name, usual if value is None else value, len(surfaces))
        if streams[:, 0].min() <= 0:
            raise DataError(f"a Mach number must be above 0; got {streams[:, 0].min():g}; give another")
        if which not in made.conditions and (values != usual).any():
            raise SpecError(
                f"{name} is no input of this problem, whose flows all have {usual:g}; got "
                f"{values[values != usual][0]:g}; leave it out, or train on data whose {wider} is above 0"
            )
        if len(beyond := np.flatnonzero(beyond_streams(made, streams)[:, which])):
            warnings.warn(
                f"{name} of {_called(names, beyond[0], 'foil')} is {values[beyond[0]]:g}, where the problem's own are "
                f"{usual:g} +- {getattr(made, wider):g}: an operator that was trained on these has not seen the like",
                stacklevel=3,
            )
    nodes = grid_around(surfaces, wake, normal)
    if len(folded := np.flatnonzero(orientation(nodes)[1])):
        raise DataError(
            f"the mesh around {_called(names, folded[0], 'foil')} folds; give a smoother one, or a problem of larger "
            "coarsen"
        )
    return made, nodes, streams


def beyond_streams(made: Airfoil, streams: np.ndarray) -> np.ndarray:
    """Which Mach numbers and angles (n, 2) are none that the problem's own flows have."""
    reach = np.array([made.mach_range, made.incidence_range]) * (1 + 1e-6)
    return np.abs(streams - [made.mach, 0.0]) > reach


@contextmanager
def _kept(
    problem: Airfoil | Plasticity, store: str | Path | None, device: torch.device, *parameters: str
) -> Iterator[KeptSamples]:
    """Where solved samples of one's own shapes are kept: those of the same values of these parameters in one folder."""
    if store is None:
        yield KeptSamples()
        return
    solution = {"own": problem.name, **{name: getattr(problem, name) for name in parameters}}
    solution |= of_revision(problem.solver_revision)
    folder = Path(store) / f"{problem.name}-own-{fingerprint(solution)}"
    with in_turn(folder):
        yield KeptSamples(folder, solution, str(device))


def _surfaces(foils: Any, cells: int, names: Sequence[str]) -> Tensor:
    """Foils at the places of the mesh, (n, 2, cells + 1)."""
    several = isinstance(foils, list | tuple | np.ndarray) and len(foils) > 0 and np.ndim(foils[0]) == 2
    whole = [_numbers("foils", one) for one in (foils if several else [foils])]
    if not several and whole[0].shape[-1:] == (_DESIGN,):
        return airfoil(torch.from_numpy(_finite("designs", whole[0].reshape(-1, _DESIGN))), cells)
    found = []
    for number, one in enumerate(whole):
        try:
            found.append(through(_outline(one), cells))
        except DataError as error:
            told = several or len(names) > 0
            raise DataError(f"{_called(names, number, 'foil')}: {error}" if told else str(error)) from None
    return torch.cat(found)


def _outline(points: np.ndarray) -> np.ndarray:
    """Points of a foil, checked, its chord from 0 to 1, its upper side first and its trailing edge closed."""
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < LEAST_POINTS:
        raise DataError(
            f"expected designs (n, {_DESIGN}) or points (k, 2) of a foil, at least {LEAST_POINTS}; got "
            f"{points.shape}; one row has x and y of a point"
        )
    left, right = _finite("points", points)[:, 0].min(), points[:, 0].max()
    if abs(left) > _OFF or abs(right - 1) > _OFF:
        raise DataError(
            f"a foil reaches from x = 0 to x = 1, in chords; got {left:.4g} to {right:.4g}; move and scale it"
        )
    x, y = _one_of_each_x((points - [left, 0.0]) / (right - left)).T
    nose = int(x.argmin())
    x[[0, -1]] = np.where(x[[0, -1]] > 1 - _OFF, 1.0, x[[0, -1]])
    first, second = slice(None, nose + 1), slice(nose, None)
    turned = np.flatnonzero(np.diff(x) * np.where(np.arange(len(x) - 1) < nose, 1, -1) >= 0)
    if len(turned) or not (1 < nose < len(x) - 2 and x[0] == x[-1] == 1):
        where = f"x = {x[0]:.4g} at first, {x[nose]:.4g} at the nose, {x[-1]:.4g} in the end"
        if len(turned):
            back = turned[0]
            where = f"x = {x[back]:.4g} and then {x[back + 1]:.4g}, on the {'first' if back < nose else 'second'} side"
        raise DataError(
            "the points of a foil must run from its trailing edge to its nose, x falling, and back on the other side, "
            f"x rising; got {where}; put them in that order"
        )
    stations = np.linspace(0.02, 0.98, 49)
    thick = np.interp(stations, x[first][::-1], y[first][::-1]) - np.interp(stations, x[second], y[second])
    if (thick < 0).all():
        return _outline(np.stack((x, y), 1)[::-1])
    if (thick <= 0).any():
        raise DataError(f"the sides of a foil cross or touch, at x = {stations[thick <= 0][0]:.2f}; mend its points")
    middle, gap = (y[0] + y[-1]) / 2, y[0] - y[-1]
    if abs(gap) > _LARGEST_GAP:
        raise DataError(
            f"a trailing edge may be open by {_LARGEST_GAP} chords, which are closed; got {gap:.4g}; close it"
        )
    for part, end in ((slice(None, nose), y[0]), (slice(nose, None), y[-1])):
        y[part] -= (end - middle) * x[part]
    return np.stack((x, y), 1)


def _one_of_each_x(points: np.ndarray) -> np.ndarray:
    """The mean of neighbours that have the same x, as rounded ones have; of a blunt trailing edge both corners."""
    cuts = np.flatnonzero(np.diff(points[:, 0]) != 0) + 1
    runs = np.split(points, cuts)
    return np.stack([runs[0][-1], *(run.mean(0) for run in runs[1:-1]), runs[-1][0]])


def die_inputs(
    made: Problem, heights: ArrayLike, places: ArrayLike | None = None, names: Sequence[str] = ()
) -> np.ndarray:
    """What `predict` takes for dies: volumes (n, 1, I, J, 20), or frames (n 20, 2, I, J), by the problem's form.

    Dies are splines through their heights, as all dies of the problem, and touch the block in the first frame: they are
    moved up or down to where they do. A spline may go beyond its heights, by a lot where they change at once.

    Args:
        made: the problem of the operator's data, a Plasticity.
        heights: (n, p), or (p,) of one die, at 4 places or more, in mm, from left to right.
        places: where they are, (p,) in mm from 0 to 50, increasing; equally spaced if left out. Those of the problem's
            own dies are `hofno.problems.dies.KNOTS`.
        names: what dies are called in messages; their numbers if left out.
    """
    problem, heights, along = _touching(made, heights, places, names)
    profiles = problem.profiles(heights, along)
    unseen = profiles.min(1) - (HEIGHT + ORIGIN[1])
    if len(narrow := np.flatnonzero(unseen > _UNSEEN)):
        raise DataError(
            f"the lowest {unseen[narrow[0]]:.2g} mm of {_called(names, narrow[0], 'die')} lie between nodes, which are "
            f"{WIDTH / (problem.nodes[0] - 1):g} mm apart: no network can see them; give a blunter die, or train on a "
            "problem of smaller coarsen"
        )
    return inputs_of(profiles, problem.form, problem.nodes[1])


def die_targets(
    made: Problem,
    heights: ArrayLike,
    places: ArrayLike | None = None,
    device: str | None = None,
    progress: bool | Progress = False,
    store: str | Path | None = None,
    names: Sequence[str] = (),
) -> np.ndarray:
    """The blocks that the problem's solver finds under dies, as `predict` of `die_inputs` gives them.

    Blocks are solved eight at a time: one costs nearly as much. A block whose elements are too large for its die, so
    that this goes in between their nodes, is NaN, and a warning names it.

    Args:
        made, heights, places, names: as of `die_inputs`.
        device, progress, store: as of `foil_targets`; progress is told in frames of blocks.
    """
    problem, heights, along = _touching(made, heights, places, names)
    chosen, of_solver = find_device(device or "auto"), ("coarsen", "refine", "poisson_ratio", "hourglass")
    with telling(progress) as tell, _kept(problem, store, chosen, *of_solver) as kept:
        pressed, account = problem.simulate_dies(heights, along, chosen, tell, kept)
    if len(inside := np.flatnonzero(account.edges > _INSIDE)):
        size = WIDTH / (problem.nodes[0] - 1) / problem.refine
        warnings.warn(
            f"{len(inside)} of {len(account.edges)} blocks are NaN, since their dies are too sharp for elements of "
            f"{size:g} mm; the first is {_called(names, inside[0])}, whose die went {account.edges[inside[0]]:.2g} mm "
            "in between nodes; a problem of larger refine or smaller coarsen has smaller ones",
            RuntimeWarning,
            stacklevel=2,
        )
        pressed.frames[inside] = np.nan
    return pressed.arrays(problem.form).y


def _touching(
    made: Problem, heights: ArrayLike, places: ArrayLike | None, names: Sequence[str]
) -> tuple[Plasticity, np.ndarray, np.ndarray]:
    """The problem, heights (p, n) above the block of dies that touch it, and where they are, (p,)."""
    if not isinstance(made, Plasticity):
        raise SpecError(f"dies are inputs of the problem plasticity; got {type(made).__name__}; give that problem")
    wanted = np.atleast_2d(_finite("heights", _numbers("heights", heights)))
    if wanted.ndim != 2 or wanted.shape[1] < 4:
        raise DataError(f"expected heights (n, p) of dies at 4 or more places; got {wanted.shape}; give more of them")
    count = wanted.shape[1]
    along = np.linspace(0, WIDTH, count) if places is None else _finite("places", _numbers("places", places))
    if along.shape != (count,) or (np.diff(along) <= 0).any() or along[0] != 0 or along[-1] != WIDTH:
        raise DataError(
            f"the places of {count} heights must increase from 0 to {WIDTH:g} mm; got shape {along.shape}"
            + (f": {', '.join(f'{place:g}' for place in along.ravel()[:20])}" if along.size else "")
            + "; give one for each height, the ends of the block among them"
        )
    everywhere = Die(along, wanted.T, SPEED).profiles(np.linspace(0, WIDTH, 2001))
    beyond = np.maximum(everywhere.max(1) - wanted.max(1), wanted.min(1) - everywhere.min(1))
    if len(wild := np.flatnonzero(beyond > np.ptp(wanted, 1))):
        low, high = everywhere[wild[0]].min(), everywhere[wild[0]].max()
        warnings.warn(
            f"the spline through the heights of {_called(names, wild[0], 'die')}, {wanted[wild[0]].min():g} to "
            f"{wanted[wild[0]].max():g} mm, reaches from {low:.3g} to {high:.3g} mm; give more heights, at distances "
            "that change slowly",
            stacklevel=3,
        )
    return made, wanted.T - everywhere.min(1), along


def _called(names: Sequence[str], number: int, kind: str = "") -> str:
    """A shape in a message: by its name, or by kind and number."""
    return names[number] if len(names) else f"{kind} {number}".strip()


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.array(values, dtype=float, order="C")
    except (TypeError, ValueError):
        raise DataError(f"{name} must be numbers in rows of one length; got others; repair them") from None


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    if len(wrong := np.argwhere(~np.isfinite(values))):
        first = tuple(map(int, wrong[0]))
        raise DataError(f"{name}: {len(wrong)} values are NaN or infinite, first at {first}; repair them")
    return values


def _one_for_each(name: str, values: ArrayLike, count: int) -> np.ndarray:
    """One number for each foil."""
    found = _finite(name, _numbers(name, values))
    if found.shape not in ((), (1,), (count,)):
        raise DataError(f"{name} must be one number, or one for each of {count} foils; got shape {found.shape}")
    return np.broadcast_to(found, (count,))
