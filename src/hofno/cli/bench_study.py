"""`hofno bench study`: what the networks of studies cost here, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from hofno.cli.options import load_spec
from hofno.errors import SpecError


def bench_studies(
    names: Sequence[str], settings: list[str] | None, reference: str, json_path: Path | None, plot: Path | None
) -> None:
    """Measure, print a table for each study, and write and draw what was asked for."""
    from hofno.bench.bars import draw_studies
    from hofno.bench.curves import check_plot
    from hofno.bench.study import Study, different, reference_of, run_studies
    from hofno.report import published
    from hofno.show import choose_show
    from hofno.storage import check_writable
    from hofno.study import checked_members, name_of

    if not names:
        raise SpecError(
            "hofno bench study needs a SPEC, such as paper/efficiency_airfoil; `hofno list specs` shows all"
        )
    if plot is not None:
        check_plot(plot)
    if json_path is not None:
        check_writable(json_path)
    studies: list[Study] = []
    for name in names:
        spec = load_spec(name, settings)
        named = [
            (name_of(member, {key: value for key, value in cell.items() if key != "train.epochs"}), member)
            for member, cell in checked_members(spec)
        ]
        members = different(named)
        theirs = published.efficiency(spec.data.problem) if spec.published == "efficiency" else {}
        studies.append(Study(spec, members, reference_of(members, reference, name), theirs))
    record = run_studies(studies, json_path, choose_show(True))
    if plot is not None:
        draw_studies(record, plot)
        typer.echo(f"plot: {plot}")
