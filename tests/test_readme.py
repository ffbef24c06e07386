"""The README and the pages of docs/ are true: their Python blocks and hofno commands run, their links lead somewhere.

The blocks of a page are taken in order, in one folder and one namespace:

    python     run
    toml       written to the file that its first line names, # small.toml; without such a line only parsed
    sh         every line that begins with hofno is run, studies and runs with the smaller sizes of `SMALLER`
    sh long    takes a GPU, hours or published files: its commands are parsed, not run
    text       for the reader alone

Commands inside sentences, `hofno show --train`, are parsed too, and the specs that commands name are there.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.core
import typer.main
from typer.testing import CliRunner

from hofno.cli import app
from hofno.models.registry import MODELS
from hofno.problems.registry import PROBLEMS
from hofno.report import paper

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALLER = ("data.train=8", "data.valid=2", "data.test=2", "train.epochs=1", "model.width=8")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem.lower())


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Fenced blocks in order: what stands after the fence, and what is inside."""
    return re.findall(r"^```([^\n]+)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """The words of every hofno command of a shell block; a backslash goes on on the next line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("hofno ")]


def program() -> typer.core.TyperGroup:
    found = typer.main.get_command(app)
    assert isinstance(found, typer.core.TyperGroup)
    return found


def parsed(words: list[str]) -> dict[str, object]:
    """What the command line makes of a command, without running it; an unknown option or value raises."""
    group = program()
    assert words[0] in group.commands, f"there is no hofno {words[0]}"
    if len(words) == 1 or "--help" in words:  # a mention of the command
        return {}
    return group.commands[words[0]].make_context(words[0], list(words[1:]), parent=typer.Context(group)).params


def run_hofno(words: list[str]) -> None:
    """Run a command as the program does, in this process."""
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program shows them, and goes on
            done = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    finally:
        torch.set_num_threads(threads)
    assert done.exit_code == 0, (words, done.output[-800:], done.exception)


def lowered(words: list[str]) -> list[str]:
    """Sizes lowered by --set where a command takes a spec to train."""
    if words[0] not in ("train", "run") or "--resume" in words:
        return words
    return [*words, *(word for setting in SMALLER for word in ("--set", setting))]


def specs_of(words: list[str]) -> list[str]:
    """The specs of specs/ among some words."""
    names = [word.removeprefix("specs/").removesuffix(".toml") for word in words]
    return [name for name in names if re.fullmatch(r"(paper|best|quick|checks)/[\w-]+", name)]


def write_named(text: str) -> None:
    """Parse a TOML block, and keep it as the file that its first line names."""
    tomllib.loads(text)
    if named := re.match(r"# ([\w.-]+\.toml)\n", text):
        Path(named[1]).write_text(text, encoding="utf-8")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the specs and results of the repository, and an input for the README."""
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    shutil.copytree(ROOT / "results", tmp_path / "results")
    np.save(tmp_path / "input.npy", np.zeros((2, 3, 32, 32), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_page
def test_blocks_run_in_order(page: Path, workplace: Path) -> None:
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)
        elif kind == "toml":
            write_named(text)
        elif kind == "sh":
            for words in commands(text):
                run_hofno(lowered(words))
        elif kind == "sh long":
            for words in commands(text):
                parsed(words)
        else:
            assert kind == "text", f"what is a block of {kind!r}?"
    if page.name == "README.md":
        assert (workplace / "my_model" / "model.safetensors").exists()
        assert isinstance(names["y"], np.ndarray)
        assert (workplace / "report" / "index.html").exists()
        assert np.load(workplace / "output.npy").shape == (2, 1, 32, 32)


@each_page
def test_commands_in_sentences_are_commands(page: Path) -> None:
    """Options that were renamed, and specs that are gone, are found here."""
    told = [shlex.split(code)[1:] for code in re.findall(r"`(hofno [^`]+)`", prose(page).replace("\n", " "))]
    for words in [*told, *(words for _, text in blocks(page) for words in commands(text))]:
        parsed(words)
        for name in specs_of(words[1:]):
            assert (ROOT / "specs" / f"{name}.toml").is_file(), (words, name)
    for name in specs_of(re.findall(r"`([^`\s]+)`", prose(page))):
        assert (ROOT / "specs" / f"{name}.toml").is_file(), name


def test_every_command_is_told() -> None:
    """docs/commands.md has a section and an example of each command."""
    page = ROOT / "docs" / "commands.md"
    group = program()
    shown = {words[0] for kind, text in blocks(page) if kind.startswith("sh") for words in commands(text)}
    assert shown == set(group.commands)
    assert {f"hofno-{name}" for name in group.commands} <= set(anchors(page))


@pytest.mark.parametrize(
    ("page", "names"),
    [("data", list(PROBLEMS)), ("models", list(MODELS)), ("paper", list(paper.entries()))],
    ids=["problems", "models", "paper"],
)
def test_tables_of_names_are_whole(page: str, names: list[str]) -> None:
    text = text_of(ROOT / "docs" / f"{page}.md")
    assert [name for name in names if f"`{name}`" not in text and f'"{name}"' not in text] == []


def anchors(page: Path) -> Iterator[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        yield name if name not in seen else f"{name}-{seen[name]}"
        seen[name] = seen.get(name, 0) + 1


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: {target}"
        assert found.is_relative_to(ROOT), f"{page.name}: {target} is outside of the repository"
        assert not anchor or anchor in set(anchors(found)), f"{page.name}: {target} has no such heading"


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w.]+)\)", text_of(ROOT / "README.md")))
    assert linked == {f"docs/{page.name}" for page in PAGES[1:]}


def test_the_make_targets_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.findall(r"^make (\w+)", text_of(ROOT / "README.md"), re.MULTILINE)
    assert {"run", "test"} <= set(found)
    for target in found:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "tables.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
