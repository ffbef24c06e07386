"""`hofno paper`: the tables and figures of the paper, their numbers printed and measured, and what makes them here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hofno.cli.options import print_table, spec_files, spec_folders
from hofno.cli.prose import tell
from hofno.errors import SpecError

if TYPE_CHECKING:
    from hofno.report.paper import Entry
    from hofno.spec import Spec

RESULTS = "results"


def paper(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which table or figure; a list if left out.")] = "",
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Measured numbers: SPEC.json or SPEC/results.json in it, such as paper/darcy.json. The folder "
            f"{RESULTS} beside the specs if left out.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the figure NAME instead (.svg, .png or .pdf).")
    ] = None,
) -> None:
    """List the tables and figures of the paper, or show one: protocol, numbers, and the commands that make it here.

    With --out, figures whose numbers are there are drawn: mode_mixing from our layers, the others from results.
    """
    if not name:
        if results is not None or out is not None:
            raise SpecError("--results and --out are for one table or figure; give its NAME, `hofno paper` lists all")
        _list()
        return
    from hofno.report.paper import entry_of

    entry = entry_of(name)
    folder = _results_folder(results)
    if out is None:
        _show(entry, folder)
        return
    _draw(entry, folder, out)


def _list() -> None:
    from hofno.report.paper import entries

    for entry in entries().values():
        typer.echo(f"{typer.style(entry.name, bold=True)}  ({entry.place})")
        tell(f"    {entry.shows}", indent=4)
        _commands(entry)
    typer.echo("\nhofno paper NAME shows one: its protocol, and its numbers as published and as measured.")


def _commands(entry: Entry) -> None:
    """The commands that make it, and which of their specs are not there."""
    for command in entry.commands:
        typer.echo(f"    {command}")
    if missing := [name for name in entry.specs if name not in spec_files()]:
        told = f"not found here: {', '.join(missing)}; specs are in the folder specs of the repository"
        tell(f"    {told}", indent=4)


def _results_folder(given: Path | None) -> Path | None:
    """Where measured numbers are; None where there are none."""
    if given is None:
        beside = (folder.parent / RESULTS for folder in spec_folders())
        return next((folder for folder in beside if folder.is_dir()), None)
    if not given.is_dir():
        raise SpecError(f"there is no folder {given}; give one that holds results, or leave --results out")
    return given


def _file(folder: Path | None, name: str) -> Path | None:
    """The file with the numbers of this name, if it is there."""
    places = (folder / f"{name}.json", folder / name / "results.json") if folder is not None else ()
    return next((path for path in places if path.is_file()), None)


def _found(entry: Entry, folder: Path | None) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Results files of the entry's specs that are there, with what they hold."""
    from hofno import storage
    from hofno.study_results import check_reportable

    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for name in entry.studies:
        if (file := _file(folder, name)) is not None:
            held = storage.read_json(file)
            check_reportable(held, str(file))
            if held["name"] != name.split("/")[-1]:
                raise SpecError(f"{file} holds results of {held['name']!r}, not of {name}; put them where they belong")
            found[name] = (file, held)
    return found


def _show(entry: Entry, folder: Path | None) -> None:
    from hofno.report.paper import cost_tables, measured_tables, published_tables
    from hofno.storage import read_json

    tell(f"{typer.style(entry.shows, bold=True)}  ({entry.place})")
    tell(f"published: {entry.published}", indent=4)
    tell(f"here: {entry.here}", indent=4)
    typer.echo("")
    printed, found = published_tables(entry), _found(entry, folder)
    costs = _file(folder, entry.costs) if entry.costs else None
    for table in printed:
        print_table(*table)
    if not printed:
        typer.echo("published numbers: none are printed")
    for name, (file, held) in found.items():
        for table in measured_tables(entry, held):
            print_table(*table)
        tell(f"{file}: {_conditions(name, held)}", indent=4)
    if costs is not None:
        for table in cost_tables(entry, read_json(costs)):
            print_table(*table)
        typer.echo(f"from {costs}")
    missing = [name for name in entry.studies if name not in found]
    if missing := missing + ([entry.costs] if entry.costs and costs is None else []):
        tell(f"not measured{f' in {folder}' if folder is not None else ' here'}: {', '.join(missing)}", indent=4)
    typer.echo("\nmade by")
    _commands(entry)


def _conditions(name: str, held: dict[str, Any]) -> str:
    """Under which conditions a file of the results of a spec was measured, in a line."""
    from hofno import spec as specs

    spec = specs.parse(held["spec"], held["name"])
    count, whole = len(held["runs"]), len(spec.members())
    runs = f"{count} of {whole} runs" if count < whole else f"{count} run{'s' * (count > 1)}"
    remark = str(held.get("remark", "")).strip()
    settings = sorted({f"{key} {value}" for run in held["runs"] for key, value in run.get("settings", {}).items()})
    told = f"Some runs with {', '.join(settings)}." if settings else ""
    changed = _changed(spec, name)
    return " ".join(
        filter(None, (f"{runs}, data {held['origin']}, {held['device']}, {held['created']}.", changed, told, remark))
    )


def _changed(spec: Spec, name: str) -> str:
    """In which keys the spec of results differs from the one of that name here."""
    from hofno import spec as specs

    if name not in spec_files():
        return ""
    own, here = spec.plain(), specs.load(spec_files()[name]).plain()
    differ = [
        f"{part}.{key}={own.get(part, {}).get(key)}"
        for part in ("data", "model", "train", "sweep")
        for key in sorted({*own.get(part, {}), *here.get(part, {})})
        if own.get(part, {}).get(key) != here.get(part, {}).get(key)
    ]
    return f"NOT by the spec as it stands here: {', '.join(differ)}." if differ else ""


def _draw(entry: Entry, folder: Path | None, out: Path) -> None:
    from hofno.bench.curves import check_plot, save_figure
    from hofno.report.drawing import in_any_script
    from hofno.report.paper import draw

    check_plot(out)
    found = _found(entry, folder) if entry.figure else {}
    with in_any_script():
        save_figure(draw(entry, {name: held for name, (_, held) in found.items()}), out)
    for name, (file, held) in found.items():
        tell(f"from {file}: {_conditions(name, held)}", indent=4)
    typer.echo(f"figure: {out}")
