"""The tables and figures of the paper: every spec and command named exists, and the numbers are those printed."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hofno.cli import app
from hofno.errors import HofnoError
from hofno.report import paper, published

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = list(paper.entries().values())
NAMES = [entry.name for entry in ENTRIES]
SPECS = {path.relative_to(ROOT / "specs").with_suffix("").as_posix() for path in (ROOT / "specs").glob("**/*.toml")}
COMMANDS = sorted({command for entry in ENTRIES for command in entry.commands})


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def test_every_published_spec_belongs_to_something() -> None:
    named = {name for entry in ENTRIES for name in entry.specs}
    assert named <= SPECS, "specs that do not exist"
    assert {name for name in SPECS if name.startswith("paper/")} <= named, "specs that no table or figure names"


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_commands_are_of_its_specs(entry: paper.Entry) -> None:
    """Every spec is run, and to the folder in which `hofno paper --results runs` looks for it."""
    assert entry.commands
    told = [word for command in entry.commands for word in words(command)]
    assert [word for word in told if word in SPECS] == entry.specs
    for command in entry.commands:
        given = words(command)
        if given[1] == "run":
            assert given[given.index("--out") + 1] == f"runs/{given[2]}"
        if given[1] == "paper":
            assert given[2] == entry.name
            assert entry.figure
        if given[1] == "bench":
            assert given[given.index("--json") + 1] == f"runs/{entry.costs}.json"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_parses(command: str) -> None:
    program, name, *arguments = words(command)
    assert program == "hofno"
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, arguments)


def test_a_command_that_is_wrong_does_not_parse() -> None:
    """What the test above would see."""
    group: Any = typer.main.get_command(app)
    with pytest.raises(Exception, match="No such option"):
        group.commands["run"].make_context("run", ["paper/darcy", "--uot", "runs"])


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_published_tables_are_whole(entry: paper.Entry) -> None:
    for table in paper.published_tables(entry):
        assert table.rows
        assert all(len(row) == len(table.header) for row in table.rows)
        assert any(re.search(r"\d", cell) for row in table.rows for cell in row[1:])
    assert bool(paper.published_tables(entry)) == bool(entry.table)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("poisson_p2", ["1", "0.09514 ± 0.00333", "0.00073 ± 0.00020", "0.00036 ± 0.00005", "0.00024 ± 0.00008"]),
        ("table_1", ["LaMO", "1.54M", "1.6e-07", "0.00040", "0.0038"]),
        ("table_1", ["DSFNO", "1.06M", "–", "–", "0.060"]),
        ("main_pipe", ["MSPT", "0.0031"]),
        ("sphere", ["SFNO", "8.23", "0.017", "0.099", "0.30", "0.72", "0.77"]),
        ("structure", ["diagonal + low-rank (128)", "0.0064"]),
        ("efficiency", ["LaMO", "117.10", "10.17", "28.45"]),
        ("spectra_pipe", ["HO-FNO", "0.0054", "0.14126", "1.031456", "1.182214"]),
    ],
)
def test_numbers_as_printed(name: str, row: list[str]) -> None:
    assert row in [found for table in paper.published_tables(paper.entry_of(name)) for found in table.rows]


def test_every_column_of_the_main_table_is_there() -> None:
    assert [entry.table["main_table"] for entry in ENTRIES if "main_table" in entry.table] == list(
        published.benchmarks()
    )


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(HofnoError, match="did you mean main_darcy"):
        paper.entry_of("darcy")
    with pytest.raises(HofnoError, match="did you mean poisson_p3"):
        paper.entry_of("poisson-p3")


def test_measured_by_depth(results: dict[str, Any]) -> None:
    """Orders and depths of a sweep as the published table has them, those that were not run as dashes."""
    results["spec"] = {"sweep": {"model.order": [1, 2, 5], "model.depth": [1, 16]}}
    mse, rel_l2 = paper.measured_tables(paper.entry_of("poisson_p2"), results)
    assert mse.header == ["layers", "FNO (order 1)", "order 2", "order 5"]
    assert mse.rows[1] == ["16", "–", "–", "0.00300 ± 0.00010"]
    assert rel_l2.rows[0] == ["1", "0.300 ± 0.0010", "0.0310 ± 0.0010", "–"]


def test_measured_by_network(results: dict[str, Any]) -> None:
    (table,) = paper.measured_tables(paper.entry_of("main_darcy"), results)
    assert table.header == ["network", "rel. L2", "parameters", "seeds"]
    assert table.rows[1][1:] == ["0.0310 ± 0.0010", "4,000", "3"]


def test_windows_of_a_rollout_stand_before_the_whole(results: dict[str, Any]) -> None:
    results["runs"] = results["runs"][:1]
    results["runs"][0]["metrics"] |= {"one_step_mse": 5.0, "one_step_rel_l2": 0.01, "rollout": 0.6}
    results["runs"][0]["rollout"] = {"rel_l2_per_step": [0.1] * 10 + [0.2] * 15 + [0.3] * 25}
    entry = paper.entry_of("sphere")
    (table,) = paper.measured_tables(entry, results)
    assert table.header[:-2] == paper.published_tables(entry)[0].header
    assert table.rows[0][1:7] == ["5.00", "0.0100", "0.100", "0.200", "0.300", "0.600"]


def test_measured_on_other_grids(results: dict[str, Any]) -> None:
    entry = paper.entry_of("resolution")
    assert paper.measured_tables(entry, results) == []
    for run in results["runs"]:
        run["resolutions"] = {"rel_l2": {"43": 0.02, "211": 0.01}, "trained_at": 211}
    (table,) = paper.measured_tables(entry, results)
    assert [row[0] for row in table.rows] == ["rel. L2 at 43", "rel. L2 at 211", "trained at", "seeds"]
    assert len(table.header) == 1 + 3


def test_costs() -> None:
    members = [
        {"label": "FNO", "epoch_seconds": 12.345, "predict_seconds": 0.5, "peak_bytes": 3_000_000_000},
        {"label": "LaMO", "left_out": "no memory"},
    ]
    entry, airfoil = paper.entry_of("efficiency"), {"title": "Airfoil", "problem": "airfoil", "members": members}
    other = {"title": "Another", "problem": "poisson", "members": members}
    record = {"what": "study", "device_name": "a CPU", "results": [other, airfoil]}
    (table,) = paper.cost_tables(entry, record)
    assert table.title == "measured: Airfoil, on a CPU"
    assert table.rows == [["FNO", "12.3", "0.500", "3.00"], ["LaMO", "no memory", "–", "–"]]
    with pytest.raises(HofnoError, match="expected a file of `hofno bench study`, got one of 'model'"):
        paper.cost_tables(entry, {"what": "model"})
    with pytest.raises(HofnoError, match="got one of 'list'"):
        paper.cost_tables(entry, [])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", paper.DRAWN)
def test_every_figure_is_drawn_from_results_that_hold_it(kind: str, results: dict[str, Any]) -> None:
    entry = next(entry for entry in ENTRIES if entry.figure == kind)
    results["spec"] = {"data": {"degree": 2}, "model": {"order": 2, "depth": 4}}
    spectra = {"power": {name: [1.0, 0.1, 0.01] for name in ("truth", "prediction", "error")}}
    for run in results["runs"]:
        run |= {"resolutions": {"rel_l2": {"43": 0.02, "211": 0.01}, "trained_at": 211}, "spectra": spectra}
    figure = paper.draw(entry, {entry.specs[0]: results} if entry.specs else {})
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=30)
    assert buffer.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["resolution", "spectra_pipe"])
def test_nothing_is_drawn_of_nothing(name: str, results: dict[str, Any]) -> None:
    with pytest.raises(HofnoError, match="got none that hold it"):
        paper.draw(paper.entry_of(name), {"paper/pipe": results})


def test_figures_are_of_a_kind_that_is_drawn() -> None:
    assert {entry.figure for entry in ENTRIES} == {"", *paper.DRAWN}


def test_tables_are_not_drawn() -> None:
    with pytest.raises(HofnoError, match=r"--out does not draw main_darcy; .* drawn are: poisson_layers, "):
        paper.draw(paper.entry_of("main_darcy"), {})
