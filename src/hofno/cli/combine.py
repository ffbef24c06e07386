"""`hofno combine`: several finished runs as one operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hofno.cli.options import print_table
from hofno.errors import CheckpointError, SpecError
from hofno.storage.runs import is_finished, runs_of_study


def combine(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of finished runs on the same data, or of a study. Two or more."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the operator goes.")],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Of a study: only the runs so called, of all seeds. Repeatable."),
    ] = None,
) -> None:
    """Join finished runs to one operator that predicts the mean of their predictions, and print its test errors.

    The mean usually errs less than each run, at the cost of all of them. How far they lie apart gives every prediction
    an error bound of its own. FOLDER is a saved model: hofno predict, hofno export and hofno.load take it.
    """
    from hofno import stages, storage
    from hofno.cli.expect import what_was_kept
    from hofno.evaluation.outcomes import Outcomes, beside_validation
    from hofno.evaluation.score import kept_bound, score
    from hofno.evaluation.spread import spreads_of
    from hofno.models.registry import parameter_counts
    from hofno.problems.registry import problem
    from hofno.saved import load
    from hofno.show import choose_show, progress_on
    from hofno.train.combine import combine as join

    if out.exists():
        raise SpecError(f"{out} exists already; choose another --out")
    chosen = _finished(runs, only or [])
    specs = [stages.read_spec(path) for path in chosen]
    first = specs[0]
    for path, spec in zip(chosen, specs, strict=True):
        if spec.data_hash != first.data_hash:
            raise SpecError(f"{path} was trained on other data than {chosen[0]}; join runs on the same data")
    members = [load(path, first.device) for path in chosen]
    data = stages.make_data(first, progress_on(choose_show(True)))
    operator = join(members, data)
    rows, errors = [], []
    for path, spec, member in zip(chosen, specs, members, strict=True):
        errors.append(float(score(member, data.test).rel_l2.mean()))
        count = parameter_counts(member.model)["real"]
        rows.append([spec.label or path.name, str(spec.seed), f"{errors[-1]:.6g}", f"{count:,}"])
    spreads = spreads_of(operator)
    asked = Outcomes(problem(first.data.problem, first.data.parameters).outcomes)
    scores = score(operator, data.test, spreads=spreads, outcomes=asked)
    count = parameter_counts(operator.model)["real"]
    rows.append(["mean of their predictions", "", f"{float(scores.rel_l2.mean()):.6g}", f"{count:,}"])
    bound, outcomes = kept_bound(operator, scores, spreads), beside_validation(operator, data, asked)
    operator.save(out)
    record: dict[str, Any] = {
        "members": [{"run": str(path), "rel_l2": error} for path, error in zip(chosen, errors, strict=True)],
        "metrics": scores.means(),
        "per_sample": {"rel_l2": scores.rel_l2.tolist()},
        **({"bound": bound} if bound else {}),
        **({"outcomes": {name: found.record() for name, found in outcomes.items()}} if outcomes else {}),
    }
    storage.write_json(out / "evaluation.json", record)
    print_table(f"{out}: {len(data.test)} test samples", ["run", "seed", "rel_l2", "parameters"], rows)
    for line in what_was_kept(bound):
        typer.echo(line)
    typer.echo(f"written to {out}")


def _finished(given: list[Path], only: list[str]) -> list[Path]:
    """The run folders that are meant, each finished, two or more."""
    from hofno import stages

    found: list[Path] = []
    for path in given:
        inside = runs_of_study(path)
        if inside:
            labels = {run: stages.read_spec(run).label or run.name for run in inside}
            kinds = sorted({*labels.values()})
            if unknown := [label for label in only if label not in kinds]:
                raise SpecError(f"{path} has no run called {unknown[0]!r}; there are: {', '.join(kinds)}")
            if not only and len(kinds) > 1:
                raise SpecError(
                    f"{path} is a study of {', '.join(kinds)}; say which with --only, as --only {kinds[0]!r}"
                )
            found += [run for run in inside if not only or labels[run] in only]
        else:
            found.append(path)
    if only and not any(runs_of_study(path) for path in given):
        raise SpecError("--only chooses among the runs of a study; leave it out, or give the folder of a study")
    for path in found:
        stages.read_spec(path)  # says what to do where it is no run
        if not is_finished(path):
            raise CheckpointError(f"{path} has not finished; continue it with: {stages.resume_command(path)}")
    if len(found) < 2:
        raise SpecError(f"combine joins two runs or more; got {len(found)}; train another, with another seed")
    return found
