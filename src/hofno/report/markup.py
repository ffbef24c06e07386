"""The little markup of reports: `code` in backticks, **bold** in double stars, paragraphs and "- " lists.

Everything else is text and is escaped, for HTML and for Markdown alike: a model label can hold any character.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable


def inline_html(text: str) -> str:
    """Escaped text with bold and code; line breaks stay, and numbers such as 1e-5 are not broken."""

    def running(piece: str) -> str:
        bold = re.sub(r"\*\*(\S|\S.*?\S)\*\*", r"<strong>\1</strong>", html.escape(piece))
        return re.sub(r"\b\d[\d.]*e-\d+\b", r'<span class="whole">\g<0></span>', bold)

    return _map_code(text.strip(), running, lambda piece: f"<code>{html.escape(piece)}</code>")


def paragraphs_html(text: str) -> str:
    """Paragraphs, and lists where every line begins with "- "."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines and all(line.startswith("- ") for line in lines):
            items = "".join(f"<li>{inline_html(line[2:])}</li>\n" for line in lines)
            parts.append(f"<ul>\n{items}</ul>\n")
        elif paragraph:
            parts.append(f"<p>{inline_html(' '.join(lines))}</p>\n")
    return "".join(parts)


def block_markdown(text: str) -> str:
    """Text for Markdown: its own markup kept; HTML and what else Markdown would read as markup made harmless."""

    def running(piece: str) -> str:
        marked = re.sub(r"[\\\[\]$~]|(?<!\*)\*(?!\*)|(?<!\w)_|_(?!\w)", r"\\\g<0>", piece)
        return marked.replace("&", "&amp;").replace("<", "&lt;")

    return _map_code(text.strip(), running, lambda piece: f"`{piece}`")


def line_markdown(text: str) -> str:
    """The same on one line, for headings, captions and list items."""
    return block_markdown(" ".join(text.split()))


def cell_markdown(text: str) -> str:
    """The same for a table cell: no bare pipe."""
    return line_markdown(text).replace("|", "\\|")


def plain(text: str) -> str:
    """The words alone, on one line."""
    return " ".join(text.replace("**", "").replace("`", "").split())


def _map_code(text: str, running: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Apply `running` to running text and `code` to what stands between backticks."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return "".join(code(piece) if index % 2 else running(piece) for index, piece in enumerate(pieces))
