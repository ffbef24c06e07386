"""The error of a study against what it sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hofno.report.page import Page
from hofno.report.sweeps import add_sweeps, curves_of, error_against, rate, side_by_side, swept_numbers
from hofno.report.tables import summarise

SWEEP: dict[str, list[Any]] = {"data.train": [80, 20, 40], "model.depth": [1, 4], "seed": [0, 1]}


def run(train: int, depth: int, seed: int, label: str = "", size: float = 1.0) -> dict[str, Any]:
    """A run whose error is size / (depth train), plus a little by its seed."""
    cell = {"data.train": train, "model.depth": depth} | ({"label": label} if label else {})
    error = size / (depth * train) * (1 + 0.1 * seed)
    shared = {"parameters": {"real": 1, "complex_once": 1}, "seconds": 1.0, "spec_hash": "a"}
    return {"label": f"{label or 'own'}, {train}", "cell": cell, "seed": seed, "metrics": {"rel_l2": error}, **shared}


RUNS = [
    run(train, depth, seed, label, size)
    for label, size in (("", 1.0), ("FNO", 5.0))
    for train in SWEEP["data.train"]
    for depth in SWEEP["model.depth"]
    for seed in SWEEP["seed"]
]


def test_only_numbers_with_several_values_make_curves() -> None:
    sweep = {**SWEEP, "model.name": ["fno", "hofno"], "train.lr": [1e-3], "train.augment": [True, False]}
    assert swept_numbers(sweep) == ["data.train", "model.depth"]


def test_curves_are_of_runs_that_differ_in_nothing_else() -> None:
    curves = curves_of(summarise(RUNS), SWEEP, "data.train", "own")
    assert set(curves) == {"own, depth 1", "own, depth 4", "FNO, depth 1", "FNO, depth 4"}
    assert list(curves["FNO, depth 4"]) == [20, 40, 80]
    assert curves["FNO, depth 4"][40].mean == pytest.approx(5 / 160 * 1.05)
    assert set(curves_of(summarise(RUNS), SWEEP, "model.depth", "own")) == {
        f"{label}, train {train}" for label in ("own", "FNO") for train in (20, 40, 80)
    }
    single = [one for one in RUNS if one["cell"]["data.train"] == 20]
    assert curves_of(summarise(single), SWEEP, "data.train", "own") == {}, "one value is no curve"


def test_the_rate_is_told_and_what_twice_as_many_samples_would_give() -> None:
    curve = curves_of(summarise(RUNS), SWEEP, "data.train", "own")["own, depth 1"]
    told = rate("own", curve)
    assert "from 20 to 80 training samples the error falls by the power 1.00 of their number" in told
    assert "at that rate 160 would give 0.00656" in told
    rising = dict(zip(curve, reversed(curve.values()), strict=True))
    assert rate("own", rising) == "", "an error that does not fall has no such rate"


def test_a_page_has_a_figure_for_each_number(tmp_path: Path) -> None:
    rows = summarise(RUNS)
    for by_depth, figures in ((False, 2), (True, 1)):
        page = Page("study", "lead")
        add_sweeps(page, rows, SWEEP, "own", by_depth)
        page.write(tmp_path / str(by_depth))
        text = (tmp_path / str(by_depth) / "report.md").read_text()
        assert text.count("![") == figures
        assert "Test rel. L2 against training samples" in text
        assert ("against layers" in text) == (not by_depth)
        assert text.count("at that rate") == 4
    page = Page("study", "lead")
    add_sweeps(page, rows, {"seed": [0, 1]}, "own")
    page.write(tmp_path / "seeds")
    assert "What is swept" not in (tmp_path / "seeds" / "report.md").read_text()


def test_own_runs_are_judged_where_they_are_best_beside_others_alike() -> None:
    rows = summarise(RUNS)
    nothing, errors = [None] * len(rows), [row.metrics["rel_l2"] for row in rows]
    for valid in (nothing, errors):
        chosen = [rows[index] for index in side_by_side(rows, valid, SWEEP)]
        assert [row.cell.get("label") for row in chosen] == [None, "FNO"]
        assert all((row.cell["data.train"], row.cell["model.depth"]) == (80, 4) for row in chosen)
    worst = [errors[-1 - index] for index in range(len(errors))]  # validation says otherwise than test errors
    own = rows[side_by_side(rows, worst, SWEEP)[0]]
    assert (own.cell["data.train"], own.cell["model.depth"]) != (80, 4)
    others = [row for row in rows if "label" in row.cell]
    assert side_by_side(others, nothing, SWEEP) == []


def test_axes_are_logarithmic_where_values_are_far_apart() -> None:
    rows = summarise(RUNS)
    figure = error_against("training samples", curves_of(rows, SWEEP, "data.train", "own"))
    (axis,) = figure.axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["20", "40", "80"]
    near = {"own": {1.0: rows[0].metrics["rel_l2"], 2.0: rows[1].metrics["rel_l2"]}}
    (axis,) = error_against("order", near).axes
    assert axis.get_xscale() == "linear"
