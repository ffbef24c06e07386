"""Arguments that several commands share, and how a spec is found by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hofno.errors import SpecError

if TYPE_CHECKING:
    from hofno.problems.base import Progress
    from hofno.spec import Spec
    from hofno.train.show import Show

SpecName = Annotated[str, typer.Argument(metavar="SPEC", help="A TOML file, or the name of a spec in specs/.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the spec, e.g. train.epochs=10. Repeatable."),
]

BARE_LIST = re.compile(r"\(?[-+.\de]+( *, *[-+.\de]+)+,?\)?")
"""Numbers with commas between them and no brackets around them."""


def spec_folders() -> list[Path]:
    """Where specs are looked for: below the working directory, then in the checkout the package is installed from."""
    checkout = Path(__file__).parents[3] / "specs"
    folders = [Path("specs")]
    if checkout.is_dir() and checkout != Path("specs").absolute():
        folders.append(checkout)
    return folders


def find_spec(name: str) -> Path:
    """The file of a spec: the path itself, with .toml, or in a folder of specs."""
    tries = [Path(name), Path(f"{name}.toml"), *(folder / f"{name}.toml" for folder in spec_folders())]
    return next((path for path in tries if path.is_file()), Path(name))


def read_settings(settings: list[str] | None) -> dict[str, Any]:
    """The changes that `--set` asks for; the last one of a key counts."""
    from hofno.spec import parse_setting

    changes = dict(parse_setting(text) for text in settings or [])
    for key, value in changes.items():
        if isinstance(value, str) and BARE_LIST.fullmatch(value):
            raise SpecError(
                f"a list is written in brackets; got {key}={value}, try --set '{key}=[{value.strip('(,)')}]'"
            )
    return changes


def load_spec(name: str, settings: list[str] | None) -> Spec:
    """Read a spec and change the keys given with `--set`."""
    from hofno import spec as specs

    spec, changes = specs.load(find_spec(name)), read_settings(settings)
    return specs.override(spec, changes) if changes else spec


def progress_on(show: Show) -> Progress:
    """Progress of data generation, told on the bar or the lines that training uses."""
    begun: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in begun:
            begun.append(stage)
            show.start(stage, total, 0)
        show.advance(done, "samples")
        if done >= total:
            show.stop()

    return progress


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A table for people; numbers to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, "bold"), title_justify="left")
    for index, name in enumerate(header):
        numbers = bool(rows) and all(_is_number(row[index]) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text in ("", "-")
