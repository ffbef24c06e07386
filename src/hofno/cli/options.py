"""Arguments that several commands share, and how a spec is found by its name."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hofno.errors import SpecError

if TYPE_CHECKING:
    from hofno.spec import Spec

SPEC_HELP = "A TOML file, the name of a spec in specs/, or the folder of a run."
SpecName = Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the spec, e.g. train.epochs=10. Repeatable."),
]

LONG = 20
"""Letters from which on a word may be cut in a table."""

BARE_LIST = re.compile(r"\(?[-+.\de]+( *, *[-+.\de]+)+,?\)?")
"""Numbers with commas between them and no brackets around them."""


def spec_folders() -> list[Path]:
    """Where specs are looked for: below the working directory, then those that came with the package.

    Of a package in its checkout these are the folder specs there, also where links of git cannot be made.
    """
    installed = (Path(__file__).parents[level] / "specs" for level in (1, 3))
    own = next((folder.resolve() for folder in installed if folder.is_dir()), None)
    here = Path("specs")
    return [here] if own is None or own == here.resolve() else [here, own]


def spec_files() -> dict[str, Path]:
    """The specs there are, by name."""
    found: dict[str, Path] = {}
    for folder in spec_folders():
        for path in folder.glob("**/*.toml"):
            found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), path)
    return dict(sorted(found.items()))


def find_spec(name: str) -> Path:
    """The file of a spec: the path itself, with .toml, in a folder of specs, or in a run folder."""
    known = [folder / f"{name}.toml" for folder in spec_folders()]
    for path in (Path(name), Path(f"{name}.toml"), *known, Path(name) / "spec.toml"):
        if path.is_file():
            return path
    raise SpecError(_no_spec(name))


def _no_spec(name: str) -> str:
    """What is wrong with the name of a spec that is not there."""
    if Path(name).is_dir():
        if runs := sorted(Path(name).glob("runs/*/spec.toml")):
            return (
                f"{name} is the folder of a study; give the SPEC it was run with, or one of its runs: {runs[0].parent}"
            )
        return (
            f"{name} is a folder without a spec.toml; give a TOML file, or one of those that `hofno list specs` shows"
        )
    known, bare = spec_files(), name.lower().strip("/").removesuffix(".toml")
    if name.endswith(".toml") and bare not in known:
        came = bare.removeprefix("specs/")
        return f"there is no file {name}; {f'one came with hofno: {came}' if came in known else 'check the path'}"
    close = [other for other in known if bare in (other, *other.split("/"))]
    close = close or difflib.get_close_matches(bare, known, n=1)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"there is no spec {name}; {meant}`hofno list specs` shows all"


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
    changed = specs.override(spec, changes) if changes else spec
    if spec.label and changed.model.name != spec.model.name and changed.label == spec.label:
        return specs.override(changed, {"label": changed.model.name})  # the label tells of the other model
    return changed


def load_study(name: str, settings: list[str] | None) -> Spec:
    """As `load_spec`, for all runs of a study: a key that they have values of their own for cannot be set for them."""
    from hofno.spec import key_path

    study, given = load_spec(name, settings), [key_path(key) for key in read_settings(settings)]
    for key, values in study.sweep.items():
        if key_path(key) in given:
            quoted = f"'{key}'" if "." in key else key
            raise SpecError(
                f"--set {key} has no effect: [sweep] gives the runs {key} = {values}; set those instead, as --set "
                f'"sweep.{quoted}={values[:1]}", or leave it out'
            )
    return study


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """A table for people; numbers to the right, and whole also where the terminal is narrower than the table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table, least = Table(title=Text(title, "bold") if title else None, title_justify="left"), 1
    for index, name in enumerate(header):
        column = [row[index] for row in rows]
        numbers = bool(rows) and all(map(_is_number, column))
        words = [*name.split(), *(column if numbers else (word for cell in column for word in cell.split()))]
        width = max((min(len(word), LONG) for word in words), default=0)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold", min_width=width)
        least += width + 3
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=max(Console().width, least)).print(table, crop=False)


def _is_number(text: str) -> bool:
    return text.removeprefix("-")[:1].isdigit() or text in ("", "-", "nan", "\N{EN DASH}")
