"""The report of a study from its results alone: headline, published numbers beside ours, conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hofno import spec as specs
from hofno.spec import Spec
from hofno.study import gather
from hofno.study_report import write_report

BASE: dict[str, Any] = {
    "name": "study",
    "title": "A study",
    "label": "HO-FNO order 3, depth 1",
    "published": "poisson",
    "data": {"problem": "poisson", "degree": 3},
    "model": {"name": "hofno", "modes": [16, 16], "depth": 1, "order": 3},
}
COMPARE = [
    {"label": "FNO, depth 1", "set": {"model.name": "fno"}},
    {"label": "FNO, depth 4", "set": {"model.name": "fno", "model.depth": 4}},
]


def results_of(spec: Spec, errors: list[float]) -> dict[str, Any]:
    records = [
        {
            "label": member.label,
            "seed": member.seed,
            "metrics": {"rel_l2": error, "mse": error**2 * 1e-6, "mse_standardised": error**2},
            "parameters": {"real": 1000, "complex_once": 700},
            "seconds": 1.5,
            "epochs": 100,
            "spec_hash": member.run_hash,
            "device": "a device",
            "versions": {"hofno": "0"},
        }
        for (member, _), error in zip(spec.members(), errors, strict=True)
    ]
    return gather(spec, records, 3.0)


def report(tmp_path: Path, spec: Spec, errors: list[float]) -> str:
    page = write_report(tmp_path, results_of(spec, errors))
    assert page.read_text().startswith("<!doctype html>")
    return (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(("own", "words"), [(0.05, "10.0 times lower than"), (1.0, "2.0 times higher than")])
def test_the_headline_compares_with_the_first_other(tmp_path: Path, own: float, words: str) -> None:
    text = report(tmp_path, specs.parse({**BASE, "compare": COMPARE}), [own, 0.5, 0.2])
    headline = next(line for line in text.splitlines() if line.startswith("> **"))
    assert "HO-FNO order 3, depth 1" in headline
    assert words in headline
    assert "FNO, depth 1" in headline


def test_the_headline_of_a_sweep_is_its_lowest_error(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "seed": [0, 1]}})
    text = report(tmp_path, spec, [0.9, 0.7, 0.02, 0.04])
    headline = next(line for line in text.splitlines() if line.startswith("> **"))
    assert "order 3" in headline
    assert "0.0300" in headline
    assert "2 seeds" in text


def test_published_numbers_stand_beside_ours(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "model.depth": [1, 2]}})
    text = report(tmp_path, spec, [0.9, 0.8, 0.05, 0.03])
    assert "(0.0503 ± 0.0024)" in text, "the published value of order 3 at depth 1"
    assert "4 of 20 cells measured" in text
    assert "easier map" in text, "the periodic grid is not the published one"


def test_the_conditions_are_there(tmp_path: Path) -> None:
    text = report(tmp_path, specs.parse(BASE), [0.5])
    for fact in ("a device", "hofno 0", "generated, problem poisson"):
        assert fact in text
