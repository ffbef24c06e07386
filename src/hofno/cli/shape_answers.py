"""What `hofno shapes` found: a table, a record, arrays and a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hofno import storage
from hofno.cli.expect import STRANGE, Table, bounds_of_outcomes
from hofno.data.dataset import Split
from hofno.data.faint import named
from hofno.data.npy import npy_bytes
from hofno.evaluation.outcomes import numbers_of
from hofno.evaluation.score import COVERAGE
from hofno.problems.quantities import Quantity
from hofno.report.page import Page
from hofno.report.scenes import scene_of
from hofno.study_report import show_sample
from hofno.surrogate import Surrogate
from hofno.versions import versions

if TYPE_CHECKING:
    from hofno.cli.shapes import Asked

DRAWN = 6
"""Shapes that are drawn on a page, the first ones that were solved."""
NUMBERS = "shapes.json"
HEADERS = {"Mach": "Mach", "degrees": "°"}
MARK = "*"


@dataclass
class Answers:
    """Fields, and what comes of them for each shape: `outcomes` predicted and `true`, NaN where a field is no number.

    `strange` is how far inputs lie from those of training, `errors` how far predictions are off; empty if not known.
    `bounds` are of all shapes but those that are `unsure`.
    """

    asked: Asked
    predicted: np.ndarray
    solved: np.ndarray | None
    outcomes: dict[str, list[float]]
    true: dict[str, list[float]]
    bounds: dict[str, float]
    strange: list[float]
    unsure: list[bool]
    errors: list[float]
    notes: list[str]

    @classmethod
    def of(
        cls, run: Path, operator: Surrogate, asked: Asked, found: Tensor, solved: np.ndarray | None, last: slice
    ) -> Answers:
        """From fields of all shapes; `last` are those of which an outcome is taken, one for each shape."""
        predicted, strange, errors = found.numpy(), list[float](), list[float]()
        if operator.experience is not None:
            strange = np.atleast_1d(operator.strangeness(asked.inputs[last])).tolist()
        far = [value > STRANGE for value in strange] or [False] * len(asked.names)
        unsure = [one or other for one, other in zip(far, asked.beyond, strict=True)]
        true = {} if solved is None else _outcomes(asked, solved, last)
        if solved is not None:
            truth, guess = (array.reshape(len(asked.names), -1).astype(float) for array in (solved, predicted))
            errors = (np.linalg.norm(guess - truth, axis=1) / np.linalg.norm(truth, axis=1)).tolist()
        bounds, notes = bounds_of_outcomes(run), list[str]()
        if asked.made.outcomes and not bounds:
            notes.append(
                f"no bounds of these numbers are known: {run} has none from an evaluation on validation samples"
            )
        if len(beyond := torch.tensor(asked.beyond).nonzero().flatten()):
            notes.append(f"in streams that training had none of, so that no bound holds: # {named(beyond)}")
        if len(failed := (~torch.tensor(errors).isfinite()).nonzero().flatten()):
            notes.append(f"not solved, or no number: # {named(failed)}")
        outcomes = _outcomes(asked, predicted, last)
        return cls(asked, predicted, solved, outcomes, true, bounds, strange, unsure, errors, notes)

    def table(self) -> Table:
        """Title, header and rows: what was predicted for each shape, below it what was solved, and bounds of errors."""
        made, asked, rows = self.asked.made, self.asked, list[dict[str, str]]()
        called = {name: str(Quantity(name, outcome.unit)) for name, outcome in made.outcomes.items()}
        bounded = bool(self.bounds) and not all(self.unsure)
        for number, name in enumerate(asked.names):
            row = {"#": str(number) + MARK * self.unsure[number], "shape": name}
            row |= {HEADERS[key]: f"{values[number]:g}" for key, values in asked.conditions.items()}
            row |= {called[key]: _shown(found[number]) for key, found in self.outcomes.items()}
            row |= {"unlike": f"{self.strange[number]:.2f}"} if self.strange else {}
            rows.append(row | ({"error": _shown(self.errors[number], 2)} if self.errors else {}))
            if self.true:
                solved = {called[key]: _shown(found[number]) for key, found in self.true.items()}
                rows.append({"shape": "solved"} | solved)
        if bounded:
            rows.append({"shape": "±"} | {called[key]: _shown(bound, 2) for key, bound in self.bounds.items()})
        title = f"{made.name}: {asked.title}" + f", the last of {made.together} frames" * (made.together > 1)
        title += f"; ±: what {COVERAGE:.0%} of errors stay below" * bounded
        title += f"{', but' if bounded else ';'} not of rows with {MARK}, unlike those of training" * any(self.unsure)
        header = list(rows[0])
        return title, header, [[row.get(key, "") for key in header] for row in rows]

    def record(self) -> list[dict[str, Any]]:
        """The numbers of each shape, as plain values; None is not known, or no number."""
        rows = []
        for number, (name, file) in enumerate(zip(self.asked.names, self.asked.files, strict=True)):
            row: dict[str, Any] = {"shape": name, "file": str(file)}
            row |= {key: values[number] for key, values in self.asked.conditions.items()}
            row["predicted"] = {key: _plain(found[number]) for key, found in self.outcomes.items()}
            row["bounds"] = {key: None if self.unsure[number] else self.bounds.get(key) for key in self.outcomes}
            row["strangeness"] = _plain(self.strange[number]) if self.strange else None
            if self.true:
                row["solved"] = {key: _plain(found[number]) for key, found in self.true.items()}
                row["rel_l2"] = _plain(self.errors[number])
            rows.append(row)
        return rows


def _outcomes(asked: Asked, fields: np.ndarray, last: slice) -> dict[str, list[float]]:
    whole = np.isfinite(fields.reshape(len(asked.names), -1)).all(1)
    x, y = torch.from_numpy(asked.inputs[last]), torch.from_numpy(np.ascontiguousarray(fields[last]))
    found = numbers_of(asked.made.outcomes, x, y)
    return {name: np.where(whole, values, np.nan).tolist() for name, values in found.items()}


def _shown(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if np.isfinite(value) else "-"


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def write(out: Path, run: Path, answers: Answers) -> str:
    """Write everything to a folder; what is there now, in words."""
    arrays = {"inputs": answers.asked.inputs, "predicted": answers.predicted}
    arrays |= {} if answers.solved is None else {"solved": answers.solved}
    for name, array in arrays.items():
        storage.write_bytes(out / f"{name}.npy", npy_bytes(array))
    made, record = answers.asked.made, answers.record()
    told = {"run": str(run), "problem": made.name, "parameters": made.parameters(), "notes": answers.notes}
    storage.write_json(out / NUMBERS, told | {"shapes": record, "versions": versions()})
    if answers.solved is None:
        return f"written to {out}: {', '.join(f'{name}.npy' for name in arrays)}, {NUMBERS}"
    return f"page: {_page(run, answers, answers.solved).write(out)}"


def _page(run: Path, answers: Answers, solved: np.ndarray) -> Page:
    """Numbers of all shapes, and pictures of the first ones that were solved."""
    asked, together, scene = answers.asked, answers.asked.made.together, scene_of(answers.asked.made)
    (title, header, rows), label = answers.table(), _label(run)
    lead = f"What {label} predicts for shapes of one's own (`{asked.made.name}`), beside what the solver finds."
    page = Page(f"{label} on {asked.made.name}: {asked.title}", lead)
    page.section("Numbers")
    page.text(f"{title[:1].upper()}{title[1:]}.")
    page.table(header, rows)
    unlike = ["unlike: how far an input lies from those of training, 1 being the farthest of validation"]
    page.text("\n".join(f"- {note}" for note in unlike * bool(answers.strange) + answers.notes))
    there = [number for number, error in enumerate(answers.errors) if np.isfinite(error)]
    for number in there[:DRAWN]:
        told = [asked.names[number], *(f"{key} {values[number]:g}" for key, values in asked.conditions.items())]
        page.section(", ".join(told))
        of_it = slice(number * together, (number + 1) * together)
        one = Split(torch.from_numpy(asked.inputs[of_it]), torch.from_numpy(np.ascontiguousarray(solved[of_it])))
        show_sample(page, one, {label: answers.predicted[of_it]}, scene, "As solved and as predicted")
    if len(there) > DRAWN:
        page.text(f"The first {DRAWN} of {len(there)} that were solved are drawn.")
    return page


def _label(run: Path) -> str:
    """What the run is called in tables."""
    from hofno.stages import read_spec

    return (read_spec(run).label if (run / "spec.toml").exists() else "") or run.resolve().name
