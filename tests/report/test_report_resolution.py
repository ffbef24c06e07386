"""The figure of error against resolution: every curve, every grid, and where training was."""

from __future__ import annotations

import matplotlib
import pytest

from hofno.errors import DataError
from hofno.report.drawing import series_styles
from hofno.report.resolution import curves_of, error_against_resolution, resolution_rows

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


def test_the_grid_of_training_is_named_where_there_are_no_curves() -> None:
    near = {"FNO": [{43: 0.02, 85: 0.01, 86: 0.01}], "U-Net": [{43: 0.02, 85: 0.01, 86: 0.01}]}
    for figure in (
        error_against_resolution(CURVES, TRAINED),
        error_against_resolution(near, {"FNO": 85, "U-Net": 86}),
        error_against_resolution({"FNO": [{43: 0.02, 85: 0.01}]}, {"FNO": 85}),
    ):
        figure.draw_without_rendering()
        (axis,) = figure.axes
        boxes = [text.get_window_extent() for text in axis.texts]
        width, height = figure.get_size_inches() * figure.dpi
        for index, box in enumerate(boxes):
            assert box.y0 >= axis.get_window_extent().y1
            assert box.y1 <= height
            assert 0 <= box.x0 < box.x1 <= width
            assert not any(box.overlaps(other) for other in boxes[:index])


def test_colours_are_those_of_the_study() -> None:
    among = ["U-Net", "HO-FNO order 2", "F-FNO"]
    curve = [{43: 0.02, 85: 0.01}]
    (axis,) = error_against_resolution({"F-FNO": curve, "U-Net": curve}, {"F-FNO": 43, "U-Net": 43}, among).axes
    drawn = {line.get_label(): line.get_color() for line in axis.get_lines()}
    styles = series_styles(among)
    assert [drawn[label] for label in ("F-FNO", "U-Net")] == [styles[label][0] for label in ("F-FNO", "U-Net")]


def record(errors: dict[int, float], trained_at: int) -> dict[str, object]:
    return {"trained_at": trained_at, "rel_l2": {str(n): error for n, error in errors.items()}}


def test_records_become_curves_and_rows() -> None:
    records = [
        ("HO-FNO order 2", record({43: 0.02, 85: 0.01, 141: 0.03}, 85)),
        ("HO-FNO order 2", record({43: 0.04, 85: 0.01}, 85)),
        ("FNO", record({85: 0.05}, 85)),
    ]
    curves, trained = curves_of(records)
    assert curves == {"HO-FNO order 2": [{43: 0.02, 85: 0.01}, {43: 0.04, 85: 0.01}], "FNO": [{85: 0.05}]}
    assert trained == {"HO-FNO order 2": 85, "FNO": 85}
    header, rows = resolution_rows(curves, trained)
    assert header == ["points along each axis", "HO-FNO order 2", "FNO"]
    assert rows == [
        ["rel. L2 at 43", "0.0300 ± 0.014", "–"],
        ["rel. L2 at 85", "0.0100 ± 0.0000", "0.0500"],
        ["trained at", "85", "85"],
        ["seeds", "2", "1"],
    ]


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
