"""Text that was wrapped by hand, in the width of the terminal: paragraphs of help, and the cards of problems."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from hofno.cli.options import print_table

if TYPE_CHECKING:
    from rich.text import Text

WIDEST = 120
BEGINS = re.compile(r"- |\*\*|#|\|")
"""How a line of a card starts that does not go on with the line before it."""


def joined(text: str) -> str:
    """Each paragraph in one line."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def tell(text: str, indent: int = 0) -> None:
    """A line of prose: in a terminal wrapped to its width, with this indent after the first; elsewhere as it is."""
    if is_terminal():
        width = max(indent + 20, shutil.get_terminal_size().columns)
        text = textwrap.fill(
            text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
    typer.echo(text)


def print_card(card: str) -> None:
    """A card in Markdown as people read it: its bold words bold, its tables as tables, its lines filled."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.width = min(console.width, WIDEST)
    for is_table, lines in groupby(_lines(card), lambda line: line.startswith("|")):
        if is_table:
            header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
            print_table("", header, rows)
            continue
        for line in lines:
            if not line.startswith("- "):
                console.print(_bold(line))
                continue
            item = Table.grid(padding=(0, 1))
            item.add_row("-", _bold(line[2:]))
            console.print(item)
    console.print()


def _lines(card: str) -> Iterator[str]:
    """Headings, paragraphs, items and rows of tables, one in a line; empty ones between paragraphs."""
    held = ""
    for line in card.splitlines():
        if not line.strip() or BEGINS.match(line) or held.startswith(("#", "|")):
            yield from [held] if held else []
            held = line.strip()
            if not held:
                yield ""
        else:
            held = f"{held} {line.strip()}".strip()
    yield from [held] if held else []


def _bold(line: str) -> Text:
    from rich.text import Text

    if line.startswith("#"):
        return Text(line.lstrip("# "), "bold")
    return Text.assemble(*((part, "bold" if index % 2 else "") for index, part in enumerate(line.split("**"))))
