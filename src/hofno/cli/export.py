"""`hofno export`: a trained operator as one file that runs without hofno."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from hofno.errors import SpecError
from hofno.storage.runs import refuse_several


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run, or of a saved model.")],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where it goes: FILE.onnx or FILE.pt2.")],
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples of every call; any number if left out.")
    ] = None,
    shape: Annotated[
        str,
        typer.Option(
            metavar="N1xN2", help="The grid, or the number of points, of every call; that of training if left out."
        ),
    ] = "",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Frames that a call predicts, for a model in time; one if left out."
            " The file and the time to write it grow with them; a loop over one frame gives the same.",
        ),
    ] = None,
    mask: Annotated[
        bool, typer.Option("--mask", help="At points, also take which of them are there: clouds of up to N points.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a trained operator to one file: raw fields in, raw fields out, normalisers inside.

    FILE.onnx is for ONNX Runtime and others (from the extra "export"), FILE.pt2 for PyTorch without hofno:
    torch.export.load(FILE).module(). Either is run and compared with the operator before it is kept.
    """
    from hofno.deploy import export as write
    from hofno.saved import load

    if target.exists() and not force:
        raise SpecError(f"{target} exists already; give another file, or --force to replace it")
    if shape and re.fullmatch(r"\d+(x\d+)*", shape) is None:
        raise SpecError(f"--shape is a number of points for each axis, such as 85x85; got {shape!r}")
    refuse_several(run)
    asked = tuple(map(int, shape.split("x"))) if shape else None
    off = write(load(run), target, batch=batch, shape=asked, steps=steps, mask=mask)
    size = target.stat().st_size / 1e6
    typer.echo(f"{target}: {size:.2f} MB; differs from the operator by {off:.1e} of what a field varies by")
