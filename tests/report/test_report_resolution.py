"""The figure of error against resolution: every curve, every grid, and where training was."""

from __future__ import annotations

import matplotlib
import pytest

from hofno.errors import DataError
from hofno.report.resolution import error_against_resolution

CURVES = {
    "HO-FNO order 2": [{43: 0.02, 85: 0.009, 211: 0.008}, {43: 0.022, 85: 0.0092, 211: 0.0079}],
    "FNO": [{43: 0.03, 85: 0.012, 211: 0.011}],
}
TRAINED = {"HO-FNO order 2": 85, "FNO": 211}


def test_what_is_drawn() -> None:
    figure = error_against_resolution(CURVES, TRAINED)
    (axis,) = figure.axes
    curves = {line.get_label(): line for line in axis.get_lines()}
    assert list(curves["HO-FNO order 2"].get_xdata()) == [43, 85, 211]
    assert list(curves["HO-FNO order 2"].get_ydata()) == pytest.approx([0.021, 0.0091, 0.00795])
    assert list(curves["FNO"].get_ydata()) == pytest.approx([0.03, 0.012, 0.011])
    assert len(axis.collections) == 1  # the spread of two seeds
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["43", "85", "211"]
    assert [text.get_text() for text in axis.texts] == ["trained at 85", "trained at 211"]
    marked = sorted(float(line.get_xdata()[0]) for line in axis.get_lines() if line.get_markersize() > 10)
    assert marked == [85, 211]
    assert "FNO 0.0300 at 43" in figure.get_label()


def test_level_curves_look_level() -> None:
    (axis,) = error_against_resolution({"FNO": [{43: 0.0101, 85: 0.01}]}, {"FNO": 85}).axes
    low, high = axis.get_ylim()
    assert high / low > 1.9


def test_it_leaves_no_settings_behind_and_needs_a_run() -> None:
    before = dict(matplotlib.rcParams)
    error_against_resolution(CURVES, TRAINED)
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(DataError, match="at least one run"):
        error_against_resolution({}, {})
