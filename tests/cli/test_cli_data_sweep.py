"""Studies whose runs have different data: the report shows a sample to those that it is one of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from hofno.report import figures

SPEC = """
[data]
problem = "poisson"
resolution = 16
k_min = 2
k_max = 4
waves = 4
train = 4
valid = 2
test = 2

[model]
name = "hofno"
modes = [2, 2]
width = 4
depth = 1

[train]
epochs = 1
batch_size = 4

[sweep]
"""


@pytest.mark.parametrize(
    ("sweep", "drawn", "told"),
    [
        ('"data.degree" = [1, 2]', ["s, degree 1"], True),
        ('"data.seed" = [1, 2]', ["s, seed 1"], True),
        ('"data.train" = [4, 3]', ["s, train 4", "s, train 3"], False),
    ],
)
def test_a_sample_is_shown_to_models_of_its_data(
    hofno: Callable[..., Result],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sweep: str,
    drawn: list[str],
    told: bool,
) -> None:
    """The count of training samples changes no test sample."""
    draw, seen = figures.fields, list[list[str]]()
    monkeypatch.setattr(
        figures, "fields", lambda *given, **more: (seen.append(list(given[2])), draw(*given, **more))[1]
    )
    (folder / "s.toml").write_text(SPEC + sweep)
    result = hofno("run", "s.toml", "--out", "study")
    assert result.exit_code == 0, (result.output, result.exception)
    assert seen == [drawn]
    text = (folder / "study" / "report.md").read_text(encoding="utf-8")
    assert ("models whose data have other samples are left out" in text) == told
