"""One page that stands alone: text, facts, tables and figures, as `index.html` and as `report.md`.

`index.html` is a single file with its style and its pictures inside: nothing is loaded from anywhere and no
script runs, so it can be mailed, archived or opened from a disk. `report.md` says the same, with the pictures
under `figures/`. A page that is written again replaces its own files, and no others. Text may hold the markup of
`hofno.report.markup`; everything else in it is escaped.
"""

from __future__ import annotations

import base64
import html
import io
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from hofno.errors import SpecError
from hofno.report.drawing import in_any_script
from hofno.report.film import Film, film_html
from hofno.report.markup import block_markdown, inline_html, line_markdown, paragraphs_html, plain
from hofno.report.tables import markdown, numeric_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 180
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MARK = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
"""Stands at the head of every page that was ever written, and tells it from pages of others."""

REPORT_MARK = "<!-- a report of hofno -->\n"
"""The last line of every `report.md`; readers of Markdown do not show it."""

INDEX, REPORT, FIGURES = "index.html", "report.md", "figures"
SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{mark}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
<header>
<h1>{heading}</h1>
{lead}</header>
{body}</main>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of the page in its two forms."""

    html: str
    markdown: str


class Page:
    """A report under construction. Blocks appear in the order in which they are added.

    `title` heads the page, `lead` is the paragraph under it.
    """

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.lead = lead
        self._blocks: list[Block] = []
        self._pictures: list[bytes] = []
        self._headings: list[str] = []
        self._films = 0

    def headline(self, finding: str, detail: str) -> None:
        """The main finding in a box: a short sentence or a number, and what stands behind it."""
        quoted = [f"**{line_markdown(plain(finding))}**", "", *block_markdown(detail).splitlines()]
        self._add(
            f'<aside class="headline">\n<p class="finding">{inline_html(finding)}</p>\n'
            f"{paragraphs_html(detail)}</aside>\n",
            "".join(f"> {line}".rstrip() + "\n" for line in quoted),
        )

    def remark(self, text: str) -> None:
        """What a reader of the numbers should know, set apart from the rest."""
        marked = f"**Remark.** {text.strip()}"
        quoted = "".join(f"> {line}".rstrip() + "\n" for line in block_markdown(marked).splitlines())
        self._add(f'<aside class="remark">\n{paragraphs_html(marked)}</aside>\n', quoted)

    def section(self, heading: str) -> None:
        """A heading; what is added next belongs to it."""
        self._headings.append(heading)
        anchor = f"section-{len(self._headings)}"
        self._add(f'<h2 id="{anchor}">{inline_html(heading)}</h2>\n', f"## {line_markdown(heading)}\n")

    def text(self, text: str) -> None:
        """One or more paragraphs or lists."""
        self._add(paragraphs_html(text), block_markdown(text) + "\n")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table that scrolls inside its box where it is wider than the page."""
        source = markdown(header, rows)
        classes = [' class="number"' if right else "" for right in numeric_columns(rows, len(header))]

        def line(cells: Sequence[str], tag: str) -> str:
            parts = [
                f"<{tag}{kind}>{inline_html(cell).replace(chr(10), '<br>')}</{tag}>"
                for cell, kind in zip(cells, classes, strict=True)
            ]
            return f"<tr>{''.join(parts)}</tr>\n"

        body = "".join(line(row, "td") for row in rows)
        self._add(
            f'<div class="scroll" tabindex="0"><table>\n<thead>\n{line(header, "th")}</thead>\n'
            f"<tbody>\n{body}</tbody>\n</table></div>\n",
            source,
        )

    def figure(self, figure: Figure, caption: str) -> None:
        """A picture with its caption; the alternative text names its panels, axes and series."""
        buffer = io.BytesIO()
        with in_any_script():
            figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
        picture = buffer.getvalue()
        self._pictures.append(picture)
        count = len(self._pictures)
        alternative = describe(figure)
        told = line_markdown(alternative)
        width, height = (round(96 * inches) for inches in figure.get_size_inches())
        data = base64.b64encode(picture).decode("ascii")
        self._add(
            f'<figure>\n<div class="scroll" tabindex="0"><img alt="{html.escape(alternative)}" '
            f'width="{width}" height="{height}" src="data:image/png;base64,{data}"></div>\n'
            f"<figcaption><b>Figure {count}.</b> {inline_html(caption)}</figcaption>\n</figure>\n",
            f"![{told}]({_picture_name(count)})\n\n**Figure {count}.** {line_markdown(caption)}\n",
        )

    def film(self, film: Film, caption: str) -> None:
        """A film with its caption. Markdown has no films: there the caption says where it is."""
        self._films += 1
        limits = f"{caption} {film.limits}"
        self._add(
            film_html(film, self._films, f"<b>Film {self._films}.</b> {inline_html(limits)}"),
            f"**Film {self._films}** (in `index.html`). {line_markdown(limits)}\n",
        )

    def facts(self, facts: Mapping[str, object]) -> None:
        """Names and values, such as the conditions of a measurement."""
        items = "".join(
            f"<div><dt>{inline_html(name)}</dt><dd>{inline_html(str(value))}</dd></div>\n"
            for name, value in facts.items()
        )
        lines = [f"- {line_markdown(name)}: {line_markdown(str(value))}\n" for name, value in facts.items()]
        self._add(f'<dl class="facts">\n{items}</dl>\n', "".join(lines))

    def html(self) -> str:
        """The whole of `index.html`."""
        return SHELL.format(
            mark=MARK,
            title=html.escape(plain(self.title)),
            style=resources.files("hofno.report").joinpath("style.css").read_text("utf-8"),
            heading=inline_html(self.title),
            lead=paragraphs_html(self.lead).replace("<p>", '<p class="lead">') + self._contents(),
            body="".join(block.html for block in self._blocks),
        )

    def markdown(self) -> str:
        """The whole of `report.md`."""
        opening = [f"# {line_markdown(self.title)}\n", block_markdown(self.lead) + "\n"]
        return "\n".join([*opening, *(block.markdown for block in self._blocks), REPORT_MARK])

    def write(self, folder: Path) -> Path:
        """Write `index.html`, `report.md`, `figures/*.png` into `folder`; return the path of the first.

        At every moment the files on the disk are known as those of a page: the index comes first, then what names the
        pictures, then the pictures. Those that an earlier page had and this one has not are removed.
        """
        from hofno.storage import write_bytes

        pictures = {_picture_name(count): picture for count, picture in enumerate(self._pictures, start=1)}
        check_page_folder(folder, pictures)
        earlier = _own_files(folder)
        write_bytes(folder / INDEX, self.html().encode("utf-8"))
        for name in earlier - {INDEX, REPORT, *pictures}:
            (folder / name).unlink(missing_ok=True)
        write_bytes(folder / REPORT, self.markdown().encode("utf-8"))
        for name, picture in pictures.items():
            write_bytes(folder / name, picture)
        return folder / INDEX

    def _add(self, as_html: str, as_markdown: str) -> None:
        self._blocks.append(Block(as_html, as_markdown))

    def _contents(self) -> str:
        """Links to the sections, where there are enough to want them."""
        if len(self._headings) < 3:
            return ""
        links = "".join(
            f'<a href="#section-{index}">{inline_html(heading)}</a>\n'
            for index, heading in enumerate(self._headings, start=1)
        )
        return f'<nav aria-label="Sections">\n{links}</nav>\n'


def is_page_folder(folder: Path) -> bool:
    """Whether a page was written to the folder earlier."""
    return bool(_own_files(folder))


def check_page_folder(folder: Path, pictures: Collection[str] = ()) -> None:
    """Refuse a folder in which a page, with `pictures` if these are known, would replace files of someone else."""
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"expected a folder for the report, got the file {folder}; choose another name")
    own = _own_files(folder)
    for name in (INDEX, REPORT, *sorted(pictures)):
        if name not in own and os.path.lexists(folder / name):
            raise SpecError(
                f"{folder / name} is in the way of the report and no earlier report wrote it; choose another folder, "
                "or move it away"
            )


def _own_files(folder: Path) -> set[str]:
    """What an earlier page wrote there; its pictures are those that `index.html` counts or `report.md` shows."""
    page, text = _text(folder / INDEX), _text(folder / REPORT)
    own: set[str] = set()
    if MARK in page[: len(SHELL) + len(MARK)]:
        own = {INDEX, REPORT, *(_picture_name(int(n)) for n in re.findall(r"<figcaption><b>Figure (\d+)\.</b>", page))}
    if own or text.endswith(REPORT_MARK):  # those of earlier versions have no mark, only their pages have
        own |= {REPORT, *re.findall(rf"\]\(({FIGURES}/figure-[0-9]+\.png)\)", text)}
    return own


def _text(file: Path) -> str:
    """A file's text; none if it cannot be read."""
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def describe(figure: Figure) -> str:
    """A picture in words: its own label, or else the titles, axis labels and series of its panels."""
    if figure.get_label():
        return str(figure.get_label())
    parts: list[str] = []
    for axis in figure.axes:
        title, x, y = axis.get_title(), axis.get_xlabel(), axis.get_ylabel()
        against = f"{y} against {x}" if x and y else x or y
        parts += [": ".join(part for part in (title, against) if part)] if axis.get_visible() else []
    named = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    panels = "; ".join(dict.fromkeys(part for part in parts if part)) or "a picture without labels"
    return f"Panels: {panels}." + (f" Series: {'; '.join(named)}." if named else "")


def _picture_name(count: int) -> str:
    return f"{FIGURES}/figure-{count:02d}.png"
