"""`hofno shapes`: what an operator says of foils and dies of one's own, and the solver beside it."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from hofno.cli.options import print_table
from hofno.cli.threads import Threads, settle_threads
from hofno.cli.use import BATCH
from hofno.errors import SpecError
from hofno.storage.runs import refuse_several

if TYPE_CHECKING:
    from hofno.problems.airfoil import Airfoil
    from hofno.problems.base import Problem
    from hofno.problems.plasticity import Plasticity


def shapes(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a finished run on airfoil or plasticity, or a saved model."),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SHAPE",
            help="Foils: a file of points for each, from the trailing edge over the upper side and back below. Dies: a "
            "file of heights in mm from left to right, one die in a line.",
        ),
    ],
    mach: Annotated[
        list[float] | None,
        typer.Option(metavar="M", help="Mach number far away; that of the problem if left out. Repeatable."),
    ] = None,
    degrees: Annotated[
        list[float] | None, typer.Option(metavar="A", help="Angle of attack; 0 if left out. Repeatable.")
    ] = None,
    solve: Annotated[
        bool, typer.Option("--solve", help="Also solve each by the problem's own solver, and say how far off RUN is.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write inputs, predictions and numbers there; with --solve also a page."),
    ] = None,
    threads: Threads = None,
) -> None:
    """Predict for foils or dies of your own: lift, drag, how far a block slides, and what errors to expect.

    Every foil is flown in all streams of --mach and --degrees, for which RUN must have been trained on the like. What
    was solved stays in the store (HOFNO_DATA, or .hofno/data), and an interrupted command goes on from there.
    """
    from hofno.cli.expect import has_bounds, problem_of, what_to_expect
    from hofno.cli.shape_answers import Answers, write
    from hofno.data.given import what_is_lost
    from hofno.saved import load

    settle_threads(threads)
    refuse_several(run)
    with _new_folder(out):
        operator = load(run, "auto")
        asked = _asked(run, problem_of(run, operator), files, (mach or [], degrees or []))
        fields, moments = operator.asked(asked.inputs, None, None, None).fields, None
        if has_bounds(operator, None):
            found, moments = operator.predict_apart(fields, BATCH)
        else:
            found = operator.predict_tensor(fields, BATCH)
        last = slice(asked.made.together - 1, None, asked.made.together)  # of the frames of a block
        solved = asked.solve() if solve else None
        answers = Answers.of(run, operator, asked, found, solved, last)
        answers.notes += filter(None, [what_is_lost(found)])
        answers.notes += what_to_expect(operator, asked.inputs[last], None, steps=None, moments=moments)
        print_table(*answers.table())
        for line in answers.notes:
            typer.echo(line)
        if out is not None:
            typer.echo(write(out, run, answers))


@dataclass(frozen=True)
class Asked:
    """Shapes, foils in each of the streams, and who solves them.

    `names`, `files`, `conditions` (Mach number, angle) and `beyond`, streams other than those of training, are by row.
    """

    made: Airfoil | Plasticity
    title: str
    names: list[str]
    files: list[Path]
    conditions: dict[str, list[float]]
    beyond: list[bool]
    inputs: np.ndarray
    solve: Callable[[], np.ndarray]


@contextmanager
def _new_folder(out: Path | None) -> Iterator[None]:
    """A folder that is there from the start, so that nothing is computed for one that cannot be, and goes on errors."""
    if out is None:
        yield
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out} exists already; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _asked(run: Path, made: Problem | None, files: list[Path], streams: tuple[list[float], list[float]]) -> Asked:
    from hofno.problems.airfoil import Airfoil
    from hofno.problems.plasticity import Plasticity

    if isinstance(made, Airfoil):
        return _foils(made, files, streams)
    if isinstance(made, Plasticity):
        if any(streams):
            raise SpecError(f"--mach and --degrees are for foils, and {run} is of plasticity; leave them out")
        return _dies(made, files)
    known = f"is of {made.name}" if made is not None else "does not say of which problem it is"
    raise SpecError(f"shapes are inputs of the problems airfoil and plasticity, and {run} {known}; give another run")


def _foils(made: Airfoil, files: list[Path], streams: tuple[list[float], list[float]]) -> Asked:
    from hofno.data.store import store_folder
    from hofno.problems.shape_files import read_foil
    from hofno.problems.shapes import beyond_streams, foil_inputs, foil_targets

    outlines, called = [read_foil(path) for path in files], _called(files)
    flown = list(product(range(len(files)), streams[0] or [made.mach], streams[1] or [0.0]))
    speeds, angles = [speed for _, speed, _ in flown], [angle for _, _, angle in flown]
    given = [outlines[which] for which, _, _ in flown], speeds, angles
    told = [f"{called[which]} at Mach {speed:g} and {angle:g}°" for which, speed, angle in flown]

    def solve() -> np.ndarray:
        with _without(".*has not seen the like"):
            return foil_targets(made, *given, progress=True, store=store_folder(), names=told)

    with _without(".*has not seen the like"):  # a note says so of all of them
        inputs = foil_inputs(made, *given, names=[str(files[which]) for which, _, _ in flown])
    streams_of = {"Mach": speeds, "degrees": angles}
    beyond = list(map(bool, np.any(beyond_streams(made, np.stack((speeds, angles), 1)), 1)))
    return Asked(
        made,
        f"{_count(len(files), 'foil')}, {_count(len(flown), 'flow')}",
        [called[which] for which, _, _ in flown],
        [files[which] for which, _, _ in flown],
        {key: streams_of[key] for which, key in enumerate(streams_of) if which in made.conditions},
        beyond,
        inputs,
        solve,
    )


def _dies(made: Plasticity, files: list[Path]) -> Asked:
    from hofno.data.store import store_folder
    from hofno.problems.shape_files import read_dies
    from hofno.problems.shapes import die_inputs, die_targets

    names, of_files, groups, inputs = list[str](), list[Path](), dict[object, _Group](), []
    for path, called in zip(files, _called(files), strict=True):
        heights, places = read_dies(path)
        rows = [f":{row}" * (len(heights) > 1) for row in range(1, len(heights) + 1)]
        inputs.append(die_inputs(made, heights, places, names=[str(path) + row for row in rows]))
        group = groups.setdefault((heights.shape[1], None if places is None else tuple(places)), _Group(places))
        group.heights.append(heights)
        group.names += [called + row for row in rows]
        group.rows += range(len(names), len(names) + len(heights))
        names += [called + row for row in rows]
        of_files += [path] * len(heights)

    def solve() -> np.ndarray:
        blocks: dict[int, np.ndarray] = {}
        for group in groups.values():
            with _without("the spline through"):  # the inputs said so, by file
                given = np.concatenate(group.heights), group.places
                found = die_targets(made, *given, progress=True, store=store_folder(), names=group.names)
            blocks |= dict(zip(group.rows, np.split(found, len(group.rows)), strict=True))
        return np.concatenate([blocks[row] for row in range(len(names))])

    count = len(names)
    return Asked(made, _count(count, "die"), names, of_files, {}, [False] * count, np.concatenate(inputs), solve)


@contextmanager
def _without(said: str) -> Iterator[None]:
    """Without the warnings of shapes that begin like this."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", said)
        yield


@dataclass
class _Group:
    """Dies with heights at the same places, which are solved together."""

    places: np.ndarray | None
    heights: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


def _called(files: list[Path]) -> list[str]:
    """Short names of files, where these tell them apart."""
    short = [path.stem for path in files]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, files, strict=True)]


def _count(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"
