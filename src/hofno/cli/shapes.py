"""`hofno shapes`: what an operator says of foils and dies of one's own, and the solver beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from hofno.cli.options import print_table
from hofno.cli.threads import Threads, settle_threads
from hofno.errors import CheckpointError, DataError, SpecError
from hofno.storage.runs import instead_of_a_run, runs_of_study

if TYPE_CHECKING:
    from hofno.problems.airfoil import Airfoil
    from hofno.problems.base import Problem
    from hofno.problems.plasticity import Plasticity
    from hofno.report.page import Page

BATCH = 32
DRAWN = 6
"""Shapes that are drawn on a page, the first ones."""
NUMBERS = "shapes.json"
STREAM = "Mach", "degrees"
UNLIKE = (
    "`unlike` is how far an input lies from those of training, 1 being the farthest of validation; no bound holds far "
    "above 1."
)

Streams = tuple[list[float], list[float]]
"""Mach numbers and angles that are asked for; empty: what the problem has."""


def shapes(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a finished run on airfoil or plasticity, or a saved model."),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SHAPE",
            help="Foils: a file of points for each, in chords, from the trailing edge over the upper side and back "
            "below. Dies: a file of heights in mm from left to right, one die in a line.",
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
    from hofno.cli.expect import outcomes_with_bounds, problem_of, what_to_expect
    from hofno.data.given import what_is_lost
    from hofno.saved import load

    settle_threads(threads)
    if out is not None and out.exists():
        raise SpecError(f"{out} exists already; choose another --out")
    if runs_of_study(run):
        raise CheckpointError(f"{run} is no single model: {instead_of_a_run(run)}")
    operator = load(run, "auto")
    asked = _asked(run, problem_of(run, operator), files, (mach or [], degrees or []))
    fields = operator.asked(asked.inputs, None, None, None).fields
    found = operator.predict_tensor(fields, BATCH)
    last = slice(asked.made.together - 1, None, asked.made.together)  # of the frames of a block
    told = outcomes_with_bounds(run, operator, asked.made, fields[last], found[last])
    answers = Answers(asked, found.numpy(), told, asked.solve() if solve else None)
    if operator.experience is not None:
        answers.strange = np.atleast_1d(operator.strangeness(asked.inputs[last])).tolist()
    print_table(*answers.table())
    if lost := what_is_lost(found):
        typer.echo(lost)
    for line in what_to_expect(operator, asked.inputs[last], None, steps=None):
        typer.echo(line)
    if out is not None:
        typer.echo(_written(out, run, answers))


@dataclass(frozen=True)
class Asked:
    """Shapes in streams: names and conditions (Mach number, degrees) of each, inputs of all, and who solves them."""

    made: Airfoil | Plasticity
    names: list[str]
    conditions: dict[str, list[float]]
    inputs: np.ndarray
    solve: Callable[[], np.ndarray]


def _asked(run: Path, made: Problem | None, files: list[Path], streams: Streams) -> Asked:
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


def _foils(made: Airfoil, files: list[Path], streams: Streams) -> Asked:
    from hofno.data.store import store_folder
    from hofno.problems.shape_files import read_foil
    from hofno.problems.shapes import foil_inputs, foil_targets

    outlines = []
    for path in files:
        outlines.append(read_foil(path))
        try:
            foil_inputs(made, outlines[-1])
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
    flown = list(product(range(len(files)), streams[0] or [made.mach], streams[1] or [0.0]))
    speeds, angles = [speed for _, speed, _ in flown], [angle for _, _, angle in flown]
    given = [outlines[which] for which, _, _ in flown], speeds, angles
    return Asked(
        made,
        [files[which].stem for which, _, _ in flown],
        {STREAM[which]: (speeds, angles)[which] for which in made.conditions},
        foil_inputs(made, *given),
        lambda: foil_targets(made, *given, progress=True, store=store_folder()),
    )


def _dies(made: Plasticity, files: list[Path]) -> Asked:
    from hofno.data.store import store_folder
    from hofno.problems.shape_files import read_dies
    from hofno.problems.shapes import die_inputs, die_targets

    names, read, inputs = [], [], []
    for path in files:
        heights, places = read_dies(path)
        rows = range(1, len(heights) + 1)
        names += [path.stem + f":{row}" * (len(heights) > 1) for row in rows]
        read.append((heights, places))
        try:
            inputs.append(die_inputs(made, heights, places))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
    return Asked(
        made,
        names,
        {},
        np.concatenate(inputs),
        lambda: np.concatenate([die_targets(made, *die, progress=True, store=store_folder()) for die in read]),
    )


@dataclass
class Answers:
    """What was asked, predicted, and, where it was asked for, solved: fields, and what comes of them for each shape."""

    asked: Asked
    predicted: np.ndarray
    outcomes: dict[str, list[tuple[float, float | None]]]
    solved: np.ndarray | None
    strange: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        import torch

        from hofno.evaluation.outcomes import numbers_of

        self.true: dict[str, list[float]] = {}
        self.errors: list[float] = []
        if self.solved is None:
            return
        count, together = len(self.asked.names), self.asked.made.together
        last = slice(together - 1, None, together)
        truth, guess = (array.reshape(count, -1).astype(float) for array in (self.solved, self.predicted))
        x, y = (torch.from_numpy(array[last]) for array in (self.asked.inputs, self.solved))
        for name, found in numbers_of(self.asked.made.outcomes, x, y).items():
            self.true[name] = np.where(np.isfinite(truth).all(1), found, np.nan).tolist()
        self.errors = (np.linalg.norm(guess - truth, axis=1) / np.linalg.norm(truth, axis=1)).tolist()

    def table(self) -> tuple[str, list[str], list[list[str]]]:
        """Title, header and rows: what was predicted for each shape, below it what was solved, and bounds of errors."""
        from hofno.cli.expect import STRANGE
        from hofno.evaluation.score import COVERAGE
        from hofno.problems.quantities import Quantity

        made, asked, rows = self.asked.made, self.asked, list[dict[str, str]]()
        called = {name: str(Quantity(name, made.outcomes[name].unit)) for name in self.outcomes}
        for number, name in enumerate(asked.names):
            row = {"#": str(number), "shape": name}
            row |= {key: f"{values[number]:g}" for key, values in asked.conditions.items()}
            row |= {called[key]: f"{found[number][0]:.4g}" for key, found in self.outcomes.items()}
            row |= {"unlike": f"{self.strange[number]:.2f}"} if self.strange else {}
            rows.append(row | ({"error": f"{self.errors[number]:.2g}"} if self.errors else {}))
            if self.true:
                solved = {called[key]: f"{found[number]:.4g}" for key, found in self.true.items()}
                rows.append({"shape": "solved"} | solved)
        title = f"{made.name}: {len(asked.names)} shape{'s' * (len(asked.names) > 1)}"
        title += f", the last of {made.together} frames" * (made.together > 1)
        bounds = {called[key]: {bound for _, bound in found} - {None} for key, found in self.outcomes.items()}
        if any(bounds.values()):
            rows.append({"shape": "±"} | {key: f"{one:.2g}" for key, found in bounds.items() for one in found})
            title += f"; ±: what {COVERAGE:.0%} of errors stay below, where `unlike` is at most {STRANGE:g}"
        header = list(rows[0])
        return title, header, [[row.get(key, "") for key in header] for row in rows]

    def record(self) -> list[dict[str, Any]]:
        """The numbers of each shape, as plain values; None is not known, or no number."""
        rows = []
        for number, name in enumerate(self.asked.names):
            row: dict[str, Any] = {"shape": name}
            row |= {key: values[number] for key, values in self.asked.conditions.items()}
            row["predicted"] = {key: _plain(found[number][0]) for key, found in self.outcomes.items()}
            row["bounds"] = {key: found[number][1] for key, found in self.outcomes.items()}
            row |= {"strangeness": _plain(self.strange[number])} if self.strange else {}
            if self.true:
                row["solved"] = {key: _plain(found[number]) for key, found in self.true.items()}
                row["rel_l2"] = _plain(self.errors[number])
            rows.append(row)
        return rows


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _written(out: Path, run: Path, answers: Answers) -> str:
    """Write everything to a new folder; what is there now, in words."""
    from hofno import storage
    from hofno.data.npy import npy_bytes
    from hofno.versions import versions

    arrays = {"inputs": answers.asked.inputs, "predicted": answers.predicted}
    arrays |= {} if answers.solved is None else {"solved": answers.solved}
    out.mkdir(parents=True)
    for name, array in arrays.items():
        storage.write_bytes(out / f"{name}.npy", npy_bytes(array))
    made = answers.asked.made
    record = {"problem": made.name, "parameters": made.parameters(), "shapes": answers.record(), "versions": versions()}
    storage.write_json(out / NUMBERS, record)
    if answers.solved is None:
        return f"written to {out}: {', '.join(f'{name}.npy' for name in arrays)}, {NUMBERS}"
    return f"page: {_page(run, answers).write(out)}"


def _page(run: Path, answers: Answers) -> Page:
    """Numbers of all shapes, and pictures of the first ones that were solved."""
    import torch

    from hofno.data.dataset import Split
    from hofno.report.page import Page
    from hofno.report.scenes import scene_of
    from hofno.study_report import show_sample

    assert answers.solved is not None
    asked, together, scene = answers.asked, answers.asked.made.together, scene_of(answers.asked.made)
    title, header, rows = answers.table()
    label = _label(run)
    lead = f"What {label} predicts for shapes of one's own (`{asked.made.name}`), beside what the solver finds."
    page = Page(f"{label} on {asked.made.name}: {len(asked.names)} shape{'s' * (len(asked.names) > 1)}", lead)
    page.section("Numbers")
    page.text(f"{title[:1].upper()}{title[1:]}. {UNLIKE}" if answers.strange else title)
    page.table(header, rows)
    finite = [number for number, error in enumerate(answers.errors) if np.isfinite(error)]
    for number in finite[:DRAWN]:
        told = [asked.names[number], *(f"{key} {values[number]:g}" for key, values in asked.conditions.items())]
        page.section(", ".join(told))
        rows_of = slice(number * together, (number + 1) * together)
        one = Split(torch.from_numpy(asked.inputs[rows_of]), torch.from_numpy(answers.solved[rows_of]))
        show_sample(page, one, {label: answers.predicted[rows_of]}, scene, "As solved and as predicted")
    if len(finite) > DRAWN:
        page.text(f"The first {DRAWN} of {len(finite)} are drawn.")
    return page


def _label(run: Path) -> str:
    """What the run is called in tables."""
    from hofno.stages import read_spec

    return (read_spec(run).label if (run / "spec.toml").exists() else "") or run.name
