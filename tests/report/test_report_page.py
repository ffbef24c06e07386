"""The page: one file, nothing loaded, everything escaped, and the same content as Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import HofnoError
from hofno.report import Page, figures

VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that every tag is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.words.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.words[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def example() -> Page:
    page = Page("Poisson & friends", "A lead with **bold** words.")
    page.headline("One layer: 0.0274", "Mean of `3` seeds.\n\n- a point")
    page.facts({"device": "NVIDIA H200", "spec": "`9f2c`"})
    page.section("Results")
    page.text("First <paragraph>.\n\nSecond,\nover two lines.\n\n- one\n- two")
    page.table(["model", "rel. L2"], [["FNO | <b>", "0.300\n(0.327)"], ["**order 2**", "0.0310"]])
    page.section("Curves")
    page.figure(figures.per_sample({"FNO": [0.1, 0.2], 'a "quoted" [label]': [0.3]}), "Errors & more.")
    page.section("More")
    page.figure(figures.per_sample({"FNO": [0.1]}), "Another.")
    return page


def test_files_are_written_and_markdown_refers_to_them(tmp_path: Path) -> None:
    index = example().write(tmp_path / "a" / "report")
    assert index == tmp_path / "a" / "report" / "index.html"
    written = {str(path.relative_to(index.parent)) for path in index.parent.rglob("*") if path.is_file()}
    assert written == {"index.html", "report.md", "figures/figure-01.png", "figures/figure-02.png"}
    text = (index.parent / "report.md").read_text("utf-8")
    pictures = re.findall(r"^!\[.+\]\(([^)]+)\)$", text, re.MULTILINE)
    assert pictures == ["figures/figure-01.png", "figures/figure-02.png"]
    assert all((index.parent / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = example().write(tmp_path).read_bytes()
    assert example().write(tmp_path).read_bytes() == first


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(HofnoError, match="expected a folder"):
        example().write(tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"


def test_page_loads_nothing() -> None:
    source = example().html()
    reader = Reader(source)
    assert not reader.attributes("script")
    for _, attributes in reader.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("data:", "#"))
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"https?://|@import|url\(", source)
    assert "default-src 'none'" in source


def test_structure() -> None:
    reader = Reader(example().html())
    assert reader.words["title"] == reader.words["h1"] == ["Poisson & friends"]
    assert reader.words["h2"] == ["Results", "Curves", "More"]
    assert [link["href"] for link in reader.attributes("a")] == [f"#section-{n}" for n in (1, 2, 3)]
    assert [heading["id"] for heading in reader.attributes("h2")] == [f"section-{n}" for n in (1, 2, 3)]
    assert reader.words["td"] == ["FNO | <b>", "0.300(0.327)", "order 2", "0.0310"]
    assert [cell.get("class") for cell in reader.attributes("td")] == [None, "number", None, "number"]
    assert reader.words["dt"] == ["device", "spec"]
    assert reader.words["dd"] == ["NVIDIA H200", "9f2c"]
    assert " ".join(reader.words["aside"][0].split()) == "One layer: 0.0274 Mean of 3 seeds. a point"
    assert "Second, over two lines." in reader.words["p"]
    assert reader.words["figcaption"] == ["Figure 1. Errors & more.", "Figure 2. Another."]


def test_pictures_have_words() -> None:
    first, second = (image["alt"] or "" for image in Reader(example().html()).attributes("img"))
    assert first == (
        'Panels: share of samples at or below against rel. L2 of one test sample. Series: FNO; a "quoted" [label].'
    )
    assert second.endswith("Series: FNO.")


def test_letters_that_the_font_lacks_are_no_warnings() -> None:
    """Warnings are errors in tests."""
    page = Page("题", "导语")
    page.figure(figures.per_sample({"傅里叶 神经算子": [0.1, 0.2], "مشغل": [0.3]}), "图")
    assert "傅里叶" in page.html()


def test_few_sections_need_no_contents() -> None:
    page = Page("t", "l")
    page.section("One")
    page.section("Two")
    assert not Reader(page.html()).attributes("nav")


def test_markdown() -> None:
    text = example().markdown()
    assert text.startswith("# Poisson &amp; friends\n\nA lead with **bold** words.\n\n> **One layer: 0.0274**\n")
    assert "\n> Mean of `3` seeds.\n>\n> - a point\n" in text
    assert "\n- device: NVIDIA H200\n- spec: `9f2c`\n" in text
    assert "\nFirst &lt;paragraph>.\n" in text
    assert "| FNO \\| &lt;b> | 0.300 (0.327) |" in text
    assert 'Series: FNO; a "quoted" \\[label\\].](figures/figure-01.png)' in text


def test_markdown_reads_no_markup_in_labels() -> None:
    page = Page("t", "l")
    page.text("a_b*c*d, [l](u), _x_, $y$, ~z~, \\| and **bold** `a*b*c`")
    page.table(["model"], [["*x* | [y]"]])
    text = page.markdown()
    assert r"a_b\*c\*d, \[l\](u), \_x\_, \$y\$, \~z\~, \\| and **bold** `a*b*c`" in text
    assert r"| \*x\* \| \[y\] |" in text


@given(st.text(st.characters(codec="utf-8", exclude_characters="*`\r\x00"), max_size=40))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    page = Page(text, "lead")
    page.section(text)
    page.table(["h"], [[text]])
    page.facts({"name": text})
    reader = Reader(page.html())
    assert reader.words["h2"] == reader.words["h1"] == reader.words["dd"] == [text.strip()]
    assert reader.words["td"] == [text.strip().replace("\n", "")]
    assert {tag for tag, _ in reader.tags} <= VOID | {
        *("html", "head", "title", "style", "body", "main", "header", "h1", "h2", "p"),
        *("div", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd"),
    }


@given(st.text("<>&\"'*` a-\n", max_size=30))
def test_markup_never_opens_a_foreign_tag(text: str) -> None:
    page = Page("title", text)
    page.headline(text, text)
    page.text(text)
    reader = Reader(page.html())
    inside = [tag for tag, _ in reader.tags if tag not in VOID]
    assert set(inside) <= {
        *("html", "head", "title", "style", "body", "main", "header", "h1"),
        *("aside", "p", "ul", "li", "strong", "code"),
    }


def test_what_scrolls_on_a_narrow_screen_says_so() -> None:
    """A figure that keeps its width has a line that says so up to just the width from which on it fits."""
    style = "".join(Reader(Page("t", "l").html()).words["style"])
    least = re.search(r"\nimg \{[^}]*min-width: (\d+)rem", style)
    until = re.search(r"max-width: (\d+)rem\) \{\n  figure \.scroll::before \{ content: \"scroll sideways", style)
    assert least is not None
    assert until is not None
    beside = 2 * 1.1 + 2 * 0.75  # rem: padding of the page and of the box
    assert 0 <= int(until[1]) - int(least[1]) - beside < 1
