"""The program: its global flags, and the commands in the order of a run."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from hofno import __version__
from hofno.cli import combine, describe, export, make, paper, shapes, use
from hofno.cli.failures import OneLineErrors, one_line_warning
from hofno.cli.plain_help import PlainCommand

app = typer.Typer(
    cls=OneLineErrors,
    name="hofno",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: hofno list, hofno show quick/poisson, hofno run quick/poisson --out runs/poisson. "
    "What a spec may say: hofno show --spec, hofno show --train",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hofno {__version__}")
        raise typer.Exit


@app.callback()
def program(
    debug: Annotated[bool, typer.Option("--debug", envvar="HOFNO_DEBUG", help="Show the traceback of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn the solution operators of nonlinear PDEs with higher-order Fourier neural operators."""


for command, epilog in (
    (describe.list_all, "Example: hofno list specs"),
    (
        describe.show,
        "Examples: hofno show quick/poisson --time; hofno show --problem poisson; hofno show --model hofno; "
        "hofno show --train",
    ),
    (make.generate, "Example: hofno generate quick/poisson --set data.train=200"),
    (make.train, "Examples: hofno train quick/poisson --out runs/a; hofno train --resume runs/a"),
    (use.evaluate, "Examples: hofno evaluate runs/a; hofno evaluate runs/a --resolution 85 --resolution 421"),
    (use.predict, "Example: hofno predict runs/a input.npy output.npy"),
    (
        shapes.shapes,
        "Example: hofno shapes runs/a rae2822.dat naca0012.dat --degrees 0 --degrees 1 --solve --out found",
    ),
    (export.export, "Examples: hofno export runs/a model.onnx; hofno export runs/flow flow.pt2 --steps 10"),
    (
        combine.combine,
        "Examples: hofno combine runs/a runs/b --out runs/both; hofno combine runs/study --only FNO --out c",
    ),
    (make.run, "Examples: hofno run quick/poisson --out runs/study --workers 2; hofno run SPEC --out OUT --only FNO"),
    (use.report, "Example: hofno report runs/study"),
    (use.bench, "Examples: hofno bench model --shape darcy; hofno bench study paper/efficiency_airfoil --json a.json"),
    (use.check, "Example: hofno check runs/a"),
    (paper.paper, "Examples: hofno paper main_darcy; hofno paper mode_mixing --out mode_mixing.svg"),
):
    app.command(name="list" if command is describe.list_all else None, cls=PlainCommand, epilog=epilog)(command)


def main() -> None:
    """Entry point of the program `hofno`."""
    warnings.formatwarning = one_line_warning
    app()
